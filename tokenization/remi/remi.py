"""The common base of REMI tokenizers (after Huang and Yang, 2020), and the tokenizer for piano."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
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
from tokenization.remi.documents.heads import planned_heads
from tokenization.remi.documents.order import Order
from tokenization.remi.documents.read import Signs, read_header, read_key, read_plan, read_written
from tokenization.remi.encode import Body, write_ids
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
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
    Kind,
)
from tokenization.score import NO_NOTES, Score, TimeSignature, Track, all_notes
from tokenization.tokenizer import (
    FILE_NAME,
    FORMAT_VERSION,
    NO_BARS,
    FixedBar,
    Rules,
    TempoRule,
    TokenSequence,
    end_of_crop,
)

_PIANO = Track(NO_NOTES)


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


@dataclass(frozen=True, kw_only=True)
class RemiConfig(ABC):
    """What the configurations of all tokenizers have."""

    version: Literal[2] = 2
    """Version of the vocabulary."""
    styles: tuple[str, ...] = ()
    """Names of the styles, in the order of their tokens."""
    kind: str
    """Name of the tokenizer in `tokenizer.json`."""

    def __post_init__(self) -> None:
        styles = tuple(map(str, self.styles))
        if len(styles) > NUM_STYLES or len(set(styles)) < len(styles):
            raise TokenizerError(
                f"found {len(styles)} names of styles ({', '.join(styles)}), expected at most "
                f"{NUM_STYLES} different names"
            )
        object.__setattr__(self, "styles", styles)

    @abstractmethod
    def build(self) -> Remi:
        """Return the tokenizer."""


class Remi(ABC):
    """Music as `Bar`, `Position` and note tokens on twelfths of a quarter note.

    A canonical sequence is `BOS`, a header, bars and `EOS`. A bar is a head, `Bar TimeSignature
    Tempo` and its plan, then positions. A TimeSignature and a Tempo are in the head of the first
    bar to which they apply, and a Tempo within a bar right after its Position, each only if it
    changes. A note is a Pitch, Velocity and Duration. Positions are ascending within a bar, and
    pitches of a track within a position. No pitch is struck while it sounds. Each Position is
    followed by a Tempo or a note. Bars continue until all notes have ended. See
    `docs/pages/concepts/plans.md` for plans, headers and documents.
    """

    def __init__(self, config: RemiConfig, families: Families) -> None:
        self.config = config
        self.families = families
        self.vocabulary = families.vocabulary
        """Names of the token ids."""

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
        """Encode a score; the sustain pedal is ignored.

        A tempo outside the range of the vocabulary is halved or doubled, together with its beats;
        see `in_tempo_range`.

        The other arguments are those of a `Document`. A source of the plan that is not in the
        document before its bar becomes New, and so does a bar after the last one of the plan; bars
        of the plan after the end of the piece are left out. A note that begins before the end of a
        gap ends there at the latest.

        Raises MidiError if a note is later than 65,536 quarters, and TokenizerError if the document
        cannot be represented.
        """
        families = self.families
        tempos_scaled = len(tempos_out_of_range(score))
        if tempos_scaled:
            score = in_tempo_range(score)
        ranks = self.track_ranks(score.tracks)
        table, keys = _heard(score.tracks, ranks)
        notes = quantize_notes(table, keys, score.ticks_per_beat)
        merged = len(keys) - len(notes.onsets)
        durations = notes.duration_tokens()
        end = int((notes.onsets + DURATIONS[durations]).max(initial=0))
        timeline = quantize_timeline(score, end, num_bars)
        if num_bars is not None:
            begins_inside = notes.onsets < timeline.lines[-1]
            notes = SeparateNotes(*(column[begins_inside] for column in notes))
            durations = durations[begins_inside]
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
        """Return the ids before the first Bar. Raises TokenizerError for a header that has none."""
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
        """Return which notes (n,), by rank, belong to given tracks. Raises TokenizerError."""
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
        """Decode any ids to a score with 12 ticks per quarter, in linear time; never raises.

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
        """Return the score of some tokens, and its bar lines in steps."""
        table, ranks = by_track(notes._replace(onsets=bars.in_music(notes.onsets)))
        lines = bars.music_lines()
        score = Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=self._tracks(table, ranks, tracks),
            tempos=read_tempos(tokens, bars),
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
        """Decode any ids to a document, the score as `decode` does; never raises."""
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
        ends = signs.has(Kind.LAST)
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
        """Return what a document gives: ids before the first bar to be written, and given tracks.

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
        """Return tracks without their notes, ordered by rank, if tokens distinguish tracks."""

    @abstractmethod
    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], prompt_tracks: Sequence[Track]
    ) -> tuple[Track, ...]:
        """Return the tracks of notes sorted by rank, time and pitch."""

    def grammar(
        self,
        *,
        tempo: TempoRule = "free",
        time_signature: bool = True,
        end: bool = True,
        tracks: Iterable[Track] | None = None,
        silent: Collection[int] = (),
        write: bool = True,
        bars: Mapping[int, FixedBar] | None = None,
    ) -> DocumentGrammar:
        """Return the initial state of the grammar, which accepts exactly the canonical sequences.

        If tokens distinguish tracks, only `tracks` may play, except those at the indices `silent`.
        The other arguments are those of `Rules`.
        """
        ranks = None
        if tracks is not None and self.families.only_track < 0:
            every = enumerate(self.track_ranks(tuple(tracks)))
            ranks = frozenset(rank for index, rank in every if index not in silent)
        rules = Rules(tempo, time_signature, end, ranks, write, bars or NO_BARS)
        return DocumentGrammar(self.families, rules)

    @abstractmethod
    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Return the rank of each track among those at one position; -1 if it is not encoded."""

    def save(self, folder: Path) -> None:
        """Write the config and the hash of the vocabulary to `tokenizer.json` in a folder."""
        content = {
            "format_version": FORMAT_VERSION,
            "config": asdict(self.config),
            "vocabulary_hash": self.vocabulary.hash,
        }
        beside = folder / f"{FILE_NAME}.part"
        beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        beside.replace(folder / FILE_NAME)

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Return canonical ids, same dtype, of `num_bars` bars (default: all) from `first_bar` on.

        They start with the header, then `Bar TimeSignature Tempo`, the settings in effect there.
        BOS is kept with the first bar, EOS with the last; parts keep their numbers, and sources
        before the first bar become New. Raises ValueError if there is no such bar, or if the ids
        are a document with a gap.
        """
        bars: list[int] = np.flatnonzero(ids == BAR).tolist()
        stop = [*bars, len(ids)][end_of_crop(first_bar, num_bars, len(bars))]
        families = self.families
        if (ids[: bars[0]] >= families.gap).any():
            raise ValueError("the ids have a gap, expected a document without one")
        if first_bar == 0:
            return ids[:stop]
        start = bars[first_bar]
        after_tempos = families.program
        rest = start + 1
        if rest < stop and TIME_SIGNATURE <= ids[rest] < POSITION:
            rest += 1
        head = [BAR, _last_between(ids[:rest], TIME_SIGNATURE, POSITION)]
        header = ids[int(ids[0] == BOS) : bars[0]]
        rest += bool(rest < stop and TEMPO <= ids[rest] < after_tempos)
        head = [*header.tolist(), *head, _last_between(ids[:rest], TEMPO, after_tempos)]
        return self._in_crop(np.concatenate([np.array(head, ids.dtype), ids[rest:stop]]))

    def _in_crop(self, ids: NDArray[np.integer]) -> NDArray[np.integer]:
        """Replace the sources that are not in a crop by New, in place."""
        first = self.families.return_
        places = np.flatnonzero((ids > first) & (ids < self.families.chord))
        bar = (ids == BAR).cumsum() - 1
        ids[places[ids[places] - first > bar[places]]] = first
        return ids

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """Return the transposed ids, drums unchanged; None if a pitch would leave the range.

        Chords, basses and keys move with the notes.
        """
        moved = _transpositions(self.families, semitones)[ids]
        if (moved < 0).any():
            return None
        return moved.astype(ids.dtype)


@lru_cache(maxsize=64)
def _transpositions(families: Families, semitones: int) -> NDArray[np.int32]:
    """Return, for each id (v,), the transposed one; -1 for a pitch that leaves the range."""
    ids = np.arange(families.size, dtype=np.int32)
    pitches = ids[families.pitch : families.drum]
    pitches += semitones
    pitches[(pitches < families.pitch) | (pitches >= families.drum)] = -1
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


@dataclass(frozen=True, kw_only=True)
class PianoRemiConfig(RemiConfig):
    """Configuration of a `PianoRemi`."""

    kind: Literal["piano_remi"] = "piano_remi"

    def build(self) -> PianoRemi:
        """Return the tokenizer."""
        return PianoRemi(self)


class PianoRemi(Remi):
    """All tracks except drums, merged to one piano; see `Remi`."""

    def __init__(self, config: PianoRemiConfig | None = None) -> None:
        config = PianoRemiConfig() if config is None else config
        super().__init__(config, PIANO_FAMILIES)

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Return 1 for each melodic track, -1 for drums, which are not encoded."""
        return [-1 if track.is_drum else 1 for track in tracks]

    def _named(self, tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
        return ()

    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], prompt_tracks: Sequence[Track]
    ) -> tuple[Track, ...]:
        return (_PIANO.with_tables(notes=table),)


def _heard(
    tracks: Sequence[Track], ranks: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the notes (n, 4) of the tracks that are encoded, and their keys (n,).

    Drums have length 0.
    """
    heard = [(rank, track) for rank, track in zip(ranks, tracks, strict=True) if rank >= 0]
    heard.sort(key=lambda of_track: of_track[0])
    table = all_notes(track for _, track in heard)
    lengths = [len(track) for _, track in heard]
    keys = table[:, 2] + np.repeat(np.array([rank << 7 for rank, _ in heard], np.int64), lengths)
    num_drums = sum(len(track) for rank, track in heard if rank == 0)
    table[:num_drums, 1] = 0
    return table, keys


def _last_between(ids: NDArray[np.integer], first: int, stop: int) -> int:
    """Return the last of the ids in [first, stop)."""
    return int(ids[np.flatnonzero((ids >= first) & (ids < stop))[-1]])
