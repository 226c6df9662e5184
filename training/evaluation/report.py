"""Comparison of evaluated models in a table, with goals for released models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from relpe.files import write_text
from relpe.models.checkpoint import CheckpointError, find_checkpoint
from training.errors import TrainingError
from training.evaluation.plots import Curve, draw_results, read_curve, words
from training.evaluation.results import (
    WHOLE,
    Results,
    by_real_music,
    music_by_key,
    music_keys,
    reading_label,
    readings,
)
from training.evaluation.runs import task_of, write_runs
from training.experiment import is_run
from training.files import markdown, read_json
from training.runs.lineage import NAME, history, read_history, total_tokens
from training.runs.pointer import Gain
from training.runs.record import PastRun
from training.runs.weights import Origin

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

_FAULTS = {
    "stuck_notes": "with a note longer than 4 bars and longer than every note of the prompt",
    "silent_instruments": "with an instrument of the prompt silent in the last 4 bars",
    "accident": "with an accident",
    "all_copy": "that copy earlier bars in nearly every bar",
    "hole": "with a hole, or without the melody for 4 bars",
    "range": "with a note far from all others of its track",
    "key": "in no key for 4 bars",
    "thinning": "with far fewer or more notes at the end than in the prompt",
}
_PROFILES = {
    "onset_drum": "drum and position in the bar",
    "time_pitch_diff": "time and interval between nearby notes",
    "onset_duration": "position in the bar and duration",
}
_PARTS = {
    "plan": "of these, the plan",
    "tempo": "of these, tempos (in steps of 1.9 %)",
    "music": "of these, all else",
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
    "bars_of_prompt": "bars equal to a prompt bar, share",
    "bars_of_any_earlier": "bars equal to any earlier bar, share",
    "stuck_share": "notes longer than 2 bars, share",
    "longer_than_prompt_share": "notes longer than every note of the prompt, share",
    "still_playing": "instruments of the prompt that play in the last 4 bars, share",
    "bars": "bars in these figures",
    "notes": "notes in these bars",
    "most_similar_earlier": "similarity to the most similar earlier bar, by track and pitch",
    "like_bar_before": "similarity to the bar before, by track and pitch",
    "harmonic_period": "those with a harmonic period of 4, 8 or 16 bars, share",
    "longest_chord": "longest run of bars with one chord",
    "static_chord": "those with one chord for 8 bars, share",
    "falling_fifths": "changes of root by a falling fifth, share",
    "bass_fits": "half bars in which the bass fits the other parts, share",
    "clashes": "semitones among notes that sound together, share",
    "fills": "change of the drums in every fourth bar over others",
    "melody_breaths": "rests of the melody per bar",
    "melody_range": "range of the melody, semitones",
    "velocity_deviation": "standard deviation of velocities",
    "density_drift": "notes per bar, last quarter over first, log2",
}
_FIGURES |= {f"similarity_lag_{lag}": f"similarity of bars {lag} apart" for lag in (1, 2, 4, 8, 16)}
_FIGURES |= {
    f"self_similarity_{lag}": f"similarity of new bars {lag} apart, by track and pitch"
    for lag in (1, 4, 8, 16)
}
_FIGURES |= {
    f"roots_over_chance_{lag}": f"chord root of {lag} bars before, share over chance"
    for lag in (4, 8, 16)
}
"""Labels for musicians, by the name in results.json."""


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
            goal._replace(goal=f"{_after(music)}: {goal.goal}") for goal in _music_goals(music)
        ]
    if beyond := results.get("beyond_training"):
        goal = f"nats per token beyond the training length at most {MOST_LOST} above those within"
        said = f"{beyond['difference']:+.3f}, {beyond['pieces']} pieces"
        checked_goals.insert(0, Goal(goal, said, beyond["difference"] <= MOST_LOST))
    return checked_goals


def goal_lines(results: Results) -> list[str]:
    """Return the goals as a Markdown list, with those that the copier misses."""
    lines = [f"- {goal.line()}" for goal in goals(results)]
    for music in music_by_key(results).values():
        is_plain = music["protocol"]["takes"] == 1
        if is_plain and (copier_goals := form_goals(music, "copier")):
            missed = [f"{goal.goal} ({goal.figure})" for goal in copier_goals if not goal.holds]
            said = f"the copier misses {len(missed)} of {len(copier_goals)} goals of form"
            lines.append(f"- {_after(music)}: {said}{': ' if missed else ''}{'; '.join(missed)}")
    return lines


def _after(music: Results) -> str:
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
    """Return a share at most `distance` from that of real music, if there is one."""
    value = real.get(name)
    return [] if value is None else [Limits(name, max(value - distance, 0.0), value + distance)]


def _within(limits: Limits, value: float | None, real: float) -> Goal:
    """Return whether a figure lies within limits that real music does not miss."""
    least = -math.inf if limits.least is None else min(limits.least, real)
    most = math.inf if limits.most is None else max(limits.most, real)
    bounds = {"at least": least, "at most": most}
    said = ", ".join(f"{word} {x:.2f}" for word, x in bounds.items() if math.isfinite(x))
    return Goal(
        f"{_FIGURES[limits.name]}: {said}",
        f"{'undefined' if value is None else f'{value:.3f}'}, real {real:.3f}",
        value is not None and least <= value <= most,
    )


class Row(NamedTuple):
    """A row of a table: the figures of one model, of real music and of the copier."""

    label: str
    value: str
    real: str = ""
    copier: str = ""


def figure(values: Mapping[str, float], name: str, digits: int) -> str:
    """Return a figure of a summary, with its standard deviation if there is one."""
    deviation = values.get(f"{name}_deviation")
    spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{values[name]:.{digits}f}{spread}"


def rows_of(results: Results) -> Iterator[Row]:
    """Return the rows about one model and its likelihood."""
    yield Row("parameters", f"{results['parameters']:,}")
    yield Row("training tokens, all runs", _tokens_learnt(results))
    yield Row("measured on", f"{results['split']}, `{results['data'][:8]}`")
    if spent := results.get("costs"):  # not with --music-only
        yield Row(
            f"MFLOPs of matrix products per token, window of {spent['tokens_at_once']}",
            f"{spent['flops_per_token'] / 1e6:.2f}",
        )
    labelled_values = [(reading_label(key), values) for key, values in readings(results).items()]
    for key, models in results.items():
        if key.endswith("-gram"):
            name, best = min(models.items(), key=lambda item: item[1]["nats_per_token"])
            labelled_values.append((f"best {key} ({words(name)})", best))
    for name, values in labelled_values:
        for unit, digits in (("token", 4), ("note", 3), ("bar", 2)):
            yield Row(f"nats per {unit}, {name}", figure(values, f"nats_per_{unit}", digits))
    for key, parts in results.get("by_part", {}).items():
        for part, nats in parts.items():
            yield Row(f"nats per note, {WHOLE[key]}: {_PARTS[part]}", f"{nats:.3f}")
    for name, corpus in results.get("by_corpus", {}).items():
        for key, nats in readings(corpus).items():
            yield Row(f"nats per note, {reading_label(key)}: {name}", f"{nats:.3f}")
    yield from memory_rows(results)


def _tokens_learnt(results: Results) -> str:
    """Return the training tokens of all runs; a lower bound if the model was deleted."""
    num_tokens = results["weights"]["tokens"]
    try:
        runs = _runs(results)
    except (TrainingError, CheckpointError):
        runs = ()
    if any(run.tokens is not None for run in runs):
        return total_tokens(runs)
    return "unknown" if num_tokens is None else f"at least {num_tokens:,}"


def _runs(results: Results) -> tuple[PastRun, ...]:
    """Return the runs that produced the measured weights; none if the model has changed since.

    Raises:
        TrainingError: their record cannot be read.
        CheckpointError: the model no longer exists.
    """
    origin, place = Origin(**results["weights"]), Path(results["model"])
    if is_run(place):
        return history(place, origin)
    folder = find_checkpoint(place)
    runs = read_history(folder) if (folder / NAME).is_file() else ()
    return runs if runs and runs[-1].weights == origin.digest else ()


def gain_table(gain: Gain) -> list[str]:
    """Return a Markdown table of nats per token by family of tokens, and of nats per note."""
    head = f"predicted tokens, {gain.split} split", "number", "nats per token", "with the pointer"
    rows = [("all", gain), *((one.family, one) for one in gain.families)]
    cells = ((name, f"{x.tokens:,}", f"{x.decoder:.4f}", f"{x.mixture:.4f}") for name, x in rows)
    return [*markdown([head, *cells]), "", nats_line(gain)]


def nats_line(gain: Gain) -> str:
    """Return nats per note, or per token of music without notes, without and with a pointer."""
    unit, factor = ("note", gain.tokens / gain.notes) if gain.notes else ("token", 1.0)
    without, mixed = gain.decoder * factor, gain.mixture * factor
    return f"Nats per {unit}: {without:.3f}, with the pointer {mixed:.3f}."


def corpus_table(results: Results) -> list[str]:
    """Return a Markdown table of nats per note with a row per corpus; empty for a single corpus."""
    corpora = results.get("by_corpus", {})
    if not corpora:
        return []
    keys = [*readings(next(iter(corpora.values())))]
    columns = [
        "corpus",
        "pieces",
        "notes",
        *(f"nats per note, {reading_label(key)}" for key in keys),
    ]
    rows = (
        [name, f"{of['pieces']:,}", f"{of['notes']:,}", *(f"{of[key]:.3f}" for key in keys)]
        for name, of in corpora.items()
    )
    return markdown([columns, *rows])


def memory_rows(results: Results) -> Iterator[Row]:
    """Return rows about the use of context: beyond the training length, in loops, by position."""
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


def music_rows(music: Results) -> Iterator[Row]:
    """Return the rows about generated music.

    After each figure comes the mean difference from the real continuation of the same prompt, with
    its standard error over prompts.
    """
    protocol = music["protocol"]
    yield Row("continuations", str(protocol["continuations"]), str(protocol["prompts"]))
    yield Row("bars of the prompt", str(protocol["prompt_bars"]))
    yield Row("new bars", str(protocol["bars"]), _number(protocol["real_bars"]))
    yield Row("temperature, top-p", f"{protocol['temperature']}, {protocol['top_p']}")
    if protocol["memory"] != 1.0:
        yield Row("memory: factor of the pointer's odds", f"{protocol['memory']}")
    for name, count in music["faults"]["generated"].items():
        real = music["faults"]["real"][name] / protocol["prompts"]
        label = f"continuations {_FAULTS.get(name, f'with {words(name)}')}"
        yield Row(label, f"{count / protocol['continuations']:.1%}", f"{real:.1%}")
    twins = music["twins"] / protocol["continuations"]
    yield Row("continuations that are the same piece as another of their prompt", f"{twins:.1%}")
    for form, profiles in music["style"].items():
        for profile, groups in profiles.items():
            means = (groups.get(group, {"mean": ()})["mean"] for group in ("generated", "real"))
            texts = (" ".join(map(_number, mean)) for mean in means)
            label = f"style by quarter, {words(profile)} ({_PROFILES.get(profile, 'profile')})"
            yield Row(label + _FORMS.get(form, f", {form}"), *texts)
    figures, differences = music["figures"], music["differences"]
    for name, generated in figures["generated"].items():
        value = _number(generated["mean"]) + _difference(differences[name])
        copied = figures.get("copier", {}).get(name)
        others = (figures["real"][name], *([copied] if copied else []))
        texts = (_number(values["mean"]) for values in others)
        yield Row(_FIGURES.get(name, words(name)), value, *texts)
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


def _difference(values: Mapping[str, float | None]) -> str:
    """Return a difference from real music with its standard error, in brackets.

    The text is empty if there is no difference.
    """
    mean, error = values["mean"], values["standard_error"]
    if mean is None or not (mean or error):
        return ""
    return f" ({mean:+.2g}{'' if error is None else f' ± {error:.2g}'})"


def table(entries: Mapping[str, Results]) -> list[str]:
    """Return a Markdown table with a row per fact or likelihood, and a column for each model."""
    columns = {name: {row.label: row.value for row in rows_of(of)} for name, of in entries.items()}
    return _table(columns)


def music_table(entries: Mapping[str, Results], key: str) -> list[str]:
    """Return a Markdown table of the music of one key.

    Real music and the copier have columns of their own. Models that were
    compared with the same real music share these columns; those without such music are left out.
    """
    columns: dict[str, dict[str, str]] = {}
    for real, names in by_real_music(entries, key):
        rows = {name: [*music_rows(music_by_key(entries[name])[key])] for name in names}
        columns |= {
            name: {row.label: row.value for row in measures} for name, measures in rows.items()
        }
        every = [row for measures in rows.values() for row in measures]
        columns[real] = {row.label: row.real for row in every}
        if any(row.copier for row in every):
            copier = real.replace("real music", "copier")
            columns[copier] = {row.label: row.copier for row in every}
    return _table(columns)


def _table(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a Markdown table of the values by label of each column."""
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = ([label, *(of.get(label, "") for of in columns.values())] for label in labels)
    return markdown([["", *columns], *rows])


