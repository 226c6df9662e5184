"""Limits and biases that guide sampling, in addition to the grammar.

A grammar determines which tokens may follow. `rule.py` combines it with a `BarLimit`, which ends
the music, and with any number of biases, which make tokens more or less likely but never allow one
that the grammar forbids. All of these are immutable: advancing by a token returns a new object.
"""
