"""Negative log-likelihood of each token of a piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from relpe.models.decoder import Decoder, DecoderState
from relpe.models.pointer.config import PointerConfig
from relpe.models.pointer.odds import pointer_odds
from tokenization.remi.vocabulary import Families
from training.learning.positions import positions_of

Nats = list[NDArray[np.float64]]
Advance = Callable[[int], object]


@torch.inference_mode()
def window_nats(
    decoder: Decoder,
    pieces: Sequence[NDArray[np.int64]],
    length: int,
    batch_size: int,
    seed: int | None = None,
    advance: Advance = lambda _: None,
    families: Families | None = None,
) -> Nats:
    """Return nats of each token of each piece except the first, read in windows without overlap.

    The last target of a window is the first token of the next one, so that every token except a
    piece's first is a target once. Each window starts from an empty state. `seed` is the seed of
    the noise; None: the model's own. `advance` is called with the number of processed tokens.
    `families` are those of the tokens; only models that read coordinates need them.
    """
    nats = [np.zeros(len(piece) - 1) for piece in pieces]
    places = [(i, s) for i, piece in enumerate(pieces) for s in range(0, len(piece) - 1, length)]
    # group windows of similar length to avoid padding
    places.sort(key=lambda place: min(length, len(pieces[place[0]]) - 1 - place[1]), reverse=True)
    for first in range(0, len(places), batch_size):
        rows = places[first : first + batch_size]
        parts = [pieces[index][start : start + length + 1] for index, start in rows]
        tokens = _padded(decoder, parts)
        positions = positions_of(tokens[:, :-1], decoder.num_axes, families)
        values, _ = _nats(decoder, tokens, positions, decoder.init_state(len(parts), seed))
        for (index, start), part, row in zip(rows, parts, values, strict=True):
            nats[index][start : start + len(part) - 1] = row[: len(part) - 1]
        advance(sum(len(part) - 1 for part in parts))
    return nats


@torch.inference_mode()
def streaming_nats(
    decoder: Decoder,
    pieces: Sequence[NDArray[np.int64]],
    chunk: int,
    batch_size: int,
    seed: int | None = None,
    advance: Advance = lambda _: None,
    families: Families | None = None,
) -> Nats:
    """Nats of each token of each piece except the first; the state is kept from chunk to chunk.

    `seed`, `advance` and `families` are as in `window_nats`.
    """
    nats = [np.zeros(len(piece) - 1) for piece in pieces]
    order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index]))
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        state = decoder.init_state(len(rows), seed)
        tokens = _padded(decoder, [pieces[index] for index in rows])
        positions = positions_of(tokens[:, :-1], decoder.num_axes, families)
        for start in range(0, tokens.shape[1] - 1, chunk):
            part = tokens[:, start : start + chunk + 1]
            values, state = _nats(decoder, part, positions[:, start : start + chunk], state)
            for index, row in zip(rows, values, strict=True):
                count = max(0, min(len(row), len(pieces[index]) - 1 - start))
                nats[index][start : start + count] = row[:count]
                advance(count)
    return nats


def predicted(nats: Nats, hidden: Sequence[NDArray[np.bool_]]) -> Nats:
    """Return nats of each token of each piece except the first, NaN where it is not predicted."""
    return [np.where(one[1:], np.nan, values) for values, one in zip(nats, hidden, strict=True)]


def pointer_nats(
    config: PointerConfig, piece: NDArray[np.int64], nats: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the nats of each token of a piece except the first, with a pointer: (..., tokens - 1).

    `nats` (..., tokens - 1) are those of the decoder. The result is that of `Pointer.mix` over the
    whole vocabulary; see `pointer_odds`.
    """
    return pointer_odds(config, piece).mixed(nats)


def _padded(decoder: Decoder, parts: Sequence[NDArray[np.int64]]) -> Tensor:
    """Return the tokens of each part, padded to the longest: (b, l)."""
    tokens = np.zeros((len(parts), max(map(len, parts))), np.int64)
    for row, part in zip(tokens, parts, strict=True):
        row[: len(part)] = part
    return torch.from_numpy(tokens).to(next(decoder.parameters()).device)


def _nats(
    decoder: Decoder, tokens: Tensor, positions: Tensor, state: DecoderState
) -> tuple[NDArray[np.float64], DecoderState]:
    """Return the nats (b, l) of all tokens (b, l + 1) of each row except the first."""
    logits, state = decoder(tokens[:, :-1], positions, state)
    values = cross_entropy(logits.float().transpose(1, 2), tokens[:, 1:], reduction="none")
    return values.double().cpu().numpy(), state
