"""Which token may follow: the canonical sequences of `PianoRemi`, and no others."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tokenization.layout import read_bars
from tokenization.vocabulary import (
    BAR,
    BAR_UNIT,
    BOS,
    DURATION,
    DURATIONS,
    EOS,
    MIN_PITCH,
    NUM_PITCHES,
    PAD,
    PIANO_VOCABULARY,
    PITCH,
    POSITION,
    STEPS_PER_BEAT,
    TEMPO,
    TIME_SIGNATURE,
    VELOCITY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

TempoRule = Literal["free", "bar_line", "never"]
"""Where the tempo may change. A piece without a tempo is still given one at its start."""


class Rules(NamedTuple):
    """Limits beyond those of the canonical sequences."""

    tempo: TempoRule = "free"
    time_signature: bool = True
    """Whether the bar length may change. A piece without one is still given one at its start."""
    end: bool = True
    """Whether the piece may end."""


class After(Enum):
    """Kind of the token that came last."""

    NOTHING = auto()
    BOS = auto()
    BAR = auto()
    TIME_SIGNATURE = auto()
    POSITION = auto()
    TEMPO = auto()
    PITCH = auto()
    VELOCITY = auto()
    NOTE = auto()
    EOS = auto()


def _mask(*ranges: tuple[int, int]) -> NDArray[np.bool_]:
    mask = np.zeros(len(PIANO_VOCABULARY), bool)
    for first, stop in ranges:
        mask[first:stop] = True
    mask.setflags(write=False)
    return mask


_ALWAYS = {
    After.NOTHING: _mask((BOS, BOS + 1), (BAR, BAR + 1)),
    After.BOS: _mask((BAR, BAR + 1)),
    After.PITCH: _mask((VELOCITY, DURATION)),
    After.VELOCITY: _mask((DURATION, len(PIANO_VOCABULARY))),
    After.EOS: _mask((PAD, PAD + 1)),
}
_FIRST_TIME_SIGNATURE = _mask((TIME_SIGNATURE, POSITION))
_FIRST_POSITION = _mask((POSITION, POSITION + 1))
_FIRST_TEMPO = _mask((TEMPO, PITCH))
_DURATION_STEPS: list[int] = DURATIONS.tolist()


class PianoGrammar(NamedTuple):
    """What the tokens so far say about the next one; immutable. Times are steps from the start.

    Starts before BOS, or before the Bar of a crop. Every state can go on: after EOS, PAD follows.
    """

    rules: Rules = Rules()
    after: After = After.NOTHING
    bar: int = 0
    """Bar tokens so far."""
    bar_start: int = 0
    bar_length: int = 0
    """0 before the first TimeSignature."""
    position: int = -1
    """Last position in the bar; -1 before any."""
    tempo: int = 0
    """Id of the Tempo in force; 0 before any."""
    pitch: int = -1
    """Last key at the position; -1 before any."""
    sounding: tuple[tuple[int, int], ...] = ()
    """(key, step where it ends) of notes that may still sound."""
    sounds_until: int = 0
    """Where the last note ends."""

    @property
    def beat(self) -> float:
        """Quarter notes from the start that the tokens so far have reached."""
        return (self.bar_start + max(self.position, 0)) / STEPS_PER_BEAT

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """(v,), which tokens may follow; never none."""
        after = self.after
        always = _ALWAYS.get(after)
        if always is not None:
            return always
        if not self.tempo:
            if after is After.BAR:
                return _FIRST_TIME_SIGNATURE
            return _FIRST_TEMPO if after is After.POSITION else _FIRST_POSITION
        mask = np.zeros(len(PIANO_VOCABULARY), bool)
        if after is After.POSITION:
            if self._tempo_at(self.position):
                mask[TEMPO:PITCH] = True
                mask[self.tempo] = False
        else:
            mask[BAR] = True
            mask[EOS] = self.rules.end and self.sounds_until <= self.bar_start + self.bar_length
            mask[POSITION + self.position + 1 : POSITION + self.bar_length] = True
            if len(self.sounding) == NUM_PITCHES:
                self._forbid_full_positions(mask)
            if after is After.BAR and self.rules.time_signature:
                mask[TIME_SIGNATURE:POSITION] = True
                mask[_time_signature(self.bar_length)] = False
        if after in _AT_POSITION:
            mask[PITCH + self.pitch + 1 : VELOCITY] = True
            now = self.bar_start + self.position
            for key, end in self.sounding:
                if end > now:
                    mask[PITCH + key] = False
        mask.setflags(write=False)
        return mask

    def advance(self, token: int) -> PianoGrammar:
        """State after one more token. Raises ValueError for a token that is not allowed."""
        if not (0 <= token < len(PIANO_VOCABULARY) and self.allowed[token]):
            raise ValueError(self._refusal(token))
        if token >= DURATION:
            now = self.bar_start + self.position
            end = now + _DURATION_STEPS[token - DURATION]
            still = [note for note in self.sounding if note[1] > now]
            return self._replace(
                after=After.NOTE,
                sounding=(*still, (self.pitch, end)),
                sounds_until=max(self.sounds_until, end),
            )
        if token >= VELOCITY:
            return self._replace(after=After.VELOCITY)
        if token >= PITCH:
            return self._replace(after=After.PITCH, pitch=token - PITCH)
        if token >= TEMPO:
            return self._replace(after=After.TEMPO, tempo=token)
        if token >= POSITION:
            return self._replace(after=After.POSITION, position=token - POSITION, pitch=-1)
        if token >= TIME_SIGNATURE:
            length = (token - TIME_SIGNATURE + 1) * BAR_UNIT
            return self._replace(after=After.TIME_SIGNATURE, bar_length=length)
        if token == BAR:
            return self._replace(
                after=After.BAR,
                bar=self.bar + 1,
                bar_start=self.bar_start + self.bar_length,
                position=-1,
                pitch=-1,
            )
        return self._replace(after=After.BOS if token == BOS else After.EOS)

    def hold(self, notes: Iterable[tuple[int, int]]) -> PianoGrammar:
        """The same with more notes sounding: MIDI pitches, and the steps where they end."""
        held = tuple((p - MIN_PITCH, end) for p, end in notes if 0 <= p - MIN_PITCH < NUM_PITCHES)
        until = max((end for _, end in held), default=0)
        return self._replace(
            sounding=(*self.sounding, *held), sounds_until=max(self.sounds_until, until)
        )

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> PianoGrammar:
        """State after a prompt, whatever the rules: they hold for what follows.

        Costs little for prompts of any length: where nothing stands before them, the bars before
        the last are taken to be canonical. Raises ValueError where the rest is not.
        """
        array = np.asarray(ids, np.int64)
        bars = np.flatnonzero(array == BAR)[1:]
        start = int(bars[-1]) if len(bars) and self.after is After.NOTHING else 0
        state = _after_bars(array[:start]) if start else self._replace(rules=Rules())
        for token in array[start:].tolist():
            state = state.advance(token)
        return state._replace(rules=self.rules)

    def _tempo_at(self, position: int) -> bool:
        return self.rules.tempo == "free" or (self.rules.tempo == "bar_line" and position == 0)

    def _forbid_full_positions(self, mask: NDArray[np.bool_]) -> None:
        """Forbid positions at which all 88 keys sound, since nothing could follow them."""
        first_free = min(end for _, end in self.sounding) - self.bar_start
        for position in range(self.position + 1, min(first_free, self.bar_length)):
            mask[POSITION + position] = self._tempo_at(position)

    def _refusal(self, token: int) -> str:
        names = PIANO_VOCABULARY.names
        name = names[token] if 0 <= token < len(names) else f"id {token}"
        place = f"bar {self.bar}, position {self.position}, after {self.after.name}"
        return f"{name} may not stand here: {place}"


def _after_bars(ids: NDArray[np.int64]) -> PianoGrammar:
    """State after whole bars, read from all of them at once."""
    bars = read_bars(ids)
    start, end = bars.lines[-2:].tolist()
    places = np.flatnonzero(ids >= DURATION)
    ends = bars.times_at(places) + DURATIONS[ids[places] - DURATION]
    sounding = ends > end
    keys = ids[places[sounding] - 2] - PITCH
    tempos = ids[(ids >= TEMPO) & (ids < PITCH)]
    return PianoGrammar(
        after=After.NOTE,
        bar=len(bars.lines) - 1,
        bar_start=start,
        bar_length=end - start,
        tempo=int(tempos[-1]) if len(tempos) else 0,
        sounding=tuple(zip(keys.tolist(), ends[sounding].tolist(), strict=True)),
        sounds_until=int(ends.max(initial=0)),
    )


_AT_POSITION = frozenset({After.POSITION, After.TEMPO, After.NOTE})


def _time_signature(bar_length: int) -> int:
    """Id of the TimeSignature of a bar length in steps."""
    return TIME_SIGNATURE + bar_length // BAR_UNIT - 1
