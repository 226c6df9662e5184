"""Plots of results: one colour per model, real music in grey."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.evaluation.metrics.nll_by_position import Bin
from training.evaluation.results import (
    Results,
    by_real_music,
    music_by_key,
    music_keys,
    reading_label,
    readings,
)
from training.files import picture

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Curve = tuple[list[float], list[float]]
"""Tokens and nats per token of each validation."""
Colours = Mapping[str, Any]
"""Colour of each model by name."""
Panel = Callable[["Axes"], None]
"""Draws one panel of the picture."""

logger = logging.getLogger(__name__)

_COLUMNS = 3
_MARKERS = ("o", "s", "^", "D")
_DASHES = ("--", "-.", ":")
_SMALL = {"marker": "o", "markersize": 3}
_PITCH_CLASSES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")
_STEPS_PER_QUARTER = 12


def read_curve(path: Path) -> Curve:
    """Read the tokens and nats per token of a run's validations from its metrics.csv.

    Raises:
        TrainingError: the file is damaged or of an earlier version.
    """
    try:
        with path.open(newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["validation/nats_per_token"]]
        return (
            [float(row["tokens"]) for row in rows],
            [float(row["validation/nats_per_token"]) for row in rows],
        )
    except (KeyError, ValueError) as error:
        raise TrainingError(
            f"{path}: found a validation without its tokens ({error}), so the file is damaged or "
            "of an earlier version; train again, or remove it"
        ) from error


def draw_by_position(
    curves: Mapping[str, Sequence[Bin]], path: Path, trained_length: int | None
) -> None:
    """Draw one curve per name with standard errors, and a line at the training length."""
    with picture(path, 7, 4, 120) as figure:
        axes = figure.subplots()
        _draw_curves(axes, curves, trained_length)
        axes.legend()


def draw_results(
    entries: Mapping[str, Results], path: Path, curves: Mapping[str, Curve] | None = None
) -> None:
    """Draw all results of some models in one PNG; log a message if there is nothing to draw.

    `curves` are the validations during training.
    """
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    shades = colormaps["tab10" if len(entries) <= 10 else "tab20"]
    colours = {name: shades(number % shades.N) for number, name in enumerate(entries)}
    lines = [*_music_lines(entries, colours)]
    panels = [*_panels(entries, {n: c for n, c in (curves or {}).items() if c[0]}, colours, lines)]
    if not panels:
        path.unlink(missing_ok=True)  # of earlier results
        logger.info("%s: not drawn, since the results have nothing to plot", path)
        return
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    handles = [Line2D([], [], color=colour, label=name) for name, colour in colours.items()]
    handles += [
        Line2D([], [], label=line.label, **line.look) for line in lines if line.group == "real"
    ]
    with picture(path, 5.5 * columns, 4 * rows, 110) as figure:
        places = np.atleast_1d(figure.subplots(rows, columns)).ravel()
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(places, panels, strict=False):
            panel(axes)
        # one legend for all panels, outside them
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 5))


class _MusicLine(NamedTuple):
    """Measures of some music, drawn as one line in several panels."""

    label: str
    group: str
    """`generated` or `real`."""
    music: Results
    look: dict[str, Any]

    def similarities(self) -> list[float]:
        """Return the similarity of bars by lag; NaN if undefined."""
        return [np.nan if x is None else x for x in self.music["self_similarity"][self.group]]

    def shares(self, kind: str) -> NDArray[np.float64]:
        """Return a histogram normalised to 1; zeros if it is empty."""
        histogram = self.music["histograms"].get(kind, {self.group: []})
        counts = np.array(histogram[self.group], np.float64).ravel()
        return counts / max(counts.sum(), 1)


def _music_lines(entries: Mapping[str, Results], colours: Colours) -> Iterator[_MusicLine]:
    """Return the music of each model, then real music, once for all models compared with it.

    Only the music after the shortest prompts is drawn.
    """
    for key in music_keys(entries)[:1]:
        groups = by_real_music(entries, key)
        for name in entries:
            if any(name in names for _, names in groups):
                music = music_by_key(entries[name])[key]
                yield _MusicLine(name, "generated", music, {"color": colours[name]})
        dashes = cycle(_DASHES)
        for label, names in groups:
            look = {"color": "0.4", "linestyle": next(dashes)}
            yield _MusicLine(label, "real", music_by_key(entries[names[0]])[key], look)


def _panels(
    entries: Mapping[str, Results],
    curves: Mapping[str, Curve],
    colours: Colours,
    lines: Sequence[_MusicLine],
) -> Iterator[Panel]:
    """Return the panels for which there are results."""
    if curves:
        yield partial(_draw_training, curves=curves, colours=colours)
    if any(of.get("by_position", {}).get("bins") for of in entries.values()):
        yield partial(_draw_by_position, entries=entries, colours=colours)
    nats = {
        name: by_reading for name, of in entries.items() if (by_reading := _nats_by_reading(of))
    }
    if nats:
        yield partial(_draw_readings, nats=nats, colours=colours)
    looped = {n: of.get("loops", {}).get("nats_per_token") for n, of in entries.items()}
    if any(looped.values()):
        yield partial(_draw_loops, looped=looped, colours=colours)
    if any(line.music["style"]["exact"] for line in lines):
        yield partial(_draw_style, lines=lines)
    if any(np.isfinite(line.similarities()).any() for line in lines):
        yield partial(_draw_similarity, lines=lines)
    for kind in ("pitch_class", "duration"):
        if any(line.shares(kind).any() for line in lines):
            yield partial(_draw_histogram, lines=lines, kind=kind)


def _nats_by_reading(results: Results) -> dict[str, float]:
    """Return the nats per token, by label of windows or whole pieces."""
    return {
        reading_label(key): values["nats_per_token"] for key, values in readings(results).items()
    }


def _draw_training(axes: Axes, curves: Mapping[str, Curve], colours: Colours) -> None:
    for name, (tokens, nats) in curves.items():
        axes.plot(np.array(tokens) / 1e6, nats, color=colours[name], **_SMALL)
    axes.set_xlabel("million tokens of the run")  # not those of earlier runs
    axes.set_ylabel("validation, nats per token")


def _draw_by_position(axes: Axes, entries: Mapping[str, Results], colours: Colours) -> None:
    bins = {
        name: [Bin(**{**b, "standard_error": b["standard_error"] or 0.0}) for b in plain_bins]
        for name, of in entries.items()
        if (plain_bins := of.get("by_position", {}).get("bins"))
    }
    lengths = {entries[name].get("trained_length") for name in bins}
    axes.set_prop_cycle(color=[colours[name] for name in bins])
    _draw_curves(axes, bins, lengths.pop() if len(lengths) == 1 else None)
    _explain(axes, [line for line in axes.lines if line.get_label() == "training length"])


def _draw_curves(
    axes: Axes, curves: Mapping[str, Sequence[Bin]], trained_length: int | None
) -> None:
    pieces = 0
    for name, bins in curves.items():
        middle = [(b.first + b.last) / 2 for b in bins]
        mean = np.array([b.nats_per_token for b in bins])
        error = np.nan_to_num([b.standard_error for b in bins])
        axes.plot(middle, mean, marker="o", markersize=3, label=name)
        axes.fill_between(middle, mean - error, mean + error, alpha=0.2)
        pieces = max([pieces, *(b.pieces for b in bins)])
    if trained_length is not None:
        axes.axvline(trained_length, color="grey", linestyle=":", label="training length")
    axes.set_xlabel(f"token index in the piece ({pieces} pieces)")
    axes.set_ylabel("nats per token")


def _draw_readings(axes: Axes, nats: Mapping[str, Mapping[str, float]], colours: Colours) -> None:
    ways = [*dict.fromkeys(way for of in nats.values() for way in of)]
    width = 0.8 / len(nats)
    for number, (name, of) in enumerate(nats.items()):
        places = [ways.index(way) + (number + 0.5) * width - 0.4 for way in of]
        bars = axes.bar(places, [*of.values()], 0.9 * width, color=colours[name])
        if len(nats) * len(ways) <= 8:
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize="small")
    axes.margins(y=0.1)
    axes.set_xticks(range(len(ways)), ways)
    axes.set_xlim(-0.6, len(ways) - 0.4)
    axes.set_ylabel("nats per token")


def _draw_loops(
    axes: Axes, looped: Mapping[str, Mapping[str, float] | None], colours: Colours
) -> None:
    times = sorted({int(time) for of in looped.values() for time in of or {}})
    for name, of in looped.items():
        if of:
            axes.plot([int(time) for time in of], [*of.values()], color=colours[name], **_SMALL)
    _set_octaves(axes, times)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("repetition of the same bar")
    axes.set_ylabel("nats per token")


def _draw_style(axes: Axes, lines: Sequence[_MusicLine]) -> None:
    """Draw each profile of one model, or the mean over profiles of several models."""
    from matplotlib.lines import Line2D

    alone = sum(line.group == "generated" for line in lines) == 1
    markers: dict[str, str] = {}
    for line in lines:
        means = {
            profile: np.array(groups[line.group]["mean"], np.float64)
            for profile, groups in line.music["style"]["exact"].items()
        }
        if not alone and means:
            means = {"": np.mean([*means.values()], 0)}
        for number, (profile, values) in enumerate(means.items()):
            markers[profile] = _MARKERS[number % len(_MARKERS)]
            quarters = range(1, len(values) + 1)
            axes.plot(quarters, values, marker=markers[profile], markersize=5, **line.look)
    if alone:
        handles = [
            Line2D([], [], color="0.4", linestyle="", marker=marker, label=words(profile))
            for profile, marker in markers.items()
        ]
        _explain(axes, handles)
    axes.set_xticks(range(1, 5))
    axes.set_xlabel("quarter of the new music")
    axes.set_ylabel("style similarity to the piece" + ("" if alone else ", mean of profiles"))
    axes.set_ylim(0, 1.02)


def _draw_similarity(axes: Axes, lines: Sequence[_MusicLine]) -> None:
    for line in lines:
        lags = line.music["self_similarity"]["lags"]
        axes.plot(lags, line.similarities(), **_SMALL, **line.look)
    _set_octaves(axes, lines[0].music["self_similarity"]["lags"])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("distance in bars")
    axes.set_ylabel("similarity of bars")


def _draw_histogram(axes: Axes, lines: Sequence[_MusicLine], kind: str) -> None:
    for line in lines:
        shares = line.shares(kind)
        places = np.arange(len(shares), dtype=np.float64)
        if kind == "duration":  # the first bin is one grid step
            places = (places + 1) / _STEPS_PER_QUARTER
        axes.plot(places, shares, drawstyle="steps-mid", **line.look)
    if kind == "pitch_class":
        axes.set_xticks(range(len(_PITCH_CLASSES)), _PITCH_CLASSES)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("pitch class" if kind == "pitch_class" else "duration of the note, quarters")
    axes.set_ylabel("share of notes")


def _set_octaves(axes: Axes, values: Sequence[int]) -> None:
    """Use a logarithmic axis with these ticks, powers of two."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])


def _explain(axes: Axes, handles: Sequence[Artist]) -> None:
    """Add a legend above a panel."""
    if handles:
        axes.legend(
            handles=handles,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=len(handles),
            fontsize="small",
            frameon=False,
        )


def words(name: str) -> str:
    """Return a name in results.json with spaces instead of underscores."""
    return name.replace("_", " ")
