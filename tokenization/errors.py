"""Errors that a user's input causes."""


class MidiError(ValueError):
    """A MIDI file cannot be used; the message says what was found and what to do."""


class TokenizerError(ValueError):
    """A tokenizer's file or configuration is invalid, or a plan or document cannot be encoded."""
