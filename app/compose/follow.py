"""A jam in time: chords in, MIDI messages out; without ports, threads and clock."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.compose.jam import USUAL_ENERGY
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.analysis.chords import CHORD_INTERVALS, recognise_chords
from tokenization.constraints.register import BASSES
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan import Chord, PlannedChord
from tokenization.plan_text import chart_bars, parse_chart
from tokenization.score import NO_NOTES, Score, Track

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from app.compose.jam import Bar, Jam

SETTLED_SECONDS = 0.05
"""A chord is read this long after its last key."""
LEAST_LEAD_SECONDS = 0.25
"""A bar is asked for at least this long before it sounds."""
BEGIN_SECONDS = 0.1
"""Time that instruments have to change their programs."""
TRADED = 4
"""Bars of each side that trades fours."""
CLOCKS = 24
"""Messages of MIDI clock in a quarter."""
CLOCK, START, STOP = (0xF8,), (0xFA,), (0xFC,)
_OFF, _ON, _PROGRAM, _CONTROL, _ALL_OFF = 0x80, 0x90, 0xC0, 0xB0, 123
_DRUM_CHANNEL = 9

Message = tuple[int, ...]
"""The bytes of a MIDI message."""


class BarRequest(NamedTuple):
    """A bar that has to be written."""

    number: int
    chords: str | None
    fill: bool
    energy: float
    is_last: bool

    def write(self, jam: Jam) -> Bar:
        """Write the bar. Raises the errors of `Jam.next_bar`."""
        if self.is_last:
            return jam.end()
        return jam.next_bar(self.chords, fill=self.fill, energy=self.energy)


class PlayedChord:
    """The chord that is played on a keyboard.

    It is read from the keys that are held or were struck `SETTLED_SECONDS` after the last of them,
    at least three notes, and stays until another one is played. A key that is struck alone above
    a chord that is held is melody.
    """

    def __init__(self) -> None:
        self._symbol: str | None = None
        self._held: set[int] = set()
        self._struck: set[int] = set()
        self._struck_at = -math.inf

    def hear(self, at: float, message: Sequence[int]) -> None:
        """Take in a MIDI message; `at` is in seconds and never less than before."""
        self.symbol(at)
        if len(message) < 3:
            return
        kind, key, value = message[0] & 0xF0, message[1], message[2]
        if kind == _ON and value:
            self._held.add(key)
            self._struck.add(key)
            self._struck_at = at
        elif kind in (_ON, _OFF):
            self._held.discard(key)
        elif kind == _CONTROL and key == _ALL_OFF:
            self._held.clear()

    def symbol(self, at: float) -> str | None:
        """Return the chord, such as `Am7`; None before the first one."""
        if self._struck and at >= self._struck_at + SETTLED_SECONDS:
            below = self._held - self._struck
            is_melody = len({key % 12 for key in below}) > 2 and max(below) < max(self._struck)
            if not (is_melody and len(self._struck) == 1):
                self._symbol = chord_of(self._held | self._struck) or self._symbol
            self._struck.clear()
        return self._symbol


def chord_of(keys: Iterable[int]) -> str | None:
    """Return the symbol of the chord of some pitches; None if they are not one."""
    pitches = sorted(keys)
    if len({pitch % 12 for pitch in pitches}) < 3:
        return None
    track = Track.of([(0, 1, pitch, 64) for pitch in pitches])
    chords = recognise_chords(Score(1, (track,), end_ticks=1))
    root, quality, bass = int(chords.roots[0]), int(chords.qualities[0]), pitches[0] % 12
    if root < 0:
        return None
    is_inverted = (bass - root) % 12 in CHORD_INTERVALS[quality][1:]
    return chord_symbol(Chord(root, quality, bass if is_inverted else None))


def varied(bar: Bar, chords: str | None) -> Bar:
    """Return a bar again, softer and moved to some chords: in place of one that is late."""
    tracks: list[Track] = []
    for track in bar.score.tracks:
        notes = track.notes.copy()
        notes[:, 3] = np.maximum(notes[:, 3] * 9 // 10, 1)
        tracks.append(replace(track, notes=notes))
    return moved(bar._replace(score=bar.score.with_tracks(tracks)), chords)


def moved(bar: Bar, chords: str | None, start: int = 0) -> Bar:
    """Return a bar whose notes from a grid step on are at the nearest tones of some chords.

    Those that sound before end there. Drums stay as they are.
    """
    planned = parse_chart(chords)[0] if chords else ()
    if not planned:
        return bar
    tables = [_nearest_tones(of.chord) for of in planned]
    tracks: list[Track] = []
    for track in bar.score.tracks:
        notes = track.notes.copy()
        if not track.is_drum:
            is_later = notes[:, 0] >= start
            halves = np.minimum(notes[:, 0] * len(tables) // _length(bar), len(tables) - 1)
            nearest = np.stack(tables)[halves, notes[:, 2]]
            notes[:, 2] = np.where(is_later, nearest, notes[:, 2])
            rest = np.where(is_later, notes[:, 1], start - notes[:, 0])
            notes[:, 1] = np.minimum(notes[:, 1], rest)
        _, first = np.unique(notes[:, [0, 2]], axis=0, return_index=True)
        tracks.append(replace(track, notes=notes[first]))
    second = PlannedChord(-(-bar.metre[0] // 2), planned[0].chord)
    shown = (*bar.chords[:1], second) if start else planned
    return bar._replace(score=bar.score.with_tracks(tracks), chords=shown)


def _length(bar: Bar) -> int:
    """Return the grid steps of a bar; the notes of a last bar sound longer."""
    numerator, denominator = bar.metre
    return 4 * STEPS_PER_BEAT * numerator // denominator


def _nearest_tones(chord: Chord | None) -> np.ndarray:
    """Return the nearest pitch of a chord to each pitch (128,)."""
    pitches = np.arange(128)
    if chord is None:
        return pitches
    inside = [(chord.root + above) % 12 for above in CHORD_INTERVALS[chord.quality]]
    tones = pitches[np.isin(pitches % 12, inside)]
    return tones[np.abs(pitches[:, None] - tones).argmin(axis=1)]


class Course:
    """What is asked of one bar after the other: chords, fills and fours.

    Chords are those of a chart, repeated for ever, or those that are played. In fours (`trade`),
    bass and drums alone play four bars of each eight, and the band answers in the next four, with
    the chords of the first ones.

    Raises ValueError if the chart is not understood.
    """

    def __init__(
        self, chart: str | None = None, *, fill_every: int = 8, trade: bool = False
    ) -> None:
        self._chart = None if chart is None else _chart(chart)
        self._fill_every, self._trade = fill_every, trade
        self._traded: list[str | None] = [None] * TRADED

    def request(
        self, number: int, played: str | None, energy: float = USUAL_ENERGY, *, is_last: bool
    ) -> BarRequest:
        """Return the request of a bar; `played` are the chords in the bar before it."""
        chords = played if self._chart is None else self.charted(number)
        if self._trade and self._chart is None:
            if self.is_rhythm(number - 1):
                self._traded[(number - 1) % TRADED] = played
            chords = chords if self.is_rhythm(number) else self._traded[number % TRADED]
        fill = bool(self._fill_every) and number % self._fill_every == self._fill_every - 1
        return BarRequest(number, chords, fill, energy, is_last)

    def charted(self, number: int) -> str | None:
        """Return the chords of a bar in the chart; None without one, or if the model chooses."""
        return None if self._chart is None else self._chart[number % len(self._chart)]

    def is_rhythm(self, number: int) -> bool:
        """Whether bass and drums play a bar alone."""
        return self._trade and number % (2 * TRADED) < TRADED

    def follows(self, number: int) -> bool:
        """Whether a bar is under the chords that are played now."""
        return self._chart is None and (not self._trade or self.is_rhythm(number))

    def played(self, bar: Bar, number: int, *, is_last: bool) -> Bar:
        """Return a bar as it sounds: with bass and drums alone if the player has the turn."""
        return _rhythm_alone(bar) if self.is_rhythm(number) and not is_last else bar


class _Timed(NamedTuple):
    at: float
    message: Message


class Follower:
    """Says which bar has to be written when, and sends the notes of those that are.

    All times are those of the caller's clock, in seconds. After each other, again and again: `hear`
    what was played, `request` a bar and `deliver` it once it is written, send what is `due`. A bar
    that is not there in time is replaced: there is no silence, and it is counted. Does not grow,
    unless the bars are kept.
    """

    def __init__(
        self,
        chart: str | None = None,
        *,
        bars: int = 0,
        fill_every: int = 8,
        clock: bool = False,
        trade: bool = False,
        waits: bool = False,
        keeps: bool = False,
    ) -> None:
        """Prepare a jam.

        Args:
            chart: chords that are repeated for ever; None: those that are played.
            bars: after which the music ends; 0: when it is asked to.
            fill_every: how many bars there are from one fill to the next; 0: none.
            clock: whether MIDI clock, start and stop are sent.
            trade: whether fours are traded.
            waits: whether the music begins with the first chord that is played.
            keeps: whether the bars that were played are kept.

        Raises:
            ValueError: the chart is not understood.
        """
        self._course = Course(chart, fill_every=fill_every, trade=trade)
        self._num_bars, self._clock, self._waits = bars, clock, waits
        self._played = PlayedChord()
        self._asked: tuple[float, BarRequest] | None = None
        self._ready: tuple[Bar, bool] | None = None
        """The next bar, and whether it is the last one."""
        self._source: Bar | None = None
        """The last bar that has notes."""
        self._seconds: deque[float] = deque(maxlen=16)
        """How long the last bars took to be written."""
        self._begin, self._step = math.nan, math.nan
        """Time of the first bar line, and length of a grid step."""
        self._channels: list[int] = []
        self._finishing = False
        self._queue: deque[_Timed] = deque()
        self._sounding: set[tuple[int, int]] = set()
        self._closing = False
        """Whether the last bar has begun."""
        self.begun = 0
        """Number of bars that have begun."""
        self.late = 0
        """Number of bars that were replaced."""
        self.kept: list[Bar] | None = [] if keeps else None
        """The bars that were played."""

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self._closing and not self._queue

    def hear(self, at: float, message: Sequence[int]) -> None:
        """Take in a MIDI message from the player."""
        self._played.hear(at, message)

    def request(self, now: float) -> BarRequest | None:
        """Return the bar that has to be written now; None if there is none yet."""
        self._advance(now)
        number = self.begun
        if self._asked or self._ready or self._closing:
            return None
        if self._source is not None and now < self._line(number) - self._lead():
            return None
        played = self._played.symbol(now)
        if self._waits and self._source is None and played is None:
            return None
        is_last = self._finishing or 0 < self._num_bars <= number + 1
        asked = self._course.request(number, played, is_last=is_last)
        self._asked = now, asked
        return asked

    def deliver(self, now: float, bar: Bar) -> None:
        """Take in the bar that was requested.

        Raises ValueError for a band that has more instruments than MIDI has channels.
        """
        self._advance(now)
        assert self._asked is not None, "no bar was requested"
        (at, asked), self._asked = self._asked, None
        self._seconds.append(now - at)
        if self._source is None:
            self._prepare(now, bar)
        if bar.score.num_notes or self._source is None:
            self._source = bar
        if asked.is_last or asked.number == self.begun:
            self._ready = bar, asked.is_last
        # one that is late takes part as the source of those that replace others

    def due(self, now: float) -> list[Message]:
        """Return the messages whose time has come."""
        self._advance(now)
        messages: list[Message] = []
        while self._queue and self._queue[0].at <= now:
            message = self._queue.popleft().message
            kind, channel = message[0] & 0xF0, message[0] & 0x0F
            if kind == _ON:
                self._sounding.add((channel, message[1]))
            elif kind == _OFF:
                self._sounding.discard((channel, message[1]))
            messages.append(message)
        return messages

    def finish(self) -> None:
        """End with a cadence, in the next bar that is not written yet."""
        self._finishing = True
        if self._source is None and self._asked is None:
            self._closing = True

    def silence(self) -> list[Message]:
        """End at once, and return what silences all instruments."""
        had_ended, self._closing = self.ended, True
        self._queue.clear()
        messages: list[Message] = [(_OFF | of, key, 0) for of, key in sorted(self._sounding)]
        self._sounding.clear()
        messages += [(_CONTROL | channel, _ALL_OFF, 0) for channel in self._channels]
        return [*messages, STOP] if self._clock and not had_ended else messages

    def _line(self, bar: int) -> float:
        """Return the time of a bar line."""
        assert self._source is not None
        return self._begin + bar * _length(self._source) * self._step

    def _lead(self) -> float:
        """Return the seconds from the request of a bar to its begin, at most a bar."""
        lead = max(LEAST_LEAD_SECONDS, 2 * max(self._seconds))
        return min(lead, self._line(1) - self._line(0))

    def _prepare(self, now: float, bar: Bar) -> None:
        """Set the time of the first bar line and the instruments."""
        free = iter(channel for channel in range(16) if channel != _DRUM_CHANNEL)
        tracks = bar.score.tracks
        try:
            self._channels = [_DRUM_CHANNEL if t.is_drum else next(free) for t in tracks]
        except StopIteration:
            raise ValueError(
                f"the band has {len(tracks)} instruments, expected at most 15 beside the drums, "
                "which are the channels of MIDI"
            ) from None
        self._begin = now + BEGIN_SECONDS
        self._step = 60 / bar.tempo / STEPS_PER_BEAT
        for channel, track in zip(self._channels, tracks, strict=True):
            self._queue.append(_Timed(now, (_PROGRAM | channel, track.program)))
        if self._clock:
            self._queue.append(_Timed(self._begin, START))

    def _advance(self, now: float) -> None:
        """Begin the bars whose time has come."""
        while not self._closing and self._source is not None and now >= self._line(self.begun):
            is_last = False
            if self._ready is None:
                bar = varied(self._source, self._asked[1].chords if self._asked else None)
                self.late += 1
            else:
                (bar, is_last), self._ready = self._ready, None
            bar = self._course.played(bar, self.begun, is_last=is_last)
            events = sorted(self._events(bar, is_last=is_last))
            start = self._line(self.begun)
            self._queue += (_Timed(start + step * self._step, of) for step, _, of in events)
            if is_last and self._clock:
                self._queue.append(_Timed(self._queue[-1].at, STOP))
            if self.kept is not None:
                self.kept.append(bar)
            self.begun += 1
            self._closing = is_last

    def _events(self, bar: Bar, *, is_last: bool) -> Iterator[tuple[float, int, Message]]:
        """Yield step, order within the step, and message of what happens in a bar.

        A note ends before the next one of its pitch, and with the bar unless it is the last one.
        """
        length = _length(bar)
        for channel, track in zip(self._channels, bar.score.tracks, strict=True):
            following = dict.fromkeys(range(128), math.inf if is_last else length)
            for onset, duration, pitch, velocity in track.notes[::-1].tolist():
                end = min(onset + max(duration, 1), following[pitch])
                if end > onset:
                    following[pitch] = onset
                    yield onset, 2, (_ON | channel, pitch, velocity)
                    yield end, 0, (_OFF | channel, pitch, 0)
        if self._clock:
            count = length * CLOCKS // STEPS_PER_BEAT
            yield from ((tick * STEPS_PER_BEAT / CLOCKS, 1, CLOCK) for tick in range(count))


def _chart(text: str) -> list[str | None]:
    """Return the chords of each bar of a chart; None: the model chooses. Raises ValueError."""
    parse_chart(text)
    bars: list[str | None] = []
    for bar in chart_bars(text):
        bars.append(bars[-1] if bar == "%" else None if bar == "?" else bar)
    return bars


def _rhythm_alone(bar: Bar) -> Bar:
    """Return a bar with bass and drums alone; with all if the band has neither."""
    tracks = bar.score.tracks
    is_rhythm = [track.is_drum or track.program in BASSES for track in tracks]
    if not any(is_rhythm):
        return bar
    notes = [
        track.notes if kept else NO_NOTES for track, kept in zip(tracks, is_rhythm, strict=True)
    ]
    muted = [replace(track, notes=table) for track, table in zip(tracks, notes, strict=True)]
    return bar._replace(score=bar.score.with_tracks(muted))
