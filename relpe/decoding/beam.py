"""Beam search with an encoder-decoder: the likeliest targets that end with a token."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return ((5 + length) / 6) ^ strength (Wu et al., 2016, section 7)."""
    return ((5 + length) / 6) ** strength


@torch.inference_mode()
def beam_search(
    model: EncoderDecoder,
    state: EncoderDecoderState,
    start: int,
    end: int,
    most: Sequence[int],
    *,
    beams: int = 4,
    strength: float = 0.6,
) -> list[list[Hypothesis]]:
    """Return the best targets of each source, at most `beams`, the best score first.

    `state` has a row for each source, which do not affect each other; positions have one axis. Each
    step keeps the likeliest continuations of a source, at most `beams` less the number of its
    targets that have ended. The greedy one is always among them, so that the best score is never
    below that of greedy search. Targets have at most `most` tokens, a number for each source.

    Raises:
        ValueError: a number is out of range, or there is not one of `most` for each row.
    """
    rows = len(state.layers[0].recent)
    if rows != len(most):
        raise ValueError(f"the state has {rows} rows, but most has {len(most)} numbers")
    if beams < 1 or not most or min(most) < 1 or strength < 0:
        raise ValueError(
            f"beams is {beams}, most {[*most]} and strength {strength}, expected at least 1, 1 "
            "and 0"
        )
    hypotheses: list[list[Hypothesis]] = [[] for _ in most]
    live = [[_Prefix(row, [start], 0.0, is_greedy=True)] for row in range(rows)]
    for length in range(1, max(most) + 1):
        flat = [prefix for prefixes in live for prefix in prefixes]
        if not flat:
            break
        tokens = [prefix.tokens[-1:] for prefix in flat]
        logits, state = model(torch.tensor(tokens, device=model.embedding.weight.device), state)
        totals = torch.tensor([prefix.log_probability for prefix in flat], dtype=torch.float64)
        scores = totals[:, None] + logits[:, -1].double().log_softmax(-1).cpu()
        first = 0
        for source, prefixes in enumerate(live):
            if not prefixes:
                continue
            mine = range(first, first + len(prefixes))
            after = _continued(prefixes, mine, scores, beams - len(hypotheses[source]))
            first, live[source] = mine.stop, []
            for prefix in after:
                if prefix.tokens[-1] == end or length == most[source]:
                    score = prefix.log_probability / length_penalty(length, strength)
                    hypotheses[source].append(
                        Hypothesis(prefix.tokens[1:], prefix.log_probability, score)
                    )
                else:
                    live[source].append(prefix)
        parents = [prefix.row for prefixes in live for prefix in prefixes]
        state = state.rows(torch.tensor(parents, dtype=torch.int64, device=logits.device))
    return [sorted(each, key=lambda one: -one.score) for each in hypotheses]


class _Prefix(NamedTuple):
    """The beginning of a target."""

    row: int
    """Row of the state without its last token."""
    tokens: list[int]
    """From the start symbol."""
    log_probability: float
    is_greedy: bool
    """Whether each token is the likeliest after those before."""


def _continued(
    prefixes: Sequence[_Prefix], rows: range, scores: Tensor, count: int
) -> list[_Prefix]:
    """Return the best continuations of prefixes, at most `count`, with the greedy one.

    `scores` (n, v) are those of all continuations; the prefixes have the rows `rows`.
    """
    prefix_scores, vocabulary = scores[rows.start : rows.stop], scores.shape[1]
    places = prefix_scores.flatten().topk(min(count, prefix_scores.numel())).indices.tolist()
    greedy = {
        place * vocabulary + int(prefix_scores[place].argmax())
        for place, prefix in enumerate(prefixes)
        if prefix.is_greedy
    }
    if not greedy <= {*places}:
        places = [*places[:-1], *greedy]
    return [
        _Prefix(
            rows[place // vocabulary],
            [*prefixes[place // vocabulary].tokens, place % vocabulary],
            float(prefix_scores[place // vocabulary, place % vocabulary]),
            is_greedy=place in greedy,
        )
        for place in places
    ]
