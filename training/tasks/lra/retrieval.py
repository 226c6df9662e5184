"""The task `lra_retrieval`: whether one paper cites another, byte by byte (Radev et al., 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.tasks.classification.examples import Example, LabelledExamples
from training.tasks.classification.task import Split
from training.tasks.lra.released import SequenceTask, released

_LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}
_FILES: dict[Split, str] = {"train": "train", "validation": "eval", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class LraRetrievalTask(SequenceTask):
    """Pairs of texts of the ACL Anthology Network; a model has two towers."""

    num_classes: ClassVar[int] = 2
    towers: ClassVar[int] = 2

    kind: Literal["lra_retrieval"] = "lra_retrieval"
    data: Path
    """Folder with `tsv_data`, or that folder itself."""
    max_length: int = 4000
    """Largest number of bytes of each text."""

    def split(self, name: Split) -> LabelledExamples:
        """Return the pairs of a split; see `ClassificationTask`."""
        folder = released(self.data, "tsv_data")
        path = folder / f"new_aan_pairs.{_FILES[name]}.tsv"
        return LabelledExamples(len(_starts(path)) - 1, partial(_pair, path, self.max_length))


def _pair(path: Path, longest: int, index: int) -> Example:
    """Return the bytes of both texts, plus one.

    Raises:
        TrainingError: the line is not a pair.
    """
    start, end = _starts(path)[index : index + 2]
    with path.open("rb") as file:
        file.seek(int(start))
        parts = file.read(int(end - start)).rstrip(b"\r\n").split(b"\t")
    label = _LABELS.get(parts[0])
    if label is None or len(parts) != 5:
        raise TrainingError(
            f"{path}: line {index + 1} has {len(parts)} columns, of which the first is "
            f"{parts[0][:20].decode(errors='replace')!r}, expected a class of 0 or 1, two names "
            "and two texts"
        )
    return Example((_ids(parts[3], longest), _ids(parts[4], longest)), label)


def _ids(text: bytes, longest: int) -> NDArray[np.int64]:
    """Return the first bytes of a text, plus one; those of a space if it is empty."""
    return np.frombuffer(text[:longest] or b" ", np.uint8).astype(np.int64) + 1


@cache
def _starts(path: Path) -> NDArray[np.int64]:
    """Return where each line begins, and where the last one ends, in bytes."""
    places = [0]
    try:
        with path.open("rb") as file:
            for line in file:
                places.append(places[-1] + len(line))
    except FileNotFoundError as error:
        raise TrainingError(
            f"{path}: not found; give a folder with the released tsv_data with --data"
        ) from error
    if len(places) == 1:
        raise TrainingError(f"{path}: is empty, expected a line for each pair")
    return np.array(places, np.int64)
