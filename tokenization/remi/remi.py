"""The common base of REMI tokenizers (after Huang and Yang, 2020), and the tokenizer for piano."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tokenization.remi.decode import (
    Tokens,
    by_track,
    read_bars,
    read_notes,
    read_tempos,
)
from tokenization.remi.encode import write_ids
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.quantize import name_bars, quantize_notes, quantize_timeline
from tokenization.remi.tempo_range import in_tempo_range, tempos_out_of_range
from tokenization.remi.vocabulary import (
    BAR,
    DURATIONS,
    MAX_DURATION,
    PIANO_FAMILIES,
    PIANO_VOCABULARY,
    POSITION,
    STEPS_PER_BEAT,
    TEMPO,
    TIME_SIGNATURE,
    Families,
)
from tokenization.score import NO_NOTES, Score, TimeSignature, Track, all_notes
from tokenization.tokenizer import BaseTokenizer, Rules, TokenSequence, end_of_crop, shift_ids

_PIANO = Track(NO_NOTES)


class RemiTokens(TokenSequence):
    """A piece as tokens of a `Remi`."""

    @cached_property
    def beats(self) -> NDArray[np.float64]:
        """See `TokenSequence`; a Bar has the time of the last position in the previous bar."""
        return read_bars(Tokens.of(self.ids, PIANO_FAMILIES)).times[:-1] / STEPS_PER_BEAT


class Remi(BaseTokenizer[RemiGrammar]):
    """Music as `Bar`, `Position` and note tokens on twelfths of a quarter note.

    A canonical sequence is `BOS Bar TimeSignature Position_0 Tempo`, notes, further positions and
    bars, `EOS`. A TimeSignature comes right after the first Bar to which it applies, a Tempo right
    after the first Position to which it applies, and each only if it changes. A note is a Pitch,
    Velocity and Duration. Positions are ascending within a bar, and pitches of a track within a
    position. No pitch is struck while it sounds. Each Position is followed by a Tempo or a note.
    Bars continue until all notes have ended. Vocabularies differ only in their `Families`.
    """

    families: ClassVar[Families]

    def encode(self, score: Score) -> TokenSequence:
        """Encodes a score; the sustain pedal is ignored.

        A tempo outside the range of the vocabulary is halved or doubled, together with its beats;
        see `in_tempo_range`. Raises MidiError if a note is later than 65,536 quarters.
        """
        families = self.families
        tempos_scaled = tempos_out_of_range(score)
        if tempos_scaled:
            score = in_tempo_range(score)
        ranks = self.track_ranks(score.tracks)
        table, keys, dropped = _heard(score.tracks, ranks, families)
        notes = quantize_notes(table, keys, score.ticks_per_beat)
        durations = notes.duration_tokens()
        end = int((notes.onsets + DURATIONS[durations]).max(initial=0))
        timeline = quantize_timeline(score, end)
        return RemiTokens(
            ids=write_ids(notes, durations, timeline, families),
            dropped=dropped,
            clipped=int(np.count_nonzero(notes.durations > MAX_DURATION)),
            merged=len(keys) - len(notes.onsets),
            tempos_clipped=timeline.tempos.clipped,
            tempos_scaled=tempos_scaled,
            signatures=timeline.signatures,
            tracks=self._named(score.tracks, ranks),
        )

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
        """Tracks without their notes, in the order of their ranks, if tokens distinguish tracks."""

    @abstractmethod
    def _tracks(
        self, table: NDArray[np.int64], ranks: NDArray[np.int64], known: Sequence[Track]
    ) -> tuple[Track, ...]:
        """Tracks of notes sorted by rank, time and pitch."""

    def _grammar(self, rules: Rules) -> RemiGrammar:
        if self.families.only_track >= 0:
            rules = rules._replace(tracks=None)
        return RemiGrammar(self.families, rules)

    def crop(
        self, ids: NDArray[np.integer], first_bar: int, num_bars: int | None = None
    ) -> NDArray[np.integer]:
        """Canonical ids of `num_bars` bars (default: all) from `first_bar` on, of the same dtype.

        They start with `Bar TimeSignature Position_0 Tempo`, the settings in effect there. BOS is
        kept with the first bar, EOS with the last; parts keep their numbers. Raises ValueError if
        there is no such bar.
        """
        bars: list[int] = np.flatnonzero(ids == BAR).tolist()
        stop = [*bars, len(ids)][end_of_crop(first_bar, num_bars, len(bars))]
        if first_bar == 0:
            return ids[:stop]
        start = bars[first_bar]
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
        """Transposed ids, drums unchanged; None if a pitch would leave the range."""
        return shift_ids(ids, semitones, self.families.pitch, self.families.drum)


@dataclass(frozen=True, kw_only=True)
class PianoRemiConfig:
    """Configuration of a `PianoRemi`."""

    kind: Literal["piano_remi"] = "piano_remi"

    def build(self) -> PianoRemi:
        """The tokenizer."""
        return PianoRemi(self)


class PianoRemi(Remi):
    """All tracks except drums, merged to one piano of 88 keys, in 512 tokens; see `Remi`."""

    vocabulary = PIANO_VOCABULARY
    families = PIANO_FAMILIES

    def __init__(self, config: PianoRemiConfig | None = None) -> None:
        super().__init__(PianoRemiConfig() if config is None else config)

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
