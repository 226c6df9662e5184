"""The errors that an input causes, of all packages: their messages are for the user."""

from __future__ import annotations

from app.audio.synth.soundfont import SoundError
from app.compose.replay import ReplayError
from app.server.line import BusyError
from relpe.models.checkpoint import CheckpointError
from tokenization.errors import MidiError, TokenizerError

INPUT_ERRORS = (MidiError, TokenizerError, CheckpointError, SoundError, BusyError, ReplayError)
"""One sentence each; any other error is a bug."""
