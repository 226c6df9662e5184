"""Small encoder-decoders of every encoding and attention that fit them, and their inputs."""

from __future__ import annotations

from typing import Any

import torch

from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings.absolute import TreeSQConfig
from relpe.encodings.algebraic.encoding import AlgebraicConfig
from relpe.encodings.algebraic.structures import DirectSum, SequenceStructure, TreeStructure
from relpe.encodings.offset.alibi import AlibiConfig
from relpe.encodings.offset.kerple import KerpleConfig
from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderConfig
from tests.support.classifiers import CLASSIFIERS

TREE = TreeStructure(start=True)
ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    name: {"attention": LinearAttentionConfig(), **config}
    for name, config in CLASSIFIERS.items()
    if not isinstance(config.get("attention"), WindowedAttentionConfig) and "decay" not in name
} | {
    "alibi softmax": {"encoding": AlibiConfig()},
    "kerple softmax": {"encoding": KerpleConfig()},
    "tree softmax": {"encoding": AlgebraicConfig(structure=TREE), "axes": (1,)},
    "tree and sequence softmax": {
        "encoding": AlgebraicConfig(
            structure=DirectSum(parts=(SequenceStructure(), TREE), features=(4, 4)),
            shared_by_layers=False,
        )
    },
    "tree_sq softmax": {"encoding": TreeSQConfig(max_depth=4, tree=TREE), "axes": (1,)},
}
"""The entries of `CLASSIFIERS` that are defined between two sequences, and others."""


def encoder_decoder(name: str, **changes: Any) -> EncoderDecoder:
    """The model of an entry of `ENCODER_DECODERS` with large weights, the same each time."""
    torch.manual_seed(0)
    sizes = {"vocabulary_size": 11, "width": 16, "num_layers": 2, "num_heads": 2, "hidden": 24}
    model = EncoderDecoderConfig(**{**sizes, **ENCODER_DECODERS[name], **changes}).build()
    with torch.no_grad():
        for weight in model.blocks.parameters():
            weight.mul_(8 if weight.ndim > 1 else 1)
        model.embedding.weight.mul_(20)
    return model.double().eval()
