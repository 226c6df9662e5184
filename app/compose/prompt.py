"""An upload: what it is, what the model hears of it, and where new music begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from app.compose.prompt_report import PromptFacts, Region, heard_tracks, prompt_facts
from app.compose.timing import FINE_TICKS, Timing, find_beats, notes_on_file
from app.compose.tracks import ALL_PARTS, Parts
from tokenization.analysis.beats import extend_by_pedal
from tokenization.errors import MidiError
from tokenization.midi import cut_midi, read_midi
from tokenization.remi.bars import BarMap, written_lines
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, EOS, STEPS_PER_BEAT
from tokenization.score import MAX_BEATS, Score, Tempo, TimeSignature, Track, once_each

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from app.compose.options import BeatSource
    from tokenization.tokenizer import Tokenizer, TokenSequence

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
class Prompt:
    """An upload, what the model hears of it, and where the new music begins."""

    name: str
    data: bytes  # up to the joint, where something was cut off
    timing: Timing  # of `data`; at least 12 ticks per quarter note
    heard: Score  # on the grid, up to the joint; ticks of the file
    facts: PromptFacts
    joint: int  # in ticks of `timing.counted`: a bar line as it is written
    sequence: TokenSequence  # whole bars up to the joint, without EOS
    bar_tokens: NDArray[np.int64]  # (bars + 1,): Bar tokens in `ids` before each written line
    parts: Parts = ALL_PARTS  # which tracks are heard, and which may play
    first_bar: int | None = None  # the first that is heard, from 1, where it was chosen

    @property
    def score(self) -> Score:
        """The upload's music, of `data`."""
        return self.timing.file

    @property
    def ids(self) -> NDArray[np.int32]:
        """Tokens of whole bars up to the joint, without EOS."""
        return self.sequence.ids

    @property
    def joint_ticks(self) -> int:
        """Where the new music begins, in ticks of `score`."""
        return int(self.timing.to_file(np.array([self.joint]))[0])

    @property
    def bars(self) -> int:
        """Bars as they are written, up to the joint."""
        return len(self.bar_tokens) - 1

    def line(self, bar: int) -> int:
        """Where a written bar up to the joint begins, from 0, in ticks of `score`."""
        lines = written_lines(self.timing.counted, self.joint)
        return int(self.timing.to_file(lines[bar : bar + 1])[0])

    def first_heard(self, bars: int = 0) -> int:
        """Which Bar token of `ids` is the first that the model hears, from 0.

        That of `first_bar` where it was chosen, else of the last `bars` written bars. Where 0: of
        as many as HEARD_TOKENS have room for, or, if that is less than one, of a part of it; a
        chosen bar is heard as far as they have.
        """
        if self.first_bar is not None:
            return max(int(self.bar_tokens[self.first_bar - 1]), self._first_in_room())
        return int(self.bar_tokens[max(self.bars - bars, 0)]) if bars else self._first_in_room()

    def _first_in_room(self) -> int:
        """The first Bar token of what HEARD_TOKENS have room for."""
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
    beats: BeatSource = "file",
    first_bar: int | None = None,
    heard: Collection[int] | None = None,
    played: Collection[int] | None = None,
) -> Prompt:
    """An upload as the model hears it, through `tokenizer` or that of the piano model.

    New music begins at a bar line as the file writes it: after `last_bar`, counted from 1, or after
    the last note. What follows `last_bar` is cut off. The last notes may ring over the line by a
    quarter note; for what rings longer the new music waits, but for no more than two bars after the
    one in which the last note begins. With other `beats` than the file's, bars are those of these
    beats. The model hears notes as long as the pedal holds them, up to the joint.

    `first_bar` only says where the model begins to hear; it is up to the options where None. Of the
    file's tracks, counted from 0, the model hears those `heard`, and those `played` may play in the
    new music; all where None.

    Raises MidiError where the file cannot be continued, or there is no such bar or track.
    """
    tokenizer = tokenizer or PianoRemi()
    source = read_midi(data, name=name)
    least = STEPS_PER_BEAT if beats == "file" else FINE_TICKS
    whole = _finer(source, least)
    if not heard_tracks(whole, tokenizer):
        raise MidiError(
            f"{name}: found {'drums' if whole.num_notes else 'no notes'} only, expected notes of a "
            "piano or another pitched instrument; choose another file"
        )
    try:
        parts = Parts.of(whole, heard, played)
        found = find_beats(whole, beats)
    except ValueError as error:
        raise MidiError(f"{name}: {error}") from error
    timing = Timing.of(whole, found)
    lines, total = _lines(timing.counted, _rings(heard_tracks(timing.counted, tokenizer)))
    bars = total if last_bar is None else last_bar
    if not 1 <= bars <= total:
        raise MidiError(f"{name}: asked to go on after bar {last_bar}, expected 1 to {total}")
    if first_bar is not None and not 1 <= first_bar <= bars:
        raise MidiError(f"{name}: asked to hear from bar {first_bar} on, expected 1 to {bars}")
    joint = int(lines[bars])
    if joint > (MAX_BEATS - ROOM_BEATS) * timing.counted.ticks_per_beat:
        raise MidiError(
            f"{name}: the music ends at quarter note {joint // timing.counted.ticks_per_beat:,}, "
            f"expected at most {MAX_BEATS - ROOM_BEATS:,}, to have room for more; use a part of it"
        )
    if bars < total:
        factor = whole.ticks_per_beat // source.ticks_per_beat
        end = int(timing.to_file(lines[bars : bars + 1])[0])
        data = cut_midi(data, -(-end // factor), source.ticks_per_beat)
        score = _finer(read_midi(data, name=name), least)
        # beats that come later are not known any more
        timing = Timing.of(score, found, float(whole.seconds_at(end)))
    counted = BarMap.of(lines[: bars + 1], timing.counted.ticks_per_beat)
    try:
        sequence = tokenizer.encode(counted.on_grid(_as_heard(timing, joint, parts)))
    except MidiError as error:
        raise MidiError(f"{name}: {error}") from error
    bar_tokens = np.searchsorted(counted.vocabulary_lines(), counted.starts)
    ids = sequence.ids
    ids = ids[: np.append(np.flatnonzero((ids == BAR) | (ids == EOS)), len(ids))[bar_tokens[-1]]]
    decoded = tokenizer.decode(ids, tracks=sequence.tracks)
    if not decoded.num_notes:
        chosen = bars < total or heard is not None
        where = f"in bars 1 to {bars}" if chosen else "between A0 and C8, the range of a piano"
        what = "go on after a later bar" if bars < total else "choose another file"
        if heard is not None:
            where, what = f"{where} that the model is to hear", "let it hear another track"
        raise MidiError(f"{name}: found no notes {where}; {what}")
    players = [track for track in parts.of_score(timing.file) if parts.may_play(track)]
    if max(tokenizer.track_ranks(players), default=-1) < 0:
        raise MidiError(
            f"{name}: found no notes up to bar {bars} of a track that may play and that the model "
            "can play, expected those of one at least; let another one play"
        )
    region = Region.of(timing, lines, first_bar or 1, bars)
    prompt = Prompt(
        name=name,
        data=data,
        timing=timing,
        heard=_on_file(decoded, counted, timing, joint),
        facts=prompt_facts(
            Timing.of(whole, found),
            beats,
            tokenizer,
            bars=total,
            dropped=sequence.dropped,
            parts=parts,
            region=region,
        ),
        joint=joint,
        sequence=replace(sequence, ids=ids),
        bar_tokens=bar_tokens,
        parts=parts,
        first_bar=first_bar,
    )
    notices = _bar_notices(prompt, BarMap.of(lines[: bars + 2], timing.counted.ticks_per_beat))
    return replace(prompt, facts=replace(prompt.facts, notices=prompt.facts.notices + notices))


def _rings(tracks: tuple[Track, ...]) -> NDArray[np.int64]:
    """Notes (n, 4) with the time that they ring: what a file says of drums means nothing."""
    return np.concatenate([track.notes * [1, not track.is_drum, 1, 1] for track in tracks])


def _as_heard(timing: Timing, joint: int, parts: Parts) -> Score:
    """The counted score in which notes ring as the pedal has it, which new music does not keep.

    Tracks that are not heard but may play are there without notes, so that they are counted.
    """
    counted = timing.counted
    held = extend_by_pedal(counted)
    tracks: list[Track] = []
    for before, after in zip(counted.tracks, held.tracks, strict=True):
        if not len(before) or not (parts.hears(before) or parts.may_play(before)):
            continue  # parts of a program are those that play
        if not parts.hears(before):
            tracks.append(before.without_events())
            continue
        notes = after.notes.copy()
        until = np.maximum(joint - notes[:, 0], before.notes[:, 1])
        notes[:, 1] = np.minimum(notes[:, 1], until)
        tracks.append(replace(after, notes=notes))
    return replace(counted, tracks=tuple(tracks), tempos=timing.heard_tempos)


def _on_file(decoded: Score, bars: BarMap, timing: Timing, joint: int) -> Score:
    """What the model hears in the time of the file."""
    file, end = timing.file, int(timing.to_file(np.array([joint]))[0])
    return Score(
        file.ticks_per_beat,
        tuple(replace(t, notes=notes_on_file(t.notes, bars, timing)) for t in decoded.tracks),
        tuple(tempo for tempo in file.tempos if tempo.tick <= end),
        tuple(change for change in file.time_signatures if change.tick <= end),
        end,
    )


def _finer(score: Score, least: int) -> Score:
    """The same score in at least so many ticks per quarter note, so that the grid fits in."""
    factor = -(-least // score.ticks_per_beat)
    if factor == 1:
        return score
    controls, bends = (once_each(partial(np.multiply, [factor, *ones])) for ones in ([1, 1], [1]))
    return Score(
        score.ticks_per_beat * factor,
        tuple(
            replace(
                track,
                notes=track.notes * [factor, factor, 1, 1],
                controls=controls(track.controls),
                bends=bends(track.bends),
            )
            for track in score.tracks
        ),
        tuple(Tempo(tempo.tick * factor, tempo.bpm) for tempo in score.tempos),
        tuple(TimeSignature(tick * factor, *metre) for tick, *metre in score.time_signatures),
        score.end_ticks * factor,
        score.damage,
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
    unchosen = replace(prompt, first_bar=None)
    if first := unchosen.first_heard():
        heard = int(np.count_nonzero(prompt.bar_tokens[: prompt.bars] >= first))
        part = f"last {heard:,} of {prompt.bars:,} bars" if heard else "end of the last bar"
        notices.append(f"the prompt is long: the model can hear the {part}")
    return tuple(notices)
