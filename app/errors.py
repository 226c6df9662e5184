"""The errors that an input causes, of all packages: their messages are for the user."""

from __future__ import annotations

from app.line import BusyError
from app.replay import ReplayError
from app.soundfont import SoundError
from relpe.checkpoint import CheckpointError
from tokenization.errors import MidiError, TokenizerError

INPUT_ERRORS = (MidiError, TokenizerError, CheckpointError, SoundError, BusyError, ReplayError)
"""One sentence each; any other error is a bug."""
