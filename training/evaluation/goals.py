"""Goals for released models, checked with the results of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from training.evaluation.plots import words
from training.evaluation.results import FIGURES, Results, music_by_key

MOST_LOST = 0.05
"""Maximum increase in nats per token beyond the training length."""
MOST_ACCIDENTS = 0.08
"""Maximum share of continuations with an accident; real ones have at most .04."""
LEAST_KEPT = 0.9
"""Minimum style similarity of the last quarter, as a share of that of the first."""
NEAR_REAL = 0.12
"""Maximum difference from real music in the similarity of new bars 4, 8 and 16 apart."""
NEAR_REAL_REPEATS = 0.05
"""Maximum difference of bands from real music in the share of bars equal to a prompt bar."""
LEAST_FILLS = 0.5
"""Minimum change of the drums at the end of phrases, as a share of that in real music."""


class Limits(NamedTuple):
    """A range for the mean of a figure of generated music."""

    name: str
    least: float | None = None
    most: float | None = None


PIANO_LIMITS = {
    (40, 16): (
        Limits("bars_of_any_earlier", 0.35, 0.60),
        Limits("most_similar_earlier", least=0.60),
        Limits("roots_over_chance_4", least=0.10),
        Limits("roots_over_chance_8", least=0.12),
        Limits("like_bar_before", most=0.11),
    ),
    (8, 32): (Limits("harmonic_period", least=0.40), Limits("static_chord", most=0.02)),
}
"""Goals for the form of piano music, by bars of the prompt and new bars."""


class Goal(NamedTuple):
    """A goal for released models, and whether a model meets it."""

    goal: str
    figure: str
    holds: bool

    def line(self) -> str:
        """Return the goal as a line of text."""
        return f"{'holds' if self.holds else 'MISSED'}: {self.goal} ({self.figure})"


def goals(results: Results) -> list[Goal]:
    """Return the goals that can be checked with these results."""
    checked_goals: list[Goal] = []
    for music in music_by_key(results).values():
        if music["protocol"]["takes"] > 1:  # goals are for music that was not selected
            continue
        checked_goals += [
            goal._replace(goal=f"{_lengths(music)}: {goal.goal}") for goal in _music_goals(music)
        ]
    if beyond := results.get("beyond_training"):
        goal = f"nats per token beyond the training length at most {MOST_LOST} above those within"
        figure = f"{beyond['difference']:+.3f}, {beyond['pieces']} pieces"
        checked_goals.insert(0, Goal(goal, figure, beyond["difference"] <= MOST_LOST))
    return checked_goals


def goal_lines(results: Results) -> list[str]:
    """Return the goals as a Markdown list, with those that the copier misses."""
    lines = [f"- {goal.line()}" for goal in goals(results)]
    for music in music_by_key(results).values():
        is_plain = music["protocol"]["takes"] == 1
        if is_plain and (copier_goals := form_goals(music, "copier")):
            missed = [f"{goal.goal} ({goal.figure})" for goal in copier_goals if not goal.holds]
            line = f"- {_lengths(music)}: the copier misses {len(missed)} of {len(copier_goals)}"
            line += " goals of form"
            if missed:
                line += f": {'; '.join(missed)}"
            lines.append(line)
    return lines


def _lengths(music: Results) -> str:
    """Return the bars of prompt and of new music, as text."""
    protocol = music["protocol"]
    return f"{protocol['bars']} bars after a prompt of {protocol['prompt_bars']}"


def _music_goals(music: Results) -> Iterator[Goal]:
    count, faults = music["protocol"]["continuations"], music["faults"]["generated"]
    bars = music["protocol"]["bars"]
    for name, goal in (
        ("stuck_notes", "no stuck notes"),
        ("silent_instruments", f"every instrument of a prompt still plays after {bars} bars"),
    ):
        yield Goal(goal, f"{faults[name]} of {count} continuations fail", faults[name] == 0)
    accidents = faults["accident"]
    yield Goal(
        f"accidents in at most {MOST_ACCIDENTS:.0%} of the continuations",
        f"{accidents} of {count}",
        accidents <= MOST_ACCIDENTS * count,
    )
    for profile, groups in music["style"]["exact"].items():
        first, *_, last = groups["generated"]["mean"]
        yield Goal(
            f"style similarity ({words(profile)}) of quarter 4 at least {LEAST_KEPT:.0%} of "
            "quarter 1",
            f"{last:.3f} of {first:.3f}, {last / first:.0%}" if first else f"{last} of {first}",
            first > 0 and last >= LEAST_KEPT * first,
        )
    yield from form_goals(music)


def form_goals(music: Results, group: str = "generated") -> list[Goal]:
    """Return the goals of musical form of a group of figures; none if the group was not measured.

    Where real music itself lies outside of a limit, its figure is the limit.
    """
    protocol, figures = music["protocol"], music["figures"]
    if group not in figures:
        return []
    real = {name: values["mean"] for name, values in figures["real"].items()}
    limits: list[Limits] = []
    if protocol["several_tracks"]:
        limits += _near(real, "bars_of_prompt", NEAR_REAL_REPEATS)
        if (change := real.get("fills")) is not None:
            limits.append(Limits("fills", least=LEAST_FILLS * change))
    else:
        limits += PIANO_LIMITS.get((protocol["prompt_bars"], protocol["bars"]), ())
        if protocol["bars"] > 16:
            for lag in (4, 8, 16):
                limits += _near(real, f"self_similarity_{lag}", NEAR_REAL)
    return [
        _within(limit, figures[group].get(limit.name, {}).get("mean"), real[limit.name])
        for limit in limits
        if real.get(limit.name) is not None
    ]


def _near(real: Mapping[str, float | None], name: str, distance: float) -> list[Limits]:
    """Return limits at most `distance` from the figure of real music, if there is one."""
    value = real.get(name)
    return [] if value is None else [Limits(name, max(value - distance, 0.0), value + distance)]


def _within(limits: Limits, value: float | None, real: float) -> Goal:
    """Return the goal of a figure within limits, widened so that real music meets them."""
    least = -math.inf if limits.least is None else min(limits.least, real)
    most = math.inf if limits.most is None else max(limits.most, real)
    bounds = {"at least": least, "at most": most}
    texts = [f"{word} {bound:.2f}" for word, bound in bounds.items() if math.isfinite(bound)]
    return Goal(
        f"{FIGURES[limits.name]}: {', '.join(texts)}",
        f"{'undefined' if value is None else f'{value:.3f}'}, real {real:.3f}",
        value is not None and least <= value <= most,
    )
