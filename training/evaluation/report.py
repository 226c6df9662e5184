"""Comparison of evaluated models in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from relpe.files import write_text
from relpe.models.checkpoint import CheckpointError, find_checkpoint
from training.errors import TrainingError
from training.evaluation.goals import goal_lines
from training.evaluation.plots import Curve, draw_results, read_curve, words
from training.evaluation.results import (
    FIGURES,
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
    rows = [("all", gain), *((family.family, family) for family in gain.families)]
    cells = (
        (name, f"{nats.tokens:,}", f"{nats.decoder:.4f}", f"{nats.mixture:.4f}")
        for name, nats in rows
    )
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
        [
            name,
            f"{corpus['pieces']:,}",
            f"{corpus['notes']:,}",
            *(f"{corpus[key]:.3f}" for key in keys),
        ]
        for name, corpus in corpora.items()
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
            label = f"style by quarter, {words(profile)} ({_PROFILES.get(profile, 'profile')})"
            label += _FORMS.get(form, f", {form}")
            yield Row(label, _quarters(groups, "generated"), _quarters(groups, "real"))
    figures, differences = music["figures"], music["differences"]
    for name, generated in figures["generated"].items():
        value = _number(generated["mean"]) + _difference(differences[name])
        row = Row(FIGURES.get(name, words(name)), value, _number(figures["real"][name]["mean"]))
        if copied := figures.get("copier", {}).get(name):
            row = row._replace(copier=_number(copied["mean"]))
        yield row
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


def _quarters(groups: Mapping[str, Results], group: str) -> str:
    """Return the mean style of a group in each quarter, empty if it was not measured."""
    return " ".join(map(_number, groups[group]["mean"])) if group in groups else ""


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


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
    return _table(
        {
            name: {row.label: row.value for row in rows_of(results)}
            for name, results in entries.items()
        }
    )


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
        all_rows = [row for measures in rows.values() for row in measures]
        columns[real] = {row.label: row.real for row in all_rows}
        if any(row.copier for row in all_rows):
            copier = real.replace("real music", "copier")
            columns[copier] = {row.label: row.copier for row in all_rows}
    return _table(columns)


def _table(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a Markdown table of the values by label of each column."""
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = ([label, *(column.get(label, "") for column in columns.values())] for label in labels)
    return markdown([["", *columns], *rows])


def music_tables(entries: Mapping[str, Results], level: str = "##") -> list[str]:
    """Return the music of some models, a heading and a table for each length of prompt."""
    lines: list[str] = []
    for key in music_keys(entries):
        musics = (music_by_key(results) for results in entries.values())
        protocol = next(music[key]["protocol"] for music in musics if key in music)
        heading = f"{protocol['bars']} new bars after {protocol['prompt_bars']} bars of prompt"
        if (takes := protocol["takes"]) > 1:
            heading += f", the best of {takes} takes"
        lines += ["", f"{level} {heading}", ""]
        lines += music_table(entries, key)
    if any("±" in line for line in lines):
        brackets = "In brackets: difference from the real continuation of the same prompt, ± its"
        lines += ["", f"{brackets} standard error over prompts."]
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

    For runs of other tasks than music, it is a table of what was measured. A model is a run
    folder, the name or folder of a released model, or a folder with results.

    Raises:
        TrainingError: a model has not been evaluated.
    """
    entries: dict[str, Results] = {}
    nouns: dict[str, str | None] = {}
    curves: dict[str, Curve] = {}
    for model in models:
        name, folder, place = _evaluation_of(model)
        name = model if name in entries else name
        entries[name], nouns[name] = _read_results(model, folder, place)
        is_music = nouns[name] is None
        if is_music and place is not None and (place / "metrics.csv").is_file():
            curves[name] = read_curve(place / "metrics.csv")
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


def _read_results(model: str, folder: Path, place: Path | None) -> tuple[Results, str | None]:
    """Return the results in a folder, and what the model is called; None: a model of music."""
    path = folder / "results.json"
    if not path.is_file():
        raise TrainingError(
            f"{model}: found no {path}; run relpe-train evaluate --run {model} --data DATA first"
        )
    results = read_json(path, (), "evaluate again")
    task = task_of(results)
    if task is None:
        names = ("model", "weights", "parameters", "data", "split", "corpora")
        results = read_json(path, names, "evaluate again")
        # the stored name is the one that was given to evaluate
        return (results if place is None else results | {"model": str(place)}), None
    if task.noun is None:
        raise TrainingError(
            f"{model}: has results of the task {results['task']}, expected results of music or "
            "of classifiers; relpe-train evaluate prints those of a run"
        )
    return read_json(path, ("seed", "parameters"), "evaluate again"), task.noun


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
