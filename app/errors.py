"""Errors caused by user input."""

from __future__ import annotations

from tokenization.errors import MidiError, TokenizerError


class UserError(Exception):
    """An error caused by user input; the message is written for the user."""


class CommandError(UserError):
    """A command cannot be carried out."""


class BusyError(UserError):
    """Too many requests are waiting."""


class DiskError(UserError):
    """Files of the page cannot be written; the message contains no path."""

    def __init__(self, error: OSError, what: str = "music") -> None:
        """Describe that `what` cannot be written."""
        super().__init__(
            f"The {what} cannot be saved ({error.strerror or type(error).__name__}); the disk of "
            "the computer that runs the page may be full"
        )


def input_errors() -> tuple[type[Exception], ...]:
    """Return the errors of this and other packages for invalid input; any other error is a bug."""
    from relpe.models.checkpoint import CheckpointError  # imports PyTorch

    return (UserError, MidiError, TokenizerError, CheckpointError)
