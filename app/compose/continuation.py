"""Making music: the six steps from a MIDI file to its continuation, and the same from nothing.

    read_midi -> encode -> prefill -> write -> decode -> append_to_midi

Page and commands are thin callers of this module.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from app.compose.models import ComputeOptions, Models, MusicModel, load_music_model
from app.compose.options import LARGEST_SEED, MusicOptions, with_seed
from app.compose.piece import Draft, Drafts, Opening, Piece
from app.compose.prompt import Prompt, PromptFacts, read_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from tokenization.score import Score

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
    part_done: float = 0.0
    """Of the bars, or of the seconds that were asked for, 0 to 1."""
    preparing: bool = False
    """Whether the machine is made ready, which takes a while at the very first time."""
    place: int = 0
    """In the line of those that wait for the model, 1 the next; 0 at work."""
    seconds_left: float | None = None
    """Until its turn comes, where it waits and that is known."""


@dataclass(frozen=True)
class Result:
    """All variations, and the work they took."""

    pieces: tuple[Piece, ...]
    seconds: float = 0.0
    tokens: int = 0
    bars: int = 0
    """Of the variation that has fewest."""
    prompt_notes: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Of all variations together, prompt not counted."""
        return self._a_second(self.tokens)

    @property
    def bars_per_second(self) -> float:
        """Of all variations together."""
        return self._a_second(sum(piece.bars for piece in self.pieces))

    @property
    def real_time_factor(self) -> float:
        """Seconds of new music for each second of work, of all variations together."""
        return self._a_second(sum(piece.seconds for piece in self.pieces))

    def _a_second(self, amount: float) -> float:
        return amount / self.seconds if self.seconds else 0.0


__all__ = [
    "LARGEST_SEED",
    "ComputeOptions",
    "Models",
    "MusicModel",
    "MusicOptions",
    "Piece",
    "Progress",
    "Prompt",
    "PromptFacts",
    "Result",
    "Steps",
    "Variations",
    "continue_prompt",
    "generate_piece",
    "load_music_model",
    "read_prompt",
    "with_seed",
]

Steps: TypeAlias = "Generator[Progress | Result, None, None]"


def never() -> bool:
    """For callers that never stop."""
    return False


def continue_prompt(
    model: MusicModel, prompt: Prompt, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """New music after a prompt: yields Progress while it is made, and the Result last.

    Where `stop` gives True the work ends, and the result holds what is there.
    """
    yield from _steps(Variations(Opening.after(model, prompt, with_seed(options))), stop)


def generate_piece(
    model: MusicModel, options: MusicOptions, stop: Callable[[], bool] = never
) -> Steps:
    """Music from nothing: yields Progress while it is made, and the Result last."""
    yield from _steps(Variations(Opening.of_nothing(model, with_seed(options))), stop)


def _steps(written: Variations, stop: Callable[[], bool]) -> Steps:
    """Writes until all bars are full or `stop` says so."""
    for _ in written.opening.model.preparing():
        yield written.progress(preparing=True)
        if stop():
            break
    else:
        yield from _write(written, stop)
    yield written.result()


def _write(written: Variations, stop: Callable[[], bool]) -> Iterator[Progress]:
    """Alone in a batch of its own; `app.server.scheduler` writes for many at once."""
    opening = written.opening
    started = reported = time.monotonic()
    state = opening.unread()
    for newest in opening.read(state):
        state = newest
        if time.monotonic() - reported >= SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield written.progress()
        if stop():
            yield written.progress()
            return
    drafts = Drafts(opening.model)
    written.drafts = drafts.enter(opening, state, written.seeds)
    while len(drafts):
        drafts.step()
        now = time.monotonic()
        written.seconds = now - started
        if now - reported >= SECONDS_BETWEEN_REPORTS:
            reported = now
            yield written.progress()
        if stop():
            break
    yield written.progress()


class Variations:
    """Pieces with one opening that are shown together while they are made."""

    def __init__(self, opening: Opening, seeds: Sequence[int] | None = None) -> None:
        """One for each seed; without them as many as the options say, counting up from theirs."""
        self.opening, self.options = opening, opening.options
        first = self.options.seed or 0
        self.seeds = seeds or range(first, first + self.options.variations)
        self.drafts = [Draft(opening, seed) for seed in self.seeds]
        self.seconds = 0.0
        """Of work, so far."""

    def now(self) -> Variations:
        """As they are at this moment: does not change while others write on."""
        taken = copy(self)
        taken.drafts = [copy(draft) for draft in self.drafts]
        for draft in taken.drafts:
            draft.ids = draft.ids[:]
        return taken

    def progress(
        self, *, preparing: bool = False, place: int = 0, seconds_left: float | None = None
    ) -> Progress:
        """Where the work stands."""
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
        """What there is."""
        speed = self.tokens / self.seconds if self.seconds else 0.0
        pieces = tuple(draft.piece(speed) for draft in self.drafts)
        return Result(pieces, self.seconds, self.tokens, self.bars_done, self.opening.notes)

    @property
    def bars_done(self) -> int:
        """Bars that all have finished, as they are written."""
        return min(draft.bars_done for draft in self.drafts)

    @property
    def part_done(self) -> float:
        """Of the bars, or of the seconds that were asked for, that all have finished; 0 to 1."""
        return min(draft.part_done for draft in self.drafts)

    @property
    def bars_left(self) -> float:
        """Until all have ended; where seconds were asked for, at two beats a second."""
        seconds = self.options.seconds
        bars = self.options.bars if seconds is None else seconds / 2
        return bars * (1 - self.part_done)

    @property
    def tokens(self) -> int:
        """New tokens of all."""
        return sum(draft.tokens for draft in self.drafts)
