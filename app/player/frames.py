"""Converts scores to frames, the dictionaries that the player in the browser shows.

Notes, bar lines and tempos are packed as text ("onset,duration,pitch,velocity;"). While music is
generated this text only grows, so Gradio sends, and the browser parses, only the addition. A frame
is the whole state, so a lost frame does no harm.
"""

from __future__ import annotations

import itertools
from typing import NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from app.compose.plan.lead_sheet import LeadSheet
from app.compose.tracks import instrument_name, track_names
from app.player.plan import PlanFrame
from tokenization.grid import STEPS_PER_BEAT, notated_lines
from tokenization.midi.change import volume_of
from tokenization.score import Score, Track

UNITS_PER_BEAT = 96
"""Time units of frames per quarter note: eight for each grid step. The same in notes.js."""
MOST_BARS = 20_000
"""Limit for the bars that are drawn, even if a file has more."""

BEND = 128
"""The number of bends among controllers. The same in score.js."""
_PEDAL = 64
_PARAMETER = (6, 38, 98, 99, 100, 101)  # of bends: each value takes effect when it is sent
_HEARD = (0, 1, 7, 10, 11, _PEDAL, *_PARAMETER)

BLANK = Score(STEPS_PER_BEAT)
"""An unknown piece, with the default tempo and metre of MIDI."""
_BLANK_BEATS = 4


class TrackFrame(TypedDict):
    """The notes of a track; `hue` selects its colour, `drums` are drawn in their own lane."""

    name: str
    hue: int
    drums: bool
    notes: str
    id: NotRequired[int]
    """Identifies the track, from 0; the same in the prompt and in the new music."""
    instrument: NotRequired[str]
    """The instrument, if the name of the track does not contain it."""
    program: NotRequired[int]
    """Its General MIDI program; missing for drums."""
    volume: NotRequired[int]
    """The volume with which it begins."""
    controls: NotRequired[str]
    """Controllers and bends, packed, if it has any."""
    heard: NotRequired[bool]
    """Whether the model reads it as part of the prompt."""
    played: NotRequired[bool]
    """Whether it may play in the new music."""
    why: NotRequired[str]
    """A short reason, if the model reads the track only in part or not at all."""


class TimelineFrame(TypedDict):
    """Packed bar lines and tempo map, and the end of the piece."""

    bars: str
    tempos: str
    end: float
    """In quarter notes."""
    beats: bool
    """Whether quarter notes are beats and are drawn as such."""


class GapFrame(TypedDict):
    """Bars of the uploaded file that are to be written, or were; `played` marks their tracks."""

    first: int
    """The first bar, from 1."""
    last: int
    tracks: list[int] | None
    """Ids of the tracks, as the user chose them; None: all that the model reads."""
    rests: list[int]
    """Ids of the tracks whose notes are removed."""
    instrument: int | None
    """The instrument of a new track that is written as well, as in `Passage`."""
    problem: NotRequired[str]
    """Why they cannot be written, as a sentence."""


class SheetFrame(TypedDict):
    """Form and chords of a piece, in rows over the notes."""

    sections: list[tuple[str, int, int]]
    """Letter, first bar from 1, and number of bars of each phrase."""
    chords: list[str]
    """The chords of each bar, separated by a space."""
    missed: NotRequired[list[int]]
    """New bars, from 0, without the chords that were asked of them."""


class PromptFrame(TypedDict):
    """The uploaded file; new music begins at `splice`, in quarter notes."""

    tracks: list[TrackFrame]
    splice: float
    first: NotRequired[float]
    """Start of the region that the model reads, which ends at the splice."""
    bpm: NotRequired[float]
    """The tempo that the card tells: of most of the file, or of its estimated beats."""
    sheet: NotRequired[SheetFrame]
    gap: NotRequired[GapFrame]
    """The bars that are written; without it, new music follows at the end."""
    files: NotRequired[list[str]]
    """Kinds of files of the upload that can be requested, as those of a variation."""


class VariationFrame(TypedDict, total=False):
    """The new music of one variation; its files are requested by kind.

    The paths `midi` and `new_midi` are for scripts.
    """

    tracks: list[TrackFrame]
    timeline: TimelineFrame
    sheet: SheetFrame
    midi: str
    new_midi: str
    settings: str
    files: list[str]
    """Kinds of files that can be requested: see `app/server/downloads.py`."""
    facts: str
    """A short summary such as "212 notes · 0:27"."""
    accidents: str
    """What listeners may take for mistakes, in one line."""
    best: bool
    """Whether it is the best of several variations, as takes are ranked."""


