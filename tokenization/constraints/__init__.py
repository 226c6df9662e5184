"""What guides sampling beyond the grammar: a limit on the bars, and biases of the logits.

A grammar says which token may follow. `rule.py` composes one with a `BarLimit`, which ends the
music, and with any number of biases, which make tokens more or less likely and never allow what the
grammar forbids. All of it is immutable: advancing by a token returns a new value.
"""
