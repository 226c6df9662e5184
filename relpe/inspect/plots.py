"""Plots of learned positional encodings.

    python -m relpe.inspect piano --output FOLDER

The values come from `learned.py`. Layers, heads and features are counted from 1.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from relpe.command_line import Parser, install
from relpe.encodings.absolute import LearnedPosition, Sinusoid, TreeSQ
from relpe.encodings.algebraic.encoding import Algebraic
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.rope import Rope
from relpe.encodings.selective import SelectiveRope
from relpe.encodings.stochastic.base import StochasticEncoding
from relpe.encodings.stochastic.structure import StructureSPE
from relpe.files import atomic_write
from relpe.inspect.learned import (
    LONGEST_WAVE,
    angles,
    covariance,
    decay,
    gates,
    half_lives,
    kernel,
    moves,
    position_vectors,
    scores,
    spectrum,
    window,
)
from relpe.models.checkpoint import CheckpointError, load_model
from relpe.models.classifier.model import Classifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from torch import Tensor

    from relpe.attention.layer import AttentionConfig
    from relpe.encodings.base import Encoding
    from relpe.models.decoder import Decoder

REACH, NO_TURN = 256, 10**6
"""Minimum number of lags drawn, and maximum period; longer periods are drawn at this one."""
LAG = "lag, query − key (positions)"


class Picture(NamedTuple):
    """Panels by name; each has rows of values over x, drawn as lines (with a legend) or colours."""

    title: str
    panels: dict[str, Tensor]
    x: Tensor  # coordinates of the values, or of the edges between them
    xlabel: str
    value: str  # label of the values
    row: str = "head"
    legend: str = ""  # title of the legend
    names: Sequence[list[str]] = ()  # names of the rows of each panel; default: numbers from 1
    log: str = ""  # logarithmic axes


@torch.no_grad()
def pictures(decoder: Decoder | Classifier) -> dict[str, Picture]:
    """Return all plots of a decoder or classifier, by name.

    If layers differ, a name begins with the number of the layer that first has the encoding.
    """
    if isinstance(decoder, Classifier):
        config = decoder.config
        return _of_encoding(decoder, decoder.encoding, [config.attention] * config.num_layers)
    plots: dict[str, Picture] = {}
    layers = decoder.config.layers_in_order
    for index, encoding in enumerate(decoder.encodings):
        blocks = [n for n in range(len(layers)) if decoder.encoding_of(n) is encoding]
        encoding_plots = _of_encoding(decoder, encoding, [layers[n].attention for n in blocks])
        encoding_plots |= _of_gates(decoder, blocks)
        if len(decoder.encodings) == 1:
            return encoding_plots
        numbers = ", ".join(str(n + 1) for n in blocks)
        for name, picture in encoding_plots.items():
            title = f"{picture.title}, layers {numbers}"
            plots[f"{index + 1}-{name}"] = picture._replace(title=title)
    return plots


def _of_encoding(
    decoder: Decoder | Classifier, encoding: Encoding, attentions: Sequence[AttentionConfig]
) -> dict[str, Picture]:
    """Return all plots of an encoding, whose layers have these kinds of attention."""
    lags = torch.arange(-REACH, REACH + 1)
    plots: dict[str, Picture] = {}
    if isinstance(encoding, StochasticEncoding):
        plots = _stochastic(encoding, lags)
    elif isinstance(encoding, Rope | Algebraic):
        turns = {k: v for name, x in angles(encoding).items() for k, v in _layers(x, name).items()}
        shown = {name: (x[..., None] * lags).cos().mean(1) for name, x in turns.items()}
        plots["kernel"] = Picture("Kernel of rotations", shown, lags, LAG, "mean cos(angle × lag)")
        shown = {name: (2 * math.pi / x.abs()).clamp(max=NO_TURN) for name, x in turns.items()}
        planes = torch.arange(1, 1 + max(x.shape[1] for x in shown.values()))
        title, y = "Angles of rotations", "period (positions)"
        plots["angles"] = Picture(title, shown, planes, "plane", y, "", "head", log="y")
        if isinstance(encoding, Algebraic) and encoding.config.decay < 1:
            shown, y = {"": decay(encoding, lags[REACH:])[None]}, "factor of logits"
            plots["window"] = Picture("Decay of logits", shown, lags[REACH:], LAG, y, "", "head")
    elif isinstance(encoding, SelectiveRope):
        shown, y = _layers(moves(encoding)), "deviation of a move, for inputs of variance 1"
        planes = torch.arange(1, 1 + encoding.out_features // 2)
        plots["moves"] = Picture("Moves of positions", shown, planes, "plane", y)
    elif isinstance(encoding, OffsetEncoding):
        plots = _offsets(decoder, encoding, attentions)
    elif isinstance(encoding, Sinusoid | LearnedPosition | TreeSQ):
        x = "node, breadth-first" if isinstance(encoding, TreeSQ) else "position (tokens)"
        vectors = position_vectors(encoding, decoder.config.width, 2 * REACH).T
        shown, places = {"": vectors}, torch.arange(vectors.shape[1])
        plots["positions"] = Picture("Added to embeddings", shown, places, x, "value", "feature")
    fading = dict.fromkeys(getattr(attention, "half_lives", None) for attention in attentions)
    for number, ends in enumerate((ends for ends in fading if ends is not None), 1):
        halves = np.geomspace(ends[0], ends[1], decoder.config.num_heads)
        picture = _fading("Fading", {"": torch.from_numpy(halves)}, "weight of a key")
        plots["fading" if number == 1 else f"fading-{number}"] = picture
    return plots


def _of_gates(decoder: Decoder, blocks: Sequence[int]) -> dict[str, Picture]:
    """Return the decay of what layers with the delta rule have stored, where inputs are zero."""
    by_layer = {f"layer {n + 1}": half_lives(decoder, n) for n in blocks}
    halves = {name: half for name, half in by_layer.items() if half is not None}
    if not halves:
        return {}
    y = "share of what is stored, for inputs of zero"
    return {"memory": _fading("Fading of the memory", halves, y)}


def _fading(title: str, halves: dict[str, Tensor], y: str) -> Picture:
    """Return the curves that are halved after each of the half-lives (h) of each panel."""
    longest = max(float(half.max()) for half in halves.values())
    lags = torch.logspace(0, math.log10(8 * max(1.0, longest)), 400).double()
    shown = {name: torch.exp2(-lags / half[:, None]) for name, half in halves.items()}
    names = [[f"{n}: {x:,.1f}" for n, x in enumerate(half, 1)] for half in halves.values()]
    return Picture(title, shown, lags, "lag (tokens)", y, "", "head: half-life", names, "x")


def _stochastic(encoding: StochasticEncoding, lags: Tensor) -> dict[str, Picture]:
    plain, gate = covariance(encoding, lags), gates(encoding)
    plain = plain if plain.ndim == 4 else plain[None]
    shown, plots = _sets(plain.mean(2), "P, before gates"), {}
    if gate is not None:
        shown |= _layers(kernel(encoding, lags).mean(2), "(1 − g) P + g,")
        x, title = torch.arange(1, gate.shape[2] + 1), "Gates: 1 ignores position"
        plots["gates"] = Picture(title, _layers(gate), x, "feature", "gate g")
    peaks = [x.abs().amax(1, keepdim=True).clamp(min=1e-30) for x in shown.values()]
    names = [[f"{head}: {x:.2g}" for head, x in enumerate(peak[:, 0], 1)] for peak in peaks]
    shown = {name: x / peak for (name, x), peak in zip(shown.items(), peaks, strict=True)}
    title, y = "Kernel: mean over features, divided by its maximum", "head: maximum"
    plots["kernel"] = Picture(title, shown, lags, LAG, "share of the maximum", y, names=names)
    moves = (plain.amax(3) - plain.amin(3)).argsort(2, descending=True)[..., :4].sort(2).values
    most = plain.gather(2, moves[..., None].expand(-1, -1, -1, len(lags)))
    heads = {f"head {n}": x for n, x in enumerate(most.unbind(1), 1)}
    shown = {k: v for name, x in heads.items() for k, v in _sets(x, name).items()}
    title, y = "Features that change most with the lag", "P, before gates"
    names = [[str(n + 1) for n in rows] for rows in moves.transpose(0, 1).flatten(0, 1).tolist()]
    plots["features"] = Picture(title, shown, lags, LAG, y, "", "feature", names)
    if isinstance(encoding, StructureSPE):  # products and several axes have no one spectrum
        return plots
    frequencies, power = spectrum(encoding)
    thirds = (3 * (1 / frequencies).clamp(2, LONGEST_WAVE).log2() - 3).long()  # of octaves
    edges = torch.exp2(torch.arange(3, 3 * math.log2(LONGEST_WAVE) + 2) / 3)
    shares = power.new_zeros(*power.shape[:-1], len(edges) - 1).scatter_add(-1, thirds, power)
    shares, value = shares / power.sum(-1, keepdim=True), "share of the head"
    shown = _sets(shares if shares.ndim == 3 else shares[None])
    x = f"period (positions); the last column: {LONGEST_WAVE:,} and longer"
    plots["spectrum"] = Picture("Spectrum of P", shown, edges, x, value, log="x")
    return plots


def _offsets(
    decoder: Decoder | Classifier, encoding: OffsetEncoding, attentions: Sequence[AttentionConfig]
) -> dict[str, Picture]:
    layers, plots = range(encoding.num_layers), {}
    bounds = [encoding.span or getattr(attention, "span", None) for attention in attentions]
    heads = decoder.config.num_heads
    spans = [encoding.head_spans(n) or (bounds[n],) * heads for n in layers]
    longest = [span or 0 for sizes in spans for span in sizes]
    lags = torch.arange(max(REACH + 1, *longest))
    if isinstance(decoder, Classifier):  # keys are on both sides, and grids may be small
        reach = max(longest) if min(longest) else REACH
        lags = torch.arange(-reach, reach + 1)
    tables = [scores(encoding, layer, lags) for layer in layers]
    features = [table.features.flatten(1).T for table in tables if table.features is not None]
    if features:
        shown, row = _layers(torch.stack(features)), "feature, grouped by head"
        plots["features"] = Picture("Features E of lags", shown, lags, LAG, "E", row)
    biases = [table.bias.T for table in tables if table.bias is not None]
    if biases:
        shown, y = _layers(torch.stack(biases)), "v·E, of any query"
        plots["bias"] = Picture("Bias of lags", shown, lags, LAG, y, "", "head")
    windows = [values.T for values in map(window, tables) if values is not None]
    if windows:
        names = [[f"{n}: {span or 'all'}" for n, span in enumerate(s, 1)] for s in spans]
        shown, y = _layers(torch.stack(windows)), "g, factor of weights or logits"
        plots["window"] = Picture("Windows", shown, lags, LAG, y, "", "head: span", names)
    return plots


def _layers(values: Tensor, name: str = "") -> dict[str, Tensor]:
    """Return the values by layer, or one entry if all layers are equal."""
    same = bool((values == values[:1]).all())
    names = ["all layers"] if same else [f"layer {layer}" for layer in range(1, len(values) + 1)]
    return {f"{name} {end}".strip(): x for end, x in zip(names, values, strict=False)}


def _sets(values: Tensor, name: str = "") -> dict[str, Tensor]:
    """Return the values by layer, without its name if all layers share one set of parameters."""
    if len(values) == 1:
        return {name: values[0]}
    return {f"{name}, layer {n}".strip(", "): x for n, x in enumerate(values, 1)}


def draw(picture: Picture) -> Figure:
    """Draw a plot as a matplotlib figure."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    title, tensors, places, xlabel, value, row, legend, names, log = picture
    panels, x = {name: tensor.numpy() for name, tensor in tensors.items()}, places.numpy()
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    lines = -(-len(panels) // columns)
    figure = Figure((max(8.0, 4.5 * columns), 3 * lines + 1), layout="constrained")
    figure.suptitle(title, weight="bold")
    top = max(float(abs(numbers).max()) for numbers in panels.values())
    low = -top if min(float(numbers.min()) for numbers in panels.values()) < 0 else 0.0
    for place, (name, numbers) in enumerate(panels.items()):
        axes = figure.add_subplot(lines, columns, place + 1, title=name, xlabel=xlabel)
        axes.set_ylabel(value if legend else row)
        axes.locator_params("x", integer=True)
        count = len(numbers)
        counted = ["all"] if count == 1 else list(map(str, range(1, count + 1)))
        rows = names[place] if names else counted
        if legend:
            axes.set_prop_cycle(color=colormaps["viridis"](np.linspace(0, 0.9, count)))
            axes.plot(x[: numbers.shape[1]], numbers.T, label=rows, linewidth=1.2)
            axes.legend(title=legend, fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
        else:
            edges = x if len(x) > numbers.shape[1] else np.append(x - 0.5, x[-1] + 0.5)
            y, colours = np.arange(count + 1) + 0.5, "RdBu_r" if low else "viridis"
            axes.pcolormesh(edges, y, numbers, cmap=colours, vmin=low, vmax=top)
            axes.invert_yaxis()
            step = -(-count // 16)
            axes.set_yticks(range(1, count + 1, step), labels=rows[::step])
        for axis in log:
            axes.set(**{f"{axis}scale": "log"})
    if not legend:
        figure.colorbar(figure.axes[0].collections[0], ax=figure.axes, label=value, aspect=30)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the encoding of a model; return 0, or exit with 2 if the model cannot be used."""
    parser = Parser(
        prog="relpe.inspect.plots", description="Draw a model's encoding.", allow_abbrev=False
    )
    parser.add_argument("model", help="name of a released model, or folder with model.json")
    parser.add_argument("--output", type=Path, required=True, help="folder for the PNG files")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("matplotlib") is None:
        parser.exit(
            2,
            f"{parser.prog}: matplotlib is not installed; {install('train')}\n",
        )
    try:
        plots = pictures(load_model(options.model))
        options.output.mkdir(parents=True, exist_ok=True)
        for name, picture in plots.items():
            path = options.output / f"{name}.png"
            with atomic_write(path) as beside:
                draw(picture).savefig(beside, format="png", dpi=200, metadata={"Software": None})
            sys.stdout.write(f"{path}\n")
    except (CheckpointError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    if not plots:
        sys.stdout.write("nothing to draw: this model has no positional encoding\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
