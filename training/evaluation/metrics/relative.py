"""Maps of attention scores between positions, and measures of them.

The measures are those of the code published with Liutkus et al. (2021). A map is (n, n), queries by
keys; keys after their query are ignored. T measures whether a score depends only on the offset, and
M whether closer keys have higher scores.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from relpe.attention.delta.operation import DeltaOperation, DeltaState, Gates
from relpe.attention.linear.operation import LinearOperation, fading_rates
from relpe.attention.windowed.attention import WindowedOperation
from relpe.encodings.base import NO_SCORING, OffsetTable, Scoring
from relpe.models.blocks import Block
from relpe.models.decoder import Decoder

_ROWS = 32
"""Queries that are compared at once; this many fit the processor's cache."""


def translation_invariance(
    scores: NDArray[np.floating],
    *,
    min_pos: int = 0,
    max_pos: int | None = None,
    max_offset: int | None = None,
) -> float:
    """Return T of a map (n, n): variance within diagonals over the variance of all scores; 0 to 1.

    0: a score depends only on the offset (a Toeplitz or constant map); 1: scores do not depend on
    the offset. Only queries from `min_pos` up to but not including `max_pos` count, and offsets
    (query minus key) from 0 to `max_offset`; None: all. Diagonals are weighted by their length.
    Source: published code of Liutkus et al. (2021).

    Raises:
        ValueError: the map is not square, or a score is not finite.
    """
    rows, offsets = _causal_part(scores, min_pos, max_pos, max_offset)
    used = offsets >= 0
    values, offsets = rows[used], offsets[used]
    if values.min() == values.max():
        return 0.0
    means = np.bincount(offsets, values) / np.maximum(np.bincount(offsets), 1)
    return float(np.square(values - means[offsets]).mean() / values.var())


