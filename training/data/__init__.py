"""MIDI files to corpora of tokens."""
