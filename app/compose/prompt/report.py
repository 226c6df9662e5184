"""Facts about a prompt, and notices for the user, for instance about notes that are ignored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.compose.options import BeatSource
from app.compose.prompt.timing import BeatChoice, Timing
from app.compose.tracks import Parts, instrument_name, track_names
from app.text import plural
from tokenization.remi.losses import losses
from tokenization.remi.remi import Remi
from tokenization.remi.tempo_range import tempos_out_of_range
from tokenization.remi.vocabulary import TEMPO_GRID
from tokenization.score import Score, Tempo, TimeSignature, Track

_Kind = TypeVar("_Kind")
_MIDI_BPM = 120.0  # the default tempo of MIDI
_PIANOS = 8  # programs below this are pianos
_DECIMALS = 2  # precision to which tempos are compared: files store whole microseconds per beat
SAY_DRUMS = "say which are drums if this is wrong"
"""What people can do about guesses."""
_OFF_GRID = "the notes do not follow the file's beats, as in a recording, "


class Region(NamedTuple):
    """A range of bars of a file, also in ticks."""

    first_bar: int
    """From 1, like `last_bar`."""
    last_bar: int
    begin: int
    end: int

    @classmethod
    def of(cls, timing: Timing, lines: NDArray[np.int64], first_bar: int, last_bar: int) -> Region:
        """Return the range of bars, inclusive.

        `lines` are bar lines in ticks of `timing.counted`.
        """
        begin, end = timing.to_file(lines[[first_bar - 1, last_bar]]).tolist()
        return cls(first_bar, last_bar, begin if first_bar > 1 else 0, end)

    def __str__(self) -> str:
        if self.first_bar == self.last_bar:
            return f"bar {self.last_bar}"
        return f"bars {self.first_bar:,} to {self.last_bar:,}"


@dataclass(frozen=True)
class TrackFacts:
    """Facts about one track of a file."""

    id: int
    """Its number in the file, from 0."""
    name: str
    instrument: str
    drums: bool
    notes: int
    """Number of notes in the whole file."""
    heard: bool
    """Whether the model reads any of its notes."""
    why: str = ""
    """Why the model ignores the track or reads it in a changed form; otherwise empty."""


@dataclass(frozen=True)
class PromptFacts:
    """Facts about a file, and about the part of it that the model reads."""

    tracks: int
    notes: int
    bars: int
    """Number of bars before the new music if nothing is cut off."""
    bpm: float
    """The tempo with the longest total duration."""
    metre: str
    seconds: float
    file_bars: float
    """Probability that the bars of the file are those of its music."""
    beats: BeatSource
    """The source of bars and beats."""
    beats_notice: str = ""
    """The notice about the source of beats; empty if they are the file's and the notes fit."""
    confidence: float = 1.0
    """Expected share of estimated beats that are right, as an F-measure; otherwise 1."""
    notices: tuple[str, ...] = ()
    """Notices for the user, one sentence each."""
    rows: tuple[TrackFacts, ...] = ()
    """One for each track, in the order of the file."""


