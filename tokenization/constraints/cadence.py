"""A bias that lets music come to rest in its last bar, on a chord of all instruments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import CHORD_INTERVALS, QUALITIES
from tokenization.analysis.keys import best_key
from tokenization.constraints.bar_limit import BarLimit
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan import Chord, Key
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.grammar import After, RemiGrammar
from tokenization.remi.vocabulary import (
    BAR,
    DURATIONS,
    EOS,
    NUM_PARTS,
    NUM_PITCHES,
    POSITION,
    TEMPO,
    Families,
)

NEVER = 100.0
"""Bias against what does not end the music, since a model that is sure of its groove outweighs a
smaller one."""
LONG, LONGER_LATE = 2.0, 6.0
TONIC = 6.0
"""Default bias towards the tonic as the last chord, where no chord is asked for."""
OUTSIDE, NOT_ROOT = 4.0, 3.0
"""Bias against pitches outside the chord, and against those other than its root below `LOW`."""
LOW = 52
_TONICS = (("M", "7", "M7"), ("m", "m7"))
"""Qualities of a major and a minor tonic."""
BEYOND = 12
"""Semitones by which a track may leave its range for a note of the chord."""


class Heard(NamedTuple):
    """What a track has played."""

    lowest: int
    highest: int
    notes: int
    total: int
    """Sum of their pitches."""

    def beyond(self, pitches: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the semitones from each pitch to the range; 0 in it."""
        return np.maximum(self.lowest - pitches, pitches - self.highest).clip(0)

    def also(self, pitch: int) -> Heard:
        """Return these notes with one more."""
        low, high = min(self.lowest, pitch), max(self.highest, pitch)
        return Heard(low, high, self.notes + 1, self.total + pitch)


