"""The player's side in Python: scores as the frames that `player.js` draws.

A frame is a plain dictionary with all that the player shows. Notes, bar lines and tempos are texts
of numbers ("onset,duration,pitch,velocity;"): while music is written they only grow, so that Gradio
sends what was added and the browser reads only that, and a frame lost on the way does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np

from app.compose.tracks import instrument_name, track_names
from tokenization.remi.bars import written_lines
from tokenization.remi.vocabulary import STEPS_PER_BEAT
from tokenization.score import Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenization.score import Track

UNITS_PER_BEAT = 96
"""Parts of a quarter note that frames count in: eight for each step. As in roll_notes.js."""
MOST_BARS = 20_000
"""Bars drawn at most, whatever a file claims."""

BLANK = Score(STEPS_PER_BEAT)
"""A piece of which nothing is known: MIDI's tempo and metre."""
_BLANK_BEATS = 4

SoundState = Literal["ready", "making", "none"]
"""Whether the sound of something can be asked for, is being made, or is not there."""


class TrackFrame(TypedDict):
    """Notes of one track; `hue` chooses its colour, `drums` go to the lane of drums."""

    name: str
    hue: int
    drums: bool
    notes: str
    id: NotRequired[int]
    """The same in prompt and new music, from 0: mutes the sound, and names tracks in `tracks`."""
    instrument: NotRequired[str]
    """What plays it, where its name does not say so."""
    heard: NotRequired[bool]
    """Whether the model hears it as a part of the prompt."""
    played: NotRequired[bool]
    """Whether it may play in the new music."""
    why: NotRequired[str]
    """A short sentence, where the model does not hear it or only a part of it."""


class TimelineFrame(TypedDict):
    """Bar lines and tempo map as texts, and where the piece ends in quarter notes.

    `beats` says that the quarter notes are beats, and can be drawn as such.
    """

    bars: str
    tempos: str
    end: float
    beats: bool


class PromptFrame(TypedDict):
    """The upload: its tracks, and where new music begins, in quarter notes."""

    tracks: list[TrackFrame]
    joint: float
    first: NotRequired[float]
    """Where the region begins that the model hears; its end is the joint."""
    sound: NotRequired[SoundState]
    """Of the upload itself: `server.mix` with variation -1."""


class VariationFrame(TypedDict, total=False):
    """New music of one variation; its files are asked for by their kinds.

    The paths `midi`, `new_midi` and `audio` are for scripts; the player plays `audio` as it is.
    """

    tracks: list[TrackFrame]
    timeline: TimelineFrame
    midi: str
    new_midi: str
    audio: str
    settings: str
    sound: SoundState
    files: list[str]
    """Of midi, new_midi, flac, wav, ogg, stems, replay: what `server.file` can give."""
    facts: str
    """One short line of what was written, such as "212 notes · 0:27"."""


class Frame(TypedDict, total=False):
    """All that the player shows.

    `phase` is one of empty, prompt, waiting, composing, rendering, done; frames of one `job` keep
    view and position. `line` is the progress line, `status` what a screen reader hears, `alert` an
    error.
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
    can_undo: bool
    can_discard: bool
    table: bool
    """Whether the table of tracks stands open, where tracks say what is `heard` and `played`."""
    busy: bool
    """Whether something is made: Stop is offered, and the region stays as it is."""
    example: bool
    """Whether this is only what a finished piece looks like: pale, and with a line that says so."""


def _units(ticks: NDArray[np.int64], ticks_per_beat: int) -> NDArray[np.int64]:
    return (2 * ticks * UNITS_PER_BEAT + ticks_per_beat) // (2 * ticks_per_beat)


def pack_notes(track: Track, ticks_per_beat: int) -> str:
    """The notes of a track as the text "onset,duration,pitch,velocity;…", times in player units."""
    onsets = _units(track.notes[:, 0], ticks_per_beat)
    ends = _units(track.notes[:, 0] + track.notes[:, 1], ticks_per_beat)
    rows = np.column_stack([onsets, np.maximum(ends - onsets, 1), track.notes[:, 2:]]).tolist()
    return "".join(f"{onset},{length},{pitch},{loud};" for onset, length, pitch, loud in rows)


def pack_tracks(score: Score, like: Score | None = None) -> list[TrackFrame]:
    """Frames of a score's tracks that have notes, each with its name, hue and id.

    With `like`, the file that the score continues, a track that goes on in one of its tracks (the
    same chunk and channel, or else instrument) looks like that one; others get new hues.
    """
    frames: list[TrackFrame] = []
    for track, look in _looks(score, like):
        frame = TrackFrame(
            name=look.name,
            hue=look.id,
            drums=track.is_drum,
            notes=pack_notes(track, score.ticks_per_beat),
            id=look.id,
        )
        if (instrument := instrument_name(track)) not in look.name:
            frame["instrument"] = instrument
        frames.append(frame)
    return frames


def track_ids(score: Score, like: Score | None = None) -> list[int]:
    """The id of each of a score's tracks in the frames of `pack_tracks`; -1 without notes."""
    ids = {id(track): look.id for track, look in _looks(score, like)}
    return [ids.get(id(track), -1) for track in score.tracks]


