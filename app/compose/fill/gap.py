"""The part of a piece that is to be written, and the document in which the model reads the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.compose.fill.passage import Passage
from app.compose.prompt.timing import Timing
from app.compose.tracks import instrument_name, track_names
from app.text import plural
from tokenization.analysis.beats import extend_by_pedal
from tokenization.analysis.plan import analyse_document
from tokenization.document import Header, Selection
from tokenization.errors import MidiError, TokenizerError
from tokenization.grid import STEPS_PER_BEAT
from tokenization.midi.writer import drum_channel
from tokenization.plan import BarPlan
from tokenization.remi.bars import BarMap
from tokenization.remi.quantize import part_of
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import BAR, MAX_GAP, POSITION, TEMPO, TIME_SIGNATURE
from tokenization.score import Score, Tempo, Track
from tokenization.tokenizer import FixedBar


class Gap(NamedTuple):
    """The bars and tracks of a file that are to be written, and the music that is kept."""

    passage: Passage
    first: int
    """The first of these notated bars, from 0."""
    stop: int
    """The notated bar after the last one."""
    numbers: frozenset[int]
    """Numbers of the tracks of the file that are to be written, from 0."""
    tracks: tuple[Track, ...]
    """These tracks and those that rest: their notes are removed."""
    ranks: frozenset[int]
    """Ranks of the tracks that are to be written."""
    kept: Score
    """The music that is kept, as the model reads it, in ticks of `Timing.counted`, and the new
    track without notes."""
    before: Score
    """The same before notes were removed, but without tracks that rest."""
    bars: BarMap
    """All notated bars of the piece."""
    edge: int
    """In ticks of `Timing.counted`: notes from here on are replaced. This is half a grid step
    before the bar line, since the model reads such notes as on the bar line."""
    start_tick: int
    """The same in ticks of the file."""
    stop_tick: int
    """In ticks of the file: notes from here on are kept."""
    is_last: bool
    """Whether nothing is kept after the first of these bars: then the music is continued."""

    @classmethod
    def of(
        cls,
        passage: Passage,
        timing: Timing,
        lines: NDArray[np.int64],
        stop: int,
        tokenizer: Remi,
    ) -> Gap:
        """Return the gap of a passage that ends before the bar `stop`, from 0.

        `lines` are the bar lines of the piece and the passage, in ticks of `timing.counted`.

        Raises MidiError for tracks that cannot be written, and TokenizerError if the model cannot
        read bars after a gap, or given tracks.
        """
        file, counted = timing.file, timing.counted
        bars = BarMap.of(lines, counted.ticks_per_beat)
        first = passage.first_bar - 1
        numbers = _numbers(passage, file, tokenizer)
        removed = numbers | passage.rests
        kept, before = (_kept(timing, bars, first, stop, n) for n in (removed, passage.rests))
        new = passage.new_track
        if new is not None and new.is_drum:  # raises MidiError if a melody has their channel
            by_kind = sorted(file.tracks, key=lambda track: track.is_drum)
            drum_channel({track.channel: (track.program, track.is_drum) for track in by_kind})
        tracks = (*kept.tracks, *([] if new is None else [new]))
        ranks = tokenizer.track_ranks(tracks)
        written = [at in numbers or track is new for at, track in enumerate(tracks)]
        of_written = frozenset(
            rank for rank, is_written in zip(ranks, written, strict=True) if is_written
        )
        starts = bars.starts
        heard = [track for track, rank in zip(tracks, ranks, strict=True) if rank >= 0]
        after = sum(int((bars.steps(t.notes[:, 0]) >= starts[first]).sum()) for t in heard)
        is_whole = all(
            is_written or rank < 0 for rank, is_written in zip(ranks, written, strict=True)
        )
        is_last = is_whole and not after and new is None
        if not any(map(len, heard)) or (is_last and not first):
            what = "all bars and tracks are selected" if is_whole else "the rest has no notes"
            raise MidiError(
                f"{what}, so nothing remains for the model to read; choose fewer bars or tracks, "
                "or generate a piece from nothing"
            )
        if not is_last:
            _check_length(bars, first, stop)
        _check_ranks(tracks, ranks, written, passage.rests, tokenizer)
        edges = np.array([_edge(bars, first), _edge(bars, stop)])
        start_tick, stop_tick = timing.to_file(edges).tolist()
        return cls(
            passage,
            first,
            stop,
            numbers,
            tuple(file.tracks[number] for number in sorted(removed)),
            of_written,
            kept.with_tracks(tracks),
            before,
            bars,
            int(edges[0]),
            start_tick,
            stop_tick,
            is_last,
        )

    def notices(self) -> list[str]:
        """Return notices about what stays in the part that is to be written."""
        inside = sum(
            int(((table[:, 0] >= self.start_tick) & (table[:, 0] < self.stop_tick)).sum())
            for table in {
                id(table): table for track in self.tracks for table in (track.controls, track.bends)
            }.values()
        )
        if not inside:
            return []
        events = plural(inside, "event")
        return [f"controllers and bends where music is written stay as they are ({events})"]

    @property
    def on_grid(self) -> Score:
        """The music that is kept, in grid steps."""
        return self.bars.on_grid(self.kept)

    def document(
        self, tokenizer: Remi, lengths: NDArray[np.int64], most_tokens: int, most_bars: int = 0
    ) -> tuple[NDArray[np.integer], tuple[FixedBar, ...]]:
        """Return what the model reads, and what is fixed in the bars that it is to write.

        The ids end with the Bar of the first bar to be written, its metre and its tempo. Bars in
        which other tracks play keep their plan, which is computed from all old notes, including
        those to be replaced.

        Args:
            tokenizer: the model's tokenizer.
            lengths: number of tokens of each notated bar that is kept (bars,).
            most_tokens: maximum number of tokens of the bars that are read.
            most_bars: maximum number of notated bars on each side of the gap; 0: no maximum.
        """
        families = tokenizer.families
        lines, starts = self.bars.vocabulary_lines(), self.bars.starts
        count = len(starts) - 1
        begin, end = self._around(lengths, most_tokens, most_bars)
        is_whole = (self.first, self.stop) == (0, count)
        at = np.searchsorted(lines, starts[[begin, self.first, self.stop, end]]).tolist()
        around = int(starts[begin]), int(starts[end])
        score = part_of(self.on_grid, *around)
        ranks = tokenizer.track_ranks(score.tracks)
        given = tuple(n for n, rank in enumerate(ranks) if rank >= 0 and rank not in self.ranks)
        first, stop = at[1] - at[0], at[2] - at[0]
        selection = Selection(first, None if is_whole else stop, given)
        plan = analyse_document(score, selection)
        players = () if families.only_track >= 0 else tuple(sorted(self.ranks))
        ids = tokenizer.encode(
            score,
            plan,
            Header(players=players),
            selection,
            begins=begin == 0,
            ends=self.stop < end == count,
            num_bars=at[3] - at[0],
        ).ids
        before, halves = tokenizer.split_at_written(ids)
        opening = [BAR]
        for token in ids[len(before) + 1 :].tolist():
            if not (TIME_SIGNATURE <= token < POSITION or TEMPO <= token < families.program):
                break
            opening.append(token)
        old = part_of(self.bars.on_grid(self.before), *around)
        plans = analyse_document(old, selection).bars[first:stop]
        fixed = [_fixed(one, notes) for one, notes in zip(plans, halves, strict=True)]
        return np.append(before, opening), tuple(fixed)

    def _around(
        self, lengths: NDArray[np.int64], most_tokens: int, most_bars: int
    ) -> tuple[int, int]:
        """Return the notated bars that the model reads: as many as fit, on both sides alike."""
        before = np.cumsum(lengths[: self.first][::-1])
        after = np.cumsum(lengths[self.stop :])
        room = most_tokens - int(lengths[self.first : self.stop].sum())
        of_before = max(room // 2, room - int(lengths[self.stop :].sum()))
        num_before = int(np.searchsorted(before, of_before, side="right"))
        of_after = room - int(before[:num_before][-1:].sum())
        num_after = int(np.searchsorted(after, of_after, side="right"))
        if most_bars:
            num_before, num_after = min(num_before, most_bars), min(num_after, most_bars)
        return self.first - num_before, self.stop + num_after


def _fixed(plan: BarPlan, given: tuple[int, ...]) -> FixedBar:
    """Return what is fixed in a bar with given notes, which are empty if there are none."""
    if not given:
        return FixedBar(given=given)
    has_chords = any(chord is not None for _, chord in plan.chords)
    return FixedBar((plan.source,), plan.chords if has_chords else None, given)


def _numbers(passage: Passage, file: Score, tokenizer: Remi) -> frozenset[int]:
    """Return the numbers of tracks of a file to be written. Raises MidiError for unknown ones."""
    numbers = passage.rests | (passage.tracks or frozenset())
    if unknown := numbers.difference(range(len(file.tracks))):
        raise MidiError(f"there is no track {min(unknown)}, expected 0 to {len(file.tracks) - 1}")
    if passage.tracks is not None:
        return passage.tracks
    if passage.instrument is not None:
        return frozenset()
    ranks = tokenizer.track_ranks(file.tracks)
    return frozenset(n for n, rank in enumerate(ranks) if rank >= 0) - passage.rests


def _check_length(bars: BarMap, first: int, stop: int) -> None:
    """Raise MidiError if a document cannot have so long a gap."""
    edges = bars.starts[[first, stop]]
    count = int(np.diff(np.searchsorted(bars.vocabulary_lines(), edges))[0])
    if count > MAX_GAP and (first, stop) != (0, len(bars.starts) - 1):
        raise MidiError(
            f"{count} bars are to be written, expected at most {MAX_GAP}, or all bars of the "
            "piece; choose fewer bars"
        )


def _check_ranks(
    tracks: tuple[Track, ...],
    ranks: list[int],
    written: list[bool],
    rests: frozenset[int],
    tokenizer: Remi,
) -> None:
    """Raise an error if the model cannot write the chosen tracks without those that are kept."""
    names = track_names(tracks)
    by_rank: dict[int, list[int]] = {}
    for at, rank in enumerate(ranks):
        by_rank.setdefault(rank, []).append(at)
    for at, is_written in enumerate(written):
        if not is_written:
            continue
        if ranks[at] < 0:
            raise TokenizerError(
                f"the model does not read the track {names[at]}, expected a model of several "
                "instruments; choose another model or other tracks"
            )
        given = [one for one in by_rank[ranks[at]] if not written[one] and one not in rests]
        is_new = tracks[at].chunk is None
        if given and tokenizer.families.only_track >= 0:
            choices = "a model" if is_new else "all tracks, or a model"
            raise TokenizerError(
                f"the model reads all tracks as one piano, so it cannot write {names[at]} alone; "
                f"choose {choices} of several instruments"
            )
        kind = instrument_name(tracks[at])
        if given and is_new:
            raise MidiError(
                f"the model reads a new track of {kind} and {names[given[0]]} as one track; choose "
                "another instrument, or write that track again"
            )
        if given:
            raise MidiError(
                f"the model reads {names[at]} and {names[given[0]]} as one track of {kind}; choose "
                "both, or another track"
            )


def _kept(timing: Timing, bars: BarMap, first: int, stop: int, numbers: frozenset[int]) -> Score:
    """Return the counted score without the notes that are to be replaced.

    Notes are sustained by the pedal, but not across the edges of the gap.
    """
    counted = timing.counted
    limits = bars.lines[[first, stop, -1]]
    tracks: list[Track] = []
    for number, (track, held) in enumerate(
        zip(counted.tracks, extend_by_pedal(counted).tracks, strict=True)
    ):
        notes = held.notes.copy()
        onsets = bars.steps(notes[:, 0])
        until = limits[np.minimum(np.searchsorted(limits, notes[:, 0], side="right"), 2)]
        notes[:, 1] = np.minimum(notes[:, 1], np.maximum(until - notes[:, 0], track.notes[:, 1]))
        if number in numbers:
            notes = notes[(onsets < bars.starts[first]) | (onsets >= bars.starts[stop])]
        tracks.append(replace(held, notes=notes))
    return replace(
        counted,
        tracks=tuple(tracks),
        tempos=_steady(timing.heard_tempos, int(limits[0]), int(limits[1])),
    )


def _steady(tempos: tuple[Tempo, ...], start: int, stop: int) -> tuple[Tempo, ...]:
    """Return the tempos, of which none changes between two ticks."""
    inside = [tempo for tempo in tempos if start < tempo.tick < stop]
    others = [tempo for tempo in tempos if not start < tempo.tick < stop]
    if inside and not any(tempo.tick == stop for tempo in others):
        others.append(Tempo(stop, inside[-1].bpm))
    return tuple(others)


def _edge(bars: BarMap, bar: int) -> int:
    """Return the first tick that counts as the start of a bar, half a grid step before its line."""
    if not bar:
        return 0
    size = int(bars.sizes[bar - 1])
    return int(bars.lines[bar - 1]) - (
        -bars.ticks_per_beat * (2 * size - 1) // (2 * STEPS_PER_BEAT)
    )