def music_tables(entries: Mapping[str, Results], level: str = "##") -> list[str]:
    """Return the music of some models, a heading and a table for each length of prompt."""
    lines: list[str] = []
    for key in music_keys(entries):
        (protocol, *_) = (
            music_by_key(of)[key]["protocol"] for of in entries.values() if key in music_by_key(of)
        )
        heading = f"{protocol['bars']} new bars after {protocol['prompt_bars']} bars of prompt"
        if (takes := protocol["takes"]) > 1:
            heading += f", the best of {takes} takes"
        lines += ["", f"{level} {heading}", ""]
        lines += music_table(entries, key)
    if any("±" in line for line in lines):
        explained = "In brackets: difference from the real continuation of the same prompt, ± its"
        lines += ["", f"{explained} standard error over prompts."]
    return lines


def write_table(entries: Mapping[str, Results], path: Path) -> None:
    """Write the tables of some models, and the goals of each."""
    lines = [*table(entries), *music_tables(entries), ""]
    for name, results in entries.items():
        if lines_of_goals := goal_lines(results):
            lines += [f"Goals of {name}:", "", *lines_of_goals, ""]
    write_text(path, "\n".join(lines))


def report(models: Sequence[str], output: Path) -> Path:
    """Write report.md and report.png for some models to a folder; return the path of report.md.

    For runs of other tasks than music, it is a table of what was measured.

    A model is a run folder, the name or folder of a released model, or a folder with results.

    Raises:
        TrainingError: a model has not been evaluated.
    """
    entries: dict[str, Results] = {}
    nouns: dict[str, str | None] = {}
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
        results = read_json(path, (), "evaluate again")
        task = task_of(results)
        if task is None:
            results = read_json(
                path,
                ("model", "weights", "parameters", "data", "split", "corpora"),
                "evaluate again",
            )
            # the stored name is the one that was given to evaluate
            entries[name] = results if place is None else results | {"model": str(place)}
            if place is not None and (place / "metrics.csv").is_file():
                curves[name] = read_curve(place / "metrics.csv")
        elif task.noun is None:
            raise TrainingError(
                f"{model}: has results of the task {results['task']}, expected results of music or "
                "of classifiers; relpe-train evaluate prints those of a run"
            )
        else:
            entries[name] = read_json(path, ("seed", "parameters"), "evaluate again")
        nouns[name] = task and task.noun
    for name, noun in nouns.items():
        others = [other for other in nouns if nouns[other] != noun]
        if noun is not None and others:
            raise TrainingError(
                f"{name} is {noun} and {others[0]} is not; compare them in separate reports"
            )
    if any(nouns.values()):
        return write_runs(entries, output)
    output.mkdir(parents=True, exist_ok=True)
    draw_results(entries, output / "report.png", curves)
    write_table(entries, output / "report.md")
    return output / "report.md"


def _evaluation_of(model: str) -> tuple[str, Path, Path | None]:
    """Return a model's name, the folder of its results, and its own; None: named in the results."""
    place = Path(model)
    if (place / "results.json").is_file():
        within = place.name == "evaluation" and is_run(place.parent)
        name = place.parent.name if place.name == "evaluation" else place.name
        return name, place, place.parent if within else None
    if is_run(place):
        return place.resolve().name, place / "evaluation", place
    folder = find_checkpoint(model)
    return folder.resolve().name, Path("evaluation") / folder.resolve().name, folder
