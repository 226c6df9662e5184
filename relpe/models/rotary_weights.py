"""Converts weights that were trained with rotary embedding to an algebraic encoding."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.algebraic.structures import SequenceStructure
from relpe.encodings.rope import RopeConfig
from relpe.models.decoder import Decoder, DecoderConfig


def takes_rotary(config: DecoderConfig, rotary: DecoderConfig) -> bool:
    """Whether a decoder of `config` can load the weights of a decoder of `rotary`.

    The configs may differ in the encoding (algebraic on sequences instead of rotary), in the
    attention (windowed instead of softmax), in the noise seed, which neither uses, and in the
    pointer, which has no weights.
    """
    encoding = config.encoding
    alike = replace(
        rotary,
        attention=config.attention,
        encoding=encoding,
        noise_seed=config.noise_seed,
        pointer=config.pointer,
    )
    return (
        isinstance(rotary.encoding, RopeConfig)
        and isinstance(encoding, AlgebraicConfig)
        and isinstance(encoding.structure, SequenceStructure)
        and not (encoding.basis or encoding.one_sided)
        and encoding.decay == 1
        and config.attention.name in {rotary.attention.name, "windowed"}
        and not config.layers
        and alike == config
    )


@torch.no_grad()
def load_rotary(decoder: Decoder, rotary: Decoder) -> None:
    """Makes `decoder` compute the same function as `rotary`, for sequences within its window.

    Rotary embedding is the algebraic encoding of sequences with fixed angles (Kogkalidis et al.,
    2024, section on rotary embedding). It rotates features i and i + d/2 of a head as a pair, while
    the algebraic encoding rotates adjacent features, so the rows of the projections are permuted.

    Raises:
        ValueError: the decoders differ in more than `takes_rotary` allows.
    """
    if not takes_rotary(decoder.config, rotary.config):
        raise ValueError(
            "the models differ in more than encoding (rope, algebraic), attention (softmax, "
            "windowed) and noise_seed"
        )
    assert isinstance(rotary.config.encoding, RopeConfig)
    heads, width = rotary.config.num_heads, rotary.config.width
    pairs = width // heads // 2
    weights = dict(rotary.state_dict())
    for name in [name for name in weights if name.endswith("attention.project_in.weight")]:
        weights[name] = _neighbours(weights[name], heads, pairs)
    [angles] = (name for name in decoder.state_dict() if name.endswith(".angles"))
    exponents = torch.arange(pairs, dtype=torch.float64) / pairs
    expected = decoder.state_dict()[angles]
    weights[angles] = (rotary.config.encoding.base**-exponents).to(expected).expand_as(expected)
    decoder.load_state_dict(weights)


def _neighbours(weight: Tensor, heads: int, pairs: int) -> Tensor:
    """Permutes a projection (3 * h * d, m) so that the rotated pairs of q and k are adjacent."""
    parts = weight.unflatten(0, (3, heads, 2, pairs))
    turned = parts[:2].transpose(2, 3).flatten(0, 3)
    return torch.cat([turned, parts[2:].flatten(0, 3)])
