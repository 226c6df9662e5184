"""The plan of a score: which bars return, the chords of each bar, and the key."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tokenization.analysis.bar_chords import find_bar_chords
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.keys import estimate_key
from tokenization.analysis.returns import find_later_sources, find_returns
from tokenization.document import Selection
from tokenization.plan import BarPlan, Plan
from tokenization.score import Score


def analyse(score: Score) -> Plan:
    """Return the plan of a score, with one bar for each bar that a tokenizer encodes (`bar_lines`).

    The plan of a bar depends on that bar and earlier ones only, so that the plan of the first bars
    of a piece is the beginning of its plan. The key is that of the whole score. Music outside the
    score does not exist: in a part of a piece, bars that return from before it are new.

    Apply `extend_by_pedal` first to include the sustain pedal, and `warp` if the notes do not
    follow the bars of the score.
    """
    bars = ScoreBars.of(score)
    returns = find_returns(bars).tolist()
    chords = find_bar_chords(bars)
    plan_of = lru_cache(maxsize=None)(BarPlan)  # equal bars share memory
    return Plan(tuple(map(plan_of, returns, chords)), estimate_key(score))


def analyse_document(score: Score, selection: Selection | None = None) -> Plan:
    """Return the plan of a document, in which that of a bar depends only on bars before it.

    The bars after a gap come first: they are analysed by themselves, as if the piece began there.
    A bar of the gap that resembles no earlier bar may resemble one of them; its source is negative.
    Otherwise, the plan is that of `analyse`.
    """
    plan = analyse(score)
    if selection is None or selection.stop is None or selection.stop >= len(plan.bars):
        return plan
    first, stop = selection.first, selection.stop
    bars = ScoreBars.of(score)
    end = max(bars.score.end_ticks, int(bars.lines[-1]))
    later = analyse(bars.score.between(int(bars.lines[stop]), end))
    distances = find_later_sources(bars, first, stop).tolist()
    gap: list[BarPlan] = []
    for bar, distance in zip(plan.bars[first:stop], distances, strict=True):
        resembles_later = distance > 0 and bar.source == 0
        gap.append(replace(bar, source=-distance) if resembles_later else bar)
    return replace(plan, bars=(*plan.bars[:first], *gap, *later.bars))
