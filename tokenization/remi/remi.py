"""REMI tokens: bars, positions, tempos and notes (after Huang and Yang, 2020); those of a piano."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from tokenization.remi.decode import (
    Tokens,
    by_track,
    read_bars,
    read_notes,
    read_tempos,
    token_beats,
)
from tokenization.remi.encode import write_ids
from tokenization.remi.grammar import RemiGrammar, Rules
from tokenization.remi.quantize import name_bars, quantize_notes, quantize_timeline
from tokenization.remi.vocabulary import (
    BAR,
    DURATIONS,
    MAX_DURATION,
    PIANO_FAMILIES,
    POSITION,
    STEPS_PER_BEAT,
    TEMPO,
    TIME_SIGNATURE,
    Families,
    Vocabulary,
)
from tokenization.score import NO_NOTES, Score, TimeSignature, Track

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokenization.remi.grammar import TempoRule

_PIANO = Track(NO_NOTES)

FILE_NAME = "tokenizer.json"
FORMAT_VERSION = 1

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, eq=False)
class TokenSequence:
    """A piece as tokens, and what of it they do not say."""

    ids: NDArray[np.int32]
    """(l,), canonical."""
    dropped: int
    """Notes outside the 88 keys."""
    clipped: int
    """Notes longer than 64 quarters, cut to that."""
    merged: int
    """Notes left out because another stands at the same pitch and position."""
    tempos_clipped: int
    """Tempos outside 30 to 240 quarter notes per minute."""
    signatures: tuple[TimeSignature, ...]
    """Time signatures as written, ticks in twelfths of a quarter; for `decode`."""
    tracks: tuple[Track, ...] = ()
    """Where tokens tell tracks apart: these without their notes, in the order of tokens; for
    `decode`."""

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """(l,), see `token_beats`."""
        return token_beats(self.ids)


class Remi(ABC, Generic[ConfigT]):
    """Music as `Bar`, `Position` and note tokens on twelfths of a quarter note.

    A canonical sequence is `BOS Bar TimeSignature Position_0 Tempo`, notes, further positions and
    bars, `EOS`. A TimeSignature stands right after the Bar from which a bar length holds, a Tempo
    right after the Position from which it holds, each only where it changes. A note is Pitch,
    Velocity, Duration; pitches of a track rise within a position, positions within a bar, and no
    pitch is struck while it sounds. A Position has a Tempo or a note. Bars go on until every note
    has ended. What differs between vocabularies stands in their `Families`.
    """

    families: ClassVar[Families]

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @property
    def vocabulary(self) -> Vocabulary:
        """Names of the ids."""
        return self.families.vocabulary

    @abstractmethod
    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """Place of each track among the runs of one position, -1 for a track that is not heard."""

    def encode(self, score: Score) -> TokenSequence:
        """Tokens of a score; the sustain pedal is not read.

        Raises MidiError where a note stands beyond 65,536 quarters.
        """
        families = self.families
        ranks = self.track_ranks(score.tracks)
        table, keys, dropped = _heard(score.tracks, ranks, families)
        notes = quantize_notes(table, keys, score.ticks_per_beat)
        durations = notes.duration_tokens()
        end = int((notes.onsets + DURATIONS[durations]).max(initial=0))
        timeline = quantize_timeline(score, end)
        return TokenSequence(
            ids=write_ids(notes, durations, timeline, families),
            dropped=dropped,
            clipped=int(np.count_nonzero(notes.durations > MAX_DURATION)),
            merged=len(keys) - len(notes.onsets),
            tempos_clipped=timeline.tempos.clipped,
            signatures=timeline.signatures,
            tracks=self._named(score.tracks, ranks),
        )

    def decode(
        self,
        ids: Sequence[int] | NDArray[np.integer],
        signatures: Sequence[TimeSignature] = (),
        tracks: Sequence[Track] = (),
    ) -> Score:
        """Score of any ids, 12 ticks per quarter: never raises, in linear time.

        Ids up to the first EOS count. What is a note says `read_notes`; it is cut where its pitch
        is struck again. What is out of place is passed over. The score ends with its last bar, or
        with its last note. `signatures` and `tracks` are those of the `TokenSequence`: the ones are
        written instead of the bar lengths as long as they lead to the same bars, the others give
        names, channels and places in the file back.
        """
        tokens = Tokens.of(ids, self.families).to_end()
        bars = read_bars(tokens)
        table, ranks = by_track(read_notes(tokens, bars, self.families))
        return Score(
            ticks_per_beat=STEPS_PER_BEAT,
            tracks=self._tracks(table, ranks, tracks),
            tempos=read_tempos(tokens, bars),
            time_signatures=name_bars(bars.lines, signatures),
            end_ticks=int(bars.lines[-1]),
        )

    @abstractmethod
    def _named(self, tracks: Sequence[Track], ranks: Sequence[int]) -> tuple[Track, ...]:
        """Tracks without their notes, in the order of their ranks, where tokens tell them apart."""

    @abstractmethod
    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], known: Sequence[Track]
    ) -> tuple[Track, ...]:
        """Tracks of notes that are sorted by rank, time and pitch."""

    def grammar(
        self,
        *,
        tempo: TempoRule = "free",
        time_signature: bool = True,
        end: bool = True,
        tracks: Iterable[Track] | None = None,
        silent: Collection[int] = (),
    ) -> RemiGrammar:
        """Which token may come first, under `Rules`; `tracks` are the only ones that may play.

        `silent` are places among them of those that may not either. Where there is but one track,
        that one may.
        """
        ranks = None
        if tracks is not None and self.families.only_track < 0:
            every = enumerate(self.track_ranks(tuple(tracks)))
            ranks = frozenset(rank for place, rank in every if place not in silent)
        return RemiGrammar(self.families, Rules(tempo, time_signature, end, ranks))

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids from bar `first_bar` on, `num_bars` of them or all, in the dtype of `ids`.

        They start with `Bar TimeSignature Position_0 Tempo`, what is in force there. BOS is kept
        with the first bar, EOS with the last; parts keep their numbers. Raises ValueError where
        there is no such bar.
        """
        bars = np.flatnonzero(ids == BAR)
        if not 0 <= first_bar < len(bars) or (num_bars is not None and num_bars < 1):
            raise ValueError(
                f"asked for {num_bars} bars from bar {first_bar} on of a piece of {len(bars)} bars"
            )
        stop = len(ids)
        if num_bars is not None and first_bar + num_bars < len(bars):
            stop = int(bars[first_bar + num_bars])
        if first_bar == 0:
            return ids[:stop]
        start = int(bars[first_bar])
        after_tempos = self.families.program
        rest = start + 1
        if rest < stop and TIME_SIGNATURE <= ids[rest] < POSITION:
            rest += 1
        head = [BAR, _last_between(ids[:rest], TIME_SIGNATURE, POSITION), POSITION]
        if rest < stop and ids[rest] == POSITION:
            rest += 1
        if not (rest < stop and TEMPO <= ids[rest] < after_tempos):
            head.append(_last_between(ids[:start], TEMPO, after_tempos))
        return np.concatenate([np.array(head, dtype=ids.dtype), ids[rest:stop]])

    def transpose(self, ids: NDArray[np.integer], semitones: int) -> NDArray[np.integer] | None:
        """The same ids with other pitches, drums as they are; None where one leaves the range."""
        first, stop = self.families.pitch, self.families.drum
        places = np.flatnonzero((ids >= first) & (ids < stop))
        pitches = ids[places].astype(np.int64) + semitones
        if len(pitches) and not first <= pitches.min() <= pitches.max() < stop:
            return None
        moved = ids.copy()
        moved[places] = pitches
        return moved

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` into a folder: the config and the hash of the vocabulary."""
        save_config(self.config, self.vocabulary, folder)


@dataclass(frozen=True, kw_only=True)
class PianoRemiConfig:
    """Everything needed to build a `PianoRemi` again."""

    kind: Literal["piano_remi"] = "piano_remi"

    def build(self) -> PianoRemi:
        """The tokenizer."""
        return PianoRemi(self)


class PianoRemi(Remi[PianoRemiConfig]):
    """All tracks but drums as one piano of 88 keys, in 512 tokens; see `Remi`."""

    families = PIANO_FAMILIES

    def __init__(self, config: PianoRemiConfig | None = None) -> None:
        super().__init__(PianoRemiConfig() if config is None else config)

    def track_ranks(self, tracks: Sequence[Track]) -> list[int]:
        """1 for each track that the piano plays, -1 for drums, which are not heard."""
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
    """Notes (n, 4) that the vocabulary can say, their keys (n,), and how many it cannot say.

    Drums are of no length.
    """
    heard = [(rank, track.notes) for rank, track in zip(ranks, tracks, strict=True) if rank >= 0]
    heard.sort(key=lambda of_track: of_track[0])
    table = np.concatenate([NO_NOTES, *(notes for _, notes in heard)])
    lengths = [len(notes) for _, notes in heard]
    keys = table[:, 2] + np.repeat(np.array([rank << 7 for rank, _ in heard], np.int64), lengths)
    num_drums = sum(len(notes) for rank, notes in heard if rank == 0)
    table[:num_drums, 1] = 0
    if families.num_pitches == 128:
        return table, keys, 0
    pitches = table[:, 2] - families.lowest_pitch
    has_token = pitches.view(np.uint64) < families.num_pitches
    dropped = len(table) - int(np.count_nonzero(has_token))
    if dropped:
        table, keys = table[has_token], keys[has_token]
    return table, keys, dropped


def save_config(config: Any, vocabulary: Vocabulary, folder: Path) -> None:  # noqa: ANN401
    """Write `tokenizer.json` into a folder: the config and the hash of the vocabulary."""
    content = {
        "format_version": FORMAT_VERSION,
        "config": asdict(config),
        "vocabulary_hash": vocabulary.hash,
    }
    beside = folder / f"{FILE_NAME}.part"
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(folder / FILE_NAME)


def _last_between(ids: NDArray[np.integer], first: int, stop: int) -> int:
    """Last of the ids from `first` to before `stop`."""
    return int(ids[np.flatnonzero((ids >= first) & (ids < stop))[-1]])
