"""An upload: what it is, what the model hears of it, and where new music begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokenization.errors import MidiError
from tokenization.layout import read_bars
from tokenization.midi import read_midi
from tokenization.midi_cut import cut_midi
from tokenization.remi import PianoRemi
from tokenization.score import Score, TimeSignature, Track
from tokenization.vocabulary import BAR, EOS, STEPS_PER_BEAT

if TYPE_CHECKING:
    from numpy.typing import NDArray

OVERHANG_STEPS = STEPS_PER_BEAT
"""How far a last note may ring over a bar line without the continuation waiting for the next one.
"""


@dataclass(frozen=True)
class PromptFacts:
    """What is worth knowing of an upload at once."""

    tracks: int
    notes: int
    bars: int
    bpm: float
    metre: str
    seconds: float
    notices: tuple[str, ...] = ()
    """What the model does not hear, and the like: one sentence each."""


@dataclass(frozen=True)
class Prompt:
    """An upload, what the model hears of it, and where the new music begins."""

    name: str
    data: bytes
    score: Score
    heard: Score  # one piano on the grid, up to the joint
    facts: PromptFacts
    joint_ticks: int  # in ticks of `heard`, from the start of the file
    ids: NDArray[np.int32]  # whole bars up to the joint, without EOS


def read_prompt(data: bytes, name: str = "prompt.mid", last_bar: int | None = None) -> Prompt:
    """An upload as the piano model hears it.

    New music begins after `last_bar`, or after the last note.

    What follows `last_bar` is cut off. A last note may ring over its bar line by a quarter note;
    where it rings longer the new music waits. Raises MidiError where the file cannot be continued.
    """
    score = read_midi(data, name=name)
    melodic = [track for track in score.tracks if not track.is_drum and len(track)]
    if not melodic:
        raise MidiError(
            f"{name}: found {'drums' if score.num_notes else 'no notes'} only, expected notes of a "
            "piano or another pitched instrument; choose another file"
        )
    tokenizer = PianoRemi()
    try:
        sequence = tokenizer.encode(score)
    except MidiError as error:
        raise MidiError(f"{name}: {error}") from error
    ids = sequence.ids[sequence.ids != EOS]
    if sequence.dropped == sum(map(len, melodic)):
        raise MidiError(
            f"{name}: found no note between A0 and C8, the range of a piano; choose another file"
        )
    starts = np.append(np.flatnonzero(ids == BAR), len(ids))
    lines = read_bars(ids.astype(np.int64)).lines
    total = len(lines) - 1
    if last_bar is None:
        notes = tokenizer.decode(ids).tracks[0].notes
        last_onset = int(notes[:, 0].max())
        needed = max(last_onset + 1, int((notes[:, 0] + notes[:, 1]).max()) - OVERHANG_STEPS)
        bars = int(np.searchsorted(lines, needed))
    elif not 1 <= last_bar <= total:
        raise MidiError(f"{name}: asked to go on after bar {last_bar}, expected 1 to {total}")
    else:
        bars = last_bar
    kept, joint = ids[: starts[bars]], int(lines[bars])
    heard = tokenizer.decode(kept, sequence.signatures)
    if not len(heard.tracks[0]):
        raise MidiError(f"{name}: found no notes in bars 1 to {bars}; go on after a later bar")
    facts = _facts(score, melodic, bars=total, dropped=sequence.dropped)
    if last_bar is not None and last_bar < total:
        data = cut_midi(data, joint, STEPS_PER_BEAT)
    return Prompt(name, data, score, heard, facts, joint, kept)


def _facts(score: Score, melodic: list[Track], *, bars: int, dropped: int) -> PromptFacts:
    """What the upload card says."""
    notices = []
    if len(melodic) > 1:
        notices.append(f"{len(melodic)} tracks: the model hears them as one piano")
    elif melodic[0].program >= 8:
        notices.append("another instrument than a piano: the model hears it as a piano")
    if any(track.is_drum for track in score.tracks):
        notices.append("drums are not heard")
    if dropped:
        notices.append(f"{dropped} notes beyond the 88 keys are not heard")
    if (changes := len(score.tempos) - 1) > 0:
        times = "once" if changes == 1 else f"{changes} times"
        notices.append(f"the tempo changes {times}; the new music keeps the last one")
    metre = _usual_metre(score)
    return PromptFacts(
        tracks=len(score.tracks),
        notes=score.num_notes,
        bars=bars,
        bpm=score.tempos[0].bpm if score.tempos else 120.0,
        metre=f"{metre.numerator}/{metre.denominator}",
        seconds=float(score.seconds_at(score.end_ticks)),
        notices=tuple(notices),
    )


def _usual_metre(score: Score) -> TimeSignature:
    """The metre that holds longest: a pickup has one of its own."""
    changes = score.time_signatures
    if not changes or changes[0].tick > 0:
        changes = (TimeSignature(0, 4, 4), *changes)
    ends = [*(change.tick for change in changes[1:]), max(score.end_ticks, changes[-1].tick)]
    lengths: dict[tuple[int, int], int] = {}
    for change, end in zip(changes, ends, strict=True):
        kind = (change.numerator, change.denominator)
        lengths[kind] = lengths.get(kind, 0) + end - change.tick
    return TimeSignature(0, *max(lengths, key=lambda kind: lengths[kind]))
