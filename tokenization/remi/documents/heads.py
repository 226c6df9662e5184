"""The tokens at the start of each bar: metre, tempo, plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.chords import QUALITIES
from tokenization.errors import TokenizerError
from tokenization.grid import BAR_UNIT
from tokenization.plan import BarPlan, Chord, PlannedChord
from tokenization.remi.documents.order import Order
from tokenization.remi.quantize import TempoMap, starts_of_runs
from tokenization.remi.vocabulary import BAR, EOS, MAX_DISTANCE, TEMPO, TIME_SIGNATURE, Families

_PLAN_IDS = 5
_MOST_PLANS = 65_536
_NO_IDS = (0, 0, 0, 0)


class BarHeads(NamedTuple):
    """The first tokens of each part of a document, and of its end."""

    starts: NDArray[np.int64]
    """Times of the document (parts + 1,)."""
    ids: NDArray[np.int32]
    """(parts + 1, columns); 0: no token."""

    def rows(self, width: int) -> NDArray[np.int32]:
        """Return the ids, with `width` columns; each head takes one or more rows."""
        used = self.ids[:, self.ids.any(0)]
        per_head = max(-(-used.shape[1] // width), 1)
        rows = np.zeros((len(used), per_head * width), np.int32)
        rows[:, : used.shape[1]] = used
        return rows.reshape(-1, width)


def planned_heads(
    order: Order,
    tempos: TempoMap,
    plans: Sequence[BarPlan],
    families: Families,
    *,
    has_last: bool,
    has_end: bool,
) -> tuple[BarHeads, TempoMap]:
    """Return heads of bars, and the tempos within bars. Raises TokenizerError for a wrong plan."""
    lines, num_later = order.lines, order.num_later
    bars = slice(None) if order.is_plain else order.bars  # a slice needs no copies
    ids = np.zeros((len(order.bars) + 1, 6 + _PLAN_IDS), np.int32)
    heads = ids[:-1]
    heads[:, 0] = BAR
    heads[order.is_written, 0] = families.write
    if num_later:
        heads[:num_later, 1] = families.later

    # metre and tempo, where they differ from those of the bar before it in the document
    lengths = (lines[1:] - lines[:-1])[bars]
    at_start = tempos.tempos[tempos.steps.searchsorted(lines[:-1], side="right") - 1][bars]
    at_end = tempos.tempos[tempos.steps.searchsorted(lines[1:]) - 1][bars]
    new_metre, new_tempo = starts_of_runs(lengths), np.ones(len(heads), bool)
    np.not_equal(at_start[1:], at_end[:-1], out=new_tempo[1:])
    if not order.is_plain:
        new_metre[num_later] = new_tempo[num_later] = True
        new_tempo &= ~order.is_written
    heads[:, 2] = (lengths // BAR_UNIT + (TIME_SIGNATURE - 1)) * new_metre
    heads[:, 3] = (at_start + TEMPO) * new_tempo
    within = lines[lines.searchsorted(tempos.steps)] != tempos.steps
    steps = order.times(tempos.steps[within], np.True_)
    inner = TempoMap(steps, tempos.tempos[within], tempos.clipped)

    if plans:
        heads[:, 4 : 4 + _PLAN_IDS] = _plan_ids(plans, order, families)[bars]
        if not order.is_plain:
            heads[order.is_written, 4 : 4 + _PLAN_IDS] = 0
    if has_last:
        last = (order.bars == len(lines) - 2) & ~order.is_written
        heads[last, 4 + _PLAN_IDS] = families.last
    ids[-1, 0] = EOS * has_end
    return BarHeads(order.starts, ids), inner


def _plan_ids(plans: Sequence[BarPlan], order: Order, families: Families) -> NDArray[np.int32]:
    """Return ids (bars, 5) of the plan of each bar; sources not in the document become New."""
    count = len(order.lines) - 1
    row_of = _plan_rows(families)
    rows = [*map(row_of.__getitem__, plans[:count])]
    rows += [row_of[BarPlan()]] * (count - len(plans))
    table = np.frombuffer(bytearray().join(rows), np.int32).reshape(-1, _PLAN_IDS)
    sources, bars = families.values[table[:, 0]], np.arange(count)
    # A source comes earlier in the document, where the bars after the gap are first.
    is_wrong = sources > bars
    is_wrong |= sources < 0
    if not order.is_plain:
        targets = bars - sources
        is_wrong |= (targets < order.stop) & (bars >= order.stop)
        in_gap = (bars >= order.first) & (bars < order.stop)
        is_wrong &= ~(in_gap & (targets >= order.stop) & (targets < count))
    if is_wrong.any():
        table[is_wrong, 0] = families.return_
    return table


class _PlanRows(dict[BarPlan, bytes]):
    """Ids of the plans of bars, five of 32 bits each, as bytes, which are fast to join."""

    def __init__(self, families: Families) -> None:
        super().__init__()
        self.families = families

    def __missing__(self, bar: BarPlan) -> bytes:
        if len(self) >= _MOST_PLANS:
            self.clear()
        ids = plan_ids(bar.source, bar.chords, self.families)
        self[bar] = row = np.array(ids, np.int32).tobytes()
        return row


_plan_rows = cache(_PlanRows)


@lru_cache(maxsize=65_536)
def plan_ids(source: int, chords: tuple[PlannedChord, ...], families: Families) -> tuple[int, ...]:
    """Return ids of the plan of a bar: Return, Chord, Bass, Chord, Bass; 0 for none. See `BarPlan`.

    Raises TokenizerError for a plan that has no ids.
    """
    if not -MAX_DISTANCE <= source <= MAX_DISTANCE:
        raise TokenizerError(
            f"the source of a bar is {source}, expected {-MAX_DISTANCE} to {MAX_DISTANCE}"
        )
    first = families.return_ + (source if source >= 0 else MAX_DISTANCE - source)
    ids: list[int] = []
    for index, (beat, chord) in enumerate(chords):
        if index > 1 or (beat > 0) != index:
            beats = ", ".join(str(chord.beat) for chord in chords)
            raise TokenizerError(
                f"a bar has chords at the beats {beats}; expected one at beat 0, and at most one "
                "later"
            )
        ids += _chord_ids(chord, families)
    return first, *ids, *_NO_IDS[len(ids) :]


def _chord_ids(chord: Chord | None, families: Families) -> tuple[int, int]:
    """Return the ids of a Chord and its Bass, 0 without one. Raises TokenizerError without ids."""
    if chord is None:
        return families.bass - 1, 0
    root, quality, bass = chord
    lowest = root if bass is None else bass
    if not (0 <= root < 12 and 0 <= quality < len(QUALITIES) and 0 <= lowest < 12):
        raise TokenizerError(
            f"a chord has root {root}, quality {quality} and bass {bass}, expected a root and a "
            f"bass of 0 to 11 and a quality of 0 to {len(QUALITIES) - 1}"
        )
    index = families.chord + len(QUALITIES) * root + quality
    return index, (families.bass + lowest) * (lowest != root)
