"""The clips of a study that listeners hear, and those with tones for attention trials."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.batch.complete import STUDY_NAME
from app.batch.listening import ListeningConfig
from app.batch.manifest import NAME, Row
from app.errors import CommandError
from app.listening.clips import read_study
from relpe.models.config import CheckpointError, from_plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEDIA_TYPES = {".wav": "audio/wav", ".flac": "audio/flac"}
TONES = 3
"""Number of tones that interrupt a clip; between two of them there is as much silence."""
TONE_HERTZ = 880.0
TONE_SECONDS = 0.35
TONE_LEVEL = 0.12
TONES_AT = 0.5
"""Where they begin, as a part of the length."""
_RAMP_SECONDS = 0.01


@dataclass(frozen=True)
class Material:
    """A study with its clips; an item is a prompt, or without prompts a repetition."""

    folder: Path
    title: str
    seed: int
    listening: ListeningConfig
    conditions: tuple[str, ...]
    items: tuple[str, ...]
    clips: Mapping[tuple[int, int], tuple[Row, ...]]
    """By the numbers of condition and item: a clip for each repetition."""

    @cached_property
    def rows(self) -> dict[str, Row]:
        """All clips by their names in the manifest."""
        return {row.file: row for rows in self.clips.values() for row in rows}

    def clip(self, condition: int, item: int, turn: int) -> Row:
        """Return the clip of a condition and an item; the repetitions take turns."""
        rows = self.clips[condition, item]
        return rows[turn % len(rows)]


def read_material(folder: Path) -> Material:
    """Read a study that `relpe batch` has made.

    Raises CommandError if it is not complete, has no audio, or if files are missing.
    """
    if not (folder / STUDY_NAME).is_file():
        raise CommandError(
            f"{folder}: found no {STUDY_NAME}, expected a folder that relpe batch STUDY.yaml has "
            "completed; run it first"
        )
    study = read_study(folder)
    try:
        listening = from_plain(ListeningConfig, study.listening, "listening")
    except CheckpointError as error:
        raise CommandError(f"{folder / STUDY_NAME}: {error}") from error
    rows = sorted(study.rows.values(), key=lambda row: row.file)
    if not rows:
        raise CommandError(f"{folder / NAME}: found no clips; run relpe batch with --resume")
    for row in rows:
        if not row.audio:
            raise CommandError(
                f"{folder}: the clips have no audio; set audio: wav in the study, and make it again"
            )
        if not (folder / row.audio).is_file():
            raise CommandError(
                f"{folder / row.audio}: this file is missing; run relpe batch with --resume"
            )
    conditions = study.conditions
    items = tuple(dict.fromkeys(sorted(map(_item, rows))))
    clips: dict[tuple[int, int], tuple[Row, ...]] = {}
    for condition_index, condition in enumerate(conditions):
        for item_index, item in enumerate(items):
            cell = [row for row in rows if row.condition == condition and _item(row) == item]
            if not cell:
                raise CommandError(
                    f"{folder / NAME}: found no clip of the condition {condition!r} for {item}; "
                    "run relpe batch with --resume"
                )
            cell.sort(key=lambda row: int(row.repetition))
            clips[condition_index, item_index] = tuple(cell)
    return Material(folder, study.title, study.seed, listening, conditions, items, clips)


def _item(row: Row) -> str:
    """Return the name of the item of a clip, as `Material` has it."""
    return row.prompt or f"repetition {int(row.repetition):04d}"


def with_tones(path: Path) -> bytes:
    """Return a clip as a WAV file in which tones replace the music for about two seconds."""
    import soundfile

    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    tones = _tones(rate)
    begin = int(TONES_AT * len(samples))
    tones = tones[: len(samples) - begin]
    end, ramp = begin + len(tones), int(_RAMP_SECONDS * rate)
    corners = [begin - ramp, begin, end, end + ramp]
    gain = np.interp(np.arange(len(samples)), corners, [1, 0, 0, 1])  # without clicks
    samples *= gain[:, None].astype(np.float32)
    samples[begin:end] += tones[:, None]
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def _tones(rate: int) -> NDArray[np.float32]:
    """Return silence and a tone in turns, with silence at both ends (samples,)."""
    times = np.arange(int(TONE_SECONDS * rate)) / rate
    ends = np.minimum(times, TONE_SECONDS - times) / _RAMP_SECONDS
    tone = TONE_LEVEL * np.sin(2 * np.pi * TONE_HERTZ * times) * np.clip(ends, 0, 1)
    gap = np.zeros_like(tone)
    return np.concatenate([gap, *[tone, gap] * TONES]).astype(np.float32)
