"""Form, key and chords of a piece, as musicians read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from app.compose.plan.sections import sections_text
from tokenization.analysis.beats import extend_by_pedal
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.analysis.chords import pitched_notes
from tokenization.analysis.form import Phrase, find_form
from tokenization.analysis.keys import key_name
from tokenization.analysis.plan import analyse
from tokenization.grid import STEPS_PER_BEAT, notated_lines
from tokenization.plan import Plan
from tokenization.remi.bars import BarMap
from tokenization.score import Score

ROW_BARS = 4
"""Bars in a row of a chart."""
FEWEST_PITCHES = 3
"""Pitches, octaves apart from each other being one, that tell a key: one or two fit many."""
AS_BEFORE = "%"
"""A bar with the chords of the bar before it."""


def plan_of(score: Score) -> Plan:
    """Return the plan of a score, whose notes sound as long as the sustain pedal holds them.

    Last notes that ring over the bar line belong to their bar, unless they are held to the end of
    another one, to which a quarter note may lack.
    """
    score = score.refined(-(-STEPS_PER_BEAT // score.ticks_per_beat))
    end = _end_of_bars(score)
    score = extend_by_pedal(score)
    if end < score.end_ticks:
        tracks = tuple(track.until(end) for track in score.tracks)
        score = replace(score, tracks=tracks, end_ticks=end)
    return analyse(BarMap.of_score(score).on_grid(score))


def _end_of_bars(score: Score) -> int:
    """Return the bar line at which the bars of a score end; see `plan_of`."""
    sounding = [track for track in score.tracks if len(track)]
    end = max((track.end_ticks for track in sounding), default=0)
    if not sounding or score.end_ticks > end:  # it has rests at the end
        return score.end_ticks
    onset = max(int(track.notes[-1, 0]) for track in sounding)
    lines = notated_lines(score, max(onset + 1, end), 2)
    bars = BarMap.of(lines, score.ticks_per_beat)
    onset, end = bars.steps(np.array([onset, end])).tolist()
    first, full = np.searchsorted(bars.starts, [onset, end + STEPS_PER_BEAT], side="right")
    return int(lines[max(first, full - 1)])


class ChartRow(NamedTuple):
    """A row of a chart; it does not cross the end of a phrase."""

    letter: str
    """The letter of the phrase in its first row; otherwise empty."""
    first_bar: int
    """From 1."""
    bars: tuple[str, ...]
    """The chords of each bar, separated by a space."""


@dataclass(frozen=True)
class LeadSheet:
    """Form, key and chords of a piece."""

    key: str
    """Such as `Bb major`; empty with too few pitches to tell."""
    phrases: tuple[Phrase, ...]
    returns: tuple[int, ...]
    """The earlier bar that each bar repeats, from 1; 0 for none."""
    chords: tuple[tuple[str, ...], ...]
    """The chords of each bar, one or two; none for drums alone."""

    @classmethod
    def of(cls, score: Score, sections: Sequence[Phrase] = ()) -> LeadSheet:
        """Return the lead sheet of a score, see `plan_of`.

        A notated bar of more than eight quarters is several bars, as for the model. `sections` that
        are known stay as they are, see `find_form`.
        """
        sheet = cls.of_plan(plan_of(score), sections)
        tells = len({*(pitched_notes(score)[:, 2] % 12).tolist()}) >= FEWEST_PITCHES
        return sheet if tells else replace(sheet, key="")

    @classmethod
    def of_plan(cls, plan: Plan, sections: Sequence[Phrase] = ()) -> LeadSheet:
        """Return the lead sheet of a plan."""
        symbols = {
            chords: tuple(chord_symbol(chord, plan.key) for _, chord in chords)
            for chords in {bar.chords for bar in plan.bars}
        }
        return cls(
            key_name(plan.key) if plan.key else "",
            find_form(plan, sections),
            tuple(n - bar.source if bar.source else 0 for n, bar in enumerate(plan.bars, 1)),
            tuple(symbols[bar.chords] for bar in plan.bars),
        )

    @property
    def form(self) -> str:
        """Letter and number of bars of each phrase: `A8 A8 B8 A8`."""
        return sections_text(self.phrases)

    def rows(self) -> Iterator[ChartRow]:
        """Return the chart, in rows of `ROW_BARS` bars; each phrase begins a row."""
        if not any(self.chords):
            return
        for letter, first, count in self.phrases or (Phrase("", 0, len(self.chords)),):
            for begin in range(first, first + count, ROW_BARS):
                bars = self.chords[begin : min(begin + ROW_BARS, first + count)]
                if not bars:  # the last notes ring on
                    break
                texts = [" ".join(bar) for bar in bars]
                for place in range(len(bars) - 1, 0, -1):
                    if bars[place] == bars[place - 1]:
                        texts[place] = AS_BEFORE
                yield ChartRow(letter if begin == first else "", begin + 1, tuple(texts))
