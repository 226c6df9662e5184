"""The layers of a decoder: attention and encoding of each block, and the encodings they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import NamedTuple

from relpe.attention.layer import AttentionConfig
from relpe.checks import Checked, at_least
from relpe.encodings import EncodingConfig


@dataclass(frozen=True, kw_only=True)
class LayerConfig(Checked):
    """Attention and encoding of consecutive blocks, as an entry of a pattern of layers."""

    attention: AttentionConfig | None = None
    """Kind of attention; None: that of the model."""
    encoding: EncodingConfig | None = None
    """Positional encoding; None: that of the model. Layers with equal encodings and axes share
    one."""
    axes: tuple[int, ...] | None = None
    """Axes of the positions that the encoding reads, counted from 0, in this order; None: all. Most
    encodings use the first of these only."""
    count: int = 1
    """Number of consecutive blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, count=self.count)
        if self.axes is not None and (not self.axes or min(self.axes) < 0):
            raise ValueError(f"axes are {self.axes}, expected at least one, counted from 0")


class Layer(NamedTuple):
    """Attention and encoding of one block."""

    attention: AttentionConfig
    encoding: EncodingConfig
    axes: tuple[int, ...] | None


class SharedEncoding(NamedTuple):
    """An encoding of a model, and the blocks that share it."""

    encoding: EncodingConfig
    axes: tuple[int, ...] | None
    blocks: list[int]


def layers_of(
    pattern: Sequence[LayerConfig],
    num_layers: int,
    attention: AttentionConfig,
    encoding: EncodingConfig,
) -> list[Layer]:
    """Return the layer of each block: the pattern is repeated.

    Without one, all blocks are alike.
    """
    entries = [
        Layer(entry.attention or attention, entry.encoding or encoding, entry.axes)
        for entry in pattern or (LayerConfig(),)
        for _ in range(entry.count)
    ]
    return list(islice(cycle(entries), num_layers))


def shared_encodings(layers: Sequence[Layer]) -> list[SharedEncoding]:
    """Return the distinct encodings of the layers, in the order of their first blocks."""
    blocks_by_key: dict[tuple[EncodingConfig, tuple[int, ...] | None], list[int]] = {}
    for block, layer in enumerate(layers):
        blocks_by_key.setdefault((layer.encoding, layer.axes), []).append(block)
    return [SharedEncoding(*key, blocks) for key, blocks in blocks_by_key.items()]
