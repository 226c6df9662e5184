"""Best of k: how good the best of several repetitions is, beside their mean.

The best clip is chosen by other listeners: each listener's own answers about the clip that the
others found best are counted, so that chance does not make it look better than it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.listening.report.bootstrap import Bootstrap, Interval
from app.listening.report.judgements import OVERALL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from app.listening.report.judgements import Clip, Judgements


class Best(NamedTuple):
    """The best of the repetitions of a condition, and their mean, of the same listeners."""

    condition: str
    measure: str
    """`rating`, the mean of the questions in points, or `preference`, the share of pairs won."""
    most: int
    """The largest number of clips after a prompt, k."""
    best: Interval
    mean: Interval


class _Judged(NamedTuple):
    listener: str
    clip: Clip
    value: float


def best_of(judged: Judgements, bootstrap: Bootstrap) -> list[Best]:
    """The conditions that have several clips after a prompt, by measure and name."""
    rated = [_Judged(r.listener, r.clip, r.value) for r in judged.ratings if r.question == OVERALL]
    chosen = [
        _Judged(p.listener, clip, float(clip == p.winner))
        for p in judged.preferences
        for clip in (p.first, p.second)
    ]
    found = []
    for measure, answers in (("rating", rated), ("preference", chosen)):
        for condition in judged.conditions:
            one = [answer for answer in answers if answer.clip.condition == condition]
            if best := _best(condition, measure, one, judged, bootstrap):
                found.append(best)
    return found


def _best(
    condition: str,
    measure: str,
    answers: Iterable[_Judged],
    judged: Judgements,
    bootstrap: Bootstrap,
) -> Best | None:
    of_prompt: defaultdict[str, defaultdict[str, defaultdict[str, list[float]]]]
    of_prompt = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for answer in answers:
        of_prompt[answer.clip.prompt][answer.clip.file][answer.listener].append(answer.value)
    most = max((len(clips) for clips in of_prompt.values()), default=0)
    if most < 2:
        return None
    listeners = {name: index for index, name in enumerate(judged.listeners)}
    # sums and counts of all answers, and of those about the best clip
    totals = np.zeros((4, len(listeners), len(judged.prompts)))
    for place, prompt in enumerate(judged.prompts):
        clips = of_prompt[prompt]
        if len(clips) < 2:
            continue
        sums = {
            file: math.fsum(v for told in of.values() for v in told) for file, of in clips.items()
        }
        counts = {file: sum(len(told) for told in of.values()) for file, of in clips.items()}
        for listener in sorted({name for of in clips.values() for name in of}):
            row = listeners[listener]
            others = {}
            for file in sorted(clips):
                own = clips[file].get(listener, [])
                if left := counts[file] - len(own):
                    others[file] = (sums[file] - math.fsum(own)) / left
                totals[0, row, place] += math.fsum(own)
                totals[1, row, place] += len(own)
            if len(others) < len(clips):  # no other listener heard one of them
                continue
            highest = max(others.values())
            tied = [file for file, value in others.items() if value >= highest - 1e-9]
            for file in tied:
                own = clips[file].get(listener, [])
                totals[2, row, place] += math.fsum(own) / len(tied)
                totals[3, row, place] += len(own) / len(tied)
    if not totals[3].any():
        return None

    def statistic(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            summed = np.einsum("blp,tlp->bt", weights, totals)
            return np.stack([summed[:, 2] / summed[:, 3], summed[:, 0] / summed[:, 1]], 1)

    best, mean = bootstrap.intervals(statistic)
    return Best(condition, measure, most, best, mean)
