"""The part of a piece that a clip contains: the last bars of the prompt and the new music."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from tokenization.midi import write_midi
from tokenization.score import (
    Score,
    Tempo,
    TimeSignature,
    all_notes,
    nearest_ratio,
    once_each,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.compose.piece import Piece
    from app.compose.prompt.prompt import Prompt
    from tokenization.score import Track

ClipKind = Literal["tail", "new", "whole"]
"""What a clip contains: the last bars of the prompt and the new music, only the new music, or the
whole piece."""
_FIRST_MODE_MESSAGE = 120
"""Controllers from this number on are commands, such as *all notes off*."""


@dataclass(frozen=True, eq=False)
class Excerpt:
    """A part of a piece, from a bar line to the end of the new music."""

    score: Score
    """The whole piece."""
    begin: int
    """Where the clip begins, in ticks of `score`: a bar line."""
    splice: int
    """Where the new music begins."""
    end: int
    """Where the last bar of the new music ends; a cadence may sound beyond it."""
    new_bar: int
    """The first bar of the new music, counted from 1 in the clip."""

    @classmethod
    def of_piece(cls, piece: Piece, prompt: Prompt | None, kind: ClipKind, bars: int) -> Self:
        """Return the part of a generated piece; `bars` bars of the prompt if `kind` is `tail`."""
        if prompt is None:
            return cls(piece.score, 0, 0, piece.new.end_ticks, 1)
        kept = bars_before(kind, bars, prompt.bars)
        begin = begin_of(prompt, kind, bars)
        lines = np.array([begin, prompt.splice_ticks, piece.new.end_ticks])
        # the file's resolution may differ from that of its timing
        lines = nearest_ratio(lines * piece.score.ticks_per_beat, prompt.score.ticks_per_beat)
        score = at_resolution(piece.score, prompt.score.ticks_per_beat)
        lines = lines * (score.ticks_per_beat // piece.score.ticks_per_beat)
        begin, splice, end = lines.tolist()
        return cls(score, begin, splice, end, kept + 1)

    @property
    def notes(self) -> int:
        """Number of notes of the new music."""
        onsets = all_notes(self.score.tracks)[:, 0]
        return int(((onsets >= self.splice) & (onsets < self.end)).sum())

    def midi(self, *, blind: bool = False) -> bytes:
        """Return the clip as a MIDI file; if `blind`, without names of tracks.

        Raises MidiError if MIDI cannot represent it.
        """
        part = part_from(self.score, self.begin)
        if blind:
            part = part.with_tracks(replace(track, name="") for track in part.tracks)
        return write_midi(part)

    @property
    def begin_seconds(self) -> float:
        """Where the clip begins in the piece."""
        return float(self.score.seconds_at(self.begin))

    @property
    def new_seconds(self) -> float:
        """Where the new music begins in the clip."""
        return float(self.score.seconds_at(self.splice)) - self.begin_seconds

    @property
    def seconds(self) -> float:
        """Length of the clip, up to the end of its last bar."""
        return float(self.score.seconds_at(self.end)) - self.begin_seconds


def bars_before(kind: ClipKind, bars: int, of_prompt: int) -> int:
    """Return how many bars of the prompt a clip contains, of `of_prompt` bars."""
    return {"tail": min(bars, of_prompt), "new": 0, "whole": of_prompt}[kind]


def begin_of(prompt: Prompt, kind: ClipKind, bars: int) -> int:
    """Return where a clip begins, in ticks of the prompt's score."""
    kept = bars_before(kind, bars, prompt.bars)
    return prompt.line(prompt.bars - kept) if kept < prompt.bars else 0


def at_resolution(score: Score, ticks_per_beat: int) -> Score:
    """Return the score with a multiple of its resolution, if `ticks_per_beat` is one."""
    factor, rest = divmod(ticks_per_beat, score.ticks_per_beat)
    return score if rest else score.refined(factor)


def part_from(score: Score, begin: int) -> Score:
    """Return the music from a tick on; times count from there.

    Tempo, metre, controllers and pitch bends that apply at `begin` are set at the start, and notes
    that sound there begin there.
    """
    if begin == 0:
        return score
    shorten = once_each(partial(_events_from, begin=begin))
    tracks = (
        replace(
            track,
            notes=_notes_from(track, begin),
            controls=shorten(track.controls),
            bends=shorten(track.bends),
            note_bends=shorten(track.note_bends),
        )
        for track in score.tracks
    )
    tempos = {max(tick - begin, 0): bpm for tick, bpm in score.tempos}
    metres = {max(tick - begin, 0): metre for tick, *metre in score.time_signatures}
    return Score(
        score.ticks_per_beat,
        tuple(track for track in tracks if len(track)),
        tuple(Tempo(tick, bpm) for tick, bpm in tempos.items()),
        tuple(TimeSignature(tick, *metre) for tick, metre in metres.items()),
        max(score.end_ticks - begin, 0),
    )


def _notes_from(track: Track, begin: int) -> NDArray[np.int64]:
    notes = track.notes
    onsets, ends = notes[:, 0], notes[:, 0] + notes[:, 1]
    sounding = (ends > begin) & (not track.is_drum)
    kept = (onsets >= begin) | sounding
    starts = np.maximum(onsets[kept], begin)
    return np.column_stack([starts - begin, ends[kept] - starts, notes[kept, 2:]])


def _events_from(table: NDArray[np.int64], begin: int) -> NDArray[np.int64]:
    """Return controllers (c, 3) or bends (p, 2) from a tick on, after the last one before it.

    That is the last one of each number, in the second column; they keep their order, which matters
    for data entry. Bends have no number.
    """
    before, after = table[table[:, 0] < begin], table[table[:, 0] >= begin]
    if table.shape[1] == 3:
        before = before[before[:, 1] < _FIRST_MODE_MESSAGE]
        _, last = np.unique(before[::-1, 1], return_index=True)
        before = before[np.sort(len(before) - 1 - last)]
    else:
        before = before[-1:]
    before, after = before.copy(), after.copy()
    before[:, 0] = 0
    after[:, 0] -= begin
    return np.concatenate([before, after])
