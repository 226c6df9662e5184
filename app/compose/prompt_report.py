"""What is said of an upload: its length, bars and tempo, and what the model does not hear of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from app.compose.tracks import Parts, instrument_name, track_names
from app.text import plural
from tokenization.analysis.beats import ON_GRID, on_grid
from tokenization.remi.vocabulary import MAX_PITCH, MIN_PITCH
from tokenization.score import Tempo, TimeSignature, Track

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from app.compose.options import BeatSource
    from app.compose.timing import Timing
    from tokenization.score import Score
    from tokenization.tokenizer import Tokenizer

_Kind = TypeVar("_Kind")
_MIDI_BPM = 120.0  # until a file says another
_PIANOS = 8  # programs of pianos are below
_DECIMALS = 2  # of tempos that are told apart: files write microseconds
OFF_GRID = (
    "the notes do not lie on the file's beats, as in a recording of someone who plays: its bars "
    "mean nothing to the model; let the beats be estimated (in a command: --beats estimate)"
)


class Region(NamedTuple):
    """Bars of a file that the model can hear, and where they begin and end in ticks of the file."""

    first_bar: int
    """From 1, as `last_bar`."""
    last_bar: int
    begin: int
    end: int

    @classmethod
    def of(cls, timing: Timing, lines: NDArray[np.int64], first_bar: int, last_bar: int) -> Region:
        """Those from one bar to another; `lines` are the bar lines, in counted ticks."""
        begin, end = timing.to_file(lines[[first_bar - 1, last_bar]]).tolist()
        return cls(first_bar, last_bar, begin if first_bar > 1 else 0, end)

    def __str__(self) -> str:
        if self.first_bar == self.last_bar:
            return f"bar {self.last_bar}"
        return f"bars {self.first_bar:,} to {self.last_bar:,}"


@dataclass(frozen=True)
class TrackFacts:
    """What is worth knowing of one track of an upload."""

    id: int
    """Its number in the file, from 0."""
    name: str
    instrument: str
    drums: bool
    notes: int
    """In the whole file."""
    heard: bool
    """Whether the model hears anything of it."""
    why: str = ""
    """Why it is not heard, or not as it is; empty where it is."""


@dataclass(frozen=True)
class PromptFacts:
    """What is worth knowing of an upload at once."""

    tracks: int
    notes: int
    bars: int
    """Up to where new music begins if nothing is cut off."""
    bpm: float
    """The tempo that holds longest."""
    metre: str
    seconds: float
    on_grid: float
    """How well the onsets lie on the file's own beats, up to 1: see `tokenization.analysis`."""
    beats: BeatSource
    """What bars and beats are counted by."""
    notices: tuple[str, ...] = ()
    """What the model does not hear, and the like: one sentence each."""
    rows: tuple[TrackFacts, ...] = ()
    """One for each track of the file, in its order."""


def prompt_facts(
    timing: Timing,
    beats: BeatSource,
    tokenizer: Tokenizer,
    *,
    bars: int,
    dropped: int,
    region: Region,
    parts: Parts,
    more: Iterable[str] = (),
) -> PromptFacts:
    """What the upload card says."""
    score = timing.file
    heard = heard_tracks(score, tokenizer)
    usual, tempos = _usual_metre(timing.counted), _tempos(score)
    metre = f"{usual.numerator}/{usual.denominator}"
    fit = on_grid(score)
    bpm = timing.bpm or _longest([(tempo.bpm, seconds) for tempo, seconds in tempos])
    notices = [
        *([f"{score.damage}: what is whole is used"] if score.damage else []),
        *_beat_notices(timing, beats, fit, f"{bpm:.0f} beats a minute, {metre}"),
        *_track_notices(score, heard, tokenizer),
    ]
    if dropped:
        notices.append(
            f"{plural(dropped, 'note')} beyond the 88 keys {'is' if dropped == 1 else 'are'} not "
            "heard"
        )
    if beats == "file" and (changes := len(tempos) - 1) > 0:
        times = "once" if changes == 1 else f"{changes} times"
        notices.append(f"the tempo changes {times}; the new music keeps the last one")
    return PromptFacts(
        tracks=len(score.tracks),
        notes=score.num_notes,
        bars=bars,
        bpm=bpm,
        metre=metre,
        seconds=float(score.seconds_at(score.end_ticks)),
        on_grid=fit,
        beats=beats,
        notices=(*notices, *more),
        rows=_rows(score, tokenizer, region, parts),
    )


