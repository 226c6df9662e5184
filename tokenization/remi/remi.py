"""The common base of REMI tokenizers (after Huang and Yang, 2020), and the tokenizer for piano."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import QUALITIES
from tokenization.document import UNKNOWN, Document, Header, Selection
from tokenization.errors import TokenizerError
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan import Plan
from tokenization.remi.decode import (
    Bars,
    Notes,
    Tokens,
    by_track,
    read_bars,
    read_notes,
    read_tempos,
)
from tokenization.remi.documents.grammar import DocumentGrammar
from tokenization.remi.documents.heads import plain_heads, planned_heads
from tokenization.remi.documents.order import Order
from tokenization.remi.documents.read import Signs, read_header, read_key, read_plan, read_written
from tokenization.remi.encode import Body, write_ids
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.quantize import SeparateNotes, name_bars, quantize_notes, quantize_timeline
from tokenization.remi.tempo_range import in_tempo_range, tempos_out_of_range
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    DURATIONS,
    MAX_DURATION,
    NUM_PARTS,
    NUM_STYLES,
    PIANO_FAMILIES,
    PLANNED_PIANO_FAMILIES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
    Kind,
)
from tokenization.score import NO_NOTES, Score, TimeSignature, Track, all_notes
from tokenization.tokenizer import (
    BaseTokenizer,
    Config,
    Rules,
    Tokenizer,
    TokenSequence,
    end_of_crop,
)

_PIANO = Track(NO_NOTES)
_BOS = np.array([BOS], np.int32)


@dataclass(frozen=True, eq=False)
class RemiTokens(TokenSequence):
    """A piece as tokens of a `Remi`."""

    families: Families = PIANO_FAMILIES

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """See `TokenSequence`; a Bar has the time of the last position in the previous bar.

        Bars count in the order of the tokens.
        """
        return read_bars(Tokens.of(self.ids, self.families)).times[:-1] / STEPS_PER_BEAT


class Remi(BaseTokenizer[RemiGrammar]):
    """Music as `Bar`, `Position` and note tokens on twelfths of a quarter note.

    A canonical sequence of version 1 is `BOS Bar TimeSignature Position_0 Tempo`, notes, further
    positions and bars, `EOS`. A TimeSignature comes right after the first Bar to which it applies,
    a Tempo right after the first Position to which it applies, and each only if it changes. A note
    is a Pitch, Velocity and Duration. Positions are ascending within a bar, and pitches of a track
    within a position. No pitch is struck while it sounds. Each Position is followed by a Tempo or a
    note. Bars continue until all notes have ended.

    Version 2 has plans, headers and documents (see `tokenization/README.md`). Its differences are
    in its `Families`; both versions have the same code.
    """

    def __init__(self, config: Config, families: Families) -> None:
        super().__init__(config)
        self.families = families
        self.vocabulary = families.vocabulary

    def encode(
        self,
        score: Score,
        plan: Plan | None = None,
        header: Header = UNKNOWN,
        selection: Selection | None = None,
        begins: bool = True,
        ends: bool = True,
        num_bars: int | None = None,
    ) -> TokenSequence:
        """Encodes a score; the sustain pedal is ignored.

        A tempo outside the range of the vocabulary is halved or doubled, together with its beats;
        see `in_tempo_range`.

        The other arguments are those of a `Document`, which only version 2 can represent. A source
        of the plan that is not in the document before its bar becomes New, and so does a bar after
        the last one of the plan; bars of the plan after the end of the piece are left out. A note
        that begins before the end of a gap ends there at the latest.

        Raises MidiError if a note is later than 65,536 quarters, and TokenizerError if the document
        cannot be represented.
        """
        families = self.families
        tempos_scaled = len(tempos_out_of_range(score, families))
        if tempos_scaled:
            score = in_tempo_range(score, families=families)
        ranks = self.track_ranks(score.tracks)
        table, keys, dropped = _heard(score.tracks, ranks, families)
        notes = quantize_notes(table, keys, score.ticks_per_beat)
        merged = len(keys) - len(notes.onsets)
        durations = notes.duration_tokens()
        end = int((notes.onsets + DURATIONS[durations]).max(initial=0))
        timeline = quantize_timeline(score, end, families, num_bars)
        if num_bars is not None:
            begins_inside = notes.onsets < timeline.lines[-1]
            notes = SeparateNotes(*(column[begins_inside] for column in notes))
            durations = durations[begins_inside]
        if not families.has_plans:
            if plan or selection or header != UNKNOWN:
                raise TokenizerError(
                    f"{self.config.kind} of version 1 has no plan, header or selection; "
                    "use version 2"
                )
            heads, tempos = plain_heads(timeline.lines, has_end=ends), timeline.tempos
            prefix = _BOS[:begins]
        else:
            order = Order.of(timeline.lines, selection)
            heads, tempos = planned_heads(
                order,
                timeline.tempos,
                plan.bars if plan else (),
                families,
                has_last=ends,
                has_end=ends or (selection is not None and selection.stop is not None),
            )
            prefix = self._prefix(plan, header, selection, begins=begins)
            if not order.is_plain:
                if selection is not None and selection.stop is not None:
                    notes = notes.cut_at(int(order.lines[order.stop]))
                    durations = notes.duration_tokens()
                is_given = self._is_given(notes.keys >> 7, ranks, selection)
                notes = notes._replace(onsets=order.times(notes.onsets, is_given))
        ids = write_ids(Body(heads, tempos, notes, durations), families)
        return RemiTokens(
            ids=np.concatenate([prefix, ids]),
            dropped=dropped,
            clipped=int(np.count_nonzero(notes.durations > MAX_DURATION)),
            merged=merged,
            tempos_clipped=timeline.tempos.clipped,
            tempos_scaled=tempos_scaled,
            signatures=timeline.signatures,
            tracks=self._named(score.tracks, ranks),
            families=families,
        )

    def _prefix(
        self, plan: Plan | None, header: Header, selection: Selection | None, *, begins: bool
    ) -> NDArray[np.int32]:
        """Ids before the first Bar. Raises TokenizerError for a header that has none."""
        families, ids = self.families, [BOS] * begins
        if header.style is not None:
            if not 0 <= header.style < NUM_STYLES:
                raise TokenizerError(f"style is {header.style}, expected 0 to {NUM_STYLES - 1}")
            ids.append(families.style + header.style)
        if plan is not None and plan.key is not None:
            ids.append(families.key + plan.key.tonic + 12 * plan.key.minor)
        for rank in sorted(header.players):
            if families.only_track >= 0 or not 0 <= rank < NUM_PARTS * (
                families.part - families.program
            ):
                raise TokenizerError(f"there is no track of rank {rank} to be written")
            program, part = divmod(rank, NUM_PARTS)
            ids += [families.program + program, *([families.part + part - 1] if part else [])]
            ids.append(families.plays)
        if selection is not None and selection.stop is not None:
            ids.append(families.gap + selection.stop - selection.first - 1)
        return np.array(ids, np.int32)

    def _is_given(
        self, ranks: NDArray[np.int64], of_tracks: Sequence[int], selection: Selection | None
    ) -> NDArray[np.bool_]:
        """Which notes (n,), by their ranks, belong to given tracks. Raises TokenizerError."""
        given = sorted({of_tracks[index] for index in (selection.given if selection else ())})
        if given and self.families.only_track >= 0:
            raise TokenizerError(
                "tracks cannot be given because the tokenizer has only one; use multitrack_remi"
            )
        return np.isin(ranks, given)

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Decodes any ids to a score with 12 ticks per quarter, in linear time; never raises.

        Only ids up to the first EOS count. `read_notes` defines notes; each ends where its pitch is
        struck again. Misplaced tokens are ignored. The score ends with its last bar or its last
        note, whichever is later. `signatures` and `tracks` are those of the `TokenSequence`.
        Signatures replace the bar lengths as long as both give the same bars. Tracks restore names,
        channels and places in the file.
        """
        tokens = Tokens.of(ids, self.families).to_end()
        bars = read_bars(tokens)
        notes = read_notes(tokens, bars, self.families)
        return self._score(tokens, bars, notes, signatures, tracks)[0]

    def _score(
        self,
        tokens: Tokens,
        bars: Bars,
        notes: Notes,
        signatures: Sequence[TimeSignature],
        tracks: Sequence[Track],
    ) -> tuple[Score, NDArray[np.int64]]:
        """The score of some tokens, and its bar lines in steps."""
        table, ranks = by_track(notes._replace(onsets=bars.in_music(notes.onsets)))
        lines = bars.music_lines()
        score = Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=self._tracks(table, ranks, tracks),
            tempos=read_tempos(tokens, bars, self.families),
            time_signatures=name_bars(lines, signatures),
            end_ticks=int(lines[-1]),
        )
        return score, lines

    def decode_document(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Document:
        """Decodes any ids to a document, the score as `decode` does; never raises."""
        tokens = Tokens.of(ids, self.families).to_end()
        bars = read_bars(tokens)
        notes = read_notes(tokens, bars, self.families)
        score, lines = self._score(tokens, bars, notes, signatures, tracks)
        signs = Signs.of(tokens)
        plans = read_plan(signs, bars, lines, score.time_signatures)
        key = read_key(signs)
        selection = None
        if (written := read_written(signs, bars, notes)) is not None:
            ranks = self.track_ranks(score.tracks)
            given = tuple(at for at, rank in enumerate(ranks) if rank in written.given)
            selection = Selection(written.first, written.stop, given)
        ends = signs.has(Kind.LAST) or not self.families.has_plans
        return Document(
            score,
            Plan(plans, key) if plans or key else None,
            read_header(signs),
            selection,
            begins=bool((tokens.kinds[: signs.first_bar] == Kind.BOS).any()),
            ends=ends,
            num_bars=None if ends else len(lines) - 1,
        )

    def split_at_written(
        self, ids: NDArray[np.integer]
    ) -> tuple[NDArray[np.integer], tuple[tuple[int, ...], ...]]:
        """What a document gives: ids before the first bar that is to be written, and given tracks.

        For each bar with a Write, these are the ids from its first Position up to the Write, as in
        `FixedBar.given`. Without such bars, all ids come before.
        """
        writes = np.flatnonzero(ids == self.families.write)
        bars = np.flatnonzero(ids == BAR)
        starts = bars[bars.searchsorted(writes) - 1]
        given: list[tuple[int, ...]] = []
        for start, stop in zip(starts.tolist(), writes.tolist(), strict=True):
            half = ids[start:stop]
            positions = np.flatnonzero((half >= POSITION) & (half < TEMPO))
            given.append(tuple(half[positions[0] :].tolist()) if len(positions) else ())
        return ids[: starts[0]] if len(writes) else ids, tuple(given)

    @abstractmethod
    def _named(self, tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
        """Tracks without their notes, in the order of their ranks, if tokens distinguish tracks."""

    @abstractmethod
    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], known: Sequence[Track]
    ) -> tuple[Track, ...]:
        """Tracks of notes sorted by rank, time and pitch."""

    def _grammar(self, rules: Rules) -> RemiGrammar:
        if self.families.only_track >= 0:
            rules = rules._replace(tracks=None)
        if self.families.has_plans:
            return DocumentGrammar(self.families, rules)
        return RemiGrammar(self.families, rules)

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of `num_bars` bars (default: all) from `first_bar` on, of the same dtype.

        They start with `Bar TimeSignature Position_0 Tempo` (version 2: the header, then `Bar
        TimeSignature Tempo`), the settings in effect there. BOS is kept with the first bar, EOS
        with the last; parts keep their numbers, and sources before the first bar become New. Raises
        ValueError if there is no such bar, or if the ids are a document with a gap.
        """
        bars: list[int] = np.flatnonzero(ids == BAR).tolist()
        stop = [*bars, len(ids)][end_of_crop(first_bar, num_bars, len(bars))]
        families = self.families
        if families.gap < families.size and (ids[: bars[0]] >= families.gap).any():
            raise ValueError("the ids have a gap, expected a document without one")
        if first_bar == 0:
            return ids[:stop]
        start = bars[first_bar]
        after_tempos = families.program
        rest = start + 1
        if rest < stop and TIME_SIGNATURE <= ids[rest] < POSITION:
            rest += 1
        head = [BAR, _last_between(ids[:rest], TIME_SIGNATURE, POSITION)]
        if families.has_plans:
            header = ids[int(ids[0] == BOS) : bars[0]]
            rest += bool(rest < stop and TEMPO <= ids[rest] < after_tempos)
            head = [*header.tolist(), *head, _last_between(ids[:rest], TEMPO, after_tempos)]
            return self._in_crop(np.concatenate([np.array(head, ids.dtype), ids[rest:stop]]))
        head.append(POSITION)
        if rest < stop and ids[rest] == POSITION:
            rest += 1
        if not (rest < stop and TEMPO <= ids[rest] < after_tempos):
            head.append(_last_between(ids[:start], TEMPO, after_tempos))
        return np.concatenate([np.array(head, dtype=ids.dtype), ids[rest:stop]])

    def _in_crop(self, ids: NDArray[np.integer]) -> NDArray[np.integer]:
        """Replaces the sources that are not in a crop by New, in place."""
        first = self.families.return_
        places = np.flatnonzero((ids > first) & (ids < self.families.chord))
        bar = (ids == BAR).cumsum() - 1
        ids[places[ids[places] - first > bar[places]]] = first
        return ids

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """Transposed ids, drums unchanged; None if a pitch would leave the range.

        Chords, basses and keys move with the notes.
        """
        moved = _transpositions(self.families, semitones)[ids]
        if (moved < 0).any():
            return None
        return moved.astype(ids.dtype)


def families_of(tokenizer: Tokenizer) -> Families:
    """The families of a tokenizer's vocabulary; those of version 1 for other vocabularies."""
    return tokenizer.families if isinstance(tokenizer, Remi) else PIANO_FAMILIES


