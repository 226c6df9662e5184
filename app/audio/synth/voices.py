"""Converts a score to voices, applying pedal, volume, pan, pitch bends and exclusive classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.audio.synth.soundfont import SoundFont, Zone
from tokenization.score import Score

_BANK, _DATA, _VOLUME, _PAN, _EXPRESSION, _PEDAL = 0, 6, 7, 10, 11, 64
_NRPN, _RPN = frozenset({98, 99}), frozenset({100, 101})
_RESET = 121
_DEFAULT_VOLUME = 100
_DEFAULT_BEND_SEMITONES = 2
_SHORTEST_SECONDS = 0.01
_DRUM_BANK = 128


class Steps(NamedTuple):
    """A piecewise constant function: `values` from `seconds` on, and `first` before them."""

    seconds: NDArray[np.float64]
    values: NDArray[np.float64]
    first: float

    def at(self, seconds: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return the values at `seconds`, in the same shape."""
        place = np.searchsorted(self.seconds, seconds, side="right")
        return np.concatenate([[self.first], self.values])[place]

    def changes_between(self, start: float, end: float) -> bool:
        """Return whether a value is set between `start` and `end`."""
        first, last = np.searchsorted(self.seconds, [start, end], side="right")
        return bool(last > first)


@dataclass(frozen=True, eq=False)
class Channel:
    """Controllers of a channel, which apply to all its voices."""

    volume: Steps
    """Controller 7, 0-127."""
    expression: Steps
    """Controller 11, 0-127."""
    pan: Steps
    """Controller 10, 0-127."""
    bend_cents: Steps

    def gain(self, seconds: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return the amplitude factor at each time: the squares of volume and expression."""
        return (self.volume.at(seconds) * self.expression.at(seconds) / 127**2) ** 2


@dataclass(frozen=True, eq=False)
class Voices:
    """Voices of one zone and one key on one channel; all arrays (n,), times in seconds."""

    zone: Zone
    key: int
    channel: Channel
    onsets: NDArray[np.float64]
    ends: NDArray[np.float64]
    """Times at which both key and pedal are released."""
    chokes: NDArray[np.float64]
    """Times at which a voice of the same exclusive class stops this one; infinite if none does."""
    gains: NDArray[np.float64]
    """Amplitude factors of velocity and attenuation."""
    pans: NDArray[np.float64]
    """-500 (left) to 500 (right)."""
    tracks: NDArray[np.int64]
    """Index of the track of each voice in the score."""


def score_voices(score: Score, soundfont: SoundFont) -> list[Voices]:
    """Return all voices of a score.

    Tracks read from a file share the controllers of their channel; each track of new music has its
    own. A new note on a key ends the earlier one, even with the pedal down; of several simultaneous
    notes on a key, only the last one sounds. As in MIDI, the first note-off of a key on a channel
    ends all sounding notes of that key, even if they are in different tracks.
    """
    shared: dict[tuple[object, ...], list[int]] = {}
    for number, track in enumerate(score.tracks):
        in_file = track.chunk is not None
        channel = ("channel", track.channel, track.is_drum) if in_file else ("new", number)
        shared.setdefault(channel, []).append(number)
    return [voices for numbers in shared.values() for voices in _voices(score, numbers, soundfont)]


def _voices(score: Score, numbers: list[int], soundfont: SoundFont) -> Iterator[Voices]:
    """Return the voices of the tracks of one channel."""
    tracks = [score.tracks[number] for number in numbers]
    notes = np.concatenate([track.notes for track in tracks])
    if not len(notes):
        return
    programs = np.concatenate([np.full(len(track), track.program) for track in tracks])
    owners = np.repeat(np.array(numbers, np.int64), [len(track) for track in tracks])
    controls = _in_time([track.controls for track in tracks])
    channel = _channel(score, controls, _in_time([track.bends for track in tracks]))
    note_bends = _in_time([track.note_bends for track in tracks])
    bent = {key: _bent(channel, score, note_bends, key) for key in set(note_bends[:, 1].tolist())}
    onsets = score.seconds_at(notes[:, 0])
    ends = score.seconds_at(notes[:, 0] + notes[:, 1])
    ends = _until_let_go(onsets, ends, notes[:, 2])
    pedal = _steps(score, controls, _PEDAL, 0, after_reset=0)
    ends = _held_by_pedal(ends, pedal, float(score.seconds_at(score.end_ticks)))
    keys, velocities = notes[:, 2], notes[:, 3]
    ends = np.maximum(_until_struck_again(onsets, ends, keys), onsets + _SHORTEST_SECONDS)
    banks = _steps(score, controls, _BANK, 0).at(onsets).astype(int)
    if tracks[0].is_drum:
        banks[:] = _DRUM_BANK

    parts: list[tuple[Zone, int, NDArray[np.intp]]] = []
    for bank, program, key in np.unique(np.stack([banks, programs, keys]), axis=1).T.tolist():
        places = np.flatnonzero((banks == bank) & (programs == program) & (keys == key))
        for zone in soundfont.zones(bank, program):
            (low_key, high_key), (low, high) = zone.keys, zone.velocities
            if low_key <= key <= high_key:
                struck = velocities[places]
                part = places[(struck >= low) & (struck <= high)]
                if len(part):
                    parts.append((zone, key, part))

    strikes: dict[int, NDArray[np.float64]] = {}
    for exclusive in {zone.exclusive_class for zone, _, _ in parts} - {0}:
        struck = [onsets[part] for zone, _, part in parts if zone.exclusive_class == exclusive]
        strikes[exclusive] = np.append(np.unique(np.concatenate(struck)), np.inf)
    for zone, key, part in parts:
        strike = strikes.get(zone.exclusive_class, np.array([np.inf]))
        yield Voices(
            zone=zone,
            key=key,
            channel=bent.get(key, channel),
            onsets=onsets[part],
            ends=ends[part],
            chokes=strike[np.searchsorted(strike[:-1], onsets[part], side="right")],
            gains=zone.gain * (zone.played_velocities(velocities[part]) / 127) ** 2,
            pans=np.clip(zone.pan + (channel.pan.at(onsets[part]) - 64) / 63 * 500, -500, 500),
            tracks=owners[part],
        )


def _held_by_pedal(
    ends: NDArray[np.float64], pedal: Steps, score_end: float
) -> NDArray[np.float64]:
    """Return the ends of notes, delayed to the next pedal release if the pedal is down."""
    is_down = np.concatenate([[False], pedal.values >= 64])
    before = np.searchsorted(pedal.seconds, ends, side="left")
    lifts = np.append(pedal.seconds[pedal.values < 64], np.inf)
    lifted = lifts[np.searchsorted(lifts[:-1], ends, side="left")]
    return np.where(is_down[before], np.maximum(ends, np.minimum(lifted, score_end)), ends)


def _until_let_go(
    onsets: NDArray[np.float64], ends: NDArray[np.float64], keys: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the ends of notes, but no later than the end of another note on the same key."""
    ends = ends.copy()
    for key in np.unique(keys):
        places = np.flatnonzero(keys == key)
        offs = np.sort(ends[places])
        first = np.searchsorted(offs, onsets[places], side="right")
        ends[places] = np.minimum(ends[places], np.append(offs, np.inf)[first])
    return ends


def _until_struck_again(
    onsets: NDArray[np.float64], ends: NDArray[np.float64], keys: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the ends of notes, but no later than the next onset on the same key."""
    ends = ends.copy()
    for key in np.unique(keys):
        places = np.flatnonzero(keys == key)
        strikes = np.append(np.unique(onsets[places]), np.inf)
        again = strikes[np.searchsorted(strikes[:-1], onsets[places], side="right")]
        ends[places] = np.minimum(ends[places], again)
        order = places[np.argsort(onsets[places], kind="stable")]
        at_once = np.diff(onsets[order], append=np.inf) == 0  # followed by a simultaneous note
        ends[order[at_once]] = onsets[order[at_once]]
    return ends


def _in_time(tables: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return all rows sorted by tick; a table shared by several tracks is used once."""
    rows = np.concatenate(list({id(table): table for table in tables}.values()))
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _channel(score: Score, controls: NDArray[np.int64], bends: NDArray[np.int64]) -> Channel:
    semitones = _bend_semitones(score, controls)
    resets = controls[controls[:, 1] == _RESET, 0]
    centred = np.column_stack([resets, np.zeros_like(resets)])
    bends = _in_time([centred, bends])  # at equal ticks, a bend overrides a reset
    seconds = score.seconds_at(bends[:, 0])
    cents = bends[:, 1] / 8192 * semitones.at(seconds) * 100
    return Channel(
        volume=_steps(score, controls, _VOLUME, _DEFAULT_VOLUME),
        expression=_steps(score, controls, _EXPRESSION, 127, after_reset=127),
        pan=_steps(score, controls, _PAN, 64),
        bend_cents=Steps(seconds, cents, 0.0),
    )


def _bent(channel: Channel, score: Score, note_bends: NDArray[np.int64], key: int) -> Channel:
    """Return a channel with the bends of the notes of a key."""
    of_key = note_bends[note_bends[:, 1] == key]
    key_bends = Steps(score.seconds_at(of_key[:, 0]), of_key[:, 2].astype(np.float64), 0.0)
    seconds = np.union1d(key_bends.seconds, channel.bend_cents.seconds)
    cents = key_bends.at(seconds) + channel.bend_cents.at(seconds)
    return replace(channel, bend_cents=Steps(seconds, cents, 0.0))


def _steps(
    score: Score,
    controls: NDArray[np.int64],
    number: int,
    first: float,
    *,
    after_reset: float | None = None,
) -> Steps:
    """Return the values of a controller; `after_reset` is its value after Reset All Controllers."""
    rows = controls[:, 1] == number
    values = controls[:, 2].astype(np.float64)
    if after_reset is not None:
        resets = controls[:, 1] == _RESET
        values[resets] = after_reset
        rows |= resets
    return Steps(score.seconds_at(controls[rows, 0]), values[rows], first)


def _bend_semitones(score: Score, controls: NDArray[np.int64]) -> Steps:
    """Return the range of the pitch bend: registered parameter 0, by default two semitones."""
    ticks: list[int] = []
    values: list[float] = []
    parameter: dict[int, int] = {}
    for tick, number, value in controls[np.isin(controls[:, 1], [_DATA, *_RPN, *_NRPN])].tolist():
        if number in _RPN:
            parameter[number] = value
        elif number in _NRPN:
            parameter.clear()
        elif parameter == dict.fromkeys(_RPN, 0):
            ticks.append(tick)
            values.append(value)
    return Steps(score.seconds_at(ticks), np.array(values), _DEFAULT_BEND_SEMITONES)
