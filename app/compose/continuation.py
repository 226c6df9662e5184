"""Continues MIDI files, in six calls, and generates music from nothing.

    read_midi -> encode -> prefill -> sample -> decode -> append_to_midi

The page, the commands and batches all use this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from app.compose.engine import Engine
from app.compose.options import MusicOptions, with_seed
from app.compose.piece import Draft, Opening, Piece
from app.compose.prompt import read_prompt
from relpe.decoding.generate import Sample
from tokenization.midi import append_to_midi, read_midi, write_midi
from tokenization.score import Score, Tempo, TimeSignature

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt import Prompt

SECONDS_BETWEEN_REPORTS = 0.1


@dataclass(frozen=True)
class Progress:
    """The progress of the work, and the new music so far."""

    bars_done: int
    bars: int
    tokens: int
    """0 while the prompt is being read."""
    notes: int
    seconds: float
    scores: tuple[Score, ...]
    """One per variation, times from the start of the output."""
    part_done: float = 0.0
    """Share of the bars or seconds that were asked for, 0 to 1."""
    preparing: bool = False
    """Whether code is being compiled, which takes a while the first time on a machine."""
    place: int = 0
    """Place in the queue for the model: 1 is next, 0 is being generated."""
    seconds_left: float | None = None
    """Estimate of the time until its turn, if it waits and an estimate exists."""


@dataclass(frozen=True)
class Result:
    """All variations, and the cost of generating them."""

    pieces: tuple[Piece, ...]
    seconds: float = 0.0
    tokens: int = 0
    bars: int = 0
    """Of the variation with the fewest."""
    prompt_notes: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of all variations together, prompt not counted."""
        return self._per_second(self.tokens)

    @property
    def bars_per_second(self) -> float:
        """Of all variations together."""
        return self._per_second(sum(piece.bars for piece in self.pieces))

    @property
    def real_time_factor(self) -> float:
        """Seconds of new music for each second of work, of all variations together."""
        return self._per_second(sum(piece.seconds for piece in self.pieces))

    def _per_second(self, amount: float) -> float:
        return amount / self.seconds if self.seconds else 0.0


Steps: TypeAlias = Generator[Progress | Result, None, None]
"""Progress at intervals, and the Result last."""