class Frame(TypedDict, total=False):
    """The whole state of the player.

    `phase` is one of empty, prompt, waiting, composing, done. Frames of one `job` keep
    the view and the position. `line` describes the progress, `status` is for screen readers,
    `alert` is an error.
    """

    job: str
    phase: str
    title: str
    subtitle: str
    line: str
    status: str
    alert: str
    progress: float
    timeline: TimelineFrame
    prompt: PromptFrame
    variations: list[VariationFrame]
    written: float
    """Up to where the first variation is finished, in quarter notes, while it is written."""
    listens: bool
    """Whether it is to be played as soon as it can be without a gap."""
    plan: PlanFrame
    """What is asked of new bars that are not written yet."""
    can_undo: bool
    can_redo: bool
    busy: bool
    """Whether a job is running: Stop is offered, and the region cannot be changed."""
    example: bool
    """Whether this is an example of a finished piece, drawn pale and with a caption."""


def _units(ticks: NDArray[np.int64], ticks_per_beat: int) -> NDArray[np.int64]:
    return (2 * ticks * UNITS_PER_BEAT + ticks_per_beat) // (2 * ticks_per_beat)


def onset_units(track: Track, ticks_per_beat: int) -> NDArray[np.int64]:
    """Return the onsets (n,) of the notes of a track in player units."""
    return _units(track.notes[:, 0], ticks_per_beat)


def pack_notes(track: Track, ticks_per_beat: int) -> str:
    """Pack the notes of a track as "onset,duration,pitch,velocity;…", times in player units."""
    onsets = onset_units(track, ticks_per_beat)
    ends = _units(track.notes[:, 0] + track.notes[:, 1], ticks_per_beat)
    rows = np.column_stack([onsets, np.maximum(ends - onsets, 1), track.notes[:, 2:]]).tolist()
    return "".join(f"{onset},{length},{pitch},{loud};" for onset, length, pitch, loud in rows)


def pack_controls(track: Track, ticks_per_beat: int) -> str:
    """Pack what is heard of a track beside its notes as "time,controller,value;…".

    Times are in player units. Values that change nothing are left out, the pedal is up or down, and
    bends have the controller BEND.
    """
    bends = np.insert(track.bends, 1, BEND, axis=1)
    heard = track.controls[np.isin(track.controls[:, 1], _HEARD)]
    rows = np.concatenate([heard, bends])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    pedal = rows[:, 1] == _PEDAL
    rows[pedal, 2] = np.where(rows[pedal, 2] < 64, 0, 127)
    latest: dict[int, int] = {}
    packed: list[str] = []
    for unit, kind, value in zip(_units(rows[:, 0], ticks_per_beat), *rows.T[1:], strict=True):
        if latest.get(kind) != value or kind in _PARAMETER:
            latest[kind] = value
            packed.append(f"{unit},{kind},{value};")
    return "".join(packed)


def pack_tracks(score: Score, like: Score | None = None) -> list[TrackFrame]:
    """Return the frames of the tracks with notes of a score, each with its name, hue and id.

    `like` is the file that the score continues: a track that continues one of its tracks (the same
    chunk and channel, or else the same instrument) gets its name, hue and id; others get new ones.
    """
    frames: list[TrackFrame] = []
    for track, name, number in _named(score, like):
        notes = pack_notes(track, score.ticks_per_beat)
        frame = TrackFrame(name=name, hue=number, drums=track.is_drum, notes=notes, id=number)
        if (instrument := instrument_name(track)) not in name:
            frame["instrument"] = instrument
        if not track.is_drum:
            frame["program"] = track.program
        frame["volume"] = volume_of(track)
        if controls := pack_controls(track, score.ticks_per_beat):
            frame["controls"] = controls
        frames.append(frame)
    return frames


def track_ids(score: Score, like: Score | None = None) -> list[int]:
    """Return the id of each track of a score in the frames of `pack_tracks`; -1 without notes."""
    ids = {id(track): number for track, _, number in _named(score, like)}
    return [ids.get(id(track), -1) for track in score.tracks]


