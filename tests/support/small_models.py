"""A tiny model of piano music."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpe.models.checkpoint import save_model
from relpe.models.decoder import Decoder, DecoderConfig
from tokenization.remi.remi import PianoRemi

if TYPE_CHECKING:
    from pathlib import Path


def tiny_decoder() -> Decoder:
    """A decoder of one layer without training."""
    size = len(PianoRemi().vocabulary)
    config = DecoderConfig(vocabulary_size=size, width=16, num_layers=1, num_heads=2, hidden=16)
    return config.build().eval()


def save_tiny_model(folder: Path) -> None:
    """Write the decoder and its tokenizer."""
    save_model(tiny_decoder(), folder)
    PianoRemi().save(folder)
