"""Renders music while it is being written, in parts that follow each other without a gap."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.audio.length import check_length
from app.audio.loudness import CEILING, gain_for
from app.audio.render import Audio, cannot_write, save_audio
from app.audio.synth.mixer import Mixer
from app.audio.synth.soundfont import default_soundfont, open_soundfont
from app.files import RAW_SOUND

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenization.score import Score

LEAD_SECONDS = 10.0
"""Music before the first part that determines the loudness; notes that end earlier are left out."""
PART_SECONDS = 4.0
"""Longest part: a short one is soon ready when much music is written at once."""
LATE_SECONDS = 1.0
"""Time from the end of a bar's generation until a browser can play its sound, at most."""
STEADY = 0.8
"""The speed that is counted on, as a part of the speed so far."""
_RAMP_SECONDS = 0.03


class Part(NamedTuple):
    """The sound of some bars."""

    path: Path
    begin: float
    """In seconds of the piece."""
    seconds: float


class GrowingSound:
    """The sound of a piece of which more and more is written.

    Joined, the parts are the sound of the finished piece, sample by sample, except for their gain.
    It is chosen for the first part, and only lowered if the peak of a later one requires it.
    """

    def __init__(
        self,
        new_folder: Callable[[], Path],
        soundfont: Path | None = None,
        begin_seconds: float = 0.0,
        sample_rate: int = 44100,
    ) -> None:
        """Begin the first part at `begin_seconds`.

        It is written to a folder from `new_folder`.
        """
        self.parts: list[Part] = []
        self.whole = False
        """Whether there are no more parts."""
        self.folder: Path | None = None
        """The result of `new_folder`, once there is a part."""
        self._new_folder, self._soundfont, self._rate = new_folder, soundfont, sample_rate
        self._begin = self._end = round(begin_seconds * sample_rate)
        self._gain = np.float32(0)
        self._raw: Path | None = None

    @property
    def seconds(self) -> float:
        """Duration of all parts."""
        return (self._end - self._begin) / self._rate

    def add(self, score: Score, until: int | None = None) -> bool:
        """Render a part of the music from the last one up to a tick, or to the end and its tail.

        Returns whether there was any; call it again until there is none. Notes that begin before
        `until` must not change later.

        Raises:
            SoundError: the SoundFont cannot be used, or a file cannot be written.
            DiskError: a folder cannot be made.
        """
        start, first = self._end, not self.parts
        if self.whole:
            return False
        next_tick = int(score.ticks_at(start / self._rate + PART_SECONDS))
        if next_tick < (score.end_ticks if until is None else until):
            until = next_tick
        seconds = float(score.seconds_at(score.end_ticks if until is None else until))
        if until is not None and round(seconds * self._rate) <= start:
            return False
        check_length(seconds - self._begin / self._rate)
        font = open_soundfont(self._soundfont or default_soundfont())
        lead = max(0, start - round(LEAD_SECONDS * self._rate))
        score = _between(score, lead / self._rate, until)
        begin = lead if first else start
        mixer = Mixer(score, font, self._rate, (begin + 0.5) / self._rate)
        mixed = mixer.mix()
        if until is not None:
            length = round(seconds * self._rate) - begin
            mixed = np.pad(mixed[:, :length], ((0, 0), (0, max(length - mixed.shape[1], 0))))
        if first:
            self._gain = gain_for(mixed, self._rate)
            mixed = mixed[:, start - begin :]
        self._level(mixed)
        self._end, self.whole = start + mixed.shape[1], until is None
        if mixed.shape[1]:
            path = self._place() / f"{len(self.parts):04d}.flac"
            save_audio(Audio(mixed.T, self._rate, "builtin"), path)
            self.parts.append(Part(path, start / self._rate, mixed.shape[1] / self._rate))
        return True

    def _level(self, mixed: NDArray[np.float32]) -> None:
        """Apply the gain to a part (2, n) in place; a lower one after a short ramp."""
        before, peak = self._gain, float(np.abs(mixed).max(initial=0))
        if peak * before > CEILING:
            self._gain = np.float32(CEILING / peak)
        count = min(round(_RAMP_SECONDS * self._rate), mixed.shape[1])
        mixed[:, :count] *= np.linspace(before, self._gain, count, dtype=np.float32)
        mixed[:, count:] *= self._gain
        np.clip(mixed, -CEILING, CEILING, out=mixed)  # in the ramp

    def _place(self) -> Path:
        """Return the folder of the parts, which is removed like raw sound."""
        if self._raw is None:
            self.folder = self._new_folder()
            try:
                self._raw = self.folder / tempfile.mkdtemp(prefix=RAW_SOUND, dir=self.folder)
            except OSError as error:
                raise cannot_write(error) from error
        return self._raw

    def drop(self) -> None:
        """Remove the files."""
        if self._raw is not None:
            shutil.rmtree(self._raw, ignore_errors=True)


def can_start(ready: float, total: float, unit: float, speed: float) -> bool:
    """Whether music that is still being written can be played without running out of sound.

    Args:
        ready: seconds that can be played already.
        total: seconds of the whole music.
        unit: seconds of the bars that become ready at once.
        speed: seconds of music that are written per second.
    """
    speed *= STEADY
    if ready <= 0 or speed <= 0:
        return False
    left = max(total - ready, 0.0)
    if not left:
        return True
    # the next bars have to come in time, and so have the last ones
    following, last = unit / speed, left / speed - max(left - unit, 0.0)
    return ready >= max(following, last) + LATE_SECONDS


def _between(score: Score, begin: float, until: int | None) -> Score:
    """Return the notes that sound at `begin` seconds or later and begin before a tick."""
    end = score.end_ticks if until is None else until
    tracks = []
    for track in score.tracks:
        notes = track.notes
        heard = score.seconds_at(notes[:, 0] + notes[:, 1]) >= begin
        if until is not None:
            heard &= notes[:, 0] < until
        tracks.append(replace(track, notes=notes[heard]))
    return replace(score, tracks=tuple(tracks), end_ticks=end)
