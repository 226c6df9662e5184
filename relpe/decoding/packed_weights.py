"""Weights and states of a decoder in the layout of the compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.linear.operation import LinearAttentionConfig, fading_rates
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.decoding.base import Precision
from relpe.decoding.kernels import (
    CODED,
    DECAYING,
    DELTA,
    ELU,
    ENCODING,
    FAVOR,
    FEATURES,
    GATED,
    KIND,
    LARGEST_WEIGHT,
    PAIRED,
    PLACE,
    RELU,
    SET,
    SPAN,
    WINDOWED,
    AttentionInputs,
    DecoderWeights,
    Matrices,
)
from relpe.decoding.position_codes import PositionCodes, array_of
from relpe.encodings.base import QueryKeyEncoding
from relpe.encodings.stochastic.base import StochasticEncoding, mixture
from relpe.models.decoder import Decoder, DecoderState

_KINDS = {"relu": RELU, "elu": ELU, "favor": FAVOR, "windowed": WINDOWED, "delta": DELTA}


def packed_weights(decoder: Decoder, state: DecoderState, precision: Precision) -> DecoderWeights:
    """Copy all weights; those of projections have `precision`."""

    def matrices(parts: Sequence[torch.Tensor]) -> Matrices:
        values = np.stack([array_of(part) for part in parts])
        if precision == "float32":
            return Matrices(values, np.ones(values.shape[:2], np.float32))
        largest = np.abs(values).max(-1, keepdims=True)
        scales = np.where(largest > 0, largest, 1) / LARGEST_WEIGHT
        whole = np.rint(values / scales).astype(np.int8)
        return Matrices(_grouped(whole), scales[..., 0].astype(np.float32))

    config = decoder.config
    blocks: list[Any] = list(decoder.blocks)
    attention: list[Any] = [block.attention for block in blocks]
    forward: list[Any] = [block.feed_forward for block in blocks]
    norms: list[NDArray[np.float32]] = []
    for block in blocks:
        first, second = block.attention_norm, block.feed_forward_norm
        norms.append(array_of(torch.stack([first.weight, first.bias, second.weight, second.bias])))
    taps = [np.zeros((0, config.width), np.float32)] * len(blocks)
    if config.convolution_taps:
        taps = [array_of(module.convolution.T) for module in attention]
    temperatures = np.zeros((0, 2, config.num_heads), np.float32)
    if config.normalize_queries_keys:
        temperatures = np.stack([array_of(m.log_temperature.exp()[..., 0]) for m in attention])
    qkv = [module.project_in.weight for module in attention]
    if any(module.gates is not None for module in attention):
        gates = [_gates_of(module, 2 * config.num_heads) for module in attention]
        qkv = [torch.cat(pair) for pair in zip(qkv, gates, strict=True)]
    return DecoderWeights(
        embedding=array_of(decoder.embedding.weight * embedding_scale(decoder, state)),
        norms=np.stack(norms),
        taps=np.stack(taps),
        temperatures=temperatures,
        qkv=matrices(qkv),
        attended=matrices([module.project_out.weight for module in attention]),
        gate_value=matrices([module.project_in.weight for module in forward]),
        down=matrices([module.project_out.weight for module in forward]),
        last_norm=array_of(torch.stack([decoder.norm.weight, decoder.norm.bias])),
        logits=matrices([decoder.project_out.weight]),
        **_packed_events(decoder, matrices),
    )


def _gates_of(module: Any, rows: int) -> torch.Tensor:  # noqa: ANN401
    """Return the projection (rows, m) of a layer's gates, with zeros in rows it does not need."""
    projection = module.project_in.weight.new_zeros(rows, module.project_in.weight.shape[1])
    if module.gates is not None:
        gates = module.gates.project.weight
        projection[: len(gates)] = gates
    return projection


def _packed_events(
    decoder: Decoder, matrices: Callable[[Sequence[torch.Tensor]], Matrices]
) -> dict[str, Any]:
    """Return the weights of the local decoder of events, empty if there are no events."""
    events, width = decoder.events, decoder.config.width
    if events is None:
        nothing = torch.zeros(0, width)
        closes = torch.zeros(0, dtype=torch.bool)
        local_embedding, size_embedding, norm = nothing, nothing, torch.zeros(2, width)
        project_in = project_out = nothing
    else:
        closes = events.closes
        local_embedding = events.embedding.weight
        size_embedding = events.place_embedding.weight
        norm = torch.stack([events.norm.weight, events.norm.bias])
        project_in = events.feed_forward.project_in.weight
        project_out = events.feed_forward.project_out.weight
    return {
        "closes": array_of(closes, torch.bool),
        "local_embedding": array_of(local_embedding),
        "size_embedding": array_of(size_embedding),
        "local_norm": array_of(norm),
        "local_in": matrices([project_in]),
        "local_out": matrices([project_out]),
    }


