"""A bias that keeps some of the new bars from being copies of bars of the prompt.

The control is the share of the new bars that differ: with 1/4 every fourth bar does, as in a fill,
with 1 all of them do. A bar is a copy if its onsets, tracks and pitches are those of a bar of the
prompt; lengths and velocities do not matter. In a bar that is to differ, notes that have the same
place in a bar of the prompt become less likely, the more so the more of this bar they agree with:
it may begin as in the prompt, and then leaves it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.constraints.bar_limit import BarLimit
from tokenization.remi.decode import Tokens, read_bars, read_notes
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.vocabulary import BAR, EOS

AGAINST = 6.0
"""Bias against a note that continues a bar of the prompt with which all notes so far agree. It
falls with the square of the share of these notes."""
NEVER = 1e4
"""Bias against the end of a bar that is a copy. A note follows, unless the grammar allows none."""

_Place = tuple[int, int]
"""Place in the bar in grid steps, and rank of a track."""


class Distance(NamedTuple):
    """A bias against copies of the bars of a prompt, in a share of the new bars."""

    share: float
    """0 to 1: of the first n new bars, at least n times this share differ, rounded down."""
    sizes: NDArray[np.int64]
    """Number of notes of each bar of the prompt (bars,); bars without notes are left out."""
    bars_with: dict[_Place, dict[int, list[int]]]
    """By place: the Pitches and Drums of the prompt, and the indices of their bars; never changes.
    """
    ranks: frozenset[int] | None
    """Ranks of the tracks that are compared; None: all."""
    common: NDArray[np.int64]
    """Number of notes that the present bar shares with each bar of the prompt (bars,)."""
    num_notes: int = 0
    """Number of notes of the present bar."""

    @classmethod
    def after(
        cls,
        ids: Sequence[int] | NDArray[np.integer],
        grammar: RemiGrammar,
        share: float,
        ranks: Collection[int] | None = None,
    ) -> Distance:
        """Return the bias after a prompt; `grammar` is the state in the first new bar."""
        families = grammar.families
        tokens = Tokens.of(ids, families)
        bars = read_bars(tokens)
        notes = read_notes(tokens, bars, families)
        starts = bars.lines[:-1]
        first = np.searchsorted(starts, notes.onsets, side="right") - 1
        places = notes.onsets - starts[first]
        drums = (notes.keys < 128) & (families.only_track < 0)
        pitches = (notes.keys & 127) + np.where(drums, families.drum, families.pitch)
        notes_of: list[set[tuple[_Place, int]]] = [set() for _ in starts[1:]]
        rows = np.column_stack([first, places, notes.keys >> 7, pitches])[first < len(notes_of)]
        for bar, place, rank, pitch in rows.astype(int):
            if ranks is None or rank in ranks:
                notes_of[int(bar)].add(((int(place), int(rank)), int(pitch)))
        different = [bar for bar in dict.fromkeys(map(frozenset, notes_of)) if bar]
        bars_with: dict[_Place, dict[int, list[int]]] = {}
        for index, bar in enumerate(different):
            for place, pitch in bar:
                bars_with.setdefault(place, {}).setdefault(pitch, []).append(index)
        return cls(
            share,
            np.array([len(bar) for bar in different], np.int64),
            bars_with,
            None if ranks is None else frozenset(ranks),
            np.zeros(len(different), np.int64),
        )

    def differs(self, bar: int) -> bool:
        """Return whether the new bar with this index, from 0, is to differ from the prompt."""
        before, after = (int(n * self.share + 1e-9) for n in (bar, bar + 1))
        return after > before

    @property
    def is_copy(self) -> bool:
        """Whether the present bar has the notes of a bar of the prompt so far."""
        return bool(((self.common == self.num_notes) & (self.sizes == self.num_notes)).any())

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        if not self.num_notes or not self.differs(limit.notated_bar(grammar)):
            return None
        bias = np.zeros(grammar.families.size)
        if self.is_copy:
            bias[[BAR, EOS]] = -NEVER
        agreement = (self.common / self.num_notes) ** 2
        for pitch, bars in self.bars_with.get((grammar.position, grammar.track), {}).items():
            bias[pitch] = -AGAINST * float(agreement[bars].max())
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> Distance:
        """See `Bias.advance`."""
        families = grammar.families
        if token == BAR:
            return self._replace(common=np.zeros_like(self.common), num_notes=0)
        if not families.pitch <= token < families.velocity:
            return self
        if self.ranks is not None and grammar.track not in self.ranks:
            return self
        common = self.common.copy()
        common[self.bars_with.get((grammar.position, grammar.track), {}).get(token, [])] += 1
        return self._replace(common=common, num_notes=self.num_notes + 1)
