"""The longest piece that can be rendered. This module imports no audio library."""

from __future__ import annotations

from app.audio.synth.soundfont import SoundError

MAX_SECONDS = 1800.0  # 635 MB of 44,100 Hz stereo, most of the memory for rendering


def check_length(seconds: float) -> None:
    """Raise SoundError if a piece is too long to be rendered."""
    if seconds > MAX_SECONDS:
        raise SoundError(
            f"the piece lasts {seconds / 60:.0f} minutes, expected at most "
            f"{MAX_SECONDS / 60:.0f} for audio; choose fewer bars, or write only MIDI"
        )