class Cadence(NamedTuple):
    """A bias towards a last chord on a strong beat of the last bar, which all instruments hold.

    Nothing begins after the middle of the last bar, and what begins last does so at its start or,
    in bars of four quarters or more, in its middle. There, drums play if the music has any, other
    notes last at least a quarter, and each track keeps to its range, or within an octave of it if
    the range has no note of the chord. The longer a note lasts up to the bar line, the more likely
    it is; it rings for another bar at most.

    The plan of the last bar has one chord, with its root as the bass, and those of the tonic get a
    bias. The lowest track plays the root below all others, and pitches outside the chord get a bias
    of -4. Of earlier notes, only the tonic sounds into the last bar.
    """

    key: Key | None = None
    """The key of the music; None: that of its notes."""
    strength: float = TONIC
    """Bias towards the tonic as the last chord."""
    chord: Chord | None = None
    """The chord of the present bar; None: any."""
    heard: Mapping[int, Heard] = MappingProxyType({})
    """What each track has played, by its rank; not the drums."""
    has_drums: bool = False
    """Whether drums have played."""
    grows: bool = True
    """Whether the generated notes count, as in a piece from nothing."""
    steps: tuple[int, ...] = (0,) * 12
    """Duration of each pitch class of these notes, in grid steps."""
    heard_now: Mapping[int, Heard] = MappingProxyType({})
    """`heard`, with the present bar."""

    @classmethod
    def after(
        cls,
        ids: Sequence[int] | NDArray[np.integer],
        families: Families,
        key: Key | None,
        strength: float = TONIC,
    ) -> Cadence:
        """Return the bias after a prompt, or from nothing."""
        tokens = Tokens.of(ids, families)
        keys = read_notes(tokens, read_bars(tokens), families).keys
        ranks, pitches = keys >> 7, keys & 127
        heard = {
            rank: Heard(int(of.min()), int(of.max()), len(of), int(of.sum()))
            for rank in np.unique(ranks[ranks > 0]).tolist()
            for of in (pitches[ranks == rank],)
        }
        return cls(key, strength, None, heard, bool((ranks == 0).any()), grows=len(keys) == 0)

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        families, length, allowed = grammar.families, grammar.bar_length, grammar.allowed
        if not length or not limit.in_last_bar(grammar):
            is_before = limit.seconds is None and grammar.bar == limit.last_bar - 1
            return self._against_ties(grammar) if is_before and allowed[families.duration] else None
        position, strong = grammar.position, strong_places(length)
        bias = np.zeros(families.size)
        if allowed[families.duration]:
            rest = max(length - position, 1)
            most = LONG + LONGER_LATE * position / length
            lasts = most * np.minimum(DURATIONS / rest, 1)
            if position in strong:
                lasts[: DURATIONS.searchsorted(min(STEPS_PER_BEAT, rest))] = -NEVER
            lasts[DURATIONS.searchsorted(rest + length, "right") :] = -NEVER
            bias[families.duration : families.drum_velocity] = lasts
            return bias
        if grammar.after is After.RETURN:
            bias[self._tonics(families)] = self.strength
        elif After.CHORD <= grammar.after <= After.BASS:
            bias[families.chord : families.later] = -NEVER
        bias[POSITION + strong[-1] + 1 : TEMPO] = -NEVER
        if position not in strong:
            bias[[BAR, EOS]] = -NEVER
        if allowed[families.pitch : families.drum].any():
            bias[families.pitch : families.drum] = self._against(grammar, position in strong)
        if position in strong:
            self._with_all(bias, grammar)
        return bias

    def _against_ties(self, grammar: RemiGrammar) -> NDArray[np.float64] | None:
        """Return the bias against notes that sound into the last bar, unless they are the tonic."""
        families = grammar.families
        if self.key is not None and (grammar.pitch - families.pitch) % 12 == self.key.tonic:
            return None
        bias, rest = np.zeros(families.size), grammar.bar_length - grammar.position
        first = families.duration + int(DURATIONS.searchsorted(rest, "right"))
        bias[first : families.drum_velocity] = -NEVER
        return bias

    def _tonics(self, families: Families) -> list[int]:
        """Return the chord tokens of the tonic."""
        key = self.key or best_key(np.array(self.steps))
        if key is None:
            return []
        first = families.chord + len(QUALITIES) * key.tonic
        return [first + QUALITIES.index(quality) for quality in _TONICS[key.minor]]

    def _with_all(self, bias: NDArray[np.float64], grammar: RemiGrammar) -> None:
        """Let drums play here first, then the lowest track, and at least one that is no drum."""
        families, track, bass = grammar.families, grammar.track, self._bass
        goes_on = np.r_[BAR, EOS, POSITION:TEMPO]
        if track <= 0 and self.heard:
            bias[goes_on] = -NEVER
        if families.only_track >= 0:
            return
        if self.has_drums and track < 0:
            bias[families.program + 1 : families.part] = -NEVER
        elif bass < 0 or self.chord is None or self._is_at_rest(grammar, self.chord):
            return
        elif grammar.after is After.PROGRAM:
            if track == bass - bass % NUM_PARTS:
                bias[families.part + bass % NUM_PARTS : families.pitch] = -NEVER
        elif track < bass:
            bias[goes_on] = -NEVER
            bias[families.program + bass // NUM_PARTS + 1 : families.part] = -NEVER

    def _against(self, grammar: RemiGrammar, is_strong: bool) -> NDArray[np.float64]:
        """Return the bias against each pitch (128,) of the current track."""
        bias, pitches, track = np.zeros(NUM_PITCHES), np.arange(NUM_PITCHES), grammar.track
        if self.chord is not None:
            is_root = pitches % 12 == _root(self.chord)
            inside = np.isin((pitches - self.chord.root) % 12, CHORD_INTERVALS[self.chord.quality])
            bias[~inside & ~is_root] -= OUTSIDE
            bias[~is_root & (pitches < LOW)] -= NOT_ROOT
            if is_strong:
                bass, lowest = self._bass, _lowest(grammar)
                if track < bass:  # the lowest track comes later, and needs room
                    bias[~is_root & (pitches < self.heard[bass].lowest + BEYOND)] -= NEVER
                elif track > bass >= 0 or self._is_at_rest(grammar, self.chord):
                    bias[~is_root & (pitches < lowest)] -= NEVER
                else:
                    bias[~is_root | (pitches >= lowest)] -= NEVER
        if track in self.heard:
            beyond = self.heard[track].beyond(pitches)
            bias[beyond > 0] -= NEVER * (bias[beyond == 0].max() == 0)
            bias[beyond > BEYOND] -= 2 * NEVER
        return bias

    @property
    def _bass(self) -> int:
        """Rank of the lowest track; -1 if none is known."""
        heard = self.heard
        return min(heard, key=lambda rank: heard[rank].total / heard[rank].notes, default=-1)

    def _is_at_rest(self, grammar: RemiGrammar, chord: Chord) -> bool:
        """Return whether the lowest track has the root, below all others."""
        lowest = _lowest(grammar)
        return lowest % 12 == _root(chord) and lowest == _lowest(grammar, self._bass)

    def advance(self, token: int, grammar: RemiGrammar) -> Cadence:
        """See `Bias.advance`."""
        families = grammar.families
        if token == BAR:
            return self._replace(chord=None, heard=self.heard_now if self.grows else self.heard)
        if families.chord <= token < families.later:
            return self._replace(chord=_with_chord(self.chord, token, families))
        if not self.grows or token < families.drum or token >= families.drum_velocity:
            return self
        if token < families.velocity:
            return self if self.has_drums else self._replace(has_drums=True)
        if token < families.duration:
            return self
        pitch, steps = grammar.pitch - families.pitch, list(self.steps)
        steps[pitch % 12] += int(DURATIONS[token - families.duration])
        heard = self.heard_now.get(grammar.track, Heard(pitch, pitch, 0, 0)).also(pitch)
        now = {**self.heard_now, grammar.track: heard}
        return self._replace(heard_now=now, steps=tuple(steps))


def strong_places(length: int) -> tuple[int, ...]:
    """Return the places in a bar of this length where music may come to rest, ascending."""
    has_middle = length >= 4 * STEPS_PER_BEAT and length % (2 * STEPS_PER_BEAT) == 0
    return (0, length // 2) if has_middle else (0,)


def _with_chord(chord: Chord | None, token: int, families: Families) -> Chord | None:
    """Return the chord of a bar after a Chord or Bass."""
    if token >= families.bass:
        return chord and chord._replace(bass=token - families.bass)
    root, quality = divmod(token - families.chord, len(QUALITIES))
    return Chord(root, quality) if root < 12 else None


def _lowest(grammar: RemiGrammar, rank: int = -1) -> int:
    """Return the lowest pitch that sounds, of one track or of all (-1).

    It is NUM_PITCHES if none does.
    """
    now, first = grammar.bar_start + grammar.position, grammar.families.pitch
    sounding = (pitch for of, pitch, end in grammar.sounding if end > now and rank in (-1, of))
    return min(sounding, default=first + NUM_PITCHES) - first


def _root(chord: Chord) -> int:
    """Return the pitch class of the lowest note."""
    return chord.root if chord.bass is None else chord.bass
