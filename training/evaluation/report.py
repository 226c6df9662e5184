"""Comparison of evaluated models in a table, with goals for released models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from relpe.models.checkpoint import CheckpointError, find_checkpoint
from training.errors import TrainingError
from training.evaluation.plots import (
    Curve,
    Results,
    by_real_music,
    draw_results,
    read_curve,
    readings,
    words,
)
from training.experiment import is_run
from training.files import read_json, replacing
from training.runs.lineage import NAME, history, read_history, total_tokens
from training.runs.record import PastRun
from training.runs.weights import Origin

MOST_LOST = 0.05
"""Maximum increase in nats per token beyond the training length."""
LEAST_KEPT = 0.9
"""Minimum style similarity of the last quarter, as a share of that of the first."""
REPEATED = "bars_of_prompt"
"""Name in `structure` of the share of new bars that equal a bar of the prompt."""

_FAULTS = {
    "stuck_notes": "with a note longer than 4 bars and longer than every note of the prompt",
    "longer_silences": "with a longer run of empty bars than the prompt",
    "silent_instruments": "with an instrument of the prompt silent in the last 4 bars",
}
_PROFILES = {
    "onset_drum": "drum and position in the bar",
    "time_pitch_diff": "time and interval between nearby notes",
    "onset_duration": "position in the bar and duration",
}
_FORMS = {"exact": "", "compat": ", counted as the published code did"}
_FIGURES = {
    "pitch_range": "pitch range, semitones",
    "n_pitch_classes_used": "pitch classes used, of 12",
    "pitch_class_entropy": "entropy of pitch classes, bits",
    "scale_consistency": "notes in the best-fitting scale, share (scale consistency)",
    "polyphony": "simultaneous pitches (polyphony)",
    "polyphony_rate": "time with 3 or more simultaneous pitches, share (polyphony rate)",
    "empty_beat_rate": "empty beats, share",
    "empty_measure_rate": "empty bars, share",
    "groove_consistency": "rhythm kept from bar to bar, share (groove consistency)",
    REPEATED: "bars equal to a prompt bar, share",
    "bars_of_any_earlier": "bars equal to any earlier bar, share",
    "longest_empty_run": "longest run of empty bars",
    "longest_empty_run_of_prompt": "longest run of empty bars in the prompt",
    "emptier_than_prompt": "continuations with a longer run of empty bars than the prompt, share",
    "stuck_share": "notes longer than 2 bars, share",
    "longer_than_prompt_share": "notes longer than every note of the prompt, share",
    "still_playing": "instruments of the prompt that play in the last 4 bars, share",
    "bars": "bars in these figures",
    "notes": "notes in these bars",
} | {f"similarity_lag_{lag}": f"similarity of bars {lag} apart" for lag in (1, 2, 4, 8, 16)}
"""Labels for musicians, by the name in results.json."""


class Goal(NamedTuple):
    """A goal for released models, and whether a model meets it."""

    goal: str
    figure: str
    holds: bool

    def line(self) -> str:
        """The goal as a line of text."""
        return f"{'holds' if self.holds else 'MISSED'}: {self.goal} ({self.figure})"


def goals(results: Results) -> list[Goal]:
    """The goals that can be checked with these results."""
    found = [*_music_goals(results["music"])] if "music" in results else []
    if beyond := results.get("beyond_training"):
        goal = f"nats per token beyond the training length at most {MOST_LOST} above those within"
        said = f"{beyond['difference']:+.3f}, {beyond['pieces']} pieces"
        found.insert(0, Goal(goal, said, beyond["difference"] <= MOST_LOST))
    return found


def _music_goals(music: Results) -> Iterator[Goal]:
    count, faults = music["protocol"]["continuations"], music["faults"]["generated"]
    bars = music["protocol"]["bars"]
    for name, goal in (
        ("stuck_notes", "no stuck notes"),
        ("longer_silences", "no run of empty bars longer than those of the prompt"),
        ("silent_instruments", f"every instrument of a prompt still plays after {bars} bars"),
    ):
        yield Goal(goal, f"{faults[name]} of {count} continuations fail", faults[name] == 0)
    for profile, groups in music["style"]["exact"].items():
        first, *_, last = groups["generated"]["mean"]
        yield Goal(
            f"style similarity ({words(profile)}) of quarter 4 at least {LEAST_KEPT:.0%} of "
            "quarter 1",
            f"{last:.3f} of {first:.3f}, {last / first:.0%}" if first else f"{last} of {first}",
            first > 0 and last >= LEAST_KEPT * first,
        )
    new, real = (music["figures"][group].get(REPEATED) for group in ("generated", "real"))
    if new and real and None not in (new["mean"], real["mean"]):
        yield Goal(
            "bars equal to a prompt bar at most as frequent as in real pieces",
            f"{new['mean']:.3f}, real {real['mean']:.3f}",
            new["mean"] <= real["mean"],
        )


class Row(NamedTuple):
    """A row of a table: the figure of one model, and that of real music."""

    label: str
    value: str
    real: str = ""


def figure(values: Mapping[str, float], name: str, digits: int) -> str:
    """A figure of a summary, with its standard deviation if there is one."""
    deviation = values.get(f"{name}_deviation")
    spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{values[name]:.{digits}f}{spread}"


def rows_of(results: Results) -> Iterator[Row]:
    """All rows of a table for one model."""
    yield Row("parameters", f"{results['parameters']:,}")
    yield Row("training tokens, all runs", _tokens_learnt(results))
    yield Row("measured on", f"{results['split']}, `{results['data'][:8]}`")
    found = [
        ("whole pieces" if key == "streaming" else words(key), values)
        for key, values in readings(results).items()
    ]
    for key, models in results.items():
        if key.endswith("-gram"):
            name, best = min(models.items(), key=lambda item: item[1]["nats_per_token"])
            found.append((f"best {key} ({words(name)})", best))
    for name, values in found:
        for unit, digits in (("token", 4), ("note", 3), ("bar", 2)):
            if f"nats_per_{unit}" in values:  # results of older versions have no bars
                yield Row(f"nats per {unit}, {name}", figure(values, f"nats_per_{unit}", digits))
    yield from memory_rows(results)
    yield from music_rows(results)


def _tokens_learnt(results: Results) -> str:
    """Training tokens of all runs behind the weights; a lower bound if the model was deleted."""
    known = results["weights"]["tokens"]
    try:
        runs = _runs(results)
    except (TrainingError, CheckpointError):
        runs = ()
    if any(run.tokens is not None for run in runs):
        return total_tokens(runs)
    return "unknown" if known is None else f"at least {known:,}"


def _runs(results: Results) -> tuple[PastRun, ...]:
    """The runs that produced the measured weights; none if the model has changed since.

    Raises:
        TrainingError: their record cannot be read.
        CheckpointError: the model no longer exists.
    """
    weights, place = results["weights"], Path(results.get("model", ""))
    digest = weights.get("digest", "")
    if is_run(place):
        origin = Origin(weights["file"], digest, weights.get("step"), weights["tokens"])
        return history(place, origin)
    folder = find_checkpoint(place)
    runs = read_history(folder) if (folder / NAME).is_file() else ()
    return runs if runs and runs[-1].weights == digest else ()


def memory_rows(results: Results) -> Iterator[Row]:
    """Rows about the use of context: beyond the training length, in loops, by position."""
    if beyond := results.get("beyond_training"):
        yield Row("pieces for the next three rows", str(beyond["pieces"]))
        for name, label in (
            ("within", "nats per token within the training length"),
            ("beyond", "nats per token beyond it"),
            ("difference", "beyond minus within (± standard deviation over pieces)"),
        ):
            yield Row(label, figure(beyond, name, 3))
    if looped := results.get("loops", {}).get("nats_per_token"):
        times = ", ".join(looped)
        values = " ".join(f"{nats:.2f}" for nats in looped.values())
        yield Row(f"nats per token of a looped bar, repetitions {times}", values)
    relativity = results.get("relativity", {})
    for name in ("translation_invariance", "monotonicity_violation"):
        if name in relativity:
            yield Row(words(name), f"{relativity[name]['mean']:.3f}")


def music_rows(results: Results) -> Iterator[Row]:
    """Rows about generated music; no rows if none was generated."""
    if "music" not in results:
        return
    music = results["music"]
    protocol = music["protocol"]
    yield Row("continuations", str(protocol["continuations"]), str(protocol["prompts"]))
    yield Row("bars of the prompt", str(protocol["prompt_bars"]))
    yield Row("new bars", str(protocol["bars"]), _number(protocol["real_bars"]))
    yield Row("temperature, top-p", f"{protocol['temperature']}, {protocol['top_p']}")
    for name, count in music["faults"]["generated"].items():
        real = music["faults"]["real"][name] / protocol["prompts"]
        label = f"continuations {_FAULTS.get(name, f'with {words(name)}')}"
        yield Row(label, f"{count / protocol['continuations']:.1%}", f"{real:.1%}")
    for form, profiles in music["style"].items():
        for profile, groups in profiles.items():
            means = (groups.get(group, {"mean": ()})["mean"] for group in ("generated", "real"))
            texts = (" ".join(map(_number, mean)) for mean in means)
            label = f"style by quarter, {words(profile)} ({_PROFILES.get(profile, 'profile')})"
            yield Row(label + _FORMS.get(form, f", {form}"), *texts)
    new, real = (music["figures"][group] for group in ("generated", "real"))
    for name in new:
        texts = (_number(group[name]["mean"]) for group in (new, real))
        yield Row(_FIGURES.get(name, words(name)), *texts)
    for name, histogram in music["histograms"].items():
        # a single piece has no halves to compare
        halves = histogram["divergence_of_real_halves"] if protocol["prompts"] > 1 else None
        label = f"divergence from real music, {words(name)} (real music: between its halves)"
        yield Row(label, _number(histogram["divergence"]), _number(halves))
    new, real = (music["copies"][group] for group in ("generated", "real"))
    for size in new["shares"]:
        texts = (_number(group["shares"][size]) for group in (new, real))
        yield Row(f"runs of {size} notes found in the train split, share", *texts)
    yield Row("longest run found there, notes", str(new["longest"]), str(real["longest"]))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(
    entries: Mapping[str, Results], rows_of: Callable[[Results], Iterator[Row]] = rows_of
) -> list[str]:
    """A Markdown table with a row per figure, and columns for each model and for real music.

    Models that were compared with the same real music share a column for it. `rows_of` selects the
    rows.
    """
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for real, names in by_real_music(entries):
        for name in names:
            for label, value, of_real in rows_of(entries[name]):
                rows.setdefault(label, {})[name] = value
                if of_real and real is not None:
                    rows[label][real] = of_real
        columns += names if real is None else [*names, real]
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[label, *(of.get(name, "") for name in columns)] for label, of in rows.items()]
    return ["| " + " | ".join(line) + " |" for line in lines]


def write_table(entries: Mapping[str, Results], path: Path) -> None:
    """Write the table of some models, and the goals of each."""
    lines = [*table(entries), ""]
    for name, results in entries.items():
        found = goals(results)
        if found:
            lines += [f"Goals of {name}:", "", *(f"- {goal.line()}" for goal in found), ""]
    with replacing(path) as partial:
        partial.write_text("\n".join(lines), encoding="utf-8")


def report(models: Sequence[str], output: Path) -> Path:
    """Write report.md and report.png for some models to a folder; return the path of report.md.

    A model is a run folder, the name or folder of a released model, or a folder with results.

    Raises:
        TrainingError: a model has not been evaluated.
    """
    entries: dict[str, Results] = {}
    curves: dict[str, Curve] = {}
    for model in models:
        name, folder, place = _evaluation_of(model)
        path = folder / "results.json"
        if not path.is_file():
            raise TrainingError(
                f"{model}: found no {path}; run relpe-train evaluate --run {model} --data DATA "
                "first"
            )
        name = model if name in entries else name
        results = read_json(path, ("weights", "parameters", "data", "split"), "evaluate again")
        # the stored name is the one that was given to evaluate
        entries[name] = results if place is None else results | {"model": str(place)}
        if place is not None and (place / "metrics.csv").is_file():
            curves[name] = read_curve(place / "metrics.csv")
    output.mkdir(parents=True, exist_ok=True)
    draw_results(entries, output / "report.png", curves)
    write_table(entries, output / "report.md")
    return output / "report.md"


def _evaluation_of(model: str) -> tuple[str, Path, Path | None]:
    """Name of a model, folder of its results, and its own folder; None: named in the results."""
    place = Path(model)
    if (place / "results.json").is_file():
        within = place.name == "evaluation" and is_run(place.parent)
        name = place.parent.name if place.name == "evaluation" else place.name
        return name, place, place.parent if within else None
    if is_run(place):
        return place.resolve().name, place / "evaluation", place
    folder = find_checkpoint(model)
    return folder.resolve().name, Path("evaluation") / folder.resolve().name, folder