class _Look(NamedTuple):
    """How one track is told apart."""

    name: str
    id: int


def _looks(score: Score, like: Score | None) -> list[tuple[Track, _Look]]:
    """Tracks that have notes, in order, each with its look: that of the file's, or a new one."""
    known, tracks = _in_order(like) if like else [], _in_order(score)
    looks: dict[tuple[object, ...], _Look] = {}
    for index, (track, name) in enumerate(zip(known, track_names(known), strict=True)):
        for key in _keys(track):
            looks.setdefault(key, _Look(name, index))
    unknown = len(known)
    found: list[tuple[Track, _Look]] = []
    for track, name in zip(tracks, track_names(tracks), strict=True):
        look = next((looks[key] for key in _keys(track) if key in looks), None)
        if look is None:
            look, unknown = _Look(name, unknown), unknown + 1
        found.append((track, look))
    return found


def _in_order(score: Score) -> list[Track]:
    """Tracks that have notes: those of a file as they stand, others as they set in.

    So music that is being written keeps its colours when one more instrument sets in.
    """
    playing = [track for track in score.tracks if len(track)]
    return sorted(playing, key=lambda track: int(track.notes[0, 0]) if track.chunk is None else -1)


def _keys(track: Track) -> list[tuple[object, ...]]:
    """What makes two tracks one, the surest first."""
    instrument = (track.program, track.is_drum)
    if track.chunk is None:
        return [instrument]
    place = ("chunk", track.chunk, track.channel)
    return [(*place, *instrument), place, instrument]


def timeline(
    score: Score, end_ticks: int = 0, lines: NDArray[np.int64] | None = None
) -> TimelineFrame:
    """Bar lines and tempo map of a score, up to its end or to `end_ticks`, whichever is later.

    `lines` are bar lines in ticks, rising, that stand for those of the time signatures: of a
    performance whose beats were estimated.
    """
    per_beat = score.ticks_per_beat
    end = max(score.end_ticks, end_ticks, 1)
    bars = _written_lines(score, end) if lines is None else lines[: np.searchsorted(lines, end) + 1]
    bars = bars[: MOST_BARS + 1]
    end = max([end, *bars[-1:].tolist()])
    ticks = np.unique([0, *(t.tick for t in score.tempos if t.tick < end), end])
    points = zip(
        _units(ticks, per_beat).tolist(),
        np.rint(1000 * score.seconds_at(ticks)).astype(np.int64).tolist(),
        strict=True,
    )
    return TimelineFrame(
        bars="".join(f"{unit};" for unit in _units(bars, per_beat).tolist()),
        tempos="".join(f"{unit},{millis};" for unit, millis in points),
        end=end / per_beat,
        beats=lines is None,
    )


def blank_timeline(bars: int, score: Score = BLANK) -> TimelineFrame:
    """Of a piece from nothing that will have so many bars, of which the first may be in `score`."""
    return timeline(score, bars * score.ticks_per_beat * _BLANK_BEATS)


def _written_lines(score: Score, end_ticks: int) -> NDArray[np.int64]:
    """The score's own bar lines up to the first at or after `end_ticks`.

    Of a file that claims more than MOST_BARS they end early: what is not shown is not made either.
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
    return written_lines(Score(score.ticks_per_beat, time_signatures=tuple(metres)), end_ticks)
