"""Products of queries and keys with filtered noise, without more codes than needed.

Cost. With n taps and tiles of c positions, the codes of a tile are a product of (2c, c + n - 1) and
(c + n - 1, r) for each head and feature: 2 c (c + n - 1) d r multiplications per head. Projecting b
rows of queries and of keys on them takes 2 b c d r more. The other way, one product of
q_d w_d(m - n), (b c, d (c + n - 1)), with the noise, (d (c + n - 1), r), never forms a code and
takes 2 b c (c + n - 1) d r: as much for b = 1, and b times as much otherwise, since codes are the
same for all rows; and its left factor must be made anew for every row and tile, where the matrix of
the filters is the same for all tiles. Hence codes are formed, tile by tile, at every batch size.

They are formed once for all layers where they fit in SHARED_CODE_BYTES, which saves n
multiplications per number and layer. Where they do not, each layer forms each tile's codes in
forward, and again in backward, and drops them: memory beyond inputs and outputs is that of a tile.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.encodings.noise_tiles import SITES, Halos, Placement, Stencil

SHARED_CODE_BYTES = 512 * 2**20
"""Codes up to this size are built once and shared by all layers; larger ones never exist as a
whole."""


class Plan(NamedTuple):
    """Which positions of a call find their codes in which tile, and the noise around it."""

    placement: Placement
    halos: Halos


def filter_matrices(filters: Tensor, pattern: Stencil) -> Tensor:
    """(h, d, 2c, n), which times the noise of a halo gives the codes of its tile.

    `filters` (2, h, d, *taps): of queries and of keys.
    """
    return _FilterMatrices.apply(filters.flatten(3), pattern)


def tile_codes(matrices: Tensor, noise: Tensor) -> Tensor:
    """(2, c, h, d, r), a view: codes of queries and keys at all positions of a tile.

    From the filters' matrices (h, d, 2c, n) and the noise (h, d, n, r) of its halo.
    """
    codes = matrices @ noise  # (h, d, 2c, r)
    return codes.unflatten(2, (2, SITES)).permute(2, 3, 0, 1, 4)


def shared_codes(matrices: Tensor, plan: Plan) -> Tensor | None:
    """Codes (2, l, h, d, r) of all positions, or None where they are large."""
    heads, features = matrices.shape[:2]
    numbers = 2 * plan.placement.length * heads * features * plan.halos.draws
    if numbers * matrices.element_size() > SHARED_CODE_BYTES:
        return None
    return _SharedCodes.apply(matrices, plan)


def project(
    q: Tensor, k: Tensor, shared: Tensor | None, matrices: Tensor | None, plan: Plan | None
) -> tuple[Tensor, Tensor]:
    """Sums over features of q and k (b, l, h, d) times their codes: (b, l, h, r)."""
    if shared is not None:
        return (
            torch.einsum("blhd,lhdr->blhr", q, shared[0]),
            torch.einsum("blhd,lhdr->blhr", k, shared[1]),
        )
    assert matrices is not None
    with torch.autocast(q.device.type, enabled=False):
        # autocast may have made q and k narrower than the noise
        return _FusedProjection.apply(q.to(matrices.dtype), k.to(matrices.dtype), matrices, plan)


class _FilterMatrices(torch.autograd.Function):
    """See `filter_matrices`: forward and backward both gather, which is faster than adding."""

    @staticmethod
    def forward(ctx: Any, filters: Tensor, pattern: Stencil) -> Tensor:  # noqa: ANN401
        ctx.pattern = pattern
        taps = functional.pad(filters, (0, 1)).permute(1, 2, 0, 3).contiguous()
        entries = taps[..., pattern.table.flatten().to(filters.device)]  # (h, d, 2, c * n)
        return entries.unflatten(-1, pattern.table.shape).flatten(2, 3)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, None]:
        sites, samples = ctx.pattern.table.shape
        columns = ctx.pattern.columns + torch.arange(sites)[:, None] * samples
        grad = grad.unflatten(2, (2, sites)).flatten(3)  # (h, d, 2, c * n)
        entries = grad[..., columns.flatten().to(grad.device)]
        return entries.unflatten(-1, columns.shape).sum(-2).permute(2, 0, 1, 3), None


class _SharedCodes(torch.autograd.Function):
    """See `shared_codes`: keeps no noise for backward but the plan's."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, plan: Plan) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(matrices)
        ctx.plan = plan
        codes = matrices.new_empty(2, plan.placement.length, *matrices.shape[:2], plan.halos.draws)
        for index, rows, sites in _tiles(plan):
            codes[:, rows] = tile_codes(matrices, plan.halos.noise(index))[:, sites]
        return codes

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, None]:
        (matrices,) = ctx.saved_tensors
        grad_matrices = torch.zeros_like(matrices)
        for index, rows, sites in _tiles(ctx.plan):
            _add_grad(grad_matrices, grad[:, rows], sites, ctx.plan.halos.noise(index))
        return grad_matrices, None


class _FusedProjection(torch.autograd.Function):
    """Projection of queries and keys tile by tile: of codes, one tile's exist at a time."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        q: Tensor,
        k: Tensor,
        matrices: Tensor,
        plan: Plan,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(q, k, matrices)
        ctx.plan = plan
        queries, keys = (q.new_empty(*q.shape[:3], plan.halos.draws) for _ in range(2))
        for index, rows, sites in _tiles(plan):
            codes = tile_codes(matrices, plan.halos.noise(index))[:, sites]
            for x, code, out in zip((q, k), codes, (queries, keys), strict=True):
                out[:, rows] = torch.einsum("blhd,lhdr->blhr", x[:, rows], code)
        return queries, keys

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        *grads: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, matrices = ctx.saved_tensors
        grad_matrices = torch.zeros_like(matrices)
        grad_q, grad_k = torch.empty_like(q), torch.empty_like(k)
        for index, rows, sites in _tiles(ctx.plan):
            noise = ctx.plan.halos.noise(index)
            codes = tile_codes(matrices, noise)[:, sites]
            grad_codes = torch.empty_like(codes)
            for side, (x, grad_x, grad) in enumerate(
                zip((q, k), (grad_q, grad_k), grads, strict=True)
            ):
                part = grad[:, rows]
                grad_x[:, rows] = torch.einsum("blhr,lhdr->blhd", part, codes[side])
                grad_codes[side] = torch.einsum("blhd,blhr->lhdr", x[:, rows], part)
            _add_grad(grad_matrices, grad_codes, sites, noise)
        return grad_q, grad_k, grad_matrices, None


def _tiles(plan: Plan) -> list[tuple[int, Tensor | slice, Tensor | slice]]:
    """Of each tile: its place in the plan, the positions in it, and their places in it."""
    rows, sites = plan.placement.rows, plan.placement.sites
    return list(zip(range(len(rows)), rows, sites, strict=True))


def _add_grad(
    grad_matrices: Tensor, grad_codes: Tensor, sites: Tensor | slice, noise: Tensor
) -> None:
    """Adds what the codes (2, n, h, d, r) at some sites of a tile ask of its matrices."""
    whole = grad_codes.new_zeros(2, SITES, *grad_codes.shape[2:])
    if isinstance(sites, slice):
        whole[:, sites] = grad_codes
    else:
        whole.index_add_(1, sites, grad_codes)  # several positions may be one site
    grad = whole.permute(2, 3, 0, 1, 4).flatten(2, 3)  # (h, d, 2c, r)
    grad_matrices.flatten(0, 1).baddbmm_(grad.flatten(0, 1), noise.flatten(0, 1).mT)
