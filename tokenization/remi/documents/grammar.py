"""The grammar of documents of five kinds, with or without a plan."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokenization.grid import BAR_UNIT, MAX_BAR_STEPS
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.documents.heads import plan_ids
from tokenization.remi.documents.read import Signs, read_written
from tokenization.remi.documents.state import DocumentState
from tokenization.remi.grammar import FIXED_MASKS, After, Players, RemiGrammar, mask_of, players
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    DURATIONS,
    EOS,
    MAX_DISTANCE,
    NUM_PARTS,
    NUM_PITCHES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
    Kind,
)
from tokenization.tokenizer import FixedBar

# names of the module, since members of an enumeration are slow to look up
_BAR, _LAST, _WRITE, _POSITION = After.BAR, After.LAST, After.WRITE, After.POSITION
_VELOCITY, _NOTE = After.VELOCITY, After.NOTE

_ALL = frozenset({1})
"""Rank of the only track of a piano."""
_NONE: frozenset[int] = frozenset()
_NUM_DURATIONS = len(DURATIONS)


@lru_cache(maxsize=1024)
def _duration_mask(families: Families, count: int) -> NDArray[np.bool_]:
    """Return the mask of the first durations."""
    return mask_of(families, (families.duration, families.duration + count))


@lru_cache(maxsize=16_384)
def _times_mask(
    families: Families, position: int, bar_length: int, after_bar: int, may_write: bool
) -> NDArray[np.bool_]:
    """Return the mask of positions after one, the token at the bar's end (0: none), and Write."""
    return mask_of(
        families,
        (POSITION + position + 1, POSITION + bar_length),
        (after_bar, after_bar + (after_bar > 0)),
        (families.write, families.write + may_write),
    )


@lru_cache(maxsize=1024)
def _tempo_mask(families: Families, tempo: int) -> NDArray[np.bool_]:
    """Return the mask of all tempos except one; empty for 0."""
    if not tempo:
        return mask_of(families)
    return mask_of(families, (TEMPO, tempo), (tempo + 1, families.program))


@lru_cache(maxsize=16_384)
def _programs_after(
    families: Families, tracks: frozenset[int] | None, silent: frozenset[int], track: int
) -> NDArray[np.bool_]:
    """Return the mask (programs,) of the programs with a playing track after one."""
    playing = players(families, tracks, silent).tracks.copy()
    playing[: track + 1] = False
    return np.asarray(playing.reshape(-1, NUM_PARTS).any(1))


@lru_cache(maxsize=1024)
def _one(families: Families, token: int) -> NDArray[np.bool_]:
    """Return the mask of a single token."""
    return mask_of(families, (token, token + 1))


@lru_cache(maxsize=4096)
def _header_mask(
    families: Families, last_header: int, last_player: int, *, has_gap: bool
) -> NDArray[np.bool_]:
    """Return the mask of tokens after those of a header: Style, Key, players by rank, Gap, Bar."""
    ranges = [(BAR, BAR + 1)]
    if not last_header and last_player < 0:
        ranges.append((families.style, families.key))
    if last_header < families.key and last_player < 0:
        ranges.append((families.key, families.plays))
    if last_header < families.gap:
        ranges += [(families.gap, families.size)] * has_gap
        if families.only_track < 0:
            first = _next_program(last_player)
            ranges.append((families.program + first, families.part))
    return mask_of(families, *ranges)


def _next_program(last_player: int) -> int:
    """Return the index of the first Program with a rank above that of the last player."""
    if last_player < 0:
        return 0
    return last_player // NUM_PARTS + (last_player % NUM_PARTS == NUM_PARTS - 1 or last_player == 0)


@lru_cache(maxsize=4096)
def _player_mask(families: Families, player: int, last_player: int) -> NDArray[np.bool_]:
    """Return the mask of the tokens after the Program of a player: its Part, or Plays."""
    ranges: list[tuple[int, int]] = []
    if player > last_player:
        ranges.append((families.plays, families.plays + 1))
    if player:
        first = max(last_player - player, 0)
        ranges.append((families.part + first, families.pitch))
    return mask_of(families, *ranges)


