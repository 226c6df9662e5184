"""Making music: the six steps from a MIDI file to its continuation, and the same from nothing.

    read_midi -> encode -> prefill -> sample -> decode -> append_to_midi

Page and commands are thin callers of this module.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from app.models import Models, MusicModel, load_music_model
from app.new_bars import BarRule, NewBars
from app.options import LARGEST_SEED, MusicOptions, with_seed
from app.parts import instrument_name, share_among_tracks
from app.prompt import Prompt, PromptFacts, read_prompt
from relpe.sampling import SamplingOptions, prefill_steps, sample
from tokenization.midi import read_midi, write_midi
from tokenization.midi_append import append_to_midi
from tokenization.score import Score, Tempo, TimeSignature
from tokenization.vocabulary import BAR, BOS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from relpe.decoder import DecoderState
    from tokenization.score import Track

SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True)
class Progress:
    """How far the work is, and the new music so far.

    There are no tokens while the prompt is being read. One score per variation, times from the
    start of the output.
    """

    bars_done: int
    bars: int
    tokens: int
    notes: int
    seconds: float
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Piece:
    """One finished piece."""

    midi: bytes
    """The whole: the upload, byte for byte, and the new music."""
    new_midi: bytes
    """The new music alone, from its first bar on."""
    score: Score
    """The whole, as it plays."""
    new: Score
    """The new notes, times from the start of the whole."""
    seed: int
    tokens: int
    notes: int
    tokens_per_second: float


@dataclass(frozen=True)
class Result:
    """All variations, and the work they took."""

    pieces: tuple[Piece, ...]
    seconds: float = 0.0
    tokens: int = 0
    bars: int = 0
    prompt_notes: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of all variations together, prompt not counted."""
        return self.tokens / self.seconds if self.seconds else 0.0


__all__ = [
    "LARGEST_SEED",
    "Models",
    "MusicModel",
    "MusicOptions",
    "Piece",
    "Progress",
    "Prompt",
    "PromptFacts",
    "Result",
    "Steps",
    "continue_prompt",
    "generate_piece",
    "load_music_model",
    "read_prompt",
    "with_seed",
]

Steps: TypeAlias = "Iterator[Progress | Result]"


def never() -> bool:
    """For callers that never stop."""
    return False


