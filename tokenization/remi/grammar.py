"""The grammar of the REMI tokenizers, which accepts exactly their canonical sequences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from enum import IntEnum, auto
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import BAR_UNIT, STEPS_PER_BEAT
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.documents.state import DocumentState
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    DURATIONS,
    MULTITRACK_FAMILIES,
    NUM_PARTS,
    NUM_PITCHES,
    PAD,
    PIANO_FAMILIES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
    Kind,
)
from tokenization.tokenizer import Rules


class After(IntEnum):
    """Kind of the last token; NOTE is one that completes a note."""

    NOTHING = auto()
    BOS = auto()
    # the header of a document
    HEADER = auto()
    PLAYER = auto()
    PLAYER_PART = auto()
    # the head of a bar, in the order of its tokens
    BAR = auto()
    LATER = auto()
    TIME_SIGNATURE = auto()
    HEAD_TEMPO = auto()
    RETURN = auto()
    CHORD = auto()
    BASS = auto()
    SECOND_CHORD = auto()
    SECOND_BASS = auto()
    LAST = auto()
    # the rest of a bar
    WRITE = auto()
    POSITION = auto()
    TEMPO = auto()
    PROGRAM = auto()
    PART = auto()
    PITCH = auto()
    DRUM = auto()
    VELOCITY = auto()
    NOTE = auto()
    EOS = auto()


def mask_of(families: Families, *ranges: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the read-only mask (v,) of the ids in some ranges."""
    allowed = np.zeros(families.size, bool)
    for first, stop in ranges:
        allowed[first:stop] = True
    allowed.setflags(write=False)
    return allowed


def _fixed_masks(families: Families) -> dict[After, NDArray[np.bool_]]:
    return {
        After.PITCH: mask_of(families, (families.velocity, families.duration)),
        After.DRUM: mask_of(families, (families.drum_velocity, families.return_)),
        After.EOS: mask_of(families, (PAD, PAD + 1)),
    }


FIXED_MASKS = {
    families: _fixed_masks(families) for families in (PIANO_FAMILIES, MULTITRACK_FAMILIES)
}
"""Read-only masks (v,) that depend only on the last token."""


class Players(NamedTuple):
    """The tracks that may play."""

    tracks: NDArray[np.bool_]
    """Read-only mask (ranks,) of the tracks."""
    ranks: list[int]
    full: int
    """While fewer notes than this sound, at least one of the tracks can play another note."""


@lru_cache(maxsize=1024)
def players(
    families: Families, ranks: frozenset[int] | None, silent: frozenset[int] = frozenset()
) -> Players:
    """Return the tracks with some ranks (None: all) except the silent ones."""
    num_programs = families.part - families.program
    tracks = np.zeros(max(num_programs * NUM_PARTS, families.only_track + 1), bool)
    if families.only_track >= 0:
        tracks[families.only_track] = True
    elif ranks is None:
        tracks[:] = True
        tracks[1:NUM_PARTS] = False  # the drums are one track
    else:
        tracks[list(ranks)] = True
    tracks[list(silent)] = False
    tracks.setflags(write=False)
    playing: list[int] = np.flatnonzero(tracks).tolist()
    # drums have no duration, so one can always be played
    full = 1 << 60 if tracks[0] else NUM_PITCHES * len(playing)
    return Players(tracks, playing, full)


AT_POSITION = frozenset({After.POSITION, After.TEMPO, After.NOTE})
_DURATION_STEPS: list[int] = DURATIONS.tolist()


