"""Attention with a table of offsets, computed part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.attention.windowed.offset_scores import softmax_with_table

if TYPE_CHECKING:
    from relpe.encodings.base import Encoding


def attend(
    encoding: Encoding,
    positions: torch.Tensor,
    pieces: list[int],
    *,
    dense: bool = False,
    changed_from: int | None = None,
) -> torch.Tensor:
    """Attention output (2, l, 2, 4) for random inputs and the table of the second layer.

    The `positions` (b, l, p) are processed in parts of the lengths `pieces`, by the windowed
    operation with its state or, if `dense`, by naive softmax attention. If `changed_from` is given,
    the inputs change from that position.
    """
    generator = torch.Generator().manual_seed(4)
    q, k, v = torch.randn(3, 2, sum(pieces), 2, 4, dtype=torch.float64, generator=generator)
    if changed_from is not None:
        q, k, v = (
            x + (torch.arange(sum(pieces)) >= changed_from)[:, None, None] for x in (q, k, v)
        )
    state = encoding.init_state(0, q.device)
    operation = WindowedAttentionConfig(span=1000).build()
    memory = operation.init_state((2, 2, 4), torch.Generator(), q, 4)
    outs, done = [], 0
    for size in pieces:
        codes, state = encoding.prepare(positions[:, done : done + size], state)
        piece, known = slice(done, done + size), slice(0, done + size)
        scoring = encoding.scoring(codes, 1)
        assert scoring.table is not None
        if dense:
            outs.append(softmax_with_table(q[:, piece], k[:, known], v[:, known], scoring.table))
        else:
            out, memory = operation(q[:, piece], k[:, piece], v[:, piece], memory, scoring)
            outs.append(out)
        done += size
    return torch.cat(outs, 1)


def places(length: int, start: int = 0) -> torch.Tensor:
    """Consecutive positions (1, l, 1)."""
    return torch.arange(start, start + length)[None, :, None]


def table_of(encoding: Encoding, length: int, layer: int = 0) -> Any:
    """The table of a layer after `length` positions."""
    codes, _ = encoding.prepare(places(length), encoding.init_state(0, torch.device("cpu")))
    return encoding.scoring(codes, layer).table
