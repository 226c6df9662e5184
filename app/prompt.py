"""An upload: what it is, what the model hears of it, and where new music begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tokenization.bars import BarMap, written_lines
from tokenization.errors import MidiError
from tokenization.midi import MAX_BEATS, read_midi
from tokenization.midi_cut import cut_midi
from tokenization.remi import PianoRemi
from tokenization.score import Score, Tempo, TimeSignature, Track
from tokenization.vocabulary import BAR, EOS, MAX_PITCH, MIN_PITCH, STEPS_PER_BEAT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokenization.tokenizer import Tokenizer

OVERHANG_STEPS = STEPS_PER_BEAT
"""How far the last notes may ring over the line at which new music begins: a quarter note."""
WAITING_BARS = 2
"""How many bars new music waits for notes that ring longer; then they ring on over it, as with the
pedal."""
HEARD_TOKENS = 16_384
"""What the model hears of a prompt unless it is told otherwise: so many of its last tokens at most,
from a bar line on. A hostile file of a few bytes can have a hundred thousand bars."""
ROOM_BEATS = 1024
"""Quarter notes that a prompt has to leave for new music, of the 65,536 that a file may have."""


@dataclass(frozen=True)
class PromptFacts:
    """What is worth knowing of an upload at once."""

    tracks: int
    notes: int
    bars: int
    """As written, up to where new music begins if nothing is cut off."""
    bpm: float
    metre: str
    seconds: float
    notices: tuple[str, ...] = ()
    """What the model does not hear, and the like: one sentence each."""


@dataclass(frozen=True)
class Prompt:
    """An upload, what the model hears of it, and where the new music begins."""

    name: str
    data: bytes  # up to the joint, where something was cut off
    score: Score  # of `data`; at least 12 ticks per quarter note
    heard: Score  # on the grid, up to the joint; ticks as in `score`
    facts: PromptFacts
    joint_ticks: int  # in ticks of `score`: a bar line as it is written
    ids: NDArray[np.int32]  # whole bars up to the joint, without EOS
    bar_tokens: NDArray[np.int64]  # (bars + 1,): Bar tokens in `ids` before each written line

    @property
    def bars(self) -> int:
        """Bars as they are written, up to the joint."""
        return len(self.bar_tokens) - 1

    def first_heard(self, bars: int | None = None) -> int:
        """Which Bar token of `ids` is the first that the model hears, from 0.

        That of the last `bars` written bars. Where None: of as many as HEARD_TOKENS have room for,
        or, if that is less than one, of a part of it.
        """
        if bars is not None:
            return int(self.bar_tokens[max(self.bars - bars, 0)])
        left = len(self.ids) - np.flatnonzero(self.ids == BAR)
        first = min(int(np.count_nonzero(left > HEARD_TOKENS)), len(left) - 1)
        whole = self.bar_tokens[: self.bars]
        whole = whole[whole >= first]
        return int(whole[0]) if len(whole) else first


def read_prompt(
    data: bytes,
    name: str = "prompt.mid",
    last_bar: int | None = None,
    *,
    tokenizer: Tokenizer | None = None,
) -> Prompt:
    """An upload as the model hears it, through `tokenizer` or that of the piano model.

    New music begins at a bar line as the file writes it: after `last_bar`, counted from 1, or after
    the last note. What follows `last_bar` is cut off. The last notes may ring over the line by a
    quarter note; for what rings longer the new music waits, but for no more than two bars after the
    one in which the last note begins. Raises MidiError where the file cannot be continued.
    """
    tokenizer = tokenizer or PianoRemi()
    source = read_midi(data, name=name)
    score = whole = _finer(source)
    melodic = [track for track in score.tracks if not track.is_drum and len(track)]
    if not melodic:
        raise MidiError(
            f"{name}: found {'drums' if score.num_notes else 'no notes'} only, expected notes of a "
            "piano or another pitched instrument; choose another file"
        )
    notes = np.concatenate([track.notes for track in melodic])
    on_keyboard = notes[(notes[:, 2] >= MIN_PITCH) & (notes[:, 2] <= MAX_PITCH)]
    if not len(on_keyboard):
        raise MidiError(
            f"{name}: found no note between A0 and C8, the range of a piano; choose another file"
        )
    lines, total = _lines(score, on_keyboard)
    bars = total if last_bar is None else last_bar
    if not 1 <= bars <= total:
        raise MidiError(f"{name}: asked to go on after bar {last_bar}, expected 1 to {total}")
    joint = int(lines[bars])
    if joint > (MAX_BEATS - ROOM_BEATS) * score.ticks_per_beat:
        raise MidiError(
            f"{name}: the music ends at quarter note {joint // score.ticks_per_beat:,}, expected "
            f"at most {MAX_BEATS - ROOM_BEATS:,}, to have room for more; use a part of it"
        )
    no_notes = MidiError(f"{name}: found no notes in bars 1 to {bars}; go on after a later bar")
    if not (on_keyboard[:, 0] < joint).any():
        raise no_notes
    if bars < total:
        factor = score.ticks_per_beat // source.ticks_per_beat
        data = cut_midi(data, -(-joint // factor), source.ticks_per_beat)
        score = _finer(read_midi(data, name=name))
    counted = BarMap.of(lines[: bars + 1], score.ticks_per_beat)
    try:
        ids = tokenizer.encode(counted.on_grid(score)).ids
    except MidiError as error:
        raise MidiError(f"{name}: {error}") from error
    bar_tokens = np.searchsorted(counted.vocabulary_lines(), counted.starts)
    ids = ids[: np.append(np.flatnonzero((ids == BAR) | (ids == EOS)), len(ids))[bar_tokens[-1]]]
    decoded = tokenizer.decode(ids)
    if not decoded.num_notes:
        raise no_notes
    heard = Score(
        score.ticks_per_beat,
        tuple(replace(track, notes=counted.notes(track.notes)) for track in decoded.tracks),
        tuple(tempo for tempo in score.tempos if tempo.tick <= joint),
        tuple(change for change in score.time_signatures if change.tick <= joint),
        joint,
    )
    facts = _facts(whole, melodic, bars=total, dropped=len(notes) - len(on_keyboard))
    prompt = Prompt(name, data, score, heard, facts, joint, ids, bar_tokens)
    notices = _bar_notices(prompt, BarMap.of(lines[: bars + 2], score.ticks_per_beat))
    return replace(prompt, facts=replace(facts, notices=facts.notices + notices))


def _finer(score: Score) -> Score:
    """The same score in at least 12 ticks per quarter note, so that the grid fits in."""
    factor = -(-STEPS_PER_BEAT // score.ticks_per_beat)
    if factor == 1:
        return score
    return Score(
        score.ticks_per_beat * factor,
        tuple(
            replace(
                track,
                notes=track.notes * [factor, factor, 1, 1],
                controls=track.controls * [factor, 1, 1],
                bends=track.bends * [factor, 1],
            )
            for track in score.tracks
        ),
        tuple(Tempo(tempo.tick * factor, tempo.bpm) for tempo in score.tempos),
        tuple(TimeSignature(tick * factor, *metre) for tick, *metre in score.time_signatures),
        score.end_ticks * factor,
    )


def _lines(score: Score, notes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The written bar lines, and the number of bars after which new music can begin.

    There is at least one line more behind it.
    """
    onset, end = notes[:, 0].max(), (notes[:, 0] + notes[:, 1]).max()
    lines = written_lines(score, int(onset) + 1, WAITING_BARS + 2)
    counted = BarMap.of(lines, score.ticks_per_beat)
    onset, end = counted.steps(np.array([onset, end])).tolist()
    first = int(np.searchsorted(counted.starts, onset, side="right"))
    rung_out = int(np.searchsorted(counted.starts, end - OVERHANG_STEPS))
    return lines, min(max(first, rung_out), first + WAITING_BARS)


def _bar_notices(prompt: Prompt, bars: BarMap) -> tuple[str, ...]:
    """What the user should know of the prompt's bars and the first new one."""
    notices: list[str] = []
    if (bars.sizes != np.diff(bars.starts)).any():
        notices.append(
            "some bars end between two eighth notes: the model counts them up to the next one, the "
            "new ones are written as they should be"
        )
    if first := prompt.first_heard():
        heard = int(np.count_nonzero(prompt.bar_tokens[: prompt.bars] >= first))
        part = f"last {heard:,} of {prompt.bars:,} bars" if heard else "end of the last bar"
        notices.append(f"the prompt is long: the model hears the {part}")
    return tuple(notices)


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
