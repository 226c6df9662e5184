"""Errors that a user's input causes."""

from __future__ import annotations

from tokenization.errors import MidiError, TokenizerError


class UserError(Exception):
    """An error that the user's input caused; the message is one sentence for the user."""


class CommandError(UserError):
    """A command cannot do what it was asked to."""


class BusyError(UserError):
    """Too many requests are waiting already."""


def input_errors() -> tuple[type[Exception], ...]:
    """`UserError` and what the other packages raise for input; any other error is a bug."""
    from relpe.models.checkpoint import CheckpointError  # imports PyTorch

    return (UserError, MidiError, TokenizerError, CheckpointError)
