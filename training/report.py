"""What was measured of models, side by side: a table, a picture, and the goals that they reach."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpe.checkpoint import find_checkpoint
from training.errors import TrainingError
from training.experiment import is_run
from training.files import read_json, replacing
from training.metrics.nll_by_position import Bin, draw_curves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    Results = Mapping[str, Any]
    """What a results.json holds."""
    Curve = tuple[list[float], list[float]]
    """Tokens, and nats per token of a validation."""

MOST_LOST = 0.05
"""Nats per token that a model may lose beyond its training length."""
LEAST_KEPT = 0.9
"""Share of the style similarity of the first quarter that the last one has to keep."""
REPEATED = "bars_of_prompt"
"""Share of the new bars that equal one of the prompt, as `structure` names it."""


class Goal(NamedTuple):
    """Something that a released model has to reach, and whether it does."""

    goal: str
    figure: str
    holds: bool

    def line(self) -> str:
        """As a sentence."""
        return f"{'holds' if self.holds else 'MISSED'}: {self.goal} ({self.figure})"


def goals(results: Results) -> list[Goal]:
    """The goals that results can tell something about."""
    found: list[Goal] = []
    beyond = results.get("beyond_training")
    if beyond:
        found.append(
            Goal(
                f"nats per token beyond the training length at most {MOST_LOST} above those within",
                f"{beyond['difference']:+.3f}, {beyond['pieces']} pieces",
                beyond["difference"] <= MOST_LOST,
            )
        )
    return found + (_music_goals(results["music"]) if "music" in results else [])


def _music_goals(music: Results) -> list[Goal]:
    count, faults = music["protocol"]["continuations"], music["faults"]["generated"]
    bars = music["protocol"]["bars"]
    found = [
        Goal(goal, f"{faults[name]} of {count} continuations fail", faults[name] == 0)
        for name, goal in (
            ("stuck_notes", "no stuck notes"),
            ("longer_silences", "no run of empty bars longer than those of the prompt"),
            ("silent_instruments", f"every instrument of a prompt still plays after {bars} bars"),
        )
    ]
    for profile, groups in music["style"]["exact"].items():
        first, *_, last = groups["generated"]["mean"]
        found.append(
            Goal(
                f"style similarity ({_words(profile)}) of quarter 4 at least {LEAST_KEPT:.0%} of "
                "quarter 1",
                f"{last:.3f} of {first:.3f}, {last / first:.0%}" if first else f"{last} of {first}",
                first > 0 and last >= LEAST_KEPT * first,
            )
        )
    new, real = (music["figures"][group].get(REPEATED) for group in ("generated", "real"))
    if new and real and None not in (new["mean"], real["mean"]):
        found.append(
            Goal(
                "bars equal to a prompt bar at most as frequent as in real pieces",
                f"{new['mean']:.3f}, real {real['mean']:.3f}",
                new["mean"] <= real["mean"],
            )
        )
    return found


class Row(NamedTuple):
    """A row of a table: one model's figure, and that of real music."""

    label: str
    value: str
    real: str = ""


def figure(values: Mapping[str, float], name: str, digits: int) -> str:
    """One figure of a summary, with its deviation where there is one."""
    deviation = values.get(f"{name}_deviation")
    spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
    return f"{values[name]:.{digits}f}{spread}"


def rows_of(results: Results) -> Iterator[Row]:
    """All that a table says of one model."""
    tokens = results["weights"]["tokens"]
    yield Row("parameters", f"{results['parameters']:,}")
    yield Row("tokens learnt from", "" if tokens is None else f"{tokens:,}")
    yield Row("measured on", f"{results['split']}, `{results['data'][:8]}`")
    units = (("token", 4), ("note", 3), ("bar", 2))
    for key, values in results.items():
        if key == "streaming" or key.startswith("windows_"):
            name = "whole pieces" if key == "streaming" else _words(key)
            for unit, digits in units:
                if f"nats_per_{unit}" in values:  # evaluations of earlier versions have no bars
                    yield Row(
                        f"nats per {unit}, {name}", figure(values, f"nats_per_{unit}", digits)
                    )
    beyond = results.get("beyond_training")
    if beyond:
        yield Row("pieces for the next three rows", str(beyond["pieces"]))
        for name, label in (
            ("within", "nats per token within the training length"),
            ("beyond", "nats per token beyond it"),
            ("difference", "beyond minus within (± over pieces)"),
        ):
            yield Row(label, figure(beyond, name, 3))
    if looped := results.get("loops", {}).get("nats_per_token"):
        times = ", ".join(looped)
        values = " ".join(f"{nats:.2f}" for nats in looped.values())
        yield Row(f"nats per token, bar that is looped, times {times}", values)
    relativity = results.get("relativity", {})
    for name in ("translation_invariance", "monotonicity_violation"):
        if name in relativity:
            yield Row(_words(name), f"{relativity[name]['mean']:.3f}")
    if "music" in results:
        yield from _music_rows(results["music"])


