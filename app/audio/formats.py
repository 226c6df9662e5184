"""The audio formats that are written, by their suffixes; loads no audio library."""

from __future__ import annotations

from typing import Literal, get_args

AudioFormat = Literal["flac", "wav", "ogg"]
AUDIO_FORMATS: tuple[AudioFormat, ...] = get_args(AudioFormat)
CONTAINERS: dict[str, tuple[str, str]] = {
    "flac": ("FLAC", "PCM_16"),
    "wav": ("WAV", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
}
"""Format and subtype of each, by libsndfile's names."""
AUDIO_SUFFIXES = tuple(f".{name}" for name in AUDIO_FORMATS)