def _named(score: Score, like: Score | None) -> list[tuple[Track, str, int]]:
    """Return the tracks with notes, in order, with name and id of those in `like`, or new ones."""
    originals, tracks = _in_order(like) if like else [], _in_order(score)
    looks: dict[tuple[object, ...], tuple[str, int]] = {}
    for index, (track, name) in enumerate(zip(originals, track_names(originals), strict=True)):
        for key in _keys(track):
            looks.setdefault(key, (name, index))
    new_ids = itertools.count(len(originals))
    named: list[tuple[Track, str, int]] = []
    for track, name in zip(tracks, track_names(tracks), strict=True):
        look = next((looks[key] for key in _keys(track) if key in looks), None)
        named.append((track, *(look or (name, next(new_ids)))))
    return named


def _in_order(score: Score) -> list[Track]:
    """Return the tracks with notes: those of a file in its order, then others by their first onset.

    Thus colours do not change when another instrument enters while music is generated.
    """
    playing = [track for track in score.tracks if len(track)]
    return sorted(playing, key=lambda track: int(track.notes[0, 0]) if track.chunk is None else -1)


def _keys(track: Track) -> list[tuple[object, ...]]:
    """Return the keys by which tracks are matched, the most specific first."""
    instrument = (track.program, track.is_drum)
    if track.chunk is None:
        return [instrument]
    place = ("chunk", track.chunk, track.channel)
    return [(*place, *instrument), place, instrument]


def timeline(
    score: Score, end_ticks: int = 0, lines: NDArray[np.int64] | None = None
) -> TimelineFrame:
    """Return a score's bar lines and tempos, up to its end or `end_ticks`, whichever is later.

    `lines` are ascending bar lines in ticks that replace those of the time signatures, for a
    performance whose beats were estimated.
    """
    per_beat = score.ticks_per_beat
    end = max(score.end_ticks, end_ticks, 1)
    bars = _notated_lines(score, end) if lines is None else lines[: np.searchsorted(lines, end) + 1]
    bars = bars[: MOST_BARS + 1]
    end = max([end, *bars[-1:].tolist()])
    ticks = np.unique([0, *(t.tick for t in score.tempos if t.tick < end), end])
    milliseconds = np.rint(1000 * score.seconds_at(ticks)).astype(np.int64).tolist()
    points = zip(_units(ticks, per_beat).tolist(), milliseconds, strict=True)
    return TimelineFrame(
        bars="".join(f"{unit};" for unit in _units(bars, per_beat).tolist()),
        tempos="".join(f"{unit},{millis};" for unit, millis in points),
        end=end / per_beat,
        beats=lines is None,
    )


def pack_sheet(sheet: LeadSheet, bars: TimelineFrame) -> SheetFrame | None:
    """Return the frame of a lead sheet.

    It is None without chords, or if its bars are not those of the frame.

    A notated bar of more than eight quarters is several bars in a lead sheet.
    """
    if not any(sheet.chords) or len(sheet.chords) > bars["bars"].count(";"):
        return None
    return SheetFrame(
        sections=[
            (phrase.letter, phrase.first_bar + 1, phrase.num_bars) for phrase in sheet.phrases
        ],
        chords=[" ".join(bar) for bar in sheet.chords],
    )


def blank_timeline(bars: int, score: Score = BLANK) -> TimelineFrame:
    """Return the timeline of a new piece of `bars` bars, the first of which may be in `score`."""
    return timeline(score, bars * score.ticks_per_beat * _BLANK_BEATS)


def _notated_lines(score: Score, end_ticks: int) -> NDArray[np.int64]:
    """Return the notated bar lines of a score, up to the first one at or after `end_ticks`.

    At most MOST_BARS are computed, as no more are drawn.
    """
    metres = [metre for metre in score.time_signatures if metre.numerator > 0]
    ticks = [metre.tick for metre in metres]
    starts = np.array([0, *ticks, max([end_ticks, *ticks[-1:]])])
    quarters = np.array([4.0, *(metre.bar_quarters() for metre in metres)])
    lengths = quarters * score.ticks_per_beat
    bars = np.append(0, np.cumsum(np.ceil(np.diff(starts) / lengths)))
    over = int(np.searchsorted(bars, MOST_BARS))
    if over < len(bars):
        room = MOST_BARS - bars[over - 1]
        limit = int(starts[over - 1] + room * lengths[over - 1])
        metres = [metre for metre in metres if metre.tick <= limit]
        end_ticks = min(end_ticks, limit)
    return notated_lines(Score(score.ticks_per_beat, time_signatures=tuple(metres)), end_ticks)
