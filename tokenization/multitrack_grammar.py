"""Which token may follow: the canonical sequences of `MultitrackRemi`, and no others."""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenization.vocabulary import (
    BAR,
    BAR_UNIT,
    BOS,
    DRUM_PITCH,
    DURATIONS,
    EOS,
    MULTITRACK_VOCABULARY,
    NUM_PARTS,
    PAD,
    PART,
    POSITION,
    PROGRAM,
    PROGRAM_ORDER,
    STEPS_PER_BEAT,
    TEMPO,
    TIME_SIGNATURE,
    TRACK_DURATION,
    TRACK_PITCH,
    TRACK_VELOCITY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tokenization.grammar import TempoRule


class MultitrackRules(NamedTuple):
    """Limits beyond those of the canonical sequences."""

    tempo: TempoRule = "free"
    time_signature: bool = True
    """Whether the bar length may change. A piece without one is still given one at its start."""
    end: bool = True
    """Whether the piece may end."""
    tracks: frozenset[int] | None = None
    """Ranks of the tracks that may play, all where None; see `track_ranks`."""


class After(Enum):
    """Kind of the token that came last."""

    NOTHING = auto()
    BOS = auto()
    BAR = auto()
    TIME_SIGNATURE = auto()
    POSITION = auto()
    TEMPO = auto()
    PROGRAM = auto()
    PART = auto()
    PITCH = auto()
    DRUM = auto()
    VELOCITY = auto()
    NOTE = auto()
    EOS = auto()


_SIZE = len(MULTITRACK_VOCABULARY)
_NUM_TRACKS = len(PROGRAM_ORDER) * NUM_PARTS
_DURATION_STEPS: list[int] = DURATIONS.tolist()


def _mask(*ranges: tuple[int, int]) -> NDArray[np.bool_]:
    mask = np.zeros(_SIZE, bool)
    for first, stop in ranges:
        mask[first:stop] = True
    mask.setflags(write=False)
    return mask


_ALWAYS = {
    After.NOTHING: _mask((BOS, BOS + 1), (BAR, BAR + 1)),
    After.BOS: _mask((BAR, BAR + 1)),
    After.PITCH: _mask((TRACK_VELOCITY, TRACK_DURATION)),
    After.DRUM: _mask((TRACK_VELOCITY, TRACK_DURATION)),
    After.VELOCITY: _mask((TRACK_DURATION, _SIZE)),
    After.EOS: _mask((PAD, PAD + 1)),
}
_FIRST_TIME_SIGNATURE = _mask((TIME_SIGNATURE, POSITION))
_FIRST_POSITION = _mask((POSITION, POSITION + 1))
_FIRST_TEMPO = _mask((TEMPO, PROGRAM))


class MultitrackGrammar(NamedTuple):
    """What the tokens so far say about the next one; immutable. Times are steps from the start.

    Starts before BOS, or before the Bar of a crop. Every state can go on: after EOS, PAD follows.
    """

    rules: MultitrackRules = MultitrackRules()
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
    last_track: int = -1
    """Rank of the last track at the position before the Program that came last; -1 before any."""
    track: int = -1
    """Rank of the track that plays; -1 before any at the position."""
    pitch: int = -1
    """Last pitch of the track at the position; -1 before any."""
    sounding: tuple[tuple[int, int, int], ...] = ()
    """(rank, pitch, step where it ends) of notes that may still sound."""
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
        mask = np.zeros(_SIZE, bool)
        if after is After.PROGRAM or after is After.PART:
            self._allow_track(mask)
        else:
            self._allow_elsewhere(mask)
        mask.setflags(write=False)
        return mask

    def _allow_track(self, mask: NDArray[np.bool_]) -> None:
        """What follows a Program or a Part: another Part, or the first pitch."""
        if self.after is After.PROGRAM:
            tracks = self._tracks_after(self.last_track)
            mask[PART : PART + NUM_PARTS - 1] = tracks[self.track + 1 : self.track + NUM_PARTS]
            if not tracks[self.track]:
                return
        self._allow_pitches(mask)

    def _allow_elsewhere(self, mask: NDArray[np.bool_]) -> None:
        """What follows a bar line, a position, a tempo or a note."""
        after = self.after
        if after is After.POSITION:
            if self._tempo_at(self.position):
                mask[TEMPO:PROGRAM] = True
                mask[self.tempo] = False
        else:
            mask[BAR] = True
            mask[EOS] = self.rules.end and self.sounds_until <= self.bar_start + self.bar_length
            mask[POSITION + self.position + 1 : POSITION + self.bar_length] = True
            self._forbid_full_positions(mask)
            if after is After.BAR and self.rules.time_signature:
                mask[TIME_SIGNATURE:POSITION] = True
                mask[TIME_SIGNATURE + self.bar_length // BAR_UNIT - 1] = False
        if after is After.NOTE:
            self._allow_pitches(mask)
        if after is After.NOTE or after is After.POSITION or after is After.TEMPO:
            tracks = self._tracks_after(self.track)
            mask[PROGRAM:PART] = tracks.reshape(-1, NUM_PARTS).any(1)

    def _allow_pitches(self, mask: NDArray[np.bool_]) -> None:
        """Pitches of the track above the last one that do not sound."""
        if self.track == 0:
            mask[DRUM_PITCH + self.pitch + 1 : TRACK_VELOCITY] = True
            return
        mask[TRACK_PITCH + self.pitch + 1 : DRUM_PITCH] = True
        now = self.bar_start + self.position
        for track, pitch, end in self.sounding:
            if track == self.track and end > now:
                mask[TRACK_PITCH + pitch] = False

    def _tracks_after(self, track: int) -> NDArray[np.bool_]:
        """(tracks,), which may begin at the position after one of rank `track`."""
        tracks = _may_play(self.rules.tracks).copy()
        tracks[: track + 1] = False
        if len(self.sounding) >= 128:
            tracks[self._full(self.bar_start + self.position)] = False
        return tracks

    def _full(self, now: int) -> list[int]:
        """Tracks all pitches of which sound."""
        counts = np.bincount([t for t, _, end in self.sounding if end > now], minlength=1)
        return np.flatnonzero(counts >= 128).tolist()

    def _forbid_full_positions(self, mask: NDArray[np.bool_]) -> None:
        """Forbid positions at which no track can strike a note, since nothing could follow them."""
        allowed = np.flatnonzero(_may_play(self.rules.tracks)).tolist()
        if 0 in allowed or len(self.sounding) < 128 * len(allowed):
            return
        for position in range(self.position + 1, self.bar_length):
            full = set(self._full(self.bar_start + position))
            if full.issuperset(allowed):
                mask[POSITION + position] = self._tempo_at(position)

    def advance(self, token: int) -> MultitrackGrammar:
        """State after one more token. Raises ValueError for a token that is not allowed."""
        if not (0 <= token < _SIZE and self.allowed[token]):
            raise ValueError(self._refusal(token))
        if token >= TRACK_DURATION:
            now = self.bar_start + self.position
            end = now + _DURATION_STEPS[token - TRACK_DURATION]
            still = [note for note in self.sounding if note[2] > now]
            return self._replace(
                after=After.NOTE,
                sounding=(*still, (self.track, self.pitch, end)),
                sounds_until=max(self.sounds_until, end),
            )
        if token >= TRACK_VELOCITY:
            drum = self.after is After.DRUM
            return self._replace(after=After.NOTE if drum else After.VELOCITY)
        if token >= DRUM_PITCH:
            return self._replace(after=After.DRUM, pitch=token - DRUM_PITCH)
        if token >= TRACK_PITCH:
            return self._replace(after=After.PITCH, pitch=token - TRACK_PITCH)
        if token >= PART:
            return self._replace(after=After.PART, track=self.track + token - PART + 1)
        if token >= PROGRAM:
            track = (token - PROGRAM) * NUM_PARTS
            return self._replace(after=After.PROGRAM, last_track=self.track, track=track, pitch=-1)
        if token >= TEMPO:
            return self._replace(after=After.TEMPO, tempo=token)
        if token >= POSITION:
            return self._replace(
                after=After.POSITION, position=token - POSITION, last_track=-1, track=-1, pitch=-1
            )
        if token >= TIME_SIGNATURE:
            length = (token - TIME_SIGNATURE + 1) * BAR_UNIT
            return self._replace(after=After.TIME_SIGNATURE, bar_length=length)
        if token == BAR:
            return self._replace(
                after=After.BAR,
                bar=self.bar + 1,
                bar_start=self.bar_start + self.bar_length,
                position=-1,
                last_track=-1,
                track=-1,
                pitch=-1,
            )
        return self._replace(after=After.BOS if token == BOS else After.EOS)

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> MultitrackGrammar:
        """The same with more notes sounding: rank of the track, pitch, step where it ends."""
        held = tuple(notes)
        until = max((end for *_, end in held), default=0)
        return self._replace(
            sounding=(*self.sounding, *held), sounds_until=max(self.sounds_until, until)
        )

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> MultitrackGrammar:
        """State after a prompt, whatever the rules: they hold for what follows.

        Raises ValueError where the prompt is not canonical.
        """
        state = self._replace(rules=MultitrackRules())
        for token in np.asarray(ids).tolist():
            state = state.advance(token)
        return state._replace(rules=self.rules)

    def _tempo_at(self, position: int) -> bool:
        return self.rules.tempo == "free" or (self.rules.tempo == "bar_line" and position == 0)

    def _refusal(self, token: int) -> str:
        names = MULTITRACK_VOCABULARY.names
        name = names[token] if 0 <= token < len(names) else f"id {token}"
        place = f"bar {self.bar}, position {self.position}, after {self.after.name}"
        return f"{name} may not stand here: {place}"


@lru_cache(maxsize=64)
def _may_play(ranks: frozenset[int] | None) -> NDArray[np.bool_]:
    """(tracks,), read-only."""
    tracks = np.zeros(_NUM_TRACKS, bool)
    if ranks is None:
        tracks[:] = True
        tracks[1:NUM_PARTS] = False  # the drums are one track
    else:
        tracks[list(ranks)] = True
    tracks.setflags(write=False)
    return tracks
