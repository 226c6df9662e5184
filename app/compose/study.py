"""The model studies a piece before it writes: it learns parts of it, transposed, in a few steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from app.compose.piece import Opening, StudyReport
from app.text import plural
from relpe.learning.study import (
    NOT_PREDICTED,
    Passage,
    Studied,
    StudyConfig,
    study,
    study_again,
)
from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.vocabulary import BAR

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt.prompt import Prompt

FEWEST_BARS = 4
"""A prompt of fewer bars is not studied."""
LENGTH = 1536
"""Maximum number of tokens that are learned in a step; also of the held-back bars, and of the bars
before them that the model reads to judge them."""
HELD_SHARE = 8
"""One bar of this many is held back, at the end; at least one."""
CONFIG = StudyConfig()
"""How prompts are studied."""
_SEMITONES = -5, 6
"""Smallest and largest transposition."""


class _Bars(NamedTuple):
    """Some bars of a piece."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    """Index of the first token of each notated bar (bars,)."""


class StudyMaterial:
    """What a model learns of a prompt, and what is held back."""

    def __init__(self, model: MusicModel, prompt: Prompt, prompt_bars: int) -> None:
        """Take the bars that the model reads, without those in which notes are to be written."""
        self._tokenizer, self._decoder = model.tokenizer, model.decoder
        first, gap = prompt.first_bar_heard(prompt_bars) - 1, prompt.gap
        ranges = [(first, prompt.bars)]
        if gap is not None and (gap.first, gap.stop) != (0, prompt.bars):
            ranges = [(0, gap.first), (gap.stop, prompt.bars)]
        parts = [self._part(prompt, *bars) for bars in ranges if bars[0] < bars[1]]
        self.bars = sum(len(part.starts) for part in parts)
        """Number of notated bars."""
        if self.bars < FEWEST_BARS:
            return
        parts.sort(key=lambda part: len(part.starts))
        ids, starts = parts.pop()
        held = max(len(starts) // HELD_SHARE, 1)
        end = int(starts[-held])
        begin = max(end - LENGTH, 0)
        self.held = self._passage(ids[begin : end + LENGTH], skipped=end - begin)
        self._parts = [*parts, _Bars(ids[:end], starts[:-held])]
        self.config = CONFIG.for_length(sum(len(part.ids) for part in self._parts))

    def _part(self, prompt: Prompt, first: int, stop: int) -> _Bars:
        """Return the bars of a prompt, from `first` to before `stop`, from 0."""
        begin, end = prompt.bar_tokens[[first, stop]].tolist()
        ids = self._tokenizer.crop(prompt.ids, begin, end - begin).astype(np.int64)
        return _Bars(ids, np.flatnonzero(ids == BAR)[prompt.bar_tokens[first:stop] - begin])

    def __call__(self, step: int) -> Passage:
        """Return what is learned in a step, from 0 on: random bars, transposed at random."""
        draw = np.random.default_rng(step)
        ends = np.cumsum([len(part.ids) for part in self._parts])
        ids, starts = self._parts[np.searchsorted(ends, draw.integers(ends[-1]), side="right")]
        least = min(LENGTH, 3 * len(ids) // 4)  # what is learned is learned in its context
        last = np.searchsorted(starts, len(ids) - least, side="right")
        bar = int(np.count_nonzero(ids[: starts[draw.integers(max(last, 1))]] == BAR))
        ids = self._tokenizer.crop(ids, bar)[: LENGTH + 1]
        moved = self._tokenizer.transpose(ids, int(draw.integers(*_SEMITONES, endpoint=True)))
        return self._passage(ids if moved is None else moved)  # None: a pitch leaves the range

    def _passage(self, ids: NDArray[np.integer], skipped: int = 0) -> Passage:
        """Return a row of ids, from an empty state.

        The first `skipped` targets are not predicted.
        """
        targets = ids[1:].copy()
        targets[:skipped] = NOT_PREDICTED
        places, _ = Coordinates.before(ids, self._tokenizer.families).read(ids[:-1])
        positions = np.column_stack([np.arange(len(targets)), places])
        rows = ids[:-1], targets, positions[:, : self._decoder.num_axes]
        device = self._decoder.embedding.weight.device
        return Passage(*(torch.from_numpy(row)[None].to(device) for row in rows))


def study_prompt(opening: Opening, stop: Callable[[], bool]) -> Iterator[float | Opening]:
    """Study the prompt of an opening as its options ask; yield the share that is done.

    Finally yields the opening with a copy of the model that has studied, or with the model itself;
    its `studied` says which and why. The model does not change. When `stop` returns True, the
    study ends.
    """
    model, options, prompt = opening.model, opening.options, opening.prompt
    assert prompt is not None
    material = StudyMaterial(model, prompt, options.prompt_bars)
    if material.bars < FEWEST_BARS:
        length = plural(material.bars, "bar")
        yield _unstudied(opening, f"found {length} to study, expected {FEWEST_BARS} or more")
        return
    if options.study_steps:
        steps = study_again(model.decoder, material, options.study_steps, material.config)
    else:
        steps = study(model.decoder, material, material.held, options.study, material.config)
    for step in steps:
        if isinstance(step, Studied):
            yield _studied(opening, step)
            return
        yield step
        if stop():
            yield _unstudied(opening, "the job was stopped")
            return


def _studied(opening: Opening, result: Studied) -> Opening:
    """Return the opening after a study."""
    if result.decoder is None and opening.options.study_steps:
        return _unstudied(opening, f"after {plural(result.steps, 'step')}, its gradients overflow")
    if result.decoder is None:
        return _unstudied(opening, "the bars that were held back did not become more likely")
    line = f"studied in {plural(result.steps, 'step')}"
    if result.after < result.before:
        saved = 1 - result.after / result.before
        line += f", {saved:.1%} fewer nats on the bars that were held back"
    model = opening.model.with_decoder(result.decoder)
    return replace(opening, model=model, studied=StudyReport(result.steps, line))


def _unstudied(opening: Opening, why: str) -> Opening:
    return replace(opening, studied=StudyReport(0, f"not studied: {why}"))