def continue_prompt(
    model: MusicModel, prompt: Prompt, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """New music after a prompt: yields Progress while it is made, and the Result last.

    Where `stop` gives True the work ends, and the result holds what is there.
    """
    options = with_seed(options)
    joint = prompt.joint_ticks
    tokenizer, tracks = model.tokenizer, prompt.sequence.tracks
    bars = NewBars.after(prompt, options.bars)
    context = tokenizer.crop(prompt.ids, prompt.first_heard(options.prompt_bars))
    context = np.append(context, bars.opening(context))
    grammar = tokenizer.grammar(tempo="never", end=False, tracks=tracks).resume(context)
    grammar = grammar.hold(bars.still_sounding(tokenizer, grammar.bar_start))
    last_bar = grammar.bar + len(bars.vocabulary) - 1

    prefix = [BAR, bars.vocabulary[0].time_signature]
    rules = BarRule(grammar, grammar.bar, last_bar, bars.vocabulary)
    rows = _Rows(model, prefix, rules, options, prompt, bars)
    yield from rows.write(context, stop)
    pieces = []
    for row in range(options.variations):
        new = rows.score(row, ended=True)
        midi = append_to_midi(prompt.data, new, joint)
        pieces.append(rows.piece(row, midi, new, _alone(new, prompt)))
    yield rows.result(pieces, prompt_notes=tokenizer.decode(context).num_notes)


def generate_piece(
    model: MusicModel, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """Music from nothing: yields Progress while it is made, and the Result last."""
    options = with_seed(options)
    grammar = model.tokenizer.grammar(tempo="bar_line", end=False).advance(BOS)
    rows = _Rows(model, [BOS], BarRule(grammar, 1, options.bars), options)
    yield from rows.write(np.array([BOS]), stop)
    pieces = []
    for row in range(options.variations):
        new = rows.score(row, ended=True)
        midi = write_midi(new)
        pieces.append(rows.piece(row, midi, new, midi))
    yield rows.result(pieces, prompt_notes=0)


class _Rows:
    """The variations while they are made; of a continuation, with the bars that it has."""

    def __init__(
        self,
        model: MusicModel,
        prefix: Sequence[int],
        rules: BarRule,
        options: MusicOptions,
        prompt: Prompt | None = None,
        bars: NewBars | None = None,
    ) -> None:
        self.model, self.options = model, options
        self.prompt, self.bars = prompt, bars
        self.ids: list[list[int]] = [list(prefix) for _ in range(options.variations)]
        self._prefix = len(prefix)
        self.rules = [rules] * options.variations
        self.seconds = 0.0

    @property
    def bars_done(self) -> int:
        """Bars that all variations have finished, as they are written."""
        return min(rule.written_bar + rule.finished for rule in self.rules)

    @property
    def tokens(self) -> int:
        """New tokens of all variations."""
        return sum(len(ids) - self._prefix for ids in self.ids)

    def write(self, context: NDArray[np.integer], stop: Callable[[], bool]) -> Iterator[Progress]:
        """Draws tokens after the context until all bars are full or `stop` says so."""
        started = reported = time.monotonic()
        model, options = self.model, self.options
        tokens = torch.from_numpy(np.asarray(context, np.int64))[None].to(model.device)
        state: DecoderState = model.decoder.init_state(1)
        for _, newest in prefill_steps(model.decoder, state, tokens[:, :-1]):
            state = newest
            now = time.monotonic()
            if now - reported >= SECONDS_BETWEEN_REPORTS:
                reported = now
                yield self.progress()
            if stop():
                break
        state = state.repeat(options.variations)
        assert options.seed is not None
        generators = [
            torch.Generator().manual_seed(options.seed + row) for row in range(options.variations)
        ]
        sampling = SamplingOptions(temperature=options.temperature, top_p=options.top_p)
        last = tokens[:, -1].repeat(options.variations)
        steps = sample(
            model.decoder, state, last, tokens.shape[1] - 1, self.rules, sampling, generators
        )
        for drawn, rules in steps:
            for row, token in enumerate(drawn.tolist()):
                if token >= 0 and not rules[row].finished:
                    self.ids[row].append(token)
            self.rules = list(rules)
            now = time.monotonic()
            self.seconds = now - started
            if now - reported >= SECONDS_BETWEEN_REPORTS:
                reported = now
                yield self.progress()
            if stop():
                break
        yield self.progress()

    def progress(self) -> Progress:
        """Where the work stands."""
        scores = tuple(self.score(row) for row in range(self.options.variations))
        return Progress(
            bars_done=self.bars_done,
            bars=self.options.bars,
            tokens=self.tokens,
            notes=sum(score.num_notes for score in scores),
            seconds=self.seconds,
            scores=scores,
        )

    def score(self, row: int, *, ended: bool = False) -> Score:
        """New notes of a row, times from the start of the output.

        Where the row has `ended`, they are cut at the end of the bar that it came to.
        """
        tokenizer, rule = self.model.tokenizer, self.rules[row]
        if self.prompt is None or self.bars is None:
            score = tokenizer.decode(self.ids[row])
            new = score.with_tracks(replace(t, name=instrument_name(t)) for t in score.tracks)
            end = rule.grammar.bar_start + rule.grammar.bar_length
        else:
            score = tokenizer.decode(self.ids[row], tracks=self.prompt.sequence.tracks)
            tracks = (replace(t, notes=self.bars.notes(t.notes)) for t in score.tracks)
            new = Score(self.prompt.score.ticks_per_beat, tuple(tracks))
            new = share_among_tracks(new, self.prompt.score, tokenizer, self.prompt.joint_ticks)
            end = self.bars.line(rule.written_bar + 1)
        if not ended:
            return replace(new, end_ticks=0)
        return replace(new, tracks=tuple(_until(end, track) for track in new.tracks), end_ticks=end)

    def piece(self, row: int, midi: bytes, new: Score, new_midi: bytes) -> Piece:
        """A finished row."""
        tokens = len(self.ids[row]) - self._prefix
        return Piece(
            midi=midi,
            new_midi=new_midi,
            score=read_midi(midi) if new.num_notes or self.prompt else new,
            new=new,
            seed=(self.options.seed or 0) + row,
            tokens=tokens,
            notes=new.num_notes,
            tokens_per_second=self.tokens / self.seconds if self.seconds else 0.0,
        )

    def result(self, pieces: Sequence[Piece], prompt_notes: int) -> Result:
        """All rows."""
        return Result(tuple(pieces), self.seconds, self.tokens, self.bars_done, prompt_notes)


def _until(end: int, track: Track) -> Track:
    """A track without what comes after a time."""
    notes = track.notes[track.notes[:, 0] < end]
    lengths = np.minimum(notes[:, 1], end - notes[:, 0])
    return replace(track, notes=np.column_stack([notes[:, 0], lengths, notes[:, 2:]]))


def _alone(new: Score, prompt: Prompt) -> bytes:
    """The new music as a file of its own, in the tempos and metres that the file has there."""
    joint, score = prompt.joint_ticks, prompt.score
    # of those up to the joint the last one stays
    tempos = {max(tick - joint, 0): bpm for tick, bpm in ((0, 120.0), *score.tempos)}
    metres = {max(t - joint, 0): metre for t, *metre in ((0, 4, 4), *score.time_signatures)}
    length = max(new.end_ticks - joint, 1)
    tracks = (
        replace(t, notes=t.notes - [joint, 0, 0, 0], chunk=None) for t in new.tracks if len(t)
    )
    return write_midi(
        Score(
            new.ticks_per_beat,
            tuple(tracks),
            tuple(Tempo(tick, bpm) for tick, bpm in tempos.items() if tick < length),
            tuple(TimeSignature(tick, *metre) for tick, metre in metres.items() if tick < length),
            length,
        )
    )
