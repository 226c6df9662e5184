"""Products of queries and keys with filtered noise.

Cost. With n taps and tiles of c positions, the codes of a tile are the product of matrices
(2c, c + n - 1) and (c + n - 1, r) for each head and feature, which takes 2 c (c + n - 1) d r
multiplications per head. Projecting b rows of queries and keys on them takes another 2 b c d r.

The alternative is not to compute codes: one product of q_d w_d(m - n), a matrix
(b c, d (c + n - 1)), and the noise, (d (c + n - 1), r), takes 2 b c (c + n - 1) d r. For b = 1 this
is the same cost, and otherwise b times as much, since all rows share codes. In addition, its left
factor depends on the row and the tile, while the matrix of the filters is the same for all tiles.
Hence codes are computed, tile by tile, for every batch size.

If the codes fit in SHARED_CODE_BYTES, they are computed once for all layers, which saves n
multiplications per number and layer. Otherwise, or if only one layer uses them, each layer computes
them in the forward pass and again in the backward pass. Memory beyond inputs, outputs and noise is
then that of a tile, or of a few features of a run of tiles.

In a run of tiles, the matrix of one feature is multiplied by the noise of many tiles, and both stay
in the cache. On a CPU, this increases the speed from half to four fifths of that of large products.
Fourier transforms, larger tiles and Winograd's algorithm were measured to be slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from relpe.encodings.stochastic.white_noise import RUN, SITES, Halos, NoiseLine, Placement, Stencil
from relpe.transforms import apply, first_derivatives, without_autocast

SHARED_CODE_BYTES = 512 * 2**20
"""Maximum size of codes that are computed once for all layers and stored."""
OWN_CODE_BYTES = 32 * 2**20
"""Maximum size of stored codes that only one layer uses. If codes do not fit the cache, storing and
loading them takes longer than computing them where they are used."""
FEATURES = 16
"""Features of one head whose codes exist at once in a run of tiles; they take 4 MB."""


class Piece(NamedTuple):
    """Tiles whose codes one call computes: a single tile, or a run of whole tiles.

    Places (m) are ordered by tile; within a tile, queries come before keys.
    """

    rows: Tensor | slice  # indices of the positions in these tiles
    sites: Tensor | slice  # their places in the tile
    noise: Tensor  # (h, d, t, n, r); in a run, a view with overlapping halos

    @property
    def tiles(self) -> int:
        """Number of tiles (t)."""
        return self.noise.shape[2]

    @property
    def whole(self) -> bool:
        """Whether the positions are exactly those of the tiles, in order."""
        return _is_whole(self.sites)

    def parts(self) -> Iterator[tuple[slice, slice]]:
        """Yield heads and features whose codes exist at once: all for one tile, a few for a run."""
        if self.tiles == 1:
            yield slice(None), slice(None)
            return
        for head in range(self.noise.shape[0]):
            for start in range(0, self.noise.shape[1], FEATURES):
                yield slice(head, head + 1), slice(start, start + FEATURES)

    def codes(self, matrices: Tensor, heads: slice, features: slice) -> Tensor:
        """Return codes (h, d, m, r) of a part, from the matrices (h, d, 2c, n) of the filters."""
        part, noise = matrices[heads, features], self.noise[heads, features]
        if self.tiles == 1:
            codes = part @ noise[:, :, 0]
            return codes if self.whole else codes[:, :, self.places(codes.device)]
        codes = noise.new_empty(*part.shape[:2], self.tiles, part.shape[2], noise.shape[-1])
        pairs = zip(part.flatten(0, 1), noise.flatten(0, 1), codes.flatten(0, 1), strict=True)
        for matrix, around, out in pairs:
            torch.bmm(matrix.expand(self.tiles, -1, -1), around, out=out)
        return codes.flatten(2, 3)

    def places(self, device: torch.device) -> Tensor:
        """Return the places of a single tile's positions, first of queries, then of keys."""
        sites = torch.arange(SITES, device=device)[self.sites]
        return torch.cat([sites, sites + SITES])

    def gather(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the queries and keys (b, l, h, f) at the places of the piece, as (h, m, b, f)."""
        both = torch.stack([q[:, self.rows], k[:, self.rows]])
        return both.unflatten(2, (self.tiles, -1)).permute(4, 2, 0, 3, 1, 5).flatten(1, 3)

    def scatter(self, x: Tensor, queries: Tensor, keys: Tensor) -> None:
        """Return the reverse of `gather`: writes (h, m, b, f) back."""
        both = x.unflatten(1, (self.tiles, 2, -1)).permute(2, 4, 1, 3, 0, 5).flatten(2, 3)
        queries[:, self.rows], keys[:, self.rows] = both[0], both[1]


def _follows(placement: Placement, index: int) -> bool:
    """Return whether a tile continues the last: one axis, both whole, with positions in order."""
    tile, before = placement.tiles[index], placement.tiles[index - 1]
    rows, ends = placement.rows[index], placement.rows[index - 1]
    return (
        len(tile) == 1
        and tile[0] == before[0] + 1
        and _is_whole(placement.sites[index])
        and _is_whole(placement.sites[index - 1])
        and isinstance(rows, slice)
        and isinstance(ends, slice)
        and rows.start == ends.stop
    )


def _is_whole(sites: Tensor | slice) -> bool:
    return isinstance(sites, slice) and sites == slice(0, SITES)


def _held_run(halos: Halos, first: int, stop: int) -> Tensor | None:
    """Return the noise (h, d, t, n, r) around consecutive tiles; None if it is not held in memory.

    Also None if the device is not a CPU, since there one call for all features of a tile is cheaper
    than one for each feature of a run.
    """
    noise = halos.noise(first)
    heads, features, samples, draws = noise.shape
    by_head, by_feature = noise.stride()[:2]
    step = SITES * draws
    size = ((stop - first - 1) * SITES + samples) * draws
    end = noise.storage_offset() + (heads - 1) * by_head + (features - 1) * by_feature + size
    if noise.device.type != "cpu" or end * noise.element_size() > noise.untyped_storage().nbytes():
        return None
    shape = (heads, features, stop - first, samples, draws)
    return noise.as_strided(shape, (by_head, by_feature, step, draws, 1), noise.storage_offset())


class Plan(NamedTuple):
    """The tiles of the positions of a call, and the noise around them."""

    placement: Placement
    halos: Halos | NoiseLine

    def pieces(self) -> Iterator[Piece]:
        """Yield all tiles in order; whole ones in a row are joined to runs if noise allows it."""
        placement, halos = self
        first, count = 0, len(placement.tiles)
        while first < count:
            stop = first + 1
            while stop < min(first + RUN, count) and _follows(placement, stop):
                stop += 1
            noise = None
            if stop > first + 1:
                held = isinstance(halos, Halos)
                noise = _held_run(halos, first, stop) if held else halos.run(first, stop)
            if noise is None:
                for index in range(first, stop):
                    around = halos.noise(index)[:, :, None]
                    yield Piece(placement.rows[index], placement.sites[index], around)
            else:
                ends = placement.rows[first], placement.rows[stop - 1]
                assert isinstance(ends[0], slice)
                assert isinstance(ends[1], slice)
                yield Piece(slice(ends[0].start, ends[1].stop), slice(0, SITES), noise)
            first = stop


def filter_matrices(filters: Tensor, pattern: Stencil) -> Tensor:
    """Return matrices (h, d, 2c, n) whose products with noise of a halo are the codes of its tile.

    `filters` (2, h, d, *taps) are those of queries and of keys.
    """
    return apply(_FilterMatrices, filters.flatten(3), pattern)


def tile_codes(matrices: Tensor, noise: Tensor) -> Tensor:
    """Return the codes (2, c, h, d, r) of queries and keys at all positions of a tile, as a view.

    Takes the matrices (h, d, 2c, n) of the filters and the noise (h, d, n, r) of the tile's halo.
    """
    codes = matrices @ noise  # (h, d, 2c, r)
    return codes.unflatten(2, (2, SITES)).permute(2, 3, 0, 1, 4)


def worth_sharing(size: int, layers: int) -> bool:
    """Return whether codes of `size` bytes that `layers` layers use should be computed once."""
    return size <= (SHARED_CODE_BYTES if layers > 1 else min(OWN_CODE_BYTES, SHARED_CODE_BYTES))


def shared_codes(matrices: Tensor, plan: Plan) -> Tensor:
    """Return the codes (2, l, h, d, r) of all positions."""
    return apply(_SharedCodes, matrices, plan)


def project(
    q: Tensor, k: Tensor, shared: Tensor | None, matrices: Tensor | None, plan: Plan | None
) -> tuple[Tensor, Tensor]:
    """Return the sums over features of q and k (b, l, h, d) times their codes: (b, l, h, r)."""
    if shared is not None:
        return (
            torch.einsum("blhd,lhdr->blhr", q.to(shared), shared[0]),
            torch.einsum("blhd,lhdr->blhr", k.to(shared), shared[1]),
        )
    assert matrices is not None
    with without_autocast(q.device):
        # with autocast, q and k may be narrower than the noise
        return apply(_ProjectionByPiece, q.to(matrices.dtype), k.to(matrices.dtype), matrices, plan)


class _FilterMatrices(torch.autograd.Function):
    """See `filter_matrices`; the backward pass also gathers, which is faster than scattering."""

    @staticmethod
    def forward(ctx: Any, filters: Tensor, pattern: Stencil) -> Tensor:  # noqa: ANN401
        ctx.pattern = pattern
        taps = functional.pad(filters, (0, 1)).permute(1, 2, 0, 3).contiguous()
        entries = taps[..., pattern.table.flatten().to(filters.device)]  # (h, d, 2, c * n)
        return entries.unflatten(-1, pattern.table.shape).flatten(2, 3)

    @staticmethod
    @first_derivatives
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
    """See `shared_codes`; only the noise of the plan is stored for the backward pass."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, plan: Plan) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(matrices)
        ctx.plan = plan
        codes = matrices.new_empty(2, plan.placement.length, *matrices.shape[:2], plan.halos.draws)
        for piece in plan.pieces():
            for heads, features in piece.parts():
                product = piece.codes(matrices, heads, features)
                product = product.unflatten(2, (piece.tiles, 2, -1)).permute(3, 2, 4, 0, 1, 5)
                codes[:, piece.rows, heads, features] = product.flatten(1, 2)
        return codes

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        grad: Tensor,
    ) -> tuple[Tensor, None]:
        (matrices,) = ctx.saved_tensors
        grad_matrices = torch.zeros_like(matrices)
        for piece in ctx.plan.pieces():
            for heads, features in piece.parts():
                part = grad[:, piece.rows, heads, features].unflatten(1, (piece.tiles, -1))
                part = part.permute(3, 4, 1, 0, 2, 5).flatten(2, 4)  # (h, d, m, r)
                _add_grad(grad_matrices, part, piece, heads, features)
        return grad_matrices, None


