"""Beam search with an encoder-decoder: the likeliest targets that end with a token."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderState


class Hypothesis(NamedTuple):
    """A target that has ended, or has the maximum length."""

    tokens: list[int]
    """The tokens after the start symbol; the last is the end symbol unless the target is cut."""
    log_probability: float
    """Sum of the logarithms of the probabilities of the tokens."""
    score: float
    """Log-probability divided by the length penalty."""


def length_penalty(length: int, strength: float) -> float:
    """((5 + length) / 6) ^ strength (Wu et al., 2016, section 7)."""
    return ((5 + length) / 6) ** strength


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder,
    state: EncoderDecoderState,
    start: int,
    end: int,
    *,
    beams: int = 4,
    most: int = 100,
    strength: float = 0.6,
) -> list[Hypothesis]:
    """The best targets of one source, at most `beams`, the best score first.

    `state` has one row, and positions have one axis. In each step, the `beams` likeliest
    continuations that have not ended are kept. The search ends if no continuation can have a better
    score than the worst of the `beams` targets found. Targets have at most `most` tokens.

    Raises:
        ValueError: the state has several rows, or a number is out of range.
    """
    rows = len(state.layers[0].recent)
    if rows != 1:
        raise ValueError(f"the state has {rows} rows, expected one source at a time")
    if beams < 1 or most < 1 or strength < 0:
        raise ValueError(
            f"beams is {beams}, most {most} and strength {strength}, expected at least 1, 1 and 0"
        )
    device = model.embedding.weight.device
    found: list[Hypothesis] = []
    written: list[list[int]] = [[]]
    totals = torch.zeros(1, dtype=torch.float64, device=device)
    tokens = torch.tensor([[start]], device=device)
    for length in range(1, most + 1):
        logits, state = model(tokens, state)
        scores = totals[:, None] + logits[:, -1].double().log_softmax(-1)
        ended = scores[:, end].tolist()
        found += [
            _hypothesis([*own, end], total, strength)
            for own, total in zip(written, ended, strict=True)
        ]
        scores[:, end] = -math.inf
        totals, parents, chosen = _best(scores, beams)
        pairs = zip(parents.tolist(), chosen.tolist(), strict=True)
        written = [[*written[parent], token] for parent, token in pairs]
        found = sorted(found, key=lambda one: -one.score)[:beams]
        if length == most:
            found += map(_hypothesis, written, totals.tolist(), [strength] * len(written))
            break
        # a longer target has a lower probability, and at most the penalty of the maximum length
        attainable = float(totals[0]) / length_penalty(most, strength)
        if not len(written) or (len(found) == beams and attainable <= found[-1].score):
            break
        state, tokens = state.rows(parents), chosen[:, None]
    return sorted(found, key=lambda one: -one.score)[:beams]


def _hypothesis(tokens: list[int], log_probability: float, strength: float) -> Hypothesis:
    score = log_probability / length_penalty(len(tokens), strength)
    return Hypothesis(tokens, log_probability, score)


def _best(scores: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best of scores (n, v), at most `beams`: themselves, their rows and their columns."""
    count = min(beams, int(scores.isfinite().sum()))
    best, places = scores.flatten().topk(count)
    return best, places // scores.shape[1], places % scores.shape[1]
