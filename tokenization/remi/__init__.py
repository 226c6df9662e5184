"""The REMI tokenizers."""

from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi, PianoRemiConfig, Remi, RemiTokens

__all__ = [
    "MultitrackRemi",
    "MultitrackRemiConfig",
    "PianoRemi",
    "PianoRemiConfig",
    "Remi",
    "RemiTokens",
]