def _rows(
    score: Score, tokenizer: Tokenizer, region: Region, parts: Parts
) -> tuple[TrackFacts, ...]:
    """What the table of tracks says."""
    names = track_names(score.tracks)
    is_piano = _is_piano(tokenizer)
    playing = parts.of_score(score)
    places = zip(playing, tokenizer.track_ranks(playing), strict=True)
    ranks = {id(track): rank for track, rank in places}
    first_of_rank: dict[int, str] = {}
    rows: list[TrackFacts] = []
    for number, (track, name) in enumerate(zip(score.tracks, names, strict=True)):
        instrument = instrument_name(track)
        onsets = track.notes[:, 0]
        inside = track.notes[(onsets >= region.begin) & (onsets < region.end)]
        rank = ranks.get(id(track), -1)
        hears = parts.hears(track)
        other = first_of_rank.setdefault(rank, name) if hears and rank >= 0 else name
        lost = int(np.count_nonzero((inside[:, 2] < MIN_PITCH) | (inside[:, 2] > MAX_PITCH)))
        why, heard = "", False
        if not hears:
            why = "it was left out"
        elif rank < 0:
            why = "the piano model hears no drums"
        elif not len(inside):
            why = f"silent in {region}"
        elif is_piano and lost == len(inside):
            why = "all notes are beyond the 88 keys"
        else:
            heard = True
            if is_piano and lost:
                why = f"{plural(lost, 'note')} beyond the 88 keys left out"
            elif is_piano and track.program >= _PIANOS:
                why = "heard as a piano"
            elif not is_piano and other != name:
                why = f"heard as a part of {other}"
        rows.append(TrackFacts(number, name, instrument, track.is_drum, len(track), heard, why))
    return tuple(rows)


def _beat_notices(timing: Timing, beats: BeatSource, fit: float, tempo: str) -> list[str]:
    """What bars and beats are counted by, where that is not plain."""
    if beats == "file":
        return [OFF_GRID] if fit < ON_GRID else []
    first = max(float(timing.file.seconds_at(timing.to_file(np.array([0])))[0]), 0.0)
    how = (
        "estimated from the notes" if beats == "estimate" else "those of a clock, not of the music"
    )
    return [f"bars and beats are {how}: {tempo}, bar 1 begins at {first:.1f} s"]


def _track_notices(score: Score, heard: tuple[Track, ...], tokenizer: Tokenizer) -> list[str]:
    """Which instruments the model hears as others, or not at all."""
    ranks = [rank for rank in tokenizer.track_ranks(heard) if rank > 0]
    if not _is_piano(tokenizer):
        merged = len(ranks) - len(set(ranks))
        are, others = ("is", "another") if merged == 1 else ("are", "others")
        return [f"{plural(merged, 'track')} {are} heard as a part of {others}"] if merged else []
    notices = []
    if any(track.program >= _PIANOS for track in heard):
        what = f"{len(heard)} tracks" if len(heard) > 1 else "another instrument than a piano"
        notices.append(f"{what}: the model hears {'them' if len(heard) > 1 else 'it'} as one piano")
    if any(track.is_drum for track in score.tracks):
        notices.append("drums are not heard")
    return notices


def _is_piano(tokenizer: Tokenizer) -> bool:
    """Whether all is heard as one piano."""
    return tokenizer.track_ranks((Track.of([], is_drum=True),)) == [-1]


def _usual_metre(score: Score) -> TimeSignature:
    """The metre that holds longest: a pickup has one of its own."""
    changes = score.time_signatures
    if not changes or changes[0].tick > 0:
        changes = (TimeSignature(0, 4, 4), *changes)
    ends = [*(change.tick for change in changes[1:]), max(score.end_ticks, changes[-1].tick)]
    kinds = [
        ((change.numerator, change.denominator), end - change.tick)
        for change, end in zip(changes, ends, strict=True)
    ]
    return TimeSignature(0, *_longest(kinds))


def _tempos(score: Score) -> list[tuple[Tempo, float]]:
    """Tempos in which music sounds, and the seconds that each holds; equal neighbours are one.

    What holds before the first note only, such as MIDI's own 120 until a file names another, is
    left out. There is at least one.
    """
    first = min(int(track.notes[0, 0]) for track in score.tracks if len(track))
    changes = [Tempo(0, _MIDI_BPM), *score.tempos]
    begins = np.maximum([tempo.tick for tempo in changes], first)
    ends = np.append(
        [tempo.tick for tempo in changes[1:]], max(score.end_ticks, changes[-1].tick + 1)
    )
    lengths = (score.seconds_at(ends) - score.seconds_at(begins)).tolist()
    tempos: list[tuple[Tempo, float]] = []
    for tempo, sounds, seconds in zip(changes, (ends > begins).tolist(), lengths, strict=True):
        if not sounds:
            continue
        if tempos and round(tempos[-1][0].bpm, _DECIMALS) == round(tempo.bpm, _DECIMALS):
            tempo, seconds = tempos[-1][0], tempos.pop()[1] + seconds
        tempos.append((tempo, seconds))
    return tempos


def _longest(lengths: Sequence[tuple[_Kind, float]]) -> _Kind:
    """The kind of which there is most in all; of equal ones the first."""
    total: dict[_Kind, float] = {}
    for kind, length in lengths:
        total[kind] = total.get(kind, 0) + length
    return max(total, key=lambda kind: total[kind])


def heard_tracks(score: Score, tokenizer: Tokenizer) -> tuple[Track, ...]:
    """Tracks with notes that the model hears."""
    tracks = tuple(track for track in score.tracks if len(track))
    ranks = tokenizer.track_ranks(tracks)
    return tuple(track for track, rank in zip(tracks, ranks, strict=True) if rank >= 0)