def _grouped(whole: NDArray[np.int8]) -> NDArray[np.int8]:
    """Reorder weights (layers, out, in) for the kernels: (layers, groups, pairs, 32).

    A group is 16 outputs and a pair is 2 inputs; both are padded with zeros.
    """
    layers, outputs, inputs = whole.shape
    padded = np.pad(whole, ((0, 0), (0, -outputs % 16), (0, inputs % 2)))
    groups = padded.reshape(layers, -1, 16, padded.shape[2] // 2, 2)
    return np.ascontiguousarray(groups.swapaxes(2, 3)).reshape(layers, *groups.shape[1:4:2], 32)


def packed_rings(
    keys: NDArray[np.float32], values: NDArray[np.float32], places: int, precision: Precision
) -> tuple[NDArray[np.generic], NDArray[np.generic], NDArray[np.float32]]:
    """Return ring buffers of keys (l, h, r) and values (l, h, e), and their scales; see `Memory`.

    The keys are in the order of the ring. Values are rounded as in the kernels. `places`, the size
    of the ring, is a multiple of 16.
    """
    length, heads = keys.shape[:2]
    scales = np.zeros((heads, 2, places), np.float32)
    padded: list[NDArray[np.generic]] = []
    for side, (x, group) in enumerate(((keys, 2), (values, 16))):
        if precision == "int8":
            largest = np.abs(x).max(-1) / np.float32(LARGEST_WEIGHT)
            scales[:, side, :length] = largest.T
            with np.errstate(divide="ignore", invalid="ignore"):
                x = np.nan_to_num(np.rint(x / largest[..., None])).astype(np.int8)
        padding = ((0, places - length), (0, 0), (0, -x.shape[-1] % group))
        padded.append(np.pad(x, padding))
    padded_keys, padded_values = padded
    if precision == "int8":  # groups of 16 outputs, then pairs of inputs
        ring_keys = padded_keys.reshape(places // 16, 16, heads, -1, 2).transpose(2, 0, 3, 1, 4)
        ring_values = padded_values.reshape(places // 2, 2, heads, -1, 16).transpose(2, 3, 0, 4, 1)
    else:
        ring_keys, ring_values = padded_keys.transpose(1, 2, 0), padded_values.transpose(1, 0, 2)
    return ring_keys.reshape(heads, -1), ring_values.reshape(heads, -1), scales


def put_in_ring(x: NDArray[np.float32], order: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return a ring with the rows of x (l, ...) at the places `order` (l,)."""
    ring = np.zeros((order.max(initial=-1) + 1, *x.shape[1:]), np.float32)
    ring[order] = x
    return ring


def embedding_scale(decoder: Decoder, state: DecoderState) -> torch.Tensor:
    """Return the factors (m,) by which absolute encodings scale embeddings."""
    first = torch.zeros(1, 1, decoder.num_axes, dtype=torch.int64)
    codes, _ = decoder.prepare(first, state.encodings)
    ones = torch.ones(1, 1, decoder.config.width, dtype=torch.float64)
    return (decoder.embed(ones, codes) - decoder.embed(torch.zeros_like(ones), codes))[0, 0]


def packed_attention(
    decoder: Decoder, state: DecoderState, codes: PositionCodes
) -> AttentionInputs:
    """Return the inputs of attention besides queries, keys and values.

    `state` holds noise and projections.
    """
    config = decoder.config
    heads, size = config.num_heads, config.width // config.num_heads
    layers = config.layers_in_order
    numbers = np.zeros((len(layers), 10), np.int64)
    partners = np.zeros((len(layers), size), np.int64)
    offsets, strongest = np.zeros((2, len(layers)), np.float32)
    rates = np.zeros((len(layers), heads))
    through = np.zeros((len(layers), heads, size), np.float32)
    coded = [decoder.encoding_of(block).out_features for block in range(len(layers))]
    constant = np.zeros((len(layers), heads, size, max(coded)), np.float32)
    projections_by_layer: dict[int, NDArray[np.float32]] = {}
    num_sums = num_rings = 0  # layers so far whose memory is a sum, or a ring
    for block, (layer, features) in enumerate(zip(layers, coded, strict=True)):
        encoding = decoder.encoding_of(block)
        index = decoder.encodings.index(encoding)
        place = decoder.place_in_encoding(block)
        row = numbers[block]
        row[KIND] = _KINDS[layer.attention.name]
        row[CODED] = features
        if isinstance(layer.attention, WindowedAttentionConfig):
            row[PLACE] = num_rings
            row[SPAN] = layer.attention.span
            num_rings += 1
        else:
            row[PLACE] = num_sums
            num_sums += 1
        row[ENCODING], row[SET] = codes.encoding_and_set(index, place)
        if isinstance(encoding, QueryKeyEncoding) and encoding.partners is not None:
            row[PAIRED] = 1
            partners[block] = encoding.partners
        if isinstance(layer.attention, LinearAttentionConfig):
            feature_map = layer.attention.feature_map
            row[FEATURES] = feature_map.build().num_features(features)
            offsets[block] = getattr(feature_map, "offset", 0.0)
            if layer.attention.half_lives is not None:
                rates[block] = fading_rates(*layer.attention.half_lives, heads)
            row[DECAYING] = layer.attention.gated
            projection = state.layers[block].operation.projection
            if projection is not None:
                projections_by_layer[block] = array_of(projection)
        if isinstance(layer.attention, DeltaAttentionConfig):
            row[FEATURES] = features
            module: Any = decoder.blocks[block]
            gates = module.attention.gates
            strongest[block] = layer.attention.strongest
            rates[block] = array_of((-gates.log_half_life).exp(), torch.float64)
        random_gates = encoding.gates if isinstance(encoding, StochasticEncoding) else None
        if random_gates is not None and codes.needs_gates(index):
            noise: Any = state.encodings[index]
            row[GATED] = 1
            weights, constant_codes = mixture(random_gates[place], noise.gates[place])
            through[block] = array_of(weights)
            constant[block, ..., :features] = array_of(constant_codes)
    shapes = np.array([matrix.shape for matrix in projections_by_layer.values()] or [(0, 0)])
    projections = np.zeros((len(layers), *shapes.max(0)), np.float32)
    for block, matrix in projections_by_layer.items():
        projections[block, : matrix.shape[0], : matrix.shape[1]] = matrix
    return AttentionInputs(
        numbers,
        partners,
        offsets,
        strongest,
        projections,
        rates,
        through,
        constant,
        codes.added_by,
    )