def _music_rows(music: Results) -> Iterator[Row]:
    protocol = music["protocol"]
    yield Row("continuations", str(protocol["continuations"]), str(protocol["prompts"]))
    yield Row("bars of the prompt", str(protocol["prompt_bars"]))
    yield Row("new bars", str(protocol["bars"]), _number(protocol["real_bars"]))
    yield Row("temperature, top-p", f"{protocol['temperature']}, {protocol['top_p']}")
    for name, count in music["faults"]["generated"].items():
        real = music["faults"]["real"][name] / protocol["prompts"]
        yield Row(f"with {_words(name)}", f"{count / protocol['continuations']:.1%}", f"{real:.1%}")
    for form, profiles in music["style"].items():
        for profile, groups in profiles.items():
            texts = [
                " ".join(_number(value) for value in groups[group]["mean"])
                if group in groups
                else ""
                for group in ("generated", "real")
            ]
            yield Row(f"style by quarter, {_words(profile)}, {form}", *texts)
    new, real = (music["figures"][group] for group in ("generated", "real"))
    for name in new:
        yield Row(_words(name), *(_number(group[name]["mean"]) for group in (new, real)))
    for name, histogram in music["histograms"].items():
        values = (histogram["divergence"], histogram["divergence_of_real_halves"])
        yield Row(f"divergence from real music, {_words(name)}", *map(_number, values))
    new, real = (music["copies"][group] for group in ("generated", "real"))
    for size in new["shares"]:
        texts = (_number(group["shares"][size]) for group in (new, real))
        yield Row(f"runs of {size} notes found in the train split", *texts)
    yield Row("longest run found there, notes", str(new["longest"]), str(real["longest"]))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(entries: Mapping[str, Results]) -> list[str]:
    """Markdown: a row for each figure, a column for each model, beside it that of real music.

    Models that were measured beside the same real music share its column.
    """
    rows: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for group, names in _by_real(entries).items():
        real = "real music" if len(_by_real(entries)) == 1 else f"real music for {', '.join(names)}"
        for name in names:
            columns.append(name)
            for label, value, of_real in rows_of(entries[name]):
                rows.setdefault(label, {})[name] = value
                if of_real:
                    rows[label][real] = of_real
        if group is not None:
            columns.append(real)
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[label, *(of.get(name, "") for name in columns)] for label, of in rows.items()]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _by_real(entries: Mapping[str, Results]) -> dict[tuple[Any, ...] | None, list[str]]:
    """Names of the models by the real music that they stand beside; None: by none."""
    groups: dict[tuple[Any, ...] | None, list[str]] = {}
    for name, results in entries.items():
        key = None
        if "music" in results:
            protocol = results["music"]["protocol"]
            key = (results["data"], results["split"], results["pieces"], results["tokens"])
            key += (protocol["prompt_bars"], protocol["bars"], *protocol["pieces"])
        groups.setdefault(key, []).append(name)
    return groups


def write_table(entries: Mapping[str, Results], path: Path) -> None:
    """Writes the table of some models and the goals that each reaches."""
    lines = [*table(entries), ""]
    for name, results in entries.items():
        found = goals(results)
        if found:
            lines += [f"Goals of {name}:", "", *(f"- {goal.line()}" for goal in found), ""]
    with replacing(path) as partial:
        partial.write_text("\n".join(lines), encoding="utf-8")


