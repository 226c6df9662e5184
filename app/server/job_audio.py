"""The sound of jobs, which is rendered when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from app.audio import stems
from app.audio.stems import SoundFiles, in_use
from app.player.frames import track_ids

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from app.compose.piece import Piece
    from tokenization.score import Score, Track


class SoundSource(NamedTuple):
    """A score to render, and where its files go."""

    score: Score
    ids: list[int]
    """Ids of the tracks in the frames."""
    folder: Path
    name: str
    """File name without suffix."""

    def find(self, kind: str, without: Collection[int] = ()) -> Path | None:
        """Return the file of this kind if it exists, otherwise None."""
        files = SoundFiles(self.folder, self.name, stems.places_of(self.score, self.ids))
        path = files.archive if kind == "stems" else files.mix(without, f".{kind}")
        return path if in_use(path) else None

    def file(self, kind: str, without: Collection[int] = (), soundfont: Path | None = None) -> Path:
        """Return the path of a sound file, which is made if it does not exist.

        Args:
            kind: one of SOUND_KINDS.
            without: ids of tracks that are left out; archives of stems contain all tracks.
            soundfont: None: the General MIDI one.

        Raises:
            SoundError: it cannot be rendered or written.
        """
        if path := self.find(kind, without):
            return path
        sound = stems.render(self.score, self.folder, self.name, ids=self.ids, soundfont=soundfont)
        try:
            return sound.zip() if kind == "stems" else sound.mix(without, f".{kind}")
        finally:
            sound.drop()


def ids_in_frames(piece: Piece, whole: Score | None) -> list[int]:
    """Return the ids in the frames of the tracks of a finished piece.

    Tracks of the file are matched by chunk, channel and program; new tracks of the same instrument
    by the order in which they were generated.
    """
    numbers = (
        {} if whole is None else dict(zip(map(_place, whole.tracks), track_ids(whole), strict=True))
    )
    waiting: dict[tuple[int, bool], list[int]] = {}
    for track, number in zip(piece.new.tracks, track_ids(piece.new, whole), strict=True):
        if len(track) and _place(track) not in numbers:
            waiting.setdefault((track.program, track.is_drum), []).append(number)
    ids: list[int] = []
    for track in piece.score.tracks:
        number = numbers.get(_place(track))
        if number is None:
            of_instrument = waiting.get((track.program, track.is_drum)) or [-1]
            number = of_instrument.pop(0) if len(of_instrument) > 1 else of_instrument[0]
        ids.append(number)
    return ids


def _place(track: Track) -> tuple[int | None, int, int]:
    return track.chunk, track.channel, track.program