def prompt_facts(
    timing: Timing,
    choice: BeatChoice,
    tokenizer: Remi,
    *,
    bars: int,
    region: Region,
    parts: Parts,
    more: Iterable[str] = (),
    is_continued: bool = True,
) -> PromptFacts:
    """Return facts about a file, and about the prompt: the tracks `parts` in the bars `region`.

    Args:
        timing: the timing of the whole file.
        choice: the source of bars and beats.
        tokenizer: the model's tokenizer.
        bars: see `PromptFacts`.
        region: the bars of the prompt.
        parts: the tracks that the model reads.
        more: further notices.
        is_continued: whether new music follows at the end.
    """
    score, beats = timing.file, choice.source
    heard = heard_tracks(score, tokenizer)
    metre, tempos = _usual_metre(score if beats == "file" else timing.counted), _tempos(score)
    about_beats = beats_notice(timing, choice)
    notices = [
        *([f"{score.damage}; the rest is used"] if score.damage else []),
        *([f"the file was read without its {score.left_out}"] if score.left_out else []),
        *([f"{score.guesses}; {SAY_DRUMS}"] if score.guesses else []),
        *([about_beats] if about_beats else []),
        *_track_notices(score, heard, tokenizer),
    ]
    if unread := _losses(timing, tokenizer):
        notices.append(unread)
    if beats == "file" and (others := tempos_out_of_range(score)):
        least, most = TEMPO_GRID[[0, -1]].tolist()
        notices.append(_tempo_notice(others, least, most))
    if is_continued and beats == "file" and (changes := len(tempos) - 1) > 0:
        times = "once" if changes == 1 else f"{changes} times"
        notices.append(f"the tempo changes {times}; the new music uses the last tempo")
    return PromptFacts(
        tracks=len(score.tracks),
        notes=score.num_notes,
        bars=bars,
        bpm=timing.bpm or _longest(tempos),
        metre=metre,
        seconds=float(score.seconds_at(score.end_ticks)),
        file_bars=choice.file_bars,
        beats=beats,
        beats_notice=about_beats,
        confidence=timing.confidence,
        notices=(*notices, *more),
        rows=_rows(score, tokenizer, region, parts),
    )


def _rows(score: Score, tokenizer: Remi, region: Region, parts: Parts) -> tuple[TrackFacts, ...]:
    names = track_names(score.tracks)
    is_piano = _is_piano(tokenizer)
    playing = parts.of_score(score)
    ranks = dict(zip(map(id, playing), tokenizer.track_ranks(playing), strict=True))
    first_of_rank: dict[int, str] = {}
    rows: list[TrackFacts] = []
    for number, (track, name) in enumerate(zip(score.tracks, names, strict=True)):
        onsets = track.notes[:, 0]
        inside = track.notes[(onsets >= region.begin) & (onsets < region.end)]
        rank = ranks.get(id(track), -1)
        hears = parts.hears(track)
        other = first_of_rank.setdefault(rank, name) if hears and rank >= 0 else name
        unheard, changed = "", ""
        if not hears:
            unheard = "not part of the prompt"
        elif rank < 0:
            unheard = "the piano model ignores drums"
        elif not len(inside):
            unheard = f"no notes in {region}"
        elif not is_piano:
            changed = f"read as part of {other}" if other != name else ""
        elif track.program >= _PIANOS:
            changed = "read as a piano"
        facts = (number, name, instrument_name(track), track.is_drum, len(track))
        rows.append(TrackFacts(*facts, heard=not unheard, why=unheard or changed))
    return tuple(rows)


def beats_notice(timing: Timing, choice: BeatChoice) -> str:
    """Return a notice if bars and beats are not the file's own, or if the notes do not fit them."""
    beats, is_off = choice.source, choice.file_bars < 0.5
    if beats == "file":
        advice = choice.problem or "estimate them instead"
        return f"{_OFF_GRID}so its bars are not those of the music; {advice}" * is_off
    first = max(float(timing.file.seconds_at(timing.to_file(np.array([0])))[0]), 0.0)
    why = f"{_OFF_GRID}so " * (is_off and beats == "estimate")
    sure = f"estimated from the notes (confidence {timing.confidence:.0%})"
    how = sure if beats == "estimate" else "a fixed grid"
    tempo = f"{timing.bpm:.0f} beats per minute, {_usual_metre(timing.counted)}"
    return f"{why}bars and beats are {how}: {tempo}, and bar 1 begins at {first:.1f} s"


def _tempo_notice(others: Sequence[float], least: float, most: float) -> str:
    """Return the notice about tempos outside the range of the model, from `least` to `most`."""
    slowest, fastest = min(others), max(others)
    which = f"of {slowest:g}" if slowest == fastest else f"from {slowest:g} to {fastest:g}"
    how = "doubled" if fastest < least else "halved" if slowest > most else "halved or doubled"
    return (
        f"{plural(len(others), 'tempo')} {which}, outside {least:.0f} to {most:.0f} beats per "
        f"minute: the model reads these beats {how}, so that the speed of the music stays the same"
    )