@lru_cache(maxsize=64)
def _transpositions(families: Families, semitones: int) -> NDArray[np.int32]:
    """For each id (v,), the transposed one; -1 for a pitch that leaves the range."""
    ids = np.arange(families.size, dtype=np.int32)
    pitches = ids[families.pitch : families.drum]
    pitches += semitones
    pitches[(pitches < families.pitch) | (pitches >= families.drum)] = -1
    if families.has_plans:
        qualities, by = len(QUALITIES), semitones % 12
        for first, stop, shift in (
            (families.chord, families.bass - 1, by * qualities),  # without the last, no chord
            (families.bass, families.later, by),
            (families.key, families.key + 12, by),
            (families.key + 12, families.plays, by),
        ):
            ids[first:stop] = np.roll(ids[first:stop], -shift)
    ids.setflags(write=False)
    return ids


def checked_styles(names: Iterable[object]) -> tuple[str, ...]:
    """Names of styles as a tuple. Raises TokenizerError if there are too many, or two are equal."""
    styles = tuple(map(str, names))
    if len(styles) > NUM_STYLES or len(set(styles)) < len(styles):
        raise TokenizerError(
            f"found {len(styles)} names of styles ({', '.join(styles)}), expected at most "
            f"{NUM_STYLES} different names"
        )
    return styles


