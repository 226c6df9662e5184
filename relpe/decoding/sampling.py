"""Sampling of tokens: temperature, truncation, and rules that constrain the next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from relpe.models.pointer.pointer import Pointer

_LEAST = np.finfo(np.float64).tiny
_USUAL_ODDS = 19.0
"""Odds of the pointer at which `SamplingOptions.memory` acts evenly, so that the share of bars that
come back in 16 bars of piano music after 40 grows evenly."""


class Rule(Protocol):
    """Which tokens may come next in one row; immutable.

    A rule may also have a `bias` (v,) or None, which is added to the logits. It makes tokens more
    or less likely, but never permits a token that is not `allowed`. Also optional is `imposed`, a
    bool: whether the unit that the next token may name is to come back as closely as possible; see
    `Pointer.extend`.
    """

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may come next; all False ends the row."""
        ...

    def advance(self, token: int) -> Self:
        """Return the rule after `token`."""
        ...


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are sampled; truncations are applied in the order of the fields."""

    temperature: float = 1.0
    """Divides the logits: below 1 safer, above 1 more surprising, 0 always the likeliest token."""
    top_k: int = 0
    """Keeps only this many of the most likely tokens; 0 keeps all."""
    top_p: float = 0.97
    """Keeps the most likely tokens whose probabilities add up to this share; 1 keeps all."""
    min_p: float = 0.0
    """Keeps tokens whose probability is at least this share of the largest one; 0 keeps all."""
    memory: float = 1.0
    """How much of what the model's pointer proposes comes, 0 to 1; 0: no pointer."""

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature is {self.temperature}, expected at least 0")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}, expected at least 0")
        for name in ("top_p", "min_p", "memory"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 0 to 1")

    @property
    def odds_factor(self) -> float:
        """Factor of the odds of the pointer.

        Odds o have the probability o / (1 + o), so that a factor does little while they are large.
        The probability of what has `_USUAL_ODDS` grows evenly with `memory`.
        """
        return self.memory / (self.memory + (1 + _USUAL_ODDS) * (1 - self.memory))


def draw(
    logits: NDArray[np.float32],
    allowed: NDArray[np.bool_],
    options: SamplingOptions,
    generator: np.random.Generator,
    bias: NDArray[np.floating] | None = None,
    pointer: Pointer | None = None,
) -> int:
    """Sample one token from logits (v,) among those `allowed` (v,), at least one.

    Inverse transform sampling needs one uniform number per token. The proposals of `pointer` are
    mixed with the softmax of the allowed tokens; `bias` (v,) is added to log-probabilities before
    the division by the temperature. The balance of `pointer` may multiply the temperature of each
    family of tokens by a factor f, also if `memory` is 0: the weight of a token is then
    (p / p_max)^(1 / (temperature f)), where p_max is that of the likeliest token of any family.
    """
    tokens = allowed.nonzero()[0]
    if pointer is not None and options.memory:
        scores = pointer.mix(logits, tokens, options.odds_factor)
    else:
        scores = logits[tokens].astype(np.float64)
    if bias is not None:
        scores += bias[tokens]
    if options.temperature == 0:
        return int(tokens[scores.argmax()])
    scores -= scores.max()
    scores /= options.temperature
    if pointer is not None and pointer.temperatures is not None:
        scores /= pointer.temperatures[tokens]
    weights = np.exp(scores, out=scores)
    if not np.add.reduce(weights) > 0:
        raise ValueError("the logits of the model are not finite; its weights are damaged")
    kept = kept_tokens(weights, options)
    cumulative = weights[kept].cumsum()
    point = generator.random() * cumulative[-1]
    index = min(int(cumulative.searchsorted(point, side="right")), len(kept) - 1)
    return int(tokens[kept[index]])


def kept_tokens(weights: NDArray[np.float64], options: SamplingOptions) -> NDArray[np.intp]:
    """Return the indices of the tokens that the options keep, ascending.

    Weights (n,) are not normalised.

    First top_k applies. Of its tokens top_p keeps the smallest set of the most likely ones whose
    sum reaches that share (Holtzman et al., 2020, section 3.1). Of these min_p keeps tokens that
    are likely enough (Nguyen et al., 2024). At least one token is kept, and none of weight 0.
    """
    least, total = _LEAST, np.add.reduce(weights)
    if not options.top_k:
        # All n weights below `least` together hold less than 1 - top_p, so top_p drops them, and
        # few are left to sort. The 1e-9 allows for the rounding of sums.
        least = max(least, (1 - options.top_p - 1e-9) / len(weights) * total)
    likely = (weights >= least).nonzero()[0]
    if len(likely) < 2:
        return likely
    order = (-weights[likely]).argsort(kind="stable")
    if options.top_k:
        order = order[: options.top_k]
    ordered = weights[likely[order]]
    if options.top_k:
        total = np.add.reduce(ordered)
    keeps = ordered.cumsum() - ordered <= options.top_p * total
    if options.min_p:
        keeps &= ordered >= options.min_p * ordered[0]
    kept = likely[order[keeps]]
    kept.sort()
    return kept
