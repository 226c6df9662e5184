"""Spectra of rotations: conversion of skew and orthogonal matrices to planes and angles, and back.

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
"""Angles below this, relative to the largest, are zero, since their planes are ill-defined."""


class Spectrum(NamedTuple):
    """Planes of a rotation of d features, and its angle in each plane per step."""

    basis: Tensor  # (..., d, d), orthogonal: planes are columns 2i and 2i + 1
    angles: Tensor  # (..., d/2), radians


def skew_from_triangle(entries: Float[Tensor, "*n t"], features: int) -> Float[Tensor, "*n d d"]:
    """Skew matrices with `entries` below the diagonal, row by row."""
    rows, columns = torch.tril_indices(features, features, -1, device=entries.device)
    lower = entries.new_zeros(*entries.shape[:-1], features, features)
    lower[..., rows, columns] = entries
    return lower - lower.mT


def triangle_from_skew(skew: Float[Tensor, "*n d d"]) -> Float[Tensor, "*n t"]:
    """Return the entries below the diagonal, row by row."""
    rows, columns = torch.tril_indices(skew.shape[-1], skew.shape[-1], -1, device=skew.device)
    return skew[..., rows, columns]


def skew_of_spectrum(spectrum: Spectrum) -> Float[Tensor, "*n d d"]:
    """Return the skew matrix S = P A P^T; exp(p S) is the rotation for p steps."""
    basis, angles = spectrum
    inner = torch.zeros_like(basis)
    even = torch.arange(0, basis.shape[-1], 2, device=basis.device)
    inner[..., even + 1, even], inner[..., even, even + 1] = angles, -angles
    skew = basis @ inner @ basis.mT
    return (skew - skew.mT) / 2


def matrices(spectrum: Spectrum, positions: Float[Tensor, " l"]) -> Float[Tensor, "l *n d d"]:
    """Return the maps P R(p a) P^T of real positions p, as dense matrices."""
    basis, angles = spectrum
    phases = positions.view(-1, *[1] * angles.ndim) * angles
    inner = torch.zeros(len(positions), *basis.shape, dtype=phases.dtype, device=basis.device)
    even = torch.arange(0, basis.shape[-1], 2, device=basis.device)
    inner[..., even, even] = inner[..., even + 1, even + 1] = phases.cos()
    inner[..., even + 1, even], inner[..., even, even + 1] = phases.sin(), -phases.sin()
    return basis @ inner @ basis.mT


def spectrum_of_skew(skew: Float[Tensor, "*n d d"]) -> Spectrum:
    """Return planes and angles of skew matrices in float64; angles are non-negative, largest first.

    For equal or zero angles, planes are not unique.

    Raises:
        ValueError: the matrices are not skew, or have an odd number of features.
    """
    skew = skew.detach().double()
    _check_even(skew)
    worst = (skew + skew.mT).abs().amax() / skew.abs().amax().clamp(min=1e-300)
    if worst > 1e-5:
        raise ValueError(
            f"the generator S is not skew: S + S^T is {worst:.1e} times the largest entry"
        )
    return _each(_planes_of_skew, (skew - skew.mT) / 2)


def spectrum_of_orthogonal(rotation: Float[Tensor, "*n d d"]) -> Spectrum:
    """Return planes and angles of rotation matrices in float64; angles in [0, pi], largest first.

    A pair of eigenvalues of -1 is a plane with the angle pi. Matrices that are nearly orthogonal,
    for example rounded to float32, are replaced by the nearest orthogonal ones.

    Raises:
        ValueError: the matrices are not orthogonal, are reflections (which have no logarithm, so
            that their powers exist only at integer positions), or have an odd number of features.
    """
    rotation = rotation.detach().double()
    _check_even(rotation)
    eye = torch.eye(rotation.shape[-1], dtype=rotation.dtype, device=rotation.device)
    worst = (rotation.mT @ rotation - eye).abs().amax()
    if not worst < 1e-3:
        raise ValueError(f"the map W is not orthogonal: W^T W differs from 1 by {worst:.1e}")
    left, _, right = torch.linalg.svd(rotation)
    return _each(_planes_of_rotation, left @ right)


def proper(spectrum: Spectrum) -> Spectrum:
    """Return the same rotations with bases of determinant 1; reverse a plane where needed."""
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
    """Return the projection (h * d, m) of queries or keys, into the basis of each head.

    With both projections changed, plain rotary embedding by the angles gives the same scores.
    """
    per_head = weight.unflatten(0, basis.shape[:2])
    return torch.einsum("hde,hdm->hem", basis.to(weight), per_head).flatten(0, 1)


def spectrum_of_halves(angles: Float[Tensor, "*n i"]) -> Spectrum:
    """Return the rotary embedding that pairs feature i with i + d/2, as `RopeConfig` does."""
    pairs = angles.shape[-1]
    order = torch.arange(2 * pairs, device=angles.device).view(2, pairs).T.flatten()
    basis = torch.eye(2 * pairs, dtype=angles.dtype, device=angles.device)[:, order]
    return Spectrum(basis.expand(*angles.shape[:-1], -1, -1), angles)


def _check_even(matrix: Tensor) -> None:
    if matrix.shape[-1] % 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(
            f"the matrices have shape {tuple(matrix.shape[-2:])}, expected square ones with an "
            "even number of features"
        )


def _each(function: Callable[[Tensor], Spectrum], batch: Tensor) -> Spectrum:
    if batch.ndim == 2:
        return function(batch)
    spectra = [function(matrix) for matrix in batch.flatten(0, -3)]
    parts = (torch.stack(part) for part in zip(*spectra, strict=True))
    return Spectrum(*(part.unflatten(0, batch.shape[:-2]) for part in parts))


def _planes_of_skew(skew: Tensor) -> Spectrum:
    """Return planes from eigenvectors of -iS: real and imaginary part of a pair span a plane."""
    angles, vectors = torch.linalg.eigh(-1j * skew)
    order = angles.argsort(descending=True)
    order = order[angles[order] > NEARLY_ZERO * angles.abs().amax()]
    basis = _completed(vectors[:, order])
    inner = basis.mT @ skew @ basis
    angles = skew.new_zeros(len(skew) // 2)
    angles[: len(order)] = inner[1::2, ::2].diagonal()[: len(order)]
    return Spectrum(basis, angles)


def _planes_of_rotation(rotation: Tensor) -> Spectrum:
    """Return the planes as for skew matrices, from a Hermitian matrix with the same planes.

    Where W has an eigenvalue e^it, (e^-ia W + its adjoint) / 2 has the eigenvalue cos(t - a). The
    gap between the eigenvalues for angles t and u is that of W times sin((t + u) / 2 - a), and `a`
    is chosen so that these factors are large.
    """
    eigenvalue_angles = torch.linalg.eigvals(rotation).angle()
    means = (eigenvalue_angles[:, None] + eigenvalue_angles).flatten() / 2
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
            "the matrix is a reflection (determinant -1), which has no real logarithm; change the "
            "sign of one row to make it a rotation"
        )
    turned = basis[:, : 2 * len(order)]
    inner = turned.mT @ rotation @ turned
    angles = torch.atan2(inner[1::2, ::2].diagonal(), inner[::2, ::2].diagonal())
    half = angles.new_full((reversed_ // 2,), math.pi)
    still = angles.new_zeros((len(rotation) - reversed_) // 2 - len(order))
    # half turns come first, since they are the largest angles
    return Spectrum(
        torch.cat([rest @ directions[:, :reversed_], turned, rest @ directions[:, reversed_:]], 1),
        torch.cat([half, angles, still]),
    )


def _completed(vectors: Tensor) -> Tensor:
    """Return the orthogonal basis of the planes of complex vectors (d, i) and their complement."""
    planes = torch.stack([vectors.imag, vectors.real], -1).flatten(1) * math.sqrt(2)
    basis, triangle = torch.linalg.qr(planes, mode="complete")
    signs = triangle.diagonal().sign()
    basis[:, : planes.shape[1]] *= signs
    return basis
