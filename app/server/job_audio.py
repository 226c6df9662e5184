"""The sound of jobs: rendered on demand, one piece at a time, within limits of disk space."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from app.audio import stems
from app.audio.stems import SoundFiles, in_use
from app.audio.synth.soundfont import SoundError
from app.player.frames import track_ids
from app.server.admission import POLL_SECONDS, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from app.audio.stems import Stems
    from app.compose.piece import Piece
    from tokenization.score import Score, Track

SOUNDS_AT_ONCE = 1
"""Pieces whose sound is rendered at once; each occupies a core and up to 423 MB."""
MOST_CALLS = 24
"""Calls that may wait for sound; each occupies one of the page's 40 threads."""
MOST_CALLS_OF_SESSION = 8
RAW_SECONDS = 300.0
"""How long unused raw sound is kept; muting a track later renders it again."""
MOST_RAW_OF_SESSION = 512 << 20
"""Bytes; a minute of five tracks takes 64 MB. The newest raw sound is always kept."""
MOST_RAW = 2 << 30


BEGIN_STEP = 5
"""Sound begins at a multiple of this number of seconds, so that similar requests share it."""
SILENCE_SECONDS = 10.0
"""Silence before the first note is left out if it is longer than this."""


class SoundSource(NamedTuple):
    """A score to render, and where its files go."""

    score: Score
    ids: list[int]
    """Ids of the tracks in the frames."""
    folder: Path
    name: str
    """File name without suffix."""

    @property
    def first_second(self) -> int:
        """Where the whole sound begins."""
        return seconds_left_out(self.score)

    def begin(self, second: float) -> int:
        """Return the time nearest before `second` at which sound of this score may begin."""
        last = _step_before(float(self.score.seconds_at(self.score.end_ticks)))
        return max(self.first_second, _step_before(min(max(second, 0), last)))

    def name_from(self, begin: int) -> str:
        """Name of the files of the sound that begins at a time."""
        return f"{self.name}_from-{begin}-s" if begin > self.first_second else self.name


def seconds_left_out(score: Score) -> int:
    """Silence at the start of a score that its sound leaves out; 0 if it is short."""
    onsets = [int(track.notes[0, 0]) for track in score.tracks if len(track)]
    silence = float(score.seconds_at(min(onsets, default=0)))
    return _step_before(silence - 1) if silence > SILENCE_SECONDS else 0


def _step_before(second: float) -> int:
    return int(second // BEGIN_STEP) * BEGIN_STEP


@dataclass
class RawSound:
    """Stems on disk, many times larger than the files mixed from them."""

    stems: Stems
    size: int
    """Bytes."""
    used: float
    """Time of the last use, on the monotonic clock."""


class JobSound:
    """The sound of a job's variations, by their numbers, from given seconds on.

    Rendering a part is quicker than rendering the whole. Files are kept. Raw sound is kept until it
    is dropped, and then rendered again when needed.
    """

    def __init__(self, source: Callable[[int], SoundSource], soundfont: Path | None) -> None:
        """`source` returns the source of a variation, or raises LookupError if there is none."""
        self._source, self.soundfont = source, soundfont
        self._raw: dict[tuple[int, int], RawSound] = {}
        self._making: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)

    @property
    def raw(self) -> dict[tuple[int, int], RawSound]:
        """Raw sound by variation and begin; mixing it takes almost no time."""
        return dict(self._raw)

    def drop(self, which: tuple[int, int] | None = None) -> None:
        """Remove one raw sound, or all of them; a mix in progress is completed."""
        for key in list(self._raw) if which is None else [which]:
            if raw := self._raw.pop(key, None):
                raw.stems.drop()

    def score(self, variation: int) -> tuple[Score, list[int]]:
        """Return what sounds, and the ids of its tracks. Raises LookupError like `file`."""
        source = self._source(variation)
        return source.score, source.ids

    def begin(self, variation: int, second: float = 0.0) -> int:
        """Return the second at which sound begins that is requested from `second` on."""
        return self._source(variation).begin(second)

    def find(
        self, variation: int, kind: str, without: Collection[int] = (), begin: int = 0
    ) -> Path | None:
        """Return the file if it exists, otherwise None. Raises LookupError like `file`."""
        source = self._source(variation)
        name = source.name_from(begin)
        files = SoundFiles(source.folder, name, stems.places_of(source.score, source.ids))
        path = files.archive if kind == "stems" else files.mix(without, f".{kind}")
        return path if in_use(path) else None

    def file(
        self, variation: int, kind: str, without: Collection[int] = (), begin: int = 0
    ) -> Path:
        """Return the path of a sound file, which is made if it does not exist.

        Args:
            variation: its number.
            kind: one of SOUND_KINDS.
            without: ids of tracks that are left out; archives of stems contain all tracks.
            begin: where it begins, a result of `begin`.

        Raises:
            LookupError: there is no such variation.
            SoundError: it cannot be rendered or written.
        """
        if path := self.find(variation, kind, without, begin):
            return path
        raw = self.render(variation, begin)
        with self._making[variation, begin, kind]:
            return raw.zip() if kind == "stems" else raw.mix(without, f".{kind}")

    def render(self, variation: int, begin: int = 0) -> Stems:
        """Raw sound, rendered if it does not exist. Raises the errors of `file`."""
        source = self._source(variation)
        begin = max(begin, source.first_second)
        with self._making[variation, begin]:
            raw = self._raw.get((variation, begin))
            if raw is None:
                sound = stems.render(
                    source.score,
                    source.folder,
                    source.name_from(begin),
                    ids=source.ids,
                    soundfont=self.soundfont,
                    begin_seconds=begin,
                )
                raw = RawSound(sound, sound.size, time.monotonic())
                self._raw[variation, begin] = raw
            raw.used = time.monotonic()
            return raw.stems


