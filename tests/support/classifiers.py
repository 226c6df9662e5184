"""Small classifiers of every encoding and attention that fit them, and their inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import AlgebraicConfig, ConvSPEConfig, SirenConfig
from relpe.encodings.algebraic.structures import GridStructure
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig
from relpe.encodings.selective import SelectiveRopeConfig
from relpe.models.classifier.inputs import TokenInputConfig, ValueInputConfig
from relpe.models.classifier.model import Classifier, ClassifierConfig
from tests.support.decoders import CONFIGS, FAVOR, RELU, ROPE, SOFTMAX, WINDOWED


def _is_causal(attention: object) -> bool:
    fading = getattr(attention, "half_lives", None) is not None
    return fading or isinstance(attention, DeltaAttentionConfig)


_NAMES = ("encoding", "attention", "normalize_queries_keys")
CLASSIFIERS: dict[str, dict[str, Any]] = {
    name: {key: config[key] for key in _NAMES if key in config}
    for name, config in CONFIGS.items()
    if not {"layers", "events"} & config.keys()
    and not _is_causal(config.get("attention"))
    and not isinstance(config["encoding"], SelectiveRopeConfig)
}
"""The entries of `CONFIGS` without causality."""

GRID, NARROW = AlgebraicConfig(structure=GridStructure()), WindowedAttentionConfig(span=3)
SIREN_2D = SirenConfig(
    network=SirenNetworkConfig(width=8), num_axes=2, reference_length=(8.0,), window=None
)
GRIDS: dict[str, tuple[Any, Any]] = {
    "algebraic softmax": (GRID, SOFTMAX),
    "algebraic windowed": (GRID, NARROW),
    "algebraic favor": (GRID, FAVOR),
    "siren softmax": (SIREN_2D, SOFTMAX),
    "siren with a learned span": (
        replace(SIREN_2D, window=WindowConfig(width=(1.5,), block=1, max_span=8)),
        WINDOWED,
    ),
    "convolutional spe": (ConvSPEConfig(taps=(3, 3), num_realizations=6), RELU),
    "rope, as a sequence": (ROPE, NARROW),
}
"""Encodings and attention on a grid of two axes."""

SIZES: dict[str, Any] = {
    "width": 16,
    "num_layers": 2,
    "num_heads": 2,
    "hidden": 24,
    "num_classes": 5,
}
TOKENS = TokenInputConfig(vocabulary_size=11)


def classifier(name: str = "sine relu", **changes: Any) -> Classifier:
    """The classifier of an entry of `CLASSIFIERS` with large weights, the same each time."""
    torch.manual_seed(0)
    settings = {"input": TOKENS, **SIZES, **CLASSIFIERS[name], **changes}
    model = ClassifierConfig(**settings).build().double().eval()
    with torch.no_grad():  # classes differ clearly
        for weight in model.blocks.parameters():
            weight.mul_(8 if weight.ndim > 1 else 1)
        if model.cls_embedding is not None:
            model.cls_embedding.normal_()
    return model


def on_grid(encoding: Any, attention: Any, **changes: Any) -> Classifier:
    """A classifier of values with two channels, with an encoding of as many axes as the grid."""
    torch.manual_seed(0)
    settings = {"input": ValueInputConfig(channels=2), "encoding": encoding, **SIZES, **changes}
    return ClassifierConfig(attention=attention, **settings).build().double().eval()


def tokens(length: int = 9, rows: int = 3) -> torch.Tensor:
    """Random tokens (rows, length), the same for the same length."""
    return torch.randint(0, 11, (rows, length), generator=torch.Generator().manual_seed(length))