class _ProjectionByPiece(torch.autograd.Function):
    """Projection of queries and keys piece by piece, with the codes of only one part at a time."""

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
        for piece in plan.pieces():
            x = piece.gather(q, k)
            out = x.new_zeros(*x.shape[:3], plan.halos.draws)
            for heads, features in piece.parts():
                codes = piece.codes(matrices, heads, features).transpose(1, 2)
                out[heads] += x[heads, :, :, features] @ codes
            piece.scatter(out, queries, keys)
        return queries, keys

    @staticmethod
    @first_derivatives
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,  # noqa: ANN401
        *grads: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, matrices = ctx.saved_tensors
        grad_matrices = torch.zeros_like(matrices)
        grad_q, grad_k = torch.empty_like(q), torch.empty_like(k)
        for piece in ctx.plan.pieces():
            x, grad = piece.gather(q, k), piece.gather(*grads)
            grad_x = torch.empty_like(x)
            for heads, features in piece.parts():
                codes = piece.codes(matrices, heads, features).transpose(1, 2)
                grad_x[heads, :, :, features] = grad[heads] @ codes.mT
                grad_codes = (x[heads, :, :, features].mT @ grad[heads]).transpose(1, 2)
                _add_grad(grad_matrices, grad_codes, piece, heads, features)
            piece.scatter(grad_x, grad_q, grad_k)
        return grad_q, grad_k, grad_matrices, None


def _add_grad(
    grad_matrices: Tensor, grad_codes: Tensor, piece: Piece, heads: slice, features: slice
) -> None:
    """Add the gradient of the matrices, given that of the codes (h, d, m, r) of a part."""
    if not piece.whole:
        some = grad_codes
        grad_codes = some.new_zeros(*some.shape[:2], 2 * SITES, some.shape[-1])
        # several positions may share a site
        grad_codes.index_add_(2, piece.places(some.device), some)
    by_tile = grad_codes.unflatten(2, (piece.tiles, -1))
    part = grad_matrices[heads, features].flatten(0, 1)
    for tile in range(piece.tiles):
        noise = piece.noise[heads, features, tile].flatten(0, 1)
        part.baddbmm_(by_tile[:, :, tile].flatten(0, 1), noise.mT)
