"""The player's side in Python: scores as the frames that `player.js` draws.

A frame is a plain dictionary with all that the player shows. Notes, bar lines and tempos are texts
of numbers ("onset,duration,pitch,velocity;"): while music is written they only grow, so that Gradio
sends what was added and the browser reads only that, and a frame lost on the way does no harm.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from tokenization.score import TimeSignature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tokenization.score import Score, Track

UNITS_PER_BEAT = 96
"""Parts of a quarter note that frames count in; a multiple of the grid's 12; as in roll.js."""
MOST_BARS = 20_000
"""Bar lines drawn at most, whatever a file claims."""

_FOLDER = Path(__file__).parent
TEMPLATE = (_FOLDER / "player.html").read_text(encoding="utf-8")
SCRIPT = "\n".join(
    (_FOLDER / name).read_text(encoding="utf-8") for name in ("roll.js", "player.js")
)
STYLES = (_FOLDER / "player.css", _FOLDER / "page.css")


class TrackFrame(TypedDict):
    """Notes of one track; `hue` chooses its colour."""

    name: str
    hue: int
    notes: str


class TimelineFrame(TypedDict):
    """Bar lines and tempo map as texts, and where the piece ends in quarter notes."""

    bars: str
    tempos: str
    end: float


class PromptFrame(TypedDict):
    """The upload: its tracks, and where new music begins, in quarter notes."""

    tracks: list[TrackFrame]
    joint: float


class VariationFrame(TypedDict, total=False):
    """New music of one variation; the paths are there once the files are."""

    tracks: list[TrackFrame]
    timeline: TimelineFrame
    midi: str
    new_midi: str
    audio: str
    settings: str


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
    hint: str
    line: str
    status: str
    alert: str
    progress: float
    timeline: TimelineFrame
    prompt: PromptFrame
    variations: list[VariationFrame]


def _units(ticks: NDArray[np.int64], ticks_per_beat: int) -> NDArray[np.int64]:
    return (2 * ticks * UNITS_PER_BEAT + ticks_per_beat) // (2 * ticks_per_beat)


def pack_notes(track: Track, ticks_per_beat: int) -> str:
    """The notes of a track as the text "onset,duration,pitch,velocity;…", times in player units."""
    onsets = _units(track.notes[:, 0], ticks_per_beat)
    ends = _units(track.notes[:, 0] + track.notes[:, 1], ticks_per_beat)
    rows = np.column_stack([onsets, np.maximum(ends - onsets, 1), track.notes[:, 2:]]).tolist()
    return "".join(f"{onset},{length},{pitch},{loud};" for onset, length, pitch, loud in rows)


def pack_tracks(score: Score, name: str | None = None) -> list[TrackFrame]:
    """Frames of a score's tracks that have notes; drums have no place on a keyboard.

    With `name`, all tracks have that name and one colour.
    """
    pitched = [track for track in score.tracks if len(track) and not track.is_drum]
    return [
        TrackFrame(
            name=name
            or track.name.strip()
            or ("Piano" if len(pitched) == 1 else f"Track {hue + 1}"),
            hue=0 if name else hue,
            notes=pack_notes(track, score.ticks_per_beat),
        )
        for hue, track in enumerate(pitched)
    ]


def bar_lines(
    signatures: Sequence[TimeSignature], ticks_per_beat: int, end_ticks: int
) -> Iterator[int]:
    """Ticks of the bar lines up to the first at or after `end_ticks`; a new metre starts a bar."""
    changes = list(signatures)
    if not changes or changes[0].tick > 0:
        changes.insert(0, TimeSignature(0, 4, 4))
    for index, change in enumerate(changes):
        last = index == len(changes) - 1
        until = end_ticks if last else min(changes[index + 1].tick, end_ticks)
        length = max(1, round(change.bar_quarters() * ticks_per_beat))
        yield from range(change.tick, until, length)
        if until >= end_ticks:
            start = change.tick
            yield start + -(-max(end_ticks - start, 0) // length) * length
            return


def timeline(score: Score, end_ticks: int = 0) -> TimelineFrame:
    """Bar lines and tempo map of a score, up to its end or to `end_ticks`, whichever is later."""
    per_beat = score.ticks_per_beat
    lines: list[int] = []
    for line in bar_lines(score.time_signatures, per_beat, max(score.end_ticks, end_ticks, 1)):
        lines.append(line)
        if len(lines) > MOST_BARS:
            break
    end = max(lines[-1], score.end_ticks)
    ticks = np.unique([0, *(t.tick for t in score.tempos if t.tick < end), end])
    points = zip(
        _units(ticks, per_beat).tolist(),
        np.rint(1000 * score.seconds_at(ticks)).astype(np.int64).tolist(),
        strict=True,
    )
    return TimelineFrame(
        bars="".join(f"{unit};" for unit in _units(np.array(lines), per_beat).tolist()),
        tempos="".join(f"{unit},{millis};" for unit, millis in points),
        end=end / per_beat,
    )