def _track_notices(score: Score, heard: tuple[Track, ...], tokenizer: Remi) -> list[str]:
    """Return notices about instruments that the model reads as others or ignores."""
    ranks = [rank for rank in tokenizer.track_ranks(heard) if rank > 0]
    if not _is_piano(tokenizer):
        merged = len(ranks) - len(set(ranks))
        are = "is read as part of another track" if merged == 1 else "are read as parts of others"
        return [f"{plural(merged, 'track')} {are}"] if merged else []
    notices = []
    if any(track.program >= _PIANOS for track in heard):
        what = (
            f"{len(heard)} tracks as one piano" if len(heard) > 1 else "the instrument as a piano"
        )
        notices.append(f"the model reads {what}")
    if any(track.is_drum for track in score.tracks):
        drums = sum(len(track) for track in score.tracks if track.is_drum)
        notices.append(f"the model ignores drums ({plural(drums, 'note')})")
    return notices


def _losses(timing: Timing, tokenizer: Remi) -> str:
    """Return what the model does not read of the file's events and times; empty if nothing.

    Notes are read as sustained by the pedal. Drums have a notice of their own. Tempos are
    rounded by at most one percent, which is inaudible: listeners notice a change of about two.
    """
    counted = timing.counted
    lost = losses(counted, tokenizer.track_ranks(counted.tracks))
    unread = [
        plural(count, name)
        for count, name in ((lost.controllers, "controller change"), (lost.bends, "pitch bend"))
        if count
    ]
    clauses = [f"the model does not read {' and '.join(unread)}"] if unread else []
    shift = lost.onset_microseconds / 1e3 / max(counted.num_notes - lost.drums, 1)
    if shift >= 1:
        subject = "it" if unread else "the model"
        clauses.append(f"{subject} reads the times of notes rounded by {shift:.0f} ms on average")
    return "; ".join(clauses)


def _is_piano(tokenizer: Remi) -> bool:
    """Return whether the model reads all tracks as one piano."""
    return tokenizer.track_ranks((Track.of([], is_drum=True),)) == [-1]


def _usual_metre(score: Score) -> str:
    """Return the metre with the longest total duration; a pickup bar often has its own metre."""
    changes = score.time_signatures
    if not changes or changes[0].tick > 0:
        changes = (TimeSignature(0, 4, 4), *changes)
    ends = [*(change.tick for change in changes[1:]), max(score.end_ticks, changes[-1].tick)]
    return _longest(
        [
            (f"{metre.numerator}/{metre.denominator}", end - metre.tick)
            for metre, end in zip(changes, ends, strict=True)
        ]
    )


def _tempos(score: Score) -> list[tuple[float, float]]:
    """Return the tempos (bpm) from the first note on, and their durations in seconds; at least one.

    Equal neighbours are merged.
    """
    first = min(int(track.notes[0, 0]) for track in score.tracks if len(track))
    changes = [Tempo(0, _MIDI_BPM), *score.tempos]
    begins = np.maximum([tempo.tick for tempo in changes], first)
    ends = np.append(begins[1:], max(score.end_ticks, changes[-1].tick + 1))
    seconds = (score.seconds_at(ends) - score.seconds_at(begins)).tolist()
    lasting = [
        (tempo.bpm, length)
        for tempo, sounds, length in zip(changes, (ends > begins).tolist(), seconds, strict=True)
        if sounds
    ]
    groups = (list(group) for _, group in groupby(lasting, lambda one: round(one[0], _DECIMALS)))
    return [(group[0][0], sum(length for _, length in group)) for group in groups]


def _longest(lengths: Sequence[tuple[_Kind, float]]) -> _Kind:
    """Return the kind with the greatest total length; the first one in a tie."""
    total: dict[_Kind, float] = {}
    for kind, length in lengths:
        total[kind] = total.get(kind, 0) + length
    return max(total, key=lambda kind: total[kind])


def heard_tracks(score: Score, tokenizer: Remi) -> tuple[Track, ...]:
    """Return the tracks with notes that the model can read."""
    tracks = tuple(track for track in score.tracks if len(track))
    ranks = tokenizer.track_ranks(tracks)
    return tuple(track for track, rank in zip(tracks, ranks, strict=True) if rank >= 0)
