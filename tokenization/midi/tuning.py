"""Tuning of channels: bends and registered parameters that hold for notes, not for effect.

Sources: The Complete MIDI 1.0 Detailed Specification (MMA, 1996), registered parameters 0 to 2;
Response to Reset All Controllers (MMA RP-015).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.score import Score, Track

_RECENT_NOTES: Final = 64
"""Number of last notes of a channel that show its tuning."""
_DEFAULT_RANGE: Final = 200.0
"""Range of the pitch bend in cents unless a channel sets another."""
_SAME_CENTS: Final = 1.0
_CENTRE: Final = 8192
_RESET: Final = 121
_DATA, _FINE_DATA = 6, 38
_PARAMETERS: Final = (98, 99, 100, 101)
"""Controllers that select a parameter: the last two a registered one."""
_BEND_RANGE, _FINE, _COARSE = range(3)


class ChannelEvents(NamedTuple):
    """What a channel plays."""

    notes: NDArray[np.int64]
    """Onsets and ends (n, 2) in ticks."""
    bends: NDArray[np.int64]
    """Ticks and values (b, 2) in time."""
    controls: NDArray[np.int64]
    """Ticks, controllers and values (c, 3) in time."""
    bend_range: float = _DEFAULT_RANGE
    """Default range of the pitch bend, in cents."""
    is_drum: bool = False


class _Channel(NamedTuple):
    """The tuning of a channel; `bend` is None if most of its notes have no constant one."""

    bend: int | None
    last_bend: int
    bend_range: float
    """In cents."""
    parameter_cents: float
    """Offset of the fine and the coarse tuning."""
    has_notes: bool

    def cents(self, bend: int) -> float:
        """Return the offset from equal temperament at 440 Hz with a bend."""
        return bend / _CENTRE * self.bend_range + self.parameter_cents


@dataclass(frozen=True)
class Tuning:
    """Tuning of the channels of a piece, and of instruments that join it.

    The bend that holds throughout most of the last notes of a channel is its tuning, and others are
    effects. If all pitched channels have the same offset, instruments that join have it too. If
    they differ by semitones, as transposing instruments do, only the remaining cents are shared.
    """

    channels: Mapping[int, _Channel]
    shared_cents: float

    @classmethod
    def of(cls, played: Mapping[int, ChannelEvents]) -> Tuning:
        """Return the tuning of channels by their events up to the time of interest."""
        channels = {number: _channel(events) for number, events in played.items()}
        offsets = [
            channel.cents(channel.bend)
            for number, channel in channels.items()
            if not played[number].is_drum and channel.has_notes and channel.bend is not None
        ]
        return cls(channels, _shared(np.array(offsets)))

    @classmethod
    def of_score(cls, score: Score) -> Tuning:
        """Return the tuning of a whole score."""
        parts: dict[int, list[Track]] = {}
        for track in score.tracks:
            parts.setdefault(track.channel, []).append(track)
        played: dict[int, ChannelEvents] = {}
        for number, tracks in parts.items():
            notes = np.concatenate([track.notes[:, :2] for track in tracks])
            spans = np.column_stack([notes[:, 0], notes.sum(1)])
            events = ChannelEvents(spans, tracks[0].bends, tracks[0].controls)
            played[number] = events._replace(is_drum=any(track.is_drum for track in tracks))
        return cls.of(played)

    def bend(self, number: int) -> int:
        """Return the bend to which a channel returns: its tuning, or else that of the others."""
        channel = self.channels[number]
        if channel.bend is not None:
            return channel.bend
        bend = round(
            (self.shared_cents - channel.parameter_cents) / channel.bend_range * _CENTRE
            if channel.bend_range
            else 0
        )
        return bend if -_CENTRE <= bend < _CENTRE else 0

    def last_bend(self, number: int) -> int:
        """Return the bend in effect at the end of a channel."""
        return self.channels[number].last_bend

    def joining(self, track: Track, number: int, tick: int) -> Track:
        """Return a track with controls and bends that tune it, if its channel has no notes yet."""
        channel = self.channels.get(number, _Channel(0, 0, _DEFAULT_RANGE, 0.0, False))
        cents = channel.cents(self.bend(number) if number in self.channels else 0)
        if channel.has_notes or abs(cents - self.shared_cents) < _SAME_CENTS:
            return track
        cents_left = self.shared_cents - channel.parameter_cents
        return _tuned(track, cents_left, channel.bend_range, tick)

    def alone(self, track: Track) -> Track:
        """Return a track in a file of its own, tuned from its start as it is in the piece."""
        channel = self.channels.get(track.channel)
        cents = self.shared_cents
        if channel is not None and channel.has_notes:
            cents = channel.cents(self.bend(track.channel))
        return track if abs(cents) < _SAME_CENTS else _tuned(track, cents, _DEFAULT_RANGE, 0)


def _tuned(track: Track, cents: float, bend_range: float, tick: int) -> Track:
    """Return a track with a bend before its own ones, and coarse tuning if that is out of range."""
    if track.is_drum:
        return track
    semitones = 0
    if abs(cents) > bend_range:
        semitones = int(np.clip(round(cents / 100), -64, 63))
    bend = round((cents - 100 * semitones) / bend_range * _CENTRE) if bend_range else 0
    bend = int(np.clip(bend, -_CENTRE, _CENTRE - 1))
    controls = [(101, 0), (100, _COARSE), (_DATA, 64 + semitones), (101, 127), (100, 127)]
    rows = [(tick, *control) for control in controls] if semitones else []
    return replace(
        track,
        controls=np.array([*rows, *track.controls.tolist()], np.int64).reshape(-1, 3),
        bends=np.array([(tick, bend), *track.bends.tolist()], np.int64),
    )


def _channel(events: ChannelEvents) -> _Channel:
    bend_range, cents = parameters(events.controls, events.bend_range)
    resets = events.controls[events.controls[:, 1] == _RESET, 0]
    # at equal ticks, a bend overrides a reset
    ticks = np.concatenate([[-1], resets, events.bends[:, 0]])
    values = np.concatenate([np.zeros(len(resets) + 1, np.int64), events.bends[:, 1]])
    order = np.argsort(ticks, kind="stable")
    ticks, values = ticks[order], values[order]
    last = int(values[-1])
    if not len(events.notes):
        return _Channel(last, last, bend_range, cents, has_notes=False)
    notes = events.notes[np.argsort(events.notes[:, 0], kind="stable")][-_RECENT_NOTES:]
    inside = notes[:, :1] + (notes[:, 1:] - notes[:, :1]) * np.arange(1, 4) // 4
    bends = values[np.searchsorted(ticks, inside, side="right") - 1]
    held = bends[(bends == bends[:, :1]).all(1), 0]
    centres, counts = np.unique(held, return_counts=True)
    usual = int(centres[counts.argmax()]) if 2 * counts.max(initial=0) > len(notes) else None
    return _Channel(usual, last, bend_range, cents, has_notes=True)


def parameters(controls: NDArray[np.int64], bend_range: float) -> tuple[float, float]:
    """Return the range of the pitch bend, and offset by fine and coarse tuning, in cents."""
    coarse_byte = {_BEND_RANGE: round(bend_range / 100), _FINE: 64, _COARSE: 64}
    fine_byte = dict.fromkeys(coarse_byte, 0)
    selected = {98: -1, 99: -1, 100: 127, 101: 127}
    is_registered = False
    is_tuning = np.isin(controls[:, 1], [_DATA, _FINE_DATA, *_PARAMETERS])
    for number, value in controls[is_tuning, 1:].tolist():
        if number in selected:
            selected[number] = value
            is_registered = number >= _PARAMETERS[2]
        elif is_registered and selected[101] == 0 and selected[100] in coarse_byte:
            (coarse_byte if number == _DATA else fine_byte)[selected[100]] = value
    fine = ((coarse_byte[_FINE] << 7 | fine_byte[_FINE]) - _CENTRE) / _CENTRE * 100
    coarse = 100 * (coarse_byte[_COARSE] - 64)
    return 100.0 * coarse_byte[_BEND_RANGE] + fine_byte[_BEND_RANGE], fine + coarse


def _shared(offsets: NDArray[np.float64]) -> float:
    """Return the offset (n,) that all have, or that they have besides semitones.

    It is 0 if there is none.
    """
    if not len(offsets):
        return 0.0
    if np.ptp(offsets) < _SAME_CENTS:
        return float(offsets[0])
    beside_semitones = (offsets - offsets[0] + 50) % 100 - 50
    return float(50 - (50 - offsets[0]) % 100) if np.ptp(beside_semitones) < _SAME_CENTS else 0.0
