"""Conversion of MIDI files to corpora of tokens, and training examples."""