@dataclass(frozen=True, kw_only=True)
class PianoRemiConfig:
    """Configuration of a `PianoRemi`."""

    kind: Literal["piano_remi"] = "piano_remi"
    version: Literal[1, 2] = 1
    """Version of the vocabulary; released models have version 2."""
    styles: tuple[str, ...] = ()
    """Names of the styles of version 2, in the order of their tokens."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "styles", checked_styles(self.styles))

    def build(self) -> PianoRemi:
        """The tokenizer."""
        return PianoRemi(self)


class PianoRemi(Remi):
    """All tracks except drums, merged to one piano; see `Remi`.

    Version 1 has 512 tokens and 88 keys, version 2 the 1,246 tokens of `MultitrackRemi`.
    """

    def __init__(self, config: PianoRemiConfig | None = None) -> None:
        config = PianoRemiConfig() if config is None else config
        families = PIANO_FAMILIES if config.version == 1 else PLANNED_PIANO_FAMILIES
        super().__init__(config, families)

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """1 for each melodic track, -1 for drums, which are not encoded."""
        return [-1 if track.is_drum else 1 for track in tracks]

    def _named(self, tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
        return ()

    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], known: Sequence[Track]
    ) -> tuple[Track, ...]:
        return (_PIANO.with_tables(notes=table),)


def _heard(
    tracks: Sequence[Track], ranks: Sequence[int], families: Families
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Notes (n, 4) that the vocabulary can represent, their keys (n,), and the number of others.

    Drum notes have length 0.
    """
    heard = [(rank, track) for rank, track in zip(ranks, tracks, strict=True) if rank >= 0]
    heard.sort(key=lambda of_track: of_track[0])
    table = all_notes(track for _, track in heard)
    lengths = [len(track) for _, track in heard]
    keys = table[:, 2] + np.repeat(np.array([rank << 7 for rank, _ in heard], np.int64), lengths)
    num_drums = sum(len(track) for rank, track in heard if rank == 0)
    table[:num_drums, 1] = 0
    if families.num_pitches == 128:
        return table, keys, 0
    pitches = table[:, 2] - families.lowest_pitch
    has_token = pitches.view(np.uint64) < families.num_pitches
    dropped = len(table) - int(np.count_nonzero(has_token))
    if dropped:
        table, keys = table[has_token], keys[has_token]
    return table, keys, dropped


def _last_between(ids: NDArray[np.integer], first: int, stop: int) -> int:
    """Last of the ids in [first, stop)."""
    return int(ids[np.flatnonzero((ids >= first) & (ids < stop))[-1]])
