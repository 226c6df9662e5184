"""Negative log-likelihood of each token of a piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from relpe.models.decoder import Decoder, DecoderState
from relpe.models.pointer.config import PointerConfig
from relpe.models.pointer.odds import pointer_odds
from tokenization.remi.vocabulary import Families
from training.learning.positions import positions_of
from training.tasks.batches import padded

Nats = list[NDArray[np.float64]]
Advance = Callable[[int], object]


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
    piece's first is a target once. Each window starts from an empty state. The rest is as in
    `streaming_nats`.
    """
    starts = [range(0, len(piece) - 1, length) for piece in pieces]
    windows = [
        piece[start : start + length + 1]
        for piece, places in zip(pieces, starts, strict=True)
        for start in places
    ]
    nats = iter(streaming_nats(decoder, windows, length, batch_size, seed, advance, families))
    return [np.concatenate([np.zeros(0), *(next(nats) for _ in places)]) for places in starts]


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
    """Return the nats of each token of each piece except the first; chunks keep the state.

    `seed` is the seed of the noise; None: the model's own. `advance` is called with the number of
    processed tokens. `families` are those of the tokens; only models that read coordinates need
    them.
    """
    nats = [np.zeros(len(piece) - 1) for piece in pieces]
    # group pieces of similar length to avoid padding
    order = sorted(range(len(pieces)), key=lambda index: -len(pieces[index]))
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        state = decoder.init_state(len(rows), seed)
        tokens = padded([pieces[index] for index in rows]).to(next(decoder.parameters()).device)
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
    pairs = zip(nats, hidden, strict=True)
    return [np.where(is_hidden[1:], np.nan, values) for values, is_hidden in pairs]


def pointer_nats(
    config: PointerConfig,
    pieces: Sequence[NDArray[np.int64]],
    nats: Sequence[NDArray[np.float64]],
    advance: Advance = lambda _: None,
) -> Nats:
    """Return the nats of each token of each piece except the first, with a pointer.

    `nats` (..., tokens - 1) are those of the decoder for each piece, and so is the shape of the
    result. It is that of `Pointer.mix` over the whole vocabulary; see `pointer_odds`.
    """
    mixed: Nats = []
    for piece, values in zip(pieces, nats, strict=True):
        mixed.append(pointer_odds(config, piece).mixed(values))
        advance(len(piece) - 1)
    return mixed


def token_bar(name: str, tokens: int) -> tqdm[NoReturn]:
    """Return a progress bar of tokens."""
    return tqdm(total=tokens, desc=name, unit="token", unit_scale=True, mininterval=2)


def _nats(
    decoder: Decoder, tokens: Tensor, positions: Tensor, state: DecoderState
) -> tuple[NDArray[np.float64], DecoderState]:
    """Return the nats (b, l) of all tokens (b, l + 1) of each row except the first."""
    logits, state = decoder(tokens[:, :-1], positions, state)
    values = cross_entropy(logits.float().transpose(1, 2), tokens[:, 1:], reduction="none")
    return values.double().cpu().numpy(), state
