"""Fits the gates of a pointer, given the decoder's negative log-likelihood of each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relpe.models.pointer.config import (
    ALIGNMENTS,
    LENGTH_CLASSES,
    MOST_ODDS,
    RANGES,
    GateConfig,
    PointerConfig,
)
from relpe.models.pointer.pointer import Pointer, Sources

ITERATIONS = 40
"""Maximum number of iterations of L-BFGS."""
DECAY = 4e-6
"""Weight of the penalty on the sum of squares of all entries."""
ROUGHNESS = 2e-5
"""Weight of the penalty on squared differences of neighbouring entries in ordered tables."""
TINY = 1e-30
"""Lower bound of a sum of odds before its root is taken, since the root of 0 has no gradient."""
DIGITS = 3
"""Decimals of fitted entries."""


class GateTable(NamedTuple):
    """How a table of `GateConfig` is fitted."""

    classes: Callable[[Sources, NDArray[np.int64]], NDArray[np.integer]]
    """Returns the index into the table for each source.

    Takes the sources (tokens, distances) and the family of the previous token (tokens,). The shape
    of the result broadcasts to (tokens, distances)."""
    ordered: bool
    """Whether neighbouring entries belong to similar classes."""
    first: float = 0.0
    """Initial value of the first entry; from there, initial values rise linearly to 0."""


TABLES = {
    "similar": GateTable(lambda of, family: LENGTH_CLASSES[of.similar], ordered=True, first=-5.0),
    "exact": GateTable(lambda of, family: LENGTH_CLASSES[of.exact], ordered=True),
    "distance": GateTable(lambda of, family: RANGES, ordered=False),
    "alignment": GateTable(lambda of, family: ALIGNMENTS, ordered=False),
    "record": GateTable(lambda of, family: of.records, ordered=True),
    "named": GateTable(lambda of, family: of.named, ordered=False),
    "family": GateTable(lambda of, family: family[:, None], ordered=False),
}
"""The fields of `GateConfig` that are fitted; `named` only if tokens name units."""


class GateExamples(NamedTuple):
    """All s sources of n tokens in flat tensors, in the order of the tokens."""

    nats: Tensor
    """Negative log-likelihood of each token by the decoder: (n,), float64."""
    tokens: Tensor
    """Index of the token that each source tries to predict: (s,), int32."""
    cells: Tensor
    """Cell of each source: (s,), int32. A cell combines one class of each table."""
    hits: Tensor
    """Indices of the sources that propose the correct token: (hits,), int32."""
    classes: Tensor
    """Class of each cell in each table: (cells, tables), int64."""
    sizes: dict[str, int]
    """Number of entries of each fitted table, by its name, in the order of `classes`."""


def examples(
    config: PointerConfig,
    pieces: Sequence[NDArray[np.int64]],
    nats: Sequence[NDArray[np.float64]],
    advance: Callable[[int], object] = lambda _: None,
) -> GateExamples:
    """Return the sources and nats of all tokens except the first of each piece.

    `nats` are the decoder's negative log-likelihoods of these tokens, piece by piece. Tokens for
    which they are NaN are left out. `advance` is called after each piece with its number of tokens.
    """
    # without names, an entry of that table would be a constant that the others contain
    fitted = [name for name in TABLES if name != "named" or config.names is not None]
    sizes = {name: len(getattr(config.gates, name)) for name in fitted}
    shape = tuple(sizes.values())
    tokens, cells, hits = [], [], []
    num_tokens = num_sources = 0
    for piece, values in zip(pieces, nats, strict=True):
        if len(piece) < 2:
            continue
        pointer, rows = Pointer(config), []
        for token in piece[:-1].tolist():
            pointer.extend([token])
            rows.append(pointer.sources())
        sources = Sources(*map(np.stack, zip(*rows, strict=True)))
        family = np.searchsorted(config.families, piece[:-1], side="right") - 1
        classes = [
            np.broadcast_to(TABLES[name].classes(sources, family), sources.tokens.shape)
            for name in fitted
        ]
        is_counted = ~np.isnan(values)
        rows_of, columns = candidates = np.nonzero(sources.similar * is_counted[:, None])
        place = np.ravel_multi_index([part[candidates] for part in classes], shape)
        hit = np.flatnonzero(sources.tokens[candidates] == piece[1:][rows_of])
        tokens.append((np.cumsum(is_counted)[rows_of] - 1 + num_tokens).astype(np.int32))
        cells.append(place.astype(np.int32))
        hits.append((hit + num_sources).astype(np.int32))
        num_tokens += int(is_counted.sum())
        num_sources += len(columns)
        advance(len(piece) - 1)
    used, cell = np.unique(np.concatenate(cells), return_inverse=True)
    counted = np.concatenate(nats)
    counted = counted[~np.isnan(counted)]
    parts = counted, np.concatenate(tokens), cell.astype(np.int32)
    classes = np.stack(np.unravel_index(used, shape), 1)
    arrays = (*parts, np.concatenate(hits), classes)
    return GateExamples(*map(torch.from_numpy, arrays), sizes=sizes)


class FittedGates(NamedTuple):
    """Fitted gates, and the likelihood of the tokens to which they were fitted."""

    gates: GateConfig
    nats_per_token: float
    """Mean negative log-likelihood with the pointer."""


def fit_gates(
    given: GateExamples, gates: GateConfig, advance: Callable[[], object] = lambda: None
) -> FittedGates:
    """Fit the tables of `gates` by minimising the penalised mean nats of the mixture.

    The entries that the tables have before are ignored. `advance` is called after each evaluation
    of the loss. Source: L-BFGS with a line search for the strong Wolfe conditions (Nocedal and
    Wright, 2006, sections 3.1 and 7.2).
    """
    tables = {
        name: torch.linspace(TABLES[name].first, 0, size, dtype=torch.float64).requires_grad_()
        for name, size in given.sizes.items()
    }
    optimizer = torch.optim.LBFGS(
        [*tables.values()], max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = mixed_nats(given, [*tables.values()]).mean() + _penalty(tables)
        value.backward()
        advance()
        return value

    optimizer.step(loss)  # pyright: ignore[reportArgumentType] - torch declares a float
    rounded = {
        name: tuple(round(min(entry, MOST_ODDS), DIGITS) + 0.0 for entry in table.tolist())
        for name, table in tables.items()
    }
    with torch.no_grad():
        values = [torch.tensor(entries, dtype=torch.float64) for entries in rounded.values()]
        return FittedGates(replace(gates, **rounded), mixed_nats(given, values).mean().item())


def mixed_nats(given: GateExamples, tables: Sequence[Tensor]) -> Tensor:
    """Return negative log-likelihood (n,) of each token by the mixture of decoder and pointer."""
    log_odds = [table[of] for table, of in zip(tables, given.classes.T, strict=True)]
    odds = torch.stack(log_odds).sum(0).exp().index_select(0, given.cells)
    zeros = torch.zeros_like(given.nats)
    total = zeros.index_add(0, given.tokens, odds)
    proposed = zeros.index_add(0, given.tokens[given.hits], odds[given.hits])
    scale = total.clamp_min(TINY).rsqrt()  # see `relpe.models.pointer`: the root of the sum
    return (total * scale).log1p() - ((-given.nats).exp() + proposed * scale).log()


def _penalty(tables: dict[str, Tensor]) -> Tensor:
    total = torch.stack([table.square().sum() for table in tables.values()]).sum() * DECAY
    steps = [table.diff() for name, table in tables.items() if TABLES[name].ordered]
    return total + torch.stack([step.square().sum() for step in steps]).sum() * ROUGHNESS