class DocumentGrammar(RemiGrammar):
    """Grammar of the canonical documents; immutable.

    The initial state is before BOS, or before the header or first Bar of a document without BOS.
    """

    # ---- which tokens may follow

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Read-only mask (v,) of the tokens that may follow; at least one."""
        if self.rules.bars and self.bar in self.rules.bars:
            return self._as_fixed
        after = self.after
        if after is _VELOCITY:
            return _duration_mask(self.families, self._num_durations)
        always = FIXED_MASKS[self.families].get(after)
        return self._mask if always is None else always

    @cached_property
    def _mask(self) -> NDArray[np.bool_]:
        after, families = self.after, self.families
        if after < _BAR:
            return self._header_allowed
        if after is _WRITE:
            return self._times
        if after is _POSITION:
            may_change = self._tempo_at(self.position)
            mask = _tempo_mask(families, self.tempo if may_change else 0).copy()
            self._allow_notes(mask)
        elif after is _NOTE or after is After.TEMPO:
            mask = self._times.copy()
            self._allow_notes(mask)
        else:
            mask = np.zeros(families.size, bool)
            if after <= _LAST:
                self._allow_head(mask)
            else:
                self._allow_track(mask)
        mask.setflags(write=False)
        return mask

    @property
    def _header_allowed(self) -> NDArray[np.bool_]:
        families, after = self.families, self.after
        if after is After.PLAYER:
            return _player_mask(families, self.track, self.last_track)
        if after is After.PLAYER_PART:
            return _one(families, families.plays)
        last_header, has_gap = self.document.last_header, self.rules.write
        mask = _header_mask(families, last_header, self.last_track, has_gap=has_gap)
        if after is After.NOTHING:
            mask = mask | _one(families, BOS)
            mask.setflags(write=False)
        return mask

    def _allow_head(self, mask: NDArray[np.bool_]) -> None:
        """Allow further tokens of the head of a bar, and what follows if it may end here."""
        after, families, document = self.after, self.families, self.document
        if after is After.BAR and document.gap and document.main == 1 and not document.has_ended:
            mask[families.later] = True
        if after < After.TIME_SIGNATURE and self._allow_metres(mask):
            return
        if after < After.HEAD_TEMPO:
            if document.is_first or self.rules.tempo != "never":
                mask[TEMPO : families.program] = True
                if self.tempo and not document.is_first:
                    mask[self.tempo] = False
            if document.is_first:
                return
        if after < After.RETURN and document.is_planned is not False:
            self._allow_returns(mask)
            if document.is_planned:
                return
        if after in (After.RETURN, After.CHORD, After.BASS):
            mask[families.chord : families.bass] = True
        if after in (After.CHORD, After.SECOND_CHORD) and document.root >= 0:
            mask[families.bass : families.later] = True
            mask[families.bass + document.root] = False
        if after < After.LAST:
            mask[families.last] = self._may_be_last
        mask |= self._times

    def _allow_metres(self, mask: NDArray[np.bool_]) -> bool:
        """Allow TimeSignatures; return whether one must follow."""
        document = self.document
        must = document.is_first
        shortest = 0
        if document.gap and (document.must_write or self._is_to_be_written):
            room = document.bars_left * MAX_BAR_STEPS
            shortest = self.sounds_until - self.bar_start - room
            must = must or shortest > self.bar_length
        if must or self.rules.time_signature:
            first = max(-(-shortest // BAR_UNIT) - 1, 0)
            mask[TIME_SIGNATURE + first : POSITION] = True
            if not document.is_first:
                mask[TIME_SIGNATURE + self.bar_length // BAR_UNIT - 1] = False
        return must

    def _allow_returns(self, mask: NDArray[np.bool_]) -> None:
        """Allow New and the distances to bars that are in the document so far."""
        document, first = self.document, self.families.return_
        earlier = (document.later if document.is_later else document.main) - 1
        mask[first : first + min(earlier, MAX_DISTANCE) + 1] = True
        if document.later and not document.is_later and self._may_write:
            nearest = document.bars_left + 1
            farthest = min(document.bars_left + document.later, MAX_DISTANCE)
            mask[first + MAX_DISTANCE + nearest : first + MAX_DISTANCE + farthest + 1] = True

    @property
    def _may_be_last(self) -> bool:
        """Whether a Last may follow, after which all notes end in this bar."""
        document = self.document
        if not self.rules.end or self.sounds_until > self.bar_start + self.bar_length:
            return False
        if self.bar + 1 in self.rules.bars:  # the caller has more bars
            return False
        if document.is_later or not document.gap:
            return True
        return not document.later and document.written == document.gap - 1

    @property
    def _may_write(self) -> bool:
        """Whether a Write may follow now, or after more of the head of the bar."""
        document = self.document
        if document.is_later or document.has_write:
            return False
        if not (self.rules.write or document.must_write or self._is_to_be_written):
            return False
        if self.families.only_track >= 0 and document.playing:
            return False
        if not document.gap:
            return True
        return document.written < document.gap and self.sounds_until <= self._end_limit

    @property
    def _is_to_be_written(self) -> bool:
        """Whether the caller has decided that the bar is to be written."""
        fixed = self.rules.bars.get(self.bar)
        return fixed is not None and fixed.given is not None

    @property
    def _end_limit(self) -> int:
        """Step at which all notes must have ended, if this is a bar of the gap."""
        longest = MAX_BAR_STEPS if self.rules.time_signature else self.bar_length
        return self.bar_start + self.bar_length + self.document.bars_left * longest

    @property
    def _num_durations(self) -> int:
        """Number of durations that may follow: all, or those that end in time."""
        document = self.document
        if document.is_last:
            return _durations_within(self.bar_length - self.position)
        if document.gap and document.must_write:
            return _durations_within(self._end_limit - self.bar_start - self.position)
        return _NUM_DURATIONS

    @property
    def _times(self) -> NDArray[np.bool_]:
        """Read-only mask of later positions, Write, the next bar and the end."""
        document, families = self.document, self.families
        if document.must_write and not document.has_write:
            after_bar, may_write = 0, True
        else:
            is_end = document.is_last or (document.gap and document.written == document.gap)
            after_bar = EOS if is_end and not document.is_later else BAR
            may_write = self._may_write
        mask = _times_mask(families, self.position, self.bar_length, after_bar, may_write)
        # without these, at least one track can play
        limited = document.must_write or self.rules.tracks is not None
        limited = limited or len(self.sounding) >= NUM_PITCHES
        if limited and len(self.sounding) >= self._players.full:
            mask = mask.copy()
            self._forbid_full_positions(mask)
        return mask

    def _allow_notes(self, mask: NDArray[np.bool_]) -> None:
        families = self.families
        if families.only_track >= 0:
            if not self.document.must_write or self._players.ranks:
                self._allow_pitches(mask)
            return
        self._allow_pitches(mask)
        if len(self.sounding) >= NUM_PITCHES:
            super()._allow_notes(mask)
        else:
            programs = _programs_after(families, self.rules.tracks, self._silent, self.track)
            mask[families.program : families.part] = programs

    @property
    def _players(self) -> Players:
        """The tracks that may play: given ones before the Write of a bar, others after it."""
        return players(self.families, self.rules.tracks, self._silent)

    @property
    def _silent(self) -> frozenset[int]:
        """Ranks of the tracks that may not play in this half of the bar."""
        document = self.document
        if not document.must_write:
            return _NONE
        if document.has_write:
            return document.given
        return _ALL if self.families.only_track >= 0 else document.writers

    def _tempo_at(self, position: int) -> bool:
        # at the start of a bar, tempos are in its head
        return position > 0 and not self.document.has_write and self.rules.tempo == "free"

    # ---- what the caller has fixed

    @cached_property
    def _as_fixed(self) -> NDArray[np.bool_]:
        """The mask in a bar of which something is decided in advance."""
        after, families, document = self.after, self.families, self.document
        fixed = self.rules.bars[self.bar]
        in_head = After.BAR <= after <= After.LAST
        if fixed.given is not None and not in_head and not document.has_write:
            return _one(families, self._next_given(fixed))
        if after is _VELOCITY:
            return _duration_mask(families, self._num_durations)
        always = FIXED_MASKS[families].get(after)
        mask = self._mask if always is None else always
        if not in_head:
            return mask
        mask = mask.copy()
        if fixed.given is not None and (
            mask[families.write] or mask[BAR] or mask[EOS] or mask[POSITION:TEMPO].any()
        ):
            mask[BAR] = mask[EOS] = mask[families.write] = False
            mask[POSITION:TEMPO] = False
            mask[self._next_given(fixed)] = True
        if fixed.sources is not None or fixed.chords is not None:
            self._fix_plan(mask, fixed)
        mask.setflags(write=False)
        return mask

    def _next_given(self, fixed: FixedBar) -> int:
        given, cursor = fixed.given or (), self.document.cursor
        return given[cursor] if cursor < len(given) else self.families.write

    def _fix_plan(self, mask: NDArray[np.bool_], fixed: FixedBar) -> None:
        after, families = self.after, self.families
        chords = fixed.chords or ()
        if after < After.RETURN:
            if not mask[families.return_]:
                return
            returns = mask[families.return_ : families.chord].copy()
            metres = mask[TIME_SIGNATURE:POSITION].copy(), mask[TEMPO : families.program].copy()
            mask[:] = False
            mask[TIME_SIGNATURE:POSITION], mask[TEMPO : families.program] = metres
            if fixed.sources is not None:
                asked = [plan_ids(one, (), families)[0] - families.return_ for one in fixed.sources]
                possible = [one for one in asked if returns[one]] or [0]
                returns[:] = False
                returns[possible] = True
            mask[families.return_ : families.chord] = returns
        elif after < After.LAST and fixed.chords is not None:
            mask[families.chord : families.later] = False
            rest = plan_ids(0, chords, families)[1 + after - After.RETURN :]
            following = next((token for token in rest if token), 0)
            if following:
                mask[:] = False
                mask[following] = True

    # ---- the state after a token

    def _check(self, token: int) -> None:
        if token >= self.families.size or not self.allowed[token]:
            raise ValueError(self._refusal(token))

    def advance(self, token: int) -> Self:
        """Return the state after a token. Raises ValueError for a token that is not allowed."""
        families, document = self.families, self.document
        if families.velocity <= token < families.drum_velocity:
            state = super().advance(token)
        elif token >= families.drum_velocity:
            self._check(token)
            state = self._after_document_token(token)
        elif self.after < After.BAR and families.program <= token < families.pitch:
            self._check(token)
            if token < families.part:
                track = NUM_PARTS * (token - families.program)
                state = self._replace(after=After.PLAYER, track=track)
            else:
                track = self.track + token - families.part + 1
                state = self._replace(after=After.PLAYER_PART, track=track)
        else:
            state = super().advance(token)
            if token >= families.pitch:
                if state.track not in document.playing:
                    playing = document.playing | {state.track}
                    document = document._replace(playing=playing)
                    if document.has_write and state.track not in document.writers:
                        document = document._replace(writers=document.writers | {state.track})
                    state = state._replace(document=document)
            elif token == BAR:
                state = state._replace(document=self._at_next_bar())
            elif token < TEMPO:
                if TIME_SIGNATURE <= token < POSITION and document.later and document.is_first:
                    # the bars before the gap begin, or the first Later bar
                    document = document._replace(ringing=())
                    state = state._replace(sounding=(), sounds_until=0, document=document)
            elif token < families.program and self.after < After.LAST:
                state = state._replace(after=After.HEAD_TEMPO)
        if self.rules.bars:
            state = state._with_cursor(self, token)
        return state

    def _with_cursor(self, before: Self, token: int) -> Self:
        """Count a token of the given tracks of a bar."""
        fixed = self.rules.bars.get(before.bar)
        if fixed is None or not fixed.given or before.document.has_write or token == BAR:
            return self
        if self.after <= After.LAST:
            return self
        document = self.document._replace(cursor=before.document.cursor + 1)
        return self._replace(document=document)

    def _at_next_bar(self) -> DocumentState:
        """Return the document after a Bar; it is not a Later bar unless a Later follows."""
        document = self.document
        is_first = not document.main and not document.later
        bar_end = self.bar_start + self.bar_length
        return document._replace(
            is_planned=document.is_planned if is_first else bool(document.is_planned),
            main=document.main + 1,
            is_later=False,
            is_last=False,
            must_write=bool(document.written),
            has_write=False,
            playing=_NONE,
            ringing=tuple([note for note in self.sounding if note[2] > bar_end]),
            root=-1,
            cursor=0,
        )

    def _after_document_token(self, token: int) -> Self:
        """Return the state after a token of a plan, header or selection."""
        families, document = self.families, self.document
        if token < families.return_:
            return self._replace(after=After.NOTE)
        if token < families.chord:
            changed = document._replace(
                is_planned=True,
                must_write=document.must_write or token > families.return_ + MAX_DISTANCE,
            )
            return self._replace(after=After.RETURN, document=changed)
        if token < families.bass:
            chord = token - families.chord
            root = -1 if token == families.bass - 1 else chord // 11
            after = After.CHORD if self.after is After.RETURN else After.SECOND_CHORD
            return self._replace(after=after, document=document._replace(root=root))
        if token < families.later:
            return self._replace(
                after=After.BASS if self.after is After.CHORD else After.SECOND_BASS
            )
        if token == families.later:
            changed = document._replace(
                later=document.later + 1, main=document.main - 1, is_later=True
            )
            return self._replace(after=After.LATER, document=changed)
        if token == families.write:
            return self._after_write()
        if token == families.last:
            changed = document._replace(
                is_last=True,
                has_ended=document.has_ended or document.is_later,
                must_write=document.must_write or (not document.is_later and document.gap > 0),
            )
            return self._replace(after=After.LAST, document=changed)
        if token == families.plays:
            return self._replace(after=After.HEADER, last_track=self.track)
        gap = token - families.gap + 1 if token >= families.gap else 0
        changed = document._replace(last_header=token, gap=gap)
        return self._replace(after=After.HEADER, document=changed)

    def hold(self, notes: Iterable[tuple[int, int, int]]) -> Self:
        """See `RemiGrammar.hold`; in a document with a gap, they may sound beyond its end."""
        state = super().hold(notes)
        ringing = (*self.document.ringing, *state.sounding[len(self.sounding) :])
        return state._replace(
            sounds_until=self.sounds_until if self.document.gap else state.sounds_until,
            document=self.document._replace(ringing=ringing),
        )

    def _after_bars(self, ids: NDArray[np.int64]) -> Self:
        """Return the state after whole bars, computed from all of them at once."""
        header = self
        for token in ids[: int((ids == BAR).argmax())].tolist():
            header = header.advance(token)
        state = super(DocumentGrammar, header)._after_bars(ids)
        tokens = Tokens.of(ids, self.families)
        bars = read_bars(tokens)
        notes = read_notes(tokens, bars, self.families)
        num_main = len(bars.lines) - 1 - bars.num_later
        start = bars.lines[bars.num_later] if num_main else 0
        counted = (notes.onsets >= start) & (notes.keys >= 128)
        ends = (notes.onsets + notes.durations)[counted]
        signs = Signs.of(tokens)
        written = read_written(signs, bars, notes)
        lasts = signs.places[signs.kinds == Kind.LAST]
        document = header.document._replace(
            is_planned=signs.has(Kind.RETURN),
            later=bars.num_later,
            main=num_main,
            written=num_main - written.first if written else 0,
            given=written.given if written else _NONE,
            writers=written.others if written else _NONE,
            has_ended=bool((signs.bar_of(lasts) < bars.num_later).any()),
        )
        return state._replace(
            last_track=header.last_track,
            document=document,
            sounds_until=int(ends.max(initial=0)),
        )

    def _after_write(self) -> Self:
        document = self.document
        # notes that ended in the given half of the bar may still sound in the written half
        early = [note for note in document.ringing if note not in self.sounding]
        changed = document._replace(
            written=document.written + 1,
            must_write=True,
            has_write=True,
            given=document.given | document.playing,
            playing=_NONE,
        )
        return self._replace(
            after=After.WRITE,
            position=-1,
            last_track=-1,
            track=-1,
            pitch=0,
            sounding=(*early, *self.sounding),
            document=changed,
        )


@lru_cache(maxsize=4096)
def _durations_within(steps: int) -> int:
    return int(DURATIONS.searchsorted(steps, side="right"))
