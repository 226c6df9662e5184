"""Parameters of the original implementation of stochastic encodings, spe.py (2021).

Their names and shapes, with h heads of d features and k sines: `freqs`, `offsets`, `gains`
(h, d, k); `conv_q.weight`, `conv_k.weight` (h * d, 1, *taps), where `conv_q` makes the codes of
keys and `conv_k` those of queries; and one `gate` (h, d) for each layer. Encodings with separate
parameters for each layer are refused, since an encoder of the original has one set for all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

    from relpe.encodings.stochastic.conv import ConvSPE
    from relpe.encodings.stochastic.sine import SineSPE

_SINE_NAMES = {"frequencies": "freqs", "offsets": "offsets", "gains": "gains"}
_CONV_NAMES = {"query_filter": "conv_k.weight", "key_filter": "conv_q.weight"}
"""Names of parameters here, and of the parameters with the same effect in the original."""


def import_sine_spe(
    encoding: SineSPE, weights: Mapping[str, Tensor], gates: Sequence[Tensor] = ()
) -> None:
    """Fills `encoding` with the original's parameters, and its layers' gates.

    Raises:
        ValueError: a parameter is missing, of another shape, or there are gates for none; or layers
            have parameters of their own.
    """
    _check_shared(encoding)
    for ours, theirs in _SINE_NAMES.items():
        _fill(getattr(encoding, ours), theirs, weights)
    _fill_gates(encoding.gates, gates)


def export_sine_spe(encoding: SineSPE) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The original's parameters, and the gate of each layer; refuses what `import_` refuses."""
    _check_shared(encoding)
    weights = {
        theirs: getattr(encoding, ours).detach().clone() for ours, theirs in _SINE_NAMES.items()
    }
    return weights, _gates_of(encoding.gates)


def import_conv_spe(
    encoding: ConvSPE, weights: Mapping[str, Tensor], gates: Sequence[Tensor] = ()
) -> None:
    """Fills `encoding` with the original's parameters, and its layers' gates.

    Raises:
        ValueError: a parameter is missing, of another shape, or there are gates for none; or layers
            have parameters of their own.
    """
    _check_shared(encoding)
    for ours, theirs in _CONV_NAMES.items():
        _fill(getattr(encoding, ours), theirs, weights)
    _fill_gates(encoding.gates, gates)


def export_conv_spe(encoding: ConvSPE) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The original's parameters, and the gate of each layer; refuses what `import_` refuses."""
    _check_shared(encoding)
    weights = {
        theirs: getattr(encoding, ours).detach().flatten(0, 1)[:, None].clone()
        for ours, theirs in _CONV_NAMES.items()
    }
    return weights, _gates_of(encoding.gates)


def _check_shared(encoding: SineSPE | ConvSPE) -> None:
    if not encoding.config.shared_by_layers:
        raise ValueError(
            "the encoding has separate parameters for each layer, but an encoder of the original "
            "has one set for all; build the encoding with shared_by_layers = true"
        )


@torch.no_grad()
def _fill(parameter: nn.Parameter, name: str, weights: Mapping[str, Tensor]) -> None:
    """Copies a parameter; (h * d, 1, *taps) goes to (h, d, *taps)."""
    if name not in weights:
        raise ValueError(f"{name}: missing, found {', '.join(sorted(weights))}")
    value = weights[name]
    convolved = (parameter.shape[0] * parameter.shape[1], 1, *parameter.shape[2:])
    if value.shape not in (parameter.shape, torch.Size(convolved)):
        raise ValueError(
            f"{name}: found shape {tuple(value.shape)}, expected {tuple(parameter.shape)} or "
            f"{convolved}"
        )
    parameter.copy_(value.reshape(parameter.shape))


@torch.no_grad()
def _fill_gates(parameter: nn.Parameter | None, gates: Sequence[Tensor]) -> None:
    expected = 0 if parameter is None else len(parameter)
    if len(gates) != expected:
        raise ValueError(f"gates of {len(gates)} layers, expected {expected}")
    if parameter is not None:
        for row, gate in zip(parameter, gates, strict=True):
            if gate.shape != row.shape:
                raise ValueError(
                    f"gate: found shape {tuple(gate.shape)}, expected {tuple(row.shape)}"
                )
            row.copy_(gate)


def _gates_of(parameter: nn.Parameter | None) -> list[Tensor]:
    return [] if parameter is None else list(parameter.detach().clone())
