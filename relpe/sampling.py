"""Drawing tokens: temperature, nucleus, and rules that say what may follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from relpe.decoder import Decoder, DecoderState

PREFILL_CHUNK = 512
"""Tokens of a prompt that are read at once: bounds memory whatever the prompt's length."""


class Rule(Protocol):
    """What may follow in one row."""

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the tokens that may come next; all False ends the row."""
        ...

    def advance(self, token: int) -> Self:
        """The rule after `token`."""
        ...


RuleT = TypeVar("RuleT", bound=Rule)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How tokens are drawn."""

    temperature: float = 1.0
    """Divides the logits; below 1 safer, above 1 wilder, 0 always the likeliest token."""
    top_p: float = 0.95
    """Draws from the likeliest tokens that hold this share of probability; 1 draws from all."""


@torch.inference_mode()
def prefill_steps(
    model: Decoder, state: DecoderState, tokens: Tensor, position: int = 0
) -> Iterator[tuple[int, DecoderState]]:
    """Reads `tokens` (b, l), the first at `position`, in constant memory.

    Yields how many are read and the state after them, so that a caller can show progress and stop.
    """
    for start in range(0, tokens.shape[1], PREFILL_CHUNK):
        piece = tokens[:, start : start + PREFILL_CHUNK]
        place = position + start + torch.arange(piece.shape[1], device=tokens.device)
        _, state = model(piece, place[None, :, None], state)
        yield start + piece.shape[1], state


def prefill(
    model: Decoder,
    state: DecoderState,
    tokens: Tensor,
    position: int = 0,
    stop: Callable[[], bool] | None = None,
) -> DecoderState:
    """State after reading `tokens` (b, l), the first at `position`, in constant memory.

    Where `stop` gives True between two chunks, the rest is not read.
    """
    for _, newest in prefill_steps(model, state, tokens, position):
        state = newest
        if stop is not None and stop():
            break
    return state


@torch.inference_mode()
def sample(
    model: Decoder,
    state: DecoderState,
    tokens: Tensor,
    position: int,
    rules: Sequence[RuleT],
    options: SamplingOptions,
    generators: Sequence[torch.Generator],
) -> Iterator[tuple[Tensor, Sequence[RuleT]]]:
    """Draws one token per row and step, for ever or until no row may go on.

    `tokens` (b,) are the last of the prompt, not yet in `state`, at `position`. Yields the new
    tokens (b,), -1 in rows that have ended, and the rules after them. Each row has a rule and a CPU
    generator of its own, so that what a row draws hangs on its own seed alone. No mode of torch is
    held across a yield: the decorator enters anew at each step.
    """
    rules = list(rules)
    ended = [False] * len(rules)
    while True:
        place = torch.full((1, 1, 1), position, device=tokens.device)
        logits, state = model(tokens[:, None], place, state)
        logits = logits[:, -1].float().cpu()
        drawn = torch.zeros(len(rules), dtype=torch.int64)
        for row, rule in enumerate(rules):
            allowed = torch.tensor(rule.allowed)
            ended[row] = ended[row] or not bool(allowed.any())
            if not ended[row]:
                drawn[row] = draw(logits[row], allowed, options, generators[row])
                rules[row] = rule.advance(int(drawn[row]))
        if all(ended):
            return
        yield torch.where(torch.tensor(ended), -1, drawn), tuple(rules)
        tokens = drawn.to(tokens.device)
        position += 1


def draw(
    logits: Tensor, allowed: Tensor, options: SamplingOptions, generator: torch.Generator
) -> int:
    """One token from logits (v,) among those `allowed` (v,) bool."""
    logits = logits.masked_fill(~allowed, -torch.inf)
    if options.temperature == 0:
        return int(logits.argmax())
    probabilities = torch.softmax(logits.double() / options.temperature, -1)
    kept = nucleus(probabilities, options.top_p)
    # by inversion: one uniform number per token, whatever the size of the vocabulary
    cumulative = (probabilities * kept).cumsum(-1)
    point = torch.rand((), generator=generator, dtype=torch.float64) * cumulative[-1]
    token = int(torch.searchsorted(cumulative, point, right=True).clamp(max=len(kept) - 1))
    while not kept[token]:  # only where rounding put the point on the very end
        token -= 1
    return token


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Mask (v,) of the likeliest tokens, with the first that brings their sum over `top_p`.

    Holtzman et al., 2020, section 3.1. At least one token is kept, and never one of probability 0.
    """
    ordered, order = probabilities.sort(descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probabilities, dtype=torch.bool)
    kept[order] = before <= top_p
    return kept & (probabilities > 0)
