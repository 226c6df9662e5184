"""Exact kernels, spectra, angles, scores and vectors of learned positional encodings.

Results have the layers, heads and features of the parameters. A lag is query minus key, on the
first axis of the positions and zero on the others; in causal models it is at least 0.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from relpe.attention.delta.operation import DeltaGates
from relpe.attention.layer import SelfAttention
from relpe.encodings.absolute import TreeSQ
from relpe.encodings.algebraic.encoding import Algebraic
from relpe.encodings.algebraic.rotations import Rotations
from relpe.encodings.algebraic.structures import words_of_heap
from relpe.encodings.algebraic.trees import TreeMaps
from relpe.encodings.base import AbsoluteEncoding, Encoding, OffsetTable
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.offset.relative import RelativeEncoding
from relpe.encodings.rope import Rope
from relpe.encodings.selective import SelectiveRope
from relpe.encodings.stochastic.base import StochasticEncoding
from relpe.encodings.stochastic.filtered_noise import FilteredNoise
from relpe.encodings.stochastic.sine import SineSPE
from relpe.models.decoder import Decoder

LONGEST_WAVE = 4096
"""Maximum period in positions that a spectrum can distinguish from longer ones."""


def covariance(
    encoding: StochasticEncoding, lags: Shaped[Tensor, " o"]
) -> Float[Tensor, "*layers h d o"]:
    """Return P along the first axis for each head and feature, and each layer if layers differ."""
    axes = encoding.num_axes
    return encoding.covariance(functional.pad(lags[:, None], (0, axes - 1)) if axes > 1 else lags)


def gates(encoding: StochasticEncoding) -> Float[Tensor, "layers h d"] | None:
    """Return the gates, which are 1 where a feature ignores position. None: there are no gates."""
    return None if encoding.gates is None else encoding.gates.double().sigmoid()


def kernel(
    encoding: StochasticEncoding, lags: Shaped[Tensor, " o"]
) -> Float[Tensor, "layers h d o"]:
    """Return (1 - g) P + g, the expected product of query and key codes; one layer if ungated.

    The mean over features is the expected score of a query and a key whose features are all 1.
    """
    covariances, gate = covariance(encoding, lags), gates(encoding)
    covariances = covariances if covariances.ndim == 4 else covariances[None]
    return covariances if gate is None else (1 - gate[..., None]) * covariances + gate[..., None]


def spectrum(
    encoding: StochasticEncoding,
) -> tuple[Float[Tensor, "*layers h n"], Float[Tensor, "*layers h n"]]:
    """Return the frequencies in cycles per position, and their weights in P, summed over features.

    For sines, the weights are their variances; for filters, the magnitudes of the Fourier transform
    of P.
    """
    if isinstance(encoding, SineSPE):
        power = functional.softplus(encoding.gains.double()).square() / 2
        frequencies = encoding.frequencies.double().sigmoid() / 2
        return frequencies.flatten(-2), power.flatten(-2) / encoding.config.num_sines
    assert isinstance(encoding, FilteredNoise)
    taps = encoding.filters().values.shape[-encoding.axes]
    count = 4 * max(
        LONGEST_WAVE, 2 * taps
    )  # P is zero beyond the taps; padding only adds frequencies
    covariances = covariance(encoding, torch.arange(1 - taps, taps))
    heads = [torch.fft.rfft(head, count).abs().sum(0) for head in covariances.flatten(0, -3)]
    power = torch.stack(heads).unflatten(0, covariances.shape[:-2])
    return (torch.arange(power.shape[-1]).double() / count).expand_as(power), power


def angles(encoding: Rope | Algebraic) -> dict[str, Float[Tensor, "layers h i"]]:
    """Return angles in radians per position, by part of the head; in trees, for each branch."""
    if isinstance(encoding, Rope):
        turn = encoding.prepare(torch.ones(1, 1, 1, dtype=torch.float64), ())[0]
        return {"": torch.atan2(turn.sin, turn.cos)[0]}
    by_part: dict[str, Tensor] = {}
    for part in encoding.parts:
        if isinstance(part, Rotations):
            for block, planes in zip(part.blocks, part.spectra(), strict=True):
                by_part[f"{block.structure.kind}, axis {block.first_axis + 1},"] = planes.angles
        elif isinstance(part, TreeMaps):
            # eigenvalues are conjugate pairs, so each angle occurs twice; an odd feature has none
            turns = torch.linalg.eigvals(part.generators().double()).angle().abs()
            turns = turns.sort(descending=True).values[..., : part.out_features // 2 * 2 : 2]
            for branch, turn in enumerate(turns.unbind(2), 1):
                by_part[f"branch {branch}, axis {part.first_axis + 1},"] = turn
    return by_part


def moves(encoding: SelectiveRope) -> Float[Tensor, "layers h i"]:
    """Return the standard deviation of each plane's moves, for inputs of variance 1.

    Moves are in positions.
    """
    return encoding.moves.double().norm(dim=-1)


def decay(encoding: Algebraic, lags: Shaped[Tensor, " o"]) -> Float[Tensor, " o"]:
    """Return the factors of the logits of keys at `lags` of at least 0."""
    return torch.pow(encoding.config.decay, lags.double())


def half_lives(decoder: Decoder, block: int) -> Float[Tensor, " h"] | None:
    """Return half-lives in positions of what a layer with the delta rule stores, for zero inputs.

    None: the layer has no delta rule.
    """
    attention = decoder.blocks[block].attention
    assert isinstance(attention, SelfAttention)
    gates = attention.gates
    return gates.log_half_life.double().exp() if isinstance(gates, DeltaGates) else None


def scores(encoding: OffsetEncoding, layer: int, lags: Shaped[Tensor, " o"]) -> OffsetTable:
    """Return the table of a layer whose rows are `lags`."""
    more = encoding.num_axes - 1 if isinstance(encoding, RelativeEncoding) else 0
    places = -lags.double()[:, None]
    if encoding.coordinates == "additive":
        return encoding.table_of([places, *[places[:0]] * more], places, layer)
    points = functional.pad(places, (0, more))
    return encoding.table_of([points], points if encoding.coordinates == "index" else places, layer)


def window(table: OffsetTable) -> Float[Tensor, "o h"] | None:
    """Return the factor of logits or weights; None if there is no window."""
    weight = None if table.log_weight is None else table.log_weight.exp()
    return weight if table.factor is None else table.factor * (1 if weight is None else weight)


def position_vectors(encoding: Encoding, width: int, count: int) -> Float[Tensor, "l m"]:
    """Return vectors added to embeddings at first positions, or at tree nodes (breadth-first)."""
    places = torch.arange(count)[:, None]
    if isinstance(encoding, TreeSQ):
        places, axes = places + 1, encoding.config.tree.word_axes
        if axes:
            words = words_of_heap(places[:, 0], encoding.config.tree.branching)
            words = words[(words >= 0).sum(1) <= axes]
            places = functional.pad(words, (0, axes - words.shape[1]), value=-1)
    assert isinstance(encoding, AbsoluteEncoding)
    codes, _ = encoding.prepare(places[None], encoding.init_state(0, torch.device("cpu")))
    return encoding.embed(torch.zeros(1, len(places), width), codes)[0]
