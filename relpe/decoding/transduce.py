"""Generation of target sequences by an encoder-decoder, by the most likely tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderState


class Target(Protocol):
    """A target sequence that is written token by token; immutable."""

    @property
    def has_ended(self) -> bool:
        """Whether no token follows."""
        ...

    def read(self, token: int) -> tuple[tuple[int, ...], Self]:
        """Return axes of the position of `token` but the first (its index), and the next target."""
        ...


class Line(NamedTuple):
    """A sequence that ends with the token `end`; positions have one axis."""

    end: int
    has_ended: bool = False

    def read(self, token: int) -> tuple[tuple[int, ...], Line]:
        """Return no further axes."""
        return (), self._replace(has_ended=token == self.end)


@torch.inference_mode()
def transduce(
    model: EncoderDecoder,
    state: EncoderDecoderState,
    start: int,
    targets: Sequence[Target],
    most: int,
) -> list[list[int]]:
    """Return the most likely tokens after `start`, one after another, for each row of `state`.

    `targets` are those before `start`, one for each row. A row ends with its target, or after
    `most` tokens; other rows go on.
    """
    outputs: list[list[int]] = [[] for _ in targets]
    rows = [_Row(number, start, *target.read(start)) for number, target in enumerate(targets)]
    for index in range(most):
        logits, state = _step(model, state, rows, index)
        rows = [
            _Row(row.number, token, *row.target.read(token))
            for row, token in zip(rows, logits.argmax(-1).tolist(), strict=True)
        ]
        for row in rows:
            outputs[row.number].append(row.token)
        kept = [place for place, row in enumerate(rows) if not row.target.has_ended]
        if not kept:
            break
        if len(kept) < len(rows):
            state = state.rows(torch.tensor(kept, device=logits.device))
            rows = [rows[place] for place in kept]
    return outputs


class _Row(NamedTuple):
    number: int
    token: int
    axes: tuple[int, ...]
    target: Target


def _step(
    model: EncoderDecoder, state: EncoderDecoderState, rows: Sequence[_Row], index: int
) -> tuple[Tensor, EncoderDecoderState]:
    """Return the logits (b, v) after the last tokens of `rows`, which are at the place `index`."""
    device = model.embedding.weight.device
    positions = torch.tensor([[(index, *row.axes)] for row in rows], device=device)
    if positions.shape[-1] == 1:
        positions = positions[:1]  # all rows share them
    tokens = torch.tensor([[row.token] for row in rows], device=device)
    logits, state = model(tokens, state, positions=positions)
    return logits[:, -1], state