def monotonicity_violation(
    scores: NDArray[np.floating],
    *,
    min_pos: int = 0,
    max_pos: int | None = None,
    max_offset: int | None = None,
) -> float:
    """Return M of a map (n, n): share of a query's pairs of keys whose farther key scores higher.

    0: scores never fall towards the diagonal; 1: they always do; random scores give 1/2. NaN if no
    query has two keys. Queries, offsets, errors and source are as in `translation_invariance`.
    """
    rows, offsets = _causal_part(scores, min_pos, max_pos, max_offset)
    violations = 0
    for start in range(0, len(rows), _ROWS):
        part = offsets[start : start + _ROWS]
        columns = np.flatnonzero((part >= 0).any(0))
        keys = slice(int(columns[0]), int(columns[-1]) + 1)
        block = rows[start : start + _ROWS, keys].copy()
        # keys that do not count never violate monotonicity
        block[part[:, keys] == _LATER] = np.inf
        block[part[:, keys] == _TOO_FAR] = -np.inf
        for distance in range(1, block.shape[1]):
            violations += np.count_nonzero(block[:, :-distance] > block[:, distance:])
    keys_of_query = (offsets >= 0).sum(1)
    pairs = int((keys_of_query * (keys_of_query - 1) // 2).sum())
    return violations / pairs if pairs else float("nan")


_LATER, _TOO_FAR = -1, -2
"""Marks for offsets that do not count."""


def _causal_part(
    scores: NDArray[np.floating], min_pos: int, max_pos: int | None, max_offset: int | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the scores of the queries (r, n) in float64, and their offsets or the marks above."""
    if scores.ndim != 2 or scores.shape[0] != scores.shape[1]:
        raise ValueError(f"the map has shape {scores.shape}, expected (n, n)")
    queries = np.arange(len(scores))[min_pos:max_pos]
    if not len(queries) or min_pos < 0 or (max_offset is not None and max_offset < 0):
        raise ValueError(
            f"the map has no scores for queries {min_pos} to {max_pos} and offsets to {max_offset}"
        )
    offsets = np.maximum(queries[:, None] - np.arange(len(scores)), _LATER)
    if max_offset is not None:
        offsets[offsets > max_offset] = _TOO_FAR
    rows = scores[queries].astype(np.float64)
    if not np.isfinite(rows[offsets >= 0]).all():
        raise ValueError("the map contains scores that are not finite; lower max_offset")
    return rows, offsets


class Relativity(NamedTuple):
    """T and M for each draw, layer and head: (draws, layers, heads)."""

    translation_invariance: NDArray[np.float64]
    monotonicity_violation: NDArray[np.float64]


def relativity(
    decoder: Decoder,
    length: int,
    *,
    token: int,
    seeds: Sequence[int],
) -> Relativity:
    """Return T and M of a model's maps over `length` positions, for one draw of noise per seed.

    See `positional_maps`. Offsets beyond a head's span do not count. Without noise, the figures are
    the same for all seeds.
    """
    config = decoder.config
    values = np.zeros((2, len(seeds), config.num_layers, config.num_heads))
    with tqdm(total=values[0].size, desc="maps", unit="head", mininterval=2) as bar:
        for draw, seed in enumerate(seeds):
            for layer, maps in enumerate(positional_maps(decoder, length, token=token, seed=seed)):
                for head, (scores, span) in enumerate(zip(maps.scores, maps.spans, strict=True)):
                    limit = None if span is None else span - 1
                    values[:, draw, layer, head] = (
                        translation_invariance(scores, max_offset=limit),
                        monotonicity_violation(scores, max_offset=limit),
                    )
                    bar.update()
    return Relativity(values[0], values[1])


class LayerMaps(NamedTuple):
    """The maps of one layer."""

    scores: NDArray[np.float64]
    """(h, n, n), queries by keys; undefined for keys after the query or beyond the span."""
    spans: tuple[int | None, ...]
    """Span of each head: the keys that a query attends to, itself included; None: all."""


@torch.no_grad()
def positional_maps(
    decoder: Decoder, length: int, *, token: int, seed: int | None = None
) -> Iterator[LayerMaps]:
    """Yield the scores between `length` positions that all have the same token, layer by layer.

    Because the tokens are equal, scores within a map differ only by position. The first tokens,
    for which the short convolution has incomplete input, are left out. A score is the weight of a
    key before normalisation: with linear attention the product of features, times the decay of the
    head; with softmax the logit. Positions are 0, 1, 2, ...; `seed` is the seed of the noise; None:
    the model's own. Scores are computed in float64.

    Raises:
        ValueError: the encoding scores other coordinates than token positions.
    """
    probed = copy.deepcopy(decoder).double().cpu().eval()
    # the incomplete inputs of all layers' convolutions add up
    skipped = max(probed.config.convolution_taps - 1, 0) * probed.config.num_layers
    state = probed.init_state(1, seed)
    probes: list[_Probe] = []
    for block in probed.blocks:
        assert isinstance(block, Block)
        probe: Any = _Probe(block.attention.operation)
        block.attention.operation = probe
        probes.append(probe)
    count = skipped + length
    if probed.events is not None and not bool(probed.events.closes[token]):
        token = int(probed.events.closes.nonzero()[0])  # so that each token is a position
    places = torch.zeros(1, count, probed.num_axes, dtype=torch.int64)
    places[..., 0] = torch.arange(count)
    probed(torch.full((1, count), token), places, state)
    for probe in probes:
        scores = probe.scores()[:, skipped:, skipped:].numpy()
        yield LayerMaps(scores, probe.spans())


class _Probe:
    """Wraps an attention operation and records its inputs."""

    def __init__(self, operation: Any) -> None:  # noqa: ANN401
        self._operation = operation

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: Any,  # noqa: ANN401
        scoring: Scoring = NO_SCORING,
        lengths: Tensor | None = None,
        gates: Gates | None = None,
    ) -> Any:  # noqa: ANN401
        self._q, self._k, self._state, self._scoring = q, k, state, scoring
        self._gates = gates
        more = {} if gates is None else {"gates": gates}
        return self._operation(q, k, v, state, scoring, lengths, **more)

    def scores(self) -> Tensor:
        """Return the scores (h, l, l)."""
        if isinstance(self._operation, LinearOperation):
            return self._features(self._operation)
        if isinstance(self._operation, DeltaOperation):
            # with the identity as values, outputs are the weights of the keys
            length, heads = self._q.shape[1:3]
            values = torch.eye(length).to(self._q)[None, :, None].expand(-1, -1, heads, -1)
            empty = DeltaState(self._q.new_zeros(1, heads, self._q.shape[3], length))
            out, _ = self._operation(self._q, self._k, values, empty, gates=self._gates)
            return out[0].transpose(0, 1)
        if self._scoring.table is not None:
            return _table_scores(self._q[0], self._k[0], self._scoring.table)
        return torch.einsum("lhd,shd->hls", self._q[0], self._k[0]) * self._q.shape[-1] ** -0.5

    def spans(self) -> tuple[int | None, ...]:
        """Return the span of each head."""
        heads = self._q.shape[2]
        span = self._operation.span if isinstance(self._operation, WindowedOperation) else None
        table = self._scoring.table
        if table is None:
            return (span,) * heads
        return table.head_spans or (table.span or span,) * heads

    def _features(self, operation: LinearOperation) -> Tensor:
        projection = self._state.projection
        projection = None if projection is None else projection.to(self._q.dtype)
        queries, keys = (operation.feature_map(x, projection) for x in (self._q, self._k))
        features = queries.values, keys.values
        rotation = self._scoring.rotation
        if rotation is not None:
            features = rotation(features[0]), rotation(features[1], keys=True)
        scores = torch.einsum("lhf,shf->hls", features[0][0], features[1][0])
        if queries.log_scale is not None and keys.log_scale is not None:
            log_scale = (queries.log_scale[0][:, None] + keys.log_scale[0]).permute(2, 0, 1)
            # a common factor keeps exponentials in range and does not affect T and M
            scores = scores * torch.exp(log_scale - log_scale.amax((1, 2), keepdim=True))
        if operation.half_lives is not None:
            places = torch.arange(scores.shape[1])
            rates = torch.from_numpy(fading_rates(*operation.half_lives, scores.shape[0]))
            ages = (places[:, None] - places).clamp(min=0)
            scores = scores * torch.exp(-rates[:, None, None] * ages)
        return scores


def _table_scores(q: Tensor, k: Tensor, table: OffsetTable) -> Tensor:
    """Return the logits (h, l, l) of q, k (l, h, d) as `OffsetTable` defines them."""
    if table.rows is not None:
        raise ValueError("the encoding scores coordinates, so it has no map of token positions")
    table = table.to(q.dtype)
    places = torch.arange(len(q))
    ages = (places[:, None] - places).clamp(min=0)

    def by_pair(values: Tensor) -> Tensor:
        return values[ages.clamp(max=len(values) - 1)].permute(2, 0, 1)  # (h, l, s) of (o, h)

    bias = 0.0 if table.content_bias is None else table.content_bias
    logits = torch.einsum("lhd,shd->hls", q + bias, k)
    factor = 1.0 if table.factor is None else by_pair(table.factor)
    position: Tensor | None = None
    if table.features is not None:
        by_row = torch.einsum("lhd,ohd->hlo", q, table.features)
        place = ages.clamp(max=by_row.shape[2] - 1).expand(len(by_row), -1, -1)
        position = by_row.gather(2, place)
    if table.bias is not None:
        position = by_pair(table.bias) + (0.0 if position is None else position)
    if position is not None:
        position = position * factor if table.factor_on_position else position
        logits = logits * position if table.multiplies else logits + position
    logits = logits if table.factor_on_position else logits * factor
    logits = logits * q.shape[-1] ** -0.5
    return logits if table.log_weight is None else logits + by_pair(table.log_weight)