def continue_midi(
    model: MusicModel,
    midi: bytes,
    options: MusicOptions | None = None,
    *,
    name: str = "prompt.mid",
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> Result:
    """Continues a MIDI file: `result.pieces[0].midi` is the file with new music appended.

    The prompt is kept event for event; new music begins at the next bar line. The same seed gives
    the same bytes on the same machine. `name` stands for the file in error messages.

    Raises:
        MidiError: the file cannot be read or continued.
    """
    prompt = read_prompt(midi, name, tokenizer=model.tokenizer)  # read_midi, encode
    return _result(continue_prompt(model, prompt, options or MusicOptions()), on_progress)


def generate_midi(
    model: MusicModel,
    options: MusicOptions | None = None,
    *,
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> Result:
    """Generates a piece from nothing: `result.pieces[0].midi` is a MIDI file."""
    return _result(generate_piece(model, options or MusicOptions()), on_progress)


def continue_prompt(
    model: MusicModel,
    prompt: Prompt,
    options: MusicOptions,
    stop: Callable[[], bool] = lambda: False,
) -> Steps:
    """Continues a prompt: yields Progress, and the Result last.

    As soon as `stop` returns True the work ends, and the result holds the music so far.
    """
    yield from _generate(Variations(Opening.after(model, prompt, with_seed(options))), stop)


def generate_piece(
    model: MusicModel, options: MusicOptions, stop: Callable[[], bool] = lambda: False
) -> Steps:
    """Generates music from nothing; yields and stops like `continue_prompt`."""
    yield from _generate(Variations(Opening.of_nothing(model, with_seed(options))), stop)


def _generate(variations: Variations, stop: Callable[[], bool]) -> Steps:
    """Generates on an engine of its own; `app.server` has one for many users."""
    for _ in variations.opening.model.preparing():
        yield variations.progress(preparing=True)
        if stop():
            yield variations.result()
            return
    engine = Engine(variations.opening.model)
    variations.start(engine)
    reported = time.monotonic()
    while not variations.done:
        engine.step()  # prefill, then sample
        variations.tick()
        if time.monotonic() - reported >= SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield variations.progress()
        if stop():
            break
    if variations.error is not None:
        raise variations.error
    yield variations.progress()
    yield variations.result()


def finish(draft: Draft, tokens_per_second: float = 0.0) -> Piece:
    """The piece that a draft has become, as files and scores."""
    new, prompt = draft.score(ended=True), draft.opening.prompt  # decode
    if prompt is None:
        midi = alone = write_midi(new)
        timed, start = new, 0
    else:
        midi = append_to_midi(prompt.data, new, prompt.splice_ticks)
        alone = _alone(new, prompt)
        timed, start = prompt.score, prompt.splice_ticks
    begin, end = timed.seconds_at(np.array([start, new.end_ticks])).tolist()
    return Piece(
        midi=midi,
        new_midi=alone,
        score=read_midi(midi) if new.num_notes or prompt else new,
        new=new,
        seed=draft.seed,
        tokens=draft.tokens,
        notes=new.num_notes,
        tokens_per_second=tokens_per_second,
        bars=draft.bars_done,
        seconds=end - begin,
    )


class Variations:
    """Pieces with one opening and different seeds that are generated together."""

    def __init__(self, opening: Opening) -> None:
        """One for each variation of the options, with seeds that count up from theirs."""
        self.opening, self.options = opening, opening.options
        first = self.options.seed or 0
        self.seeds = range(first, first + self.options.variations)
        self.drafts = [Draft(opening, Sample(seed, opening.rule)) for seed in self.seeds]
        self.seconds = 0.0
        """Duration of the work so far."""
        self._started = 0.0

    def start(self, engine: Engine) -> None:
        """Passes them to an engine, whose steps generate them."""
        self._started = time.monotonic()
        self.drafts = engine.add(self.opening, self.seeds)

    def tick(self) -> None:
        """Updates the duration of the work."""
        self.seconds = time.monotonic() - self._started

    def snapshot(self) -> Variations:
        """A copy that does not change while generation continues."""
        taken = copy(self)
        taken.drafts = [
            Draft(draft.opening, replace(draft.sample, tokens=draft.sample.tokens[:]))
            for draft in self.drafts
        ]
        return taken

    def progress(
        self, *, preparing: bool = False, place: int = 0, seconds_left: float | None = None
    ) -> Progress:
        """The progress of the work."""
        scores = tuple(draft.score() for draft in self.drafts)
        return Progress(
            bars_done=self.bars_done,
            bars=self.options.bars,
            tokens=self.tokens,
            notes=sum(score.num_notes for score in scores),
            seconds=self.seconds,
            scores=scores,
            part_done=self.part_done,
            preparing=preparing,
            place=place,
            seconds_left=seconds_left,
        )

    def result(self) -> Result:
        """The music so far."""
        speed = self.tokens / self.seconds if self.seconds else 0.0
        pieces = tuple(finish(draft, speed) for draft in self.drafts)
        return Result(pieces, self.seconds, self.tokens, self.bars_done, self.opening.notes)

    @property
    def done(self) -> bool:
        """Whether all have ended."""
        return all(draft.sample.done for draft in self.drafts)

    @property
    def error(self) -> Exception | None:
        """Why the prompt could not be read; None if it could."""
        return self.drafts[0].sample.error

    @property
    def bars_done(self) -> int:
        """Notated bars that all of them have finished."""
        return min(draft.bars_done for draft in self.drafts)

    @property
    def part_done(self) -> float:
        """Share of the bars or seconds that all of them have finished, 0 to 1."""
        return min(draft.part_done for draft in self.drafts)

    @property
    def bars_left(self) -> float:
        """Bars until all have ended; if seconds were asked for, a bar is taken as two seconds."""
        seconds = self.options.seconds
        bars = self.options.bars if seconds is None else seconds / 2
        return bars * (1 - self.part_done)

    @property
    def tokens(self) -> int:
        """Number of tokens that all of them have generated."""
        return sum(draft.tokens for draft in self.drafts)


def _result(steps: Steps, on_progress: Callable[[Progress], object]) -> Result:
    for step in steps:
        if isinstance(step, Result):
            return step
        on_progress(step)
    raise AssertionError("the last step is a Result")


def _alone(new: Score, prompt: Prompt) -> bytes:
    """The new music as a file of its own, in the tempos and metres that the file has there."""
    splice, score = prompt.splice_ticks, prompt.score
    # of the changes up to the splice, the last one remains
    tempos = {max(tick - splice, 0): bpm for tick, bpm in ((0, 120.0), *score.tempos)}
    metres = {max(t - splice, 0): metre for t, *metre in ((0, 4, 4), *score.time_signatures)}
    length = max(new.end_ticks - splice, 1)
    tracks = (
        replace(t, notes=t.notes - [splice, 0, 0, 0], chunk=None) for t in new.tracks if len(t)
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