class _State(NamedTuple):
    """State after the tokens so far. Times are grid steps from the start."""

    families: Families
    rules: Rules = Rules()
    after: After = After.NOTHING
    bar: int = 0
    """Number of Bar tokens so far."""
    bar_start: int = 0
    bar_length: int = 0
    """Length of the bar; 0 before the first TimeSignature."""
    position: int = -1
    """Last position in the bar; -1 before any."""
    tempo: int = 0
    """Id of the current Tempo; 0 before any."""
    last_track: int = -1
    """Rank of the track at the position that played before the last Program; -1 before any."""
    track: int = -1
    """Rank of the track that plays at the position; -1 before any."""
    pitch: int = 0
    """Id of the track's last Pitch or Drum at the position; 0 before any."""
    sounding: tuple[tuple[int, int, int], ...] = ()
    """(rank, id of the Pitch, end step) of notes that may still sound."""
    sounds_until: int = 0
    """Step at which the last note ends."""
    document: DocumentState = DocumentState()


class RemiGrammar(_State):
    """Grammar of canonical sequences; immutable.

    The initial state is before BOS, or before the Bar of a crop. Every state has a possible next
    token; EOS is followed by PAD.
    """

    @property
    def beat(self) -> float:
        """Time reached by the tokens so far, in quarter notes from the start."""
        return (self.bar_start + max(self.position, 0)) / STEPS_PER_BEAT

    @property
    def _players(self) -> Players:
        """The tracks that may play now."""
        return players(self.families, self.rules.tracks)

    @property
    @abstractmethod
    def allowed(self) -> NDArray[np.bool_]:
        """Read-only mask (v,) of the tokens that may follow; at least one."""

    def _allow_notes(self, mask: NDArray[np.bool_]) -> None:
        """Allow more notes of the current track, and Programs of later tracks."""
        families = self.families
        self._allow_pitches(mask)
        if families.only_track < 0:
            tracks = self._tracks_after(self.track)
            mask[families.program : families.part] = tracks.reshape(-1, NUM_PARTS).any(1)

    def _allow_track(self, mask: NDArray[np.bool_]) -> None:
        """Allow the tokens after a Program or a Part: another Part, or the first pitch."""
        if self.after is After.PROGRAM:
            part = self.families.part
            tracks = self._tracks_after(self.last_track)
            mask[part : part + NUM_PARTS - 1] = tracks[self.track + 1 : self.track + NUM_PARTS]
            if not tracks[self.track]:
                return
        self._allow_pitches(mask)

    def _allow_pitches(self, mask: NDArray[np.bool_]) -> None:
        """Allow pitches of the current track above the last one that do not sound."""
        families, track = self.families, self.track
        if track == 0:
            mask[max(self.pitch + 1, families.drum) : families.velocity] = True
        elif track > 0:
            mask[max(self.pitch + 1, families.pitch) : families.drum] = True
            now = self.bar_start + self.position
            for rank, pitch, end in self.sounding:
                if end > now and rank == track:
                    mask[pitch] = False

    def _tracks_after(self, track: int) -> NDArray[np.bool_]:
        """Return the mask (ranks,) of tracks that may follow rank `track` at the position."""
        tracks = self._players.tracks.copy()
        tracks[: track + 1] = False
        if len(self.sounding) >= NUM_PITCHES:
            now = self.bar_start + self.position
            tracks[[rank for rank, until in self._full_until().items() if until > now]] = False
        return tracks

    def _forbid_full_positions(self, mask: NDArray[np.bool_]) -> None:
        """Forbid positions at which no track can play a note, since nothing could follow them."""
        full_until = self._full_until()
        ranks = self._players.ranks
        bar_end = self.bar_start + self.bar_length
        first_free = min([bar_end, *(full_until.get(rank, 0) for rank in ranks)])
        for position in range(self.position + 1, first_free - self.bar_start):
            mask[POSITION + position] = self._tempo_at(position)

    def _full_until(self) -> dict[int, int]:
        """Return by rank, for tracks whose pitches all sound, when the first of them ends."""
        ends: dict[int, dict[int, int]] = {}
        for rank, pitch, end in self.sounding:
            of_track = ends.setdefault(rank, {})
            of_track[pitch] = max(end, of_track.get(pitch, 0))
        return {rank: min(of.values()) for rank, of in ends.items() if len(of) == NUM_PITCHES}

    def advance(self, token: int) -> Self:
        """Return the state after a token. Raises ValueError for a token that is not allowed."""
        families = self.families
        if not (0 <= token < families.size and self.allowed[token]):
            raise ValueError(self._refusal(token))
        if token >= families.duration:
            now = self.bar_start + self.position
            end = now + _DURATION_STEPS[token - families.duration]
            still = [note for note in self.sounding if note[2] > now]
            return self._replace(
                after=After.NOTE,
                sounding=(*still, (self.track, self.pitch, end)),
                sounds_until=max(self.sounds_until, end),
            )
        if token >= families.velocity:
            # a drum has no duration, so it ends here
            ended = self.after is After.DRUM
            return self._replace(after=After.NOTE if ended else After.VELOCITY)
        if token >= families.pitch:
            is_drum = token >= families.drum
            return self._replace(after=After.DRUM if is_drum else After.PITCH, pitch=token)
        if token >= families.part:
            return self._replace(after=After.PART, track=self.track + token - families.part + 1)
        if token >= families.program:
            track = (token - families.program) * NUM_PARTS
            return self._replace(after=After.PROGRAM, last_track=self.track, track=track, pitch=0)
        if token >= TEMPO:
            return self._replace(after=After.TEMPO, tempo=token)
        if token >= POSITION:
            return self._replace(
                after=After.POSITION,
                position=token - POSITION,
                last_track=-1,
                track=families.only_track,
                pitch=0,
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
                pitch=0,
            )
        return self._replace(after=After.BOS if token == BOS else After.EOS)

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Self:
        """Return the state with more notes that sound: track's rank, MIDI pitch, step of its end.

        Drums are ignored.
        """
        first = self.families.pitch
        held = tuple((rank, first + pitch, end) for rank, pitch, end in notes if rank > 0)
        until = max((end for *_, end in held), default=0)
        return self._replace(
            sounding=(*self.sounding, *held), sounds_until=max(self.sounds_until, until)
        )

    def resume(self, ids: Sequence[int] | NDArray[np.integer]) -> Self:
        """Return the state after a prompt.

        The rules do not apply to it, only to the tokens that follow. This is fast for prompts of
        any length: if called in the initial state, all bars before the last are assumed to be
        canonical. Raises ValueError if the rest is not.
        """
        array = np.asarray(ids, np.int64)
        bars = np.flatnonzero(array == BAR)[1:]
        start = int(bars[-1]) if len(bars) and self.after is After.NOTHING else 0
        state = self._replace(rules=Rules())
        if start:
            state = state._after_bars(array[:start])
        for token in array[start:].tolist():
            state = state.advance(token)
        return state._replace(rules=self.rules)

    def _after_bars(self, ids: NDArray[np.int64]) -> Self:
        """Return the state after whole bars, computed from all of them at once."""
        tokens = Tokens.of(ids, self.families)
        bars = read_bars(tokens)
        start, end = bars.lines[-2:].tolist()
        notes = read_notes(tokens, bars, self.families)
        melodic = notes.keys >= 128
        ends = (notes.onsets + notes.durations)[melodic]
        over = np.flatnonzero(ends > end)
        keys = notes.keys[melodic][over]
        tempos = ids[tokens.kinds[:-1] == Kind.TEMPO]
        state = self._replace(
            after=After.NOTE,
            bar=len(bars.lines) - 1,
            bar_start=start,
            bar_length=end - start,
            tempo=int(tempos[-1]) if len(tempos) else 0,
            sounds_until=int(ends.max(initial=0)),
        )
        held = (keys >> 7, keys & 127, ends[over])
        return state.hold(zip(*(column.tolist() for column in held), strict=True))

    def _tempo_at(self, position: int) -> bool:
        return self.rules.tempo == "free" or (self.rules.tempo == "bar_line" and position == 0)

    def _refusal(self, token: int) -> str:
        names = self.families.vocabulary.names
        name = names[token] if 0 <= token < len(names) else f"id {token}"
        place = f"bar {self.bar}, position {self.position}, after {self.after.name}"
        return f"{name} is not allowed at {place}"
