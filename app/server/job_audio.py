"""The sound of one job: rendered when it is asked for, and again where it was dropped meanwhile."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from app.audio import stems
from app.audio.sound_files import SoundFiles, in_use
from app.player.frames import track_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from app.audio.stems import Stems
    from app.compose.piece import Piece
    from tokenization.score import Score, Track

SOUND_KINDS = ("flac", "wav", "ogg", "stems")
"""Kinds of files that are sound; `stems` is an archive of all tracks apart."""
SECONDS_BETWEEN_PARTS = 0.25
"""Least time between two frames while sound is made."""


class Heard(NamedTuple):
    """What is played."""

    score: Score
    ids: list[int]
    """Of its tracks, in the frames."""
    folder: Path
    name: str
    """Of its files, without suffix."""


@dataclass
class Raw:
    """Stems on the disk, many times larger than what is made of them."""

    stems: Stems
    size: int
    """Bytes."""
    used: float
    """When, on the clock that never goes back."""


class JobSound:
    """The sound of a job's variations, each by its number.

    Files stay; raw sound is there until it is dropped, and rendered again when it is missed.
    """

    def __init__(self, heard: Callable[[int], Heard], soundfont: Path | None) -> None:
        """`heard` says what a variation is, and raises LookupError where there is none."""
        self._heard, self._soundfont = heard, soundfont
        self._raw: dict[int, Raw] = {}
        self._making: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)

    @property
    def raw(self) -> dict[int, Raw]:
        """All raw sound that is there."""
        return dict(self._raw)

    def has(self, variation: int) -> bool:
        """Whether it is rendered, so that a mix of it takes no time."""
        return variation in self._raw

    def drop(self, variation: int | None = None) -> None:
        """Removes the raw sound of a variation, or of all; who mixes it right now still can."""
        for number in list(self._raw) if variation is None else [variation]:
            if raw := self._raw.pop(number, None):
                raw.stems.drop()

    def find(self, variation: int, kind: str, without: Collection[int] = ()) -> Path | None:
        """A file that was made before; None where there is none. Raises LookupError."""
        heard = self._heard(variation)
        files = SoundFiles(heard.folder, heard.name, stems.places_of(heard.score, heard.ids))
        path = files.archive if kind == "stems" else files.mix(without, f".{kind}")
        return path if in_use(path) else None

    def file(self, variation: int, kind: str, without: Collection[int] = ()) -> Path:
        """A file of a kind of SOUND_KINDS, without some tracks by their ids; not so an archive.

        Raises:
            LookupError: there is no such variation.
            SoundError: it cannot be rendered or written.
        """
        if path := self.find(variation, kind, without):
            return path
        made = self.render(variation)
        with self._making[variation, kind]:
            return made.zip() if kind == "stems" else made.mix(without, f".{kind}")

    def render(self, variation: int, progress: Callable[[float], None] | None = None) -> Stems:
        """Its raw sound, made where it is not there. Raises as `file`."""
        score, ids, folder, name = self._heard(variation)
        with self._making[variation]:
            raw = self._raw.get(variation)
            if raw is None:
                made = stems.render(
                    score, folder, name, ids=ids, soundfont=self._soundfont, progress=progress
                )
                raw = self._raw[variation] = Raw(made, made.size, 0.0)
            raw.used = time.monotonic()
            return raw.stems


class _GivenUpError(Exception):
    """The work is not wanted any more."""


def in_parts(
    work: Callable[[Callable[[float], None]], None], stop: Callable[[], bool]
) -> Iterator[float]:
    """Does work that tells how far it is: the part that is done, now and then.

    It ends early where `stop` says so, or the iterator is closed; what it raises is raised here.
    """
    news: SimpleQueue[float | BaseException | None] = SimpleQueue()
    closed = threading.Event()
    told = time.monotonic()

    def report(done: float) -> None:
        nonlocal told
        if closed.is_set() or stop():
            raise _GivenUpError
        if time.monotonic() - told >= SECONDS_BETWEEN_PARTS:
            told = time.monotonic()
            news.put(done)

    def run() -> None:
        try:
            work(report)
            news.put(None)
        except _GivenUpError:
            news.put(None)
        except BaseException as error:  # noqa: BLE001 - whoever asks for the next part gets it
            news.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while (part := news.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield part
    finally:
        closed.set()
        thread.join()


def ids_as_heard(piece: Piece, whole: Score | None) -> list[int]:
    """Of each track of a finished piece its id in the frames.

    Those of the file are known by their place; new ones stand in the piece in the order in which
    they were written, one after the other of each instrument.
    """
    known = (
        {} if whole is None else dict(zip(map(_place, whole.tracks), track_ids(whole), strict=True))
    )
    waiting: dict[tuple[int, bool], list[int]] = {}
    for track, number in zip(piece.new.tracks, track_ids(piece.new, whole), strict=True):
        if len(track) and _place(track) not in known:
            waiting.setdefault((track.program, track.is_drum), []).append(number)
    ids: list[int] = []
    for track in piece.score.tracks:
        number = known.get(_place(track))
        if number is None:
            of_instrument = waiting.get((track.program, track.is_drum)) or [-1]
            number = of_instrument.pop(0) if len(of_instrument) > 1 else of_instrument[0]
        ids.append(number)
    return ids


def _place(track: Track) -> tuple[int | None, int, int]:
    return track.chunk, track.channel, track.program
