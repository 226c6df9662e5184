"""Sequences of different lengths, taken out of padded or concatenated inputs and put back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relpe.checks import check_mask, check_type


class PackedRows(NamedTuple):
    """Sequences of different lengths, as rows whose padding is at the end."""

    places: Tensor  # (n, l): index of each position in the flattened input
    lengths: Tensor  # (n,) int64

    @property
    def exists(self) -> Tensor:
        """Mask (n, l): False at padding."""
        return torch.arange(self.places.shape[1], device=self.places.device) < self.lengths[:, None]

    def gather(self, x: Tensor) -> Tensor:
        """Return the rows (n, l, f) of x (b, s, f); zeros at padding, which may hold infinities."""
        return x.flatten(0, 1)[self.places].where(self.exists[..., None], 0)

    def scatter(self, out: Tensor, x: Tensor) -> Tensor:
        """Return the outputs (n, l, f) in the places of x (b, s, f); zeros at padding."""
        flat = out.new_zeros(x.shape[0] * x.shape[1], out.shape[2])
        flat = flat.index_copy(0, self.places[self.exists], out[self.exists])
        return flat.view(*x.shape[:2], out.shape[2])


def pack_rows(x: Tensor, mask: Tensor | None, cu_seqlens: Tensor | None) -> PackedRows | None:
    """Return the sequences of x (b, l, m); None if they are its rows, without padding."""
    if mask is None and cu_seqlens is None:
        return None
    if mask is not None and cu_seqlens is not None:
        raise ValueError("found both mask and cu_seqlens, expected only one of them")
    if cu_seqlens is not None:
        return _split_at(x, cu_seqlens)
    assert mask is not None
    check_mask("mask", mask, x)
    lengths = mask.sum(1)
    longest = int(lengths.max()) if len(x) else 0
    order = (~mask).to(torch.uint8).argsort(dim=1, stable=True)[:, :longest]
    return PackedRows(order + torch.arange(len(x), device=x.device)[:, None] * x.shape[1], lengths)


def _split_at(x: Tensor, cu_seqlens: Tensor) -> PackedRows:
    """Return the sequences of x (1, l, m) between places that rise from 0 to l."""
    check_type("cu_seqlens", cu_seqlens, Tensor)
    if cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"cu_seqlens are {cu_seqlens.dtype}, expected int64 or int32")
    starts = cu_seqlens.to(device=x.device, dtype=torch.int64)
    lengths = starts.diff()
    covers_x = starts.ndim == 1 and len(starts) > 1 and starts[[0, -1]].tolist() == [0, x.shape[1]]
    if not covers_x or len(x) != 1 or bool((lengths < 0).any()):
        raise ValueError(
            f"cu_seqlens are {cu_seqlens.tolist()} and x has the shape {tuple(x.shape)}, "
            "expected x of (1, l, m) and places that rise from 0 to l"
        )
    steps = torch.arange(int(lengths.max()), device=x.device)
    places = (starts[:-1, None] + steps).clamp(max=max(0, x.shape[1] - 1))
    return PackedRows(places, lengths)
