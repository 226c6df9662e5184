"""How a jam follows, and how long a bar takes.

Run from the top of the repository: `python -m benchmarks.app.bench_jam`, with `--bars 1650` for an
hour. The usual band plays a loop of chords in some styles, with a fill in each eighth bar. Prints
for each style

- processor time of a bar in milliseconds: the median, and what 99 % of the bars need at most;
- what is heard of the chords, see `bench_charts`, and empty bars;
- accidents in windows of 16 bars after 16 others, by their kinds;
- memory in MB after the first 16 bars, and at the end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from app.compose.jam import USUAL_ENERGY, Jam, joined
from app.compose.models import load_music_model
from benchmarks.app.bench_charts import Heard, judge
from benchmarks.timing import run, table_output
from tokenization.analysis.accidents import accidents
from tokenization.grid import STEPS_PER_BEAT
from tokenization.plan_text import chart_bars

LOOP = "Am7 | Dm7 | G7 | Cmaj7 | Fmaj7 | Bm7b5 | E7 | Am7 A7"
WINDOW = 16


def main(
    model: str = "groove",
    *,
    styles: Sequence[str] = ("rock", "funk", "jazz"),
    bars: int = 200,
    chords: str = LOOP,
    energy: float = USUAL_ENERGY,
    seed: int = 1,
) -> None:
    """Run the measurement; an energy below 0 leaves it to the model."""
    loaded = load_music_model(model)
    for _ in loaded.preparing():
        pass
    write = table_output(
        "style, bars", "median ms", "99 % ms", *Heard._fields, "notes a bar", "empty", "windows",
        "accidents", "MB at first", "MB",
    )  # fmt: skip
    for style in styles:
        jam, loop = Jam(loaded, style, 110, seed=seed), cycle(chart_bars(chords))
        level = energy if energy >= 0 else None
        times, played, at_first = [], [], 0.0
        for bar in range(bars):
            began = time.process_time()
            played.append(jam.next_bar(next(loop), fill=bar % 8 == 7, energy=level))
            times.append(1000 * (time.process_time() - began))
            if bar == WINDOW - 1:
                at_first = _megabytes()
        at_last, score = _megabytes(), joined(played)
        chart = [[of.chord for of in bar.chords if of.chord is not None] for bar in played]
        counts = [bar.score.num_notes for bar in played]
        length = 4 * STEPS_PER_BEAT
        starts = range(0, bars - 2 * WINDOW + 1, WINDOW)
        passages = [score.between(at * length, (at + 2 * WINDOW) * length) for at in starts]
        kinds_by_passage = [accidents(passage, WINDOW, 2 * WINDOW).kinds for passage in passages]
        counted = Counter(kind for kinds in kinds_by_passage for kind in kinds)
        write(
            f"{style}, {bars}",
            float(np.median(times)),
            float(np.percentile(times, 99)),
            *np.mean(judge(score, chart), axis=0).tolist(),
            float(np.mean(counts)),
            counts.count(0),
            len(kinds_by_passage),
            ", ".join(f"{kind} {count}" for kind, count in counted.items()) or "none",
            at_first,
            at_last,
        )


def _megabytes() -> float:
    """Return the resident megabytes of this process; NaN on systems other than Linux."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmRSS:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return float("nan")


if __name__ == "__main__":
    run(main)
