"""Spectra of rotations: planes and angles of skew and orthogonal matrices, and back.

Every rotation is P R(angles) P^T with P orthogonal, where R rotates the planes of features 2i and
2i + 1: R(a) maps (x, y) to (x cos a - y sin a, y cos a + x sin a), as RoPE does. Conversions are in
float64 and without gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

NEARLY_ZERO = 1e-10
"""Least angle, relative to the largest: below it planes are indistinct, and not rotated."""


class Spectrum(NamedTuple):
    """Planes of rotations of d features, and their angles in one step."""

    basis: Tensor  # (..., d, d), orthogonal: planes are columns 2i and 2i + 1
    angles: Tensor  # (..., d/2), radians


def skew_from_triangle(entries: Float[Tensor, "*n t"], features: int) -> Float[Tensor, "*n d d"]:
    """Skew matrices whose part below the diagonal is `entries`, row by row."""
    rows, columns = torch.tril_indices(features, features, -1, device=entries.device)
    lower = entries.new_zeros(*entries.shape[:-1], features, features)
    lower[..., rows, columns] = entries
    return lower - lower.mT


def triangle_from_skew(skew: Float[Tensor, "*n d d"]) -> Float[Tensor, "*n t"]:
    """Entries below the diagonal, row by row."""
    rows, columns = torch.tril_indices(skew.shape[-1], skew.shape[-1], -1, device=skew.device)
    return skew[..., rows, columns]


def skew_of_spectrum(spectrum: Spectrum) -> Float[Tensor, "*n d d"]:
    """The skew matrix S = P A P^T, whose exponential exp(p S) is the rotation of p steps."""
    basis, angles = spectrum
    inner = torch.zeros_like(basis)
    even = torch.arange(0, basis.shape[-1], 2, device=basis.device)
    inner[..., even + 1, even], inner[..., even, even + 1] = angles, -angles
    skew = basis @ inner @ basis.mT
    return (skew - skew.mT) / 2


def matrices(spectrum: Spectrum, positions: Float[Tensor, " l"]) -> Float[Tensor, "l *n d d"]:
    """The maps P R(p a) P^T of real positions p, dense."""
    basis, angles = spectrum
    phases = positions.view(-1, *[1] * angles.ndim) * angles
    inner = torch.zeros(len(positions), *basis.shape, dtype=phases.dtype, device=basis.device)
    even = torch.arange(0, basis.shape[-1], 2, device=basis.device)
    inner[..., even, even] = inner[..., even + 1, even + 1] = phases.cos()
    inner[..., even + 1, even], inner[..., even, even + 1] = phases.sin(), -phases.sin()
    return basis @ inner @ basis.mT


def spectrum_of_skew(skew: Float[Tensor, "*n d d"]) -> Spectrum:
    """Planes and angles of skew matrices, in float64; angles are not negative, the largest first.

    For equal or zero angles, planes are any that fit.

    Raises:
        ValueError: matrices that are not skew, or have an odd number of features.
    """
    skew = skew.detach().double()
    _check_even(skew)
    worst = (skew + skew.mT).abs().amax() / skew.abs().amax().clamp(min=1e-300)
    if worst > 1e-5:
        raise ValueError(
            f"a generator that is not skew: S + S^T is {worst:.1e} of the largest entry"
        )
    return _each(_planes_of_skew, (skew - skew.mT) / 2)


def spectrum_of_orthogonal(rotation: Float[Tensor, "*n d d"]) -> Spectrum:
    """Planes and angles of rotation matrices, in float64; angles are in [0, pi], the largest first.

    Eigenvalues of -1 come in pairs with the angle pi. Nearly orthogonal matrices, as after float32,
    are replaced by the nearest orthogonal one.

    Raises:
        ValueError: matrices that are not orthogonal, reflections (which have no logarithm: their
            powers exist at integer positions only), or an odd number of features.
    """
    rotation = rotation.detach().double()
    _check_even(rotation)
    eye = torch.eye(rotation.shape[-1], dtype=rotation.dtype, device=rotation.device)
    worst = (rotation.mT @ rotation - eye).abs().amax()
    if not worst < 1e-3:
        raise ValueError(f"a map that is not orthogonal: W^T W differs from 1 by {worst:.1e}")
    left, _, right = torch.linalg.svd(rotation)
    return _each(_planes_of_rotation, left @ right)


def proper(spectrum: Spectrum) -> Spectrum:
    """The same rotations with bases of determinant 1: otherwise one plane is reversed."""
    basis, angles = spectrum
    flipped = torch.linalg.det(basis) < 0
    order = torch.arange(basis.shape[-1], device=basis.device)
    order[:2] = order[:2].flip(0)
    turned = torch.cat([-angles[..., :1], angles[..., 1:]], -1)
    return Spectrum(
        torch.where(flipped[..., None, None], basis[..., order], basis),
        torch.where(flipped[..., None], turned, angles),
    )


def absorb(weight: Float[Tensor, "n m"], basis: Float[Tensor, "h d d"]) -> Float[Tensor, "n m"]:
    """Projection (h * d, m) of queries or keys into the basis of each head.

    If both projections are changed, plain rotary embedding by the angles gives the same scores.
    """
    per_head = weight.unflatten(0, basis.shape[:2])
    return torch.einsum("hde,hdm->hem", basis.to(weight), per_head).flatten(0, 1)


def spectrum_of_halves(angles: Float[Tensor, "*n i"]) -> Spectrum:
    """Rotary embedding that pairs feature i with feature i + d/2, as `RopeConfig` does."""
    pairs = angles.shape[-1]
    order = torch.arange(2 * pairs, device=angles.device).view(2, pairs).T.flatten()
    basis = torch.eye(2 * pairs, dtype=angles.dtype, device=angles.device)[:, order]
    return Spectrum(basis.expand(*angles.shape[:-1], -1, -1), angles)


def _check_even(matrix: Tensor) -> None:
    if matrix.shape[-1] % 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(
            f"matrices of shape {tuple(matrix.shape[-2:])}; expected square ones with an even "
            "number of features: planes have two each"
        )


def _each(function: Callable[[Tensor], Spectrum], batch: Tensor) -> Spectrum:
    if batch.ndim == 2:
        return function(batch)
    found = [function(matrix) for matrix in batch.flatten(0, -3)]
    parts = (torch.stack(part).unflatten(0, batch.shape[:-2]) for part in zip(*found, strict=True))
    return Spectrum(*parts)


def _planes_of_skew(skew: Tensor) -> Spectrum:
    """From eigenvectors of -iS: the real and imaginary parts of a conjugate pair span a plane."""
    angles, vectors = torch.linalg.eigh(-1j * skew)
    order = angles.argsort(descending=True)
    order = order[angles[order] > NEARLY_ZERO * angles.abs().amax()]
    basis = _completed(vectors[:, order])
    inner = basis.mT @ skew @ basis
    angles = skew.new_zeros(len(skew) // 2)
    angles[: len(order)] = inner[1::2, ::2].diagonal()[: len(order)]
    return Spectrum(basis, angles)


def _planes_of_rotation(rotation: Tensor) -> Spectrum:
    """As for skew matrices, by a Hermitian matrix with the same planes.

    (e^-ia W + its adjoint) / 2 has the eigenvalue cos(t - a) where W has e^it. Its gaps are those
    of W times sin((t + u) / 2 - a): `a` is chosen to keep these large.
    """
    found = torch.linalg.eigvals(rotation).angle()
    means = (found[:, None] + found).flatten() / 2
    candidates = torch.linspace(0, math.pi, 512, dtype=means.dtype, device=means.device)[1:-1]
    spread = (means - candidates[:, None]).sin().abs().amin(1)
    shifted = rotation * torch.exp(-1j * candidates[spread.argmax()])
    _, vectors = torch.linalg.eigh((shifted + shifted.mH) / 2)
    turns = torch.einsum("di,de,ei->i", vectors.conj(), rotation.to(vectors), vectors).angle()
    order = turns.argsort(descending=True)
    inside = (turns[order] > NEARLY_ZERO) & (turns[order] < math.pi - NEARLY_ZERO)
    order = order[inside]
    basis = _completed(vectors[:, order])
    rest = basis[:, 2 * len(order) :]
    signs, directions = torch.linalg.eigh(rest.mT @ (rotation + rotation.mT) @ rest / 2)
    reversed_ = int((signs < 0).sum())
    if reversed_ % 2:
        raise ValueError(
            "a reflection (determinant -1), which has no real logarithm; expected a rotation: "
            "change the sign of one row"
        )
    turned = basis[:, : 2 * len(order)]
    inner = turned.mT @ rotation @ turned
    angles = torch.atan2(inner[1::2, ::2].diagonal(), inner[::2, ::2].diagonal())
    half = angles.new_full((reversed_ // 2,), math.pi)
    still = angles.new_zeros((len(rotation) - reversed_) // 2 - len(order))
    # half turns are the largest angles
    return Spectrum(
        torch.cat([rest @ directions[:, :reversed_], turned, rest @ directions[:, reversed_:]], 1),
        torch.cat([half, angles, still]),
    )


def _completed(vectors: Tensor) -> Tensor:
    """Orthogonal basis of the planes of complex vectors (d, i) and their complement."""
    planes = torch.stack([vectors.imag, vectors.real], -1).flatten(1) * math.sqrt(2)
    basis, triangle = torch.linalg.qr(planes, mode="complete")
    signs = triangle.diagonal().sign()
    basis[:, : planes.shape[1]] *= signs
    return basis
