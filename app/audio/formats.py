"""Audio formats by file suffix. This module imports no audio library."""

from __future__ import annotations

from typing import Literal, get_args

AudioFormat = Literal["flac", "wav", "ogg"]
AUDIO_FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)
CONTAINERS: dict[str, tuple[str, str]] = {
    "flac": ("FLAC", "PCM_16"),
    "wav": ("WAV", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
}
"""Format and subtype of each format, as named by libsndfile."""
AUDIO_SUFFIXES = tuple(f".{name}" for name in AUDIO_FORMATS)
