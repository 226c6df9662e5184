"""Errors caused by a user's input."""


class MidiError(ValueError):
    """A MIDI file cannot be used; the message says what was found, expected, and what to do."""


class TokenizerError(ValueError):
    """A tokenizer's file or configuration is invalid."""