def draw_results(
    entries: Mapping[str, Results], path: Path, curves: Mapping[str, Curve] | None = None
) -> None:
    """Draws all that there is of some models in one PNG, real music dashed.

    `curves` are validations while the models were trained.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [
        panel
        for panel in (
            lambda axes: _draw_training(axes, curves or {}),
            lambda axes: _draw_by_position(axes, entries),
            lambda axes: _draw_style(axes, entries),
            lambda axes: _draw_similarity(axes, entries),
            lambda axes: _draw_histogram(axes, entries, "pitch_class"),
            lambda axes: _draw_histogram(axes, entries, "duration"),
        )
        if panel(None)
    ]
    columns = min(max(len(panels), 1), 3)
    rows = max(-(-len(panels) // columns), 1)
    figure = Figure(figsize=(5.5 * columns, 4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    places = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(places, panels, strict=False):
        panel(axes)
        axes.legend(fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=110, metadata={"Software": None})


def _draw_training(axes: Axes | None, curves: Mapping[str, Curve]) -> bool:
    """Whether there is something to draw, like all of these; draws it where there are axes."""
    if axes is not None:
        for name, (tokens, nats) in curves.items():
            axes.plot(np.array(tokens) / 1e6, nats, marker="o", markersize=3, label=name)
        axes.set_xlabel("million tokens learnt from")
        axes.set_ylabel("validation, nats per token")
    return bool(curves)


def _draw_by_position(axes: Axes | None, entries: Mapping[str, Results]) -> bool:
    measured = {
        name: results["by_position"]["bins"]
        for name, results in entries.items()
        if results.get("by_position", {}).get("bins")
    }
    if axes is not None:
        bins = {
            name: [Bin(**{**b, "standard_error": b["standard_error"] or 0.0}) for b in of]
            for name, of in measured.items()
        }
        lengths = {entries[name].get("trained_length") for name in bins}
        draw_curves(axes, bins, lengths.pop() if len(lengths) == 1 else None)
    return bool(measured)


def _music(entries: Mapping[str, Results]) -> dict[str, Any]:
    return {name: results["music"] for name, results in entries.items() if "music" in results}


def _draw_style(axes: Axes | None, entries: Mapping[str, Results]) -> bool:
    """Of one model each profile, of several the mean of all."""
    music = _music(entries)
    if axes is not None:
        lines: dict[str, Any] = {}
        for name, of in music.items():
            profiles = of["style"]["exact"]
            if len(music) == 1:
                lines |= {_words(profile): groups for profile, groups in profiles.items()}
            elif profiles:
                lines[name] = {
                    group: {"mean": np.mean([p[group]["mean"] for p in profiles.values()], 0)}
                    for group in ("generated", "real")
                }
        for number, (name, groups) in enumerate(lines.items()):
            for group, values in groups.items():
                quarters = range(1, len(values["mean"]) + 1)
                look = {"color": f"C{number}", **_look(group, name)}
                axes.plot(quarters, values["mean"], marker="o", markersize=3, **look)
        axes.set_xticks(range(1, 5))
        axes.set_xlabel("quarter of the new music")
        axes.set_ylabel("style similarity to the piece")
        axes.set_ylim(0, 1.02)
    return any(of["style"]["exact"] for of in music.values())


def _draw_similarity(axes: Axes | None, entries: Mapping[str, Results]) -> bool:
    music = _music(entries)
    if axes is not None:
        for number, (name, of) in enumerate(music.items()):
            similarity = of["self_similarity"]
            for group in ("generated", "real"):
                values = [np.nan if v is None else v for v in similarity[group]]
                look = {"color": f"C{number}", **_look(group, name)}
                axes.plot(similarity["lags"], values, marker="o", markersize=3, **look)
        lags = next(iter(music.values()))["self_similarity"]["lags"]
        axes.set_xscale("log", base=2)
        axes.set_xticks(lags, [str(lag) for lag in lags])
        axes.set_xlabel("bars apart")
        axes.set_ylabel("similarity of bars")
    return bool(music)


def _draw_histogram(axes: Axes | None, entries: Mapping[str, Results], kind: str) -> bool:
    music = {name: of for name, of in _music(entries).items() if kind in of["histograms"]}
    if axes is not None:
        for number, (name, of) in enumerate(music.items()):
            for group in ("generated", "real"):
                counts = np.array(of["histograms"][kind][group], np.float64).ravel()
                look = {"color": f"C{number}", **_look(group, name)}
                places = np.arange(len(counts)) + (kind == "duration")  # the first is of one step
                shares = counts / max(counts.sum(), 1)
                axes.plot(places, shares, drawstyle="steps-mid", **look)
        axes.set_xlabel(_words(kind) + (", twelfths of a quarter" if kind == "duration" else ""))
        axes.set_ylabel("share of the notes")
    return bool(music)


def _look(group: str, name: str) -> dict[str, Any]:
    if group == "real":
        return {"linestyle": "--", "alpha": 0.6, "label": f"{name}, real music"}
    return {"label": name}


def report(models: Sequence[str], output: Path) -> Path:
    """Writes report.md and report.png of some models into a folder; returns the former's path.

    A model is a run folder, a released model's name or folder, or a folder that `evaluate` wrote.

    Raises:
        TrainingError: one of them has not been measured.
    """
    entries: dict[str, Results] = {}
    curves: dict[str, Curve] = {}
    for model in models:
        name, folder = _evaluation_of(model)
        path = folder / "results.json"
        if not path.is_file():
            raise TrainingError(
                f"{model}: found no {path}, so it has not been measured; run relpe-train evaluate "
                f"--run {model} --data DATA first"
            )
        name = model if name in entries else name
        entries[name] = read_json(
            path, ("weights", "parameters", "data", "split"), "evaluate again"
        )
        metrics = Path(model) / "metrics.csv"
        if metrics.is_file():
            curves[name] = _validations(metrics)
    output.mkdir(parents=True, exist_ok=True)
    draw_results(entries, output / "report.png", {n: c for n, c in curves.items() if c[0]})
    write_table(entries, output / "report.md")
    return output / "report.md"


def _evaluation_of(model: str) -> tuple[str, Path]:
    """Name of a model, and the folder where its results stand."""
    place = Path(model)
    if (place / "results.json").is_file():
        name = place.parent.name if place.name == "evaluation" else place.name
        return name, place
    if is_run(place):
        return place.resolve().name, place / "evaluation"
    name = find_checkpoint(model).resolve().name
    return name, Path("evaluation") / name


def _validations(path: Path) -> Curve:
    """Tokens and nats per token of the validations of a run.

    Runs of earlier versions tell the tokens of their training steps alone, the same in each step.
    """
    with path.open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    a_step = max((float(r["tokens"]) / float(r["step"]) for r in rows if r["tokens"]), default=0.0)
    found = [row for row in rows if row.get("validation/nats_per_token")]
    return (
        [float(row["step"]) * a_step for row in found],
        [float(row["validation/nats_per_token"]) for row in found],
    )
