"""The fitted pointer of a run, pointer.json, and the record of its fit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from relpe.files import write_text
from relpe.models.config import to_plain
from relpe.models.pointer.config import PointerConfig
from training.config import build
from training.errors import TrainingError
from training.files import read_json

NAME = "pointer.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class FamilyGain:
    """Nats per token of one family of predicted tokens."""

    family: str
    tokens: int
    decoder: float
    """Without the pointer."""
    mixture: float
    """With the pointer."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Nats per token of whole pieces of a split; each piece's first token is not counted."""

    split: str
    pieces: int
    tokens: int
    notes: int
    decoder: float
    """Without the pointer."""
    mixture: float
    """With the pointer."""
    families: tuple[FamilyGain, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PointerFit:
    """The fit of a pointer's gates, and the gain of the pointer."""

    weights: str
    """SHA-256 of the decoder's weights, from `weights.digest`."""
    data: str
    """Hash of the prepared corpus."""
    source: str | None = None
    """Source of the data."""
    fitted: Gain
    """On the pieces to which the gates were fitted."""
    test: Gain
    """On other pieces."""
    command: str | None = None
    commit: str | None = None
    torch: str | None = None


@dataclass(frozen=True, kw_only=True)
class FittedPointer:
    """A pointer and its fit."""

    pointer: PointerConfig
    fit: PointerFit


def read_pointer(run: Path) -> FittedPointer | None:
    """Read pointer.json of a run; None if there is none.

    Raises:
        TrainingError: the file is damaged or was written by a newer version.
    """
    path = run / NAME
    if not path.is_file():
        return None
    names = ("format_version", "pointer", "fit")
    content = read_json(path, names, "run relpe-train fit-pointer again")
    version = content.pop("format_version")
    if version != FORMAT_VERSION:
        raise TrainingError(
            f"{path}: format {version}, expected {FORMAT_VERSION}; update this program"
        )
    return build(FittedPointer, content, str(path))


def write_pointer(fitted: FittedPointer, run: Path) -> None:
    """Write pointer.json of a run."""
    content = {"format_version": FORMAT_VERSION, **to_plain(fitted)}
    write_text(run / NAME, json.dumps(content, indent=1) + "\n")


def pointer_digest(pointer: PointerConfig | None) -> str | None:
    """Return the SHA-256 of all settings and gates of a pointer; None without a pointer."""
    if pointer is None:
        return None
    plain = json.dumps(to_plain(pointer), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()