class SoundService:
    """Renders sound for all sessions, in turn: who waited for the same sound finds it rendered.

    Limits the disk space of raw sound, and the number of waiting calls, each of which occupies a
    thread.
    """

    def __init__(self, kept: Callable[[], Iterable[tuple[str, JobSound]]]) -> None:
        """`kept` returns the sound of all jobs with files to request, and their sessions."""
        self._kept = kept
        self._queue: Queue[None] = Queue("sound", SOUNDS_AT_ONCE)
        self._lock = threading.Lock()
        self._calls: dict[threading.Event, str] = {}
        """The session of each call; the event ends its waiting."""
        self._timer: threading.Timer | None = None

    @contextmanager
    def turn(self, given_up: Callable[[], bool]) -> Iterator[bool]:
        """Wait in the queue; yield False if `given_up` returns True before it is admitted."""
        with self._queue.enter(None) as ticket:
            while not (given_up() or self._queue.wait(ticket, POLL_SECONDS)):
                pass
            yield not given_up()

    def file(
        self,
        session: str,
        sound: JobSound,
        variation: int,
        kind: str,
        without: Collection[int],
        second: float = 0.0,
    ) -> Path:
        """Like `JobSound.file` from a second on, but waits its turn if it has to be rendered.

        Also raises SoundError if too many calls are waiting, and LookupError if the session ends
        before its turn.
        """
        begin = sound.begin(variation, second)
        if path := sound.find(variation, kind, without, begin):
            return path
        with self._call(session) as has_ended:
            if (variation, begin) not in sound.raw:
                with self.turn(has_ended) as admitted:
                    if not admitted:
                        raise LookupError("the page was closed")
                    sound.render(variation, begin)
            try:
                return sound.file(variation, kind, without, begin)
            finally:
                self.rendered(sound)

    @contextmanager
    def _call(self, session: str) -> Iterator[Callable[[], bool]]:
        """Count a call; yield a function that says whether its session has ended."""
        ended = threading.Event()
        with self._lock:
            of_all, of_session = len(self._calls), Counter(self._calls.values())[session]
            if of_all >= MOST_CALLS or of_session >= MOST_CALLS_OF_SESSION:
                raise SoundError(
                    f"too many requests for sound: found {of_all}, {of_session} of this session, "
                    f"expected fewer than {MOST_CALLS} and {MOST_CALLS_OF_SESSION}; try again in a "
                    "minute"
                )
            self._calls[ended] = session
        try:
            yield ended.is_set
        finally:
            with self._lock:
                del self._calls[ended]

    def leave(self, session: str) -> None:
        """End the waiting calls of a session that has ended, and drop its raw sound."""
        with self._lock:
            for ended, owner in self._calls.items():
                if owner == session:
                    ended.set()
        for owner, sound in self._kept():
            if owner == session:
                sound.drop()

    def close(self) -> None:
        """Drop all raw sound."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
        for _, sound in self._kept():
            sound.drop()

    def rendered(self, sound: JobSound) -> None:
        """Drop raw sound just rendered if its job is no longer kept, and tidy the rest."""
        if not any(kept is sound for _, kept in self._kept()):
            sound.drop()
        self.tidy()

    def tidy(self) -> None:
        """Drop raw sound that is too old or take too much space, now and at intervals."""
        with self._lock:
            raw = [
                (each, session, sound, key)
                for session, sound in self._kept()
                for key, each in sound.raw.items()
            ]
            raw.sort(key=lambda entry: entry[0].used, reverse=True)
            before, of_session = time.monotonic() - RAW_SECONDS, Counter[str]()
            for each, session, sound, key in raw:
                total, share = of_session.total() + each.size, of_session[session] + each.size
                if (
                    each.used < before
                    or total > max(MOST_RAW, each.size)
                    or share > max(MOST_RAW_OF_SESSION, each.size)
                ):
                    sound.drop(key)
                else:
                    of_session[session] = share
            if of_session.total() and self._timer is None:
                self._timer = threading.Timer(RAW_SECONDS / 2, self._tidy_later)
                self._timer.daemon = True
                self._timer.start()

    def _tidy_later(self) -> None:
        with self._lock:
            self._timer = None
        self.tidy()


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
