"""The bars in which new music is written, and the rule that holds the model to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokenization.bars import BarMap, written_lines
from tokenization.errors import MidiError
from tokenization.midi import MAX_BEATS
from tokenization.vocabulary import BAR, BAR_UNIT, POSITION, TEMPO, TIME_SIGNATURE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.prompt import Prompt
    from tokenization.tokenizer import Grammar


class VocabularyBar(NamedTuple):
    """A bar between two Bar tokens."""

    length: int
    """Steps, as its TimeSignature says."""
    room: int
    """Steps of it in which notes may begin: fewer where the written bar ends between two eighths.
    """
    written: int
    """Number of the written bar that it is, or is a part of, from 0."""

    @property
    def time_signature(self) -> int:
        """Id of its TimeSignature."""
        return TIME_SIGNATURE + self.length // BAR_UNIT - 1


@dataclass(frozen=True)
class NewBars:
    """The written bars after a joint, and the vocabulary's bars that the model writes for them."""

    map: BarMap
    """Ticks from the start of the file; steps from the joint."""
    vocabulary: tuple[VocabularyBar, ...]

    @classmethod
    def after(cls, prompt: Prompt, num_bars: int) -> NewBars:
        """As many bars as asked for, in the metres that the file writes at the joint and later.

        Raises MidiError where the piece would be longer than a file may be.
        """
        score, joint = prompt.score, prompt.joint_ticks
        lines = written_lines(score, joint, num_bars)[-num_bars - 1 :]
        end = int(lines[-1]) // score.ticks_per_beat
        if end > MAX_BEATS:
            raise MidiError(
                f"{prompt.name}: {num_bars} new bars would end at quarter note {end:,}, expected "
                f"at most {MAX_BEATS:,}; ask for fewer bars or go on after an earlier one"
            )
        bars = BarMap.of(lines, score.ticks_per_beat)
        starts = bars.vocabulary_lines()
        lengths = np.diff(starts)
        written = np.searchsorted(bars.starts, starts[:-1], side="right") - 1
        rooms = np.minimum(lengths, bars.starts[written] + bars.sizes[written] - starts[:-1])
        columns = (lengths.tolist(), rooms.tolist(), written.tolist())
        return cls(bars, tuple(map(VocabularyBar, *columns)))


class BarRule(NamedTuple):
    """A grammar that stops a row at the Bar that would open one bar too many."""

    grammar: Grammar
    first_bar: int
    """Number of the first new bar, as the grammar counts."""
    last_bar: int
    planned: tuple[VocabularyBar, ...] = ()
    """What the new bars are; empty where the model chooses their lengths."""
    finished: bool = False

    @property
    def written_bar(self) -> int:
        """Number of the bar that is being written, or was the last, from 0."""
        bar = max(self.grammar.bar - self.first_bar, 0)
        return self.planned[bar].written if self.planned else bar

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask of the tokens that may come next; all False where the row has ended."""
        allowed = self.grammar.allowed
        if self.finished:
            return np.zeros_like(allowed)
        if not self.planned:
            return allowed
        bar = self.planned[self.grammar.bar - self.first_bar]
        mask = allowed.copy()
        mask[TIME_SIGNATURE:POSITION] = False
        mask[POSITION + bar.room : TEMPO] = False
        if bar.length != self.grammar.bar_length:  # only right behind its Bar
            mask[:] = False
            mask[bar.time_signature] = True
        return mask

    def advance(self, token: int) -> BarRule:
        """The rule after `token`."""
        if token == BAR and self.grammar.bar == self.last_bar:
            return self._replace(finished=True)
        return self._replace(grammar=self.grammar.advance(token))
