"""The task `lra_text`: whether a film review is positive, byte by byte (Maas et al., 2011)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from training.errors import TrainingError
from training.tasks.classification.examples import Example, LabelledExamples
from training.tasks.classification.task import Split
from training.tasks.lra.released import SequenceTask, released


@dataclass(frozen=True, kw_only=True)
class LraTextTask(SequenceTask):
    """Reviews of IMDB; every tenth training review validates.

    The published code validates on the test reviews, as this task does with `lra_compat`.
    """

    num_classes: ClassVar[int] = 2

    kind: Literal["lra_text"] = "lra_text"
    data: Path
    """Folder with `aclImdb`, or that folder itself."""
    max_length: int = 1000
    """Largest number of bytes; the published configuration has 1,000, the paper says 4,000."""

    def split(self, name: Split) -> LabelledExamples:
        """Return the reviews of a split; see `ClassificationTask`."""
        folder = released(self.data, "aclImdb")
        whole = name == "test" or self.lra_compat
        part = "test" if whole and name != "train" else "train"
        count = len(_files(folder, part))
        reviews = LabelledExamples(count, partial(_review, folder, part, self.max_length))
        if whole:
            return reviews
        numbers = np.arange(count)
        return reviews.part(numbers[(numbers % 10 == 9) == (name == "validation")])


def _review(folder: Path, name: str, longest: int, index: int) -> Example:
    """Return the bytes of a review, plus one; negative and positive reviews take turns."""
    path, label = _files(folder, name)[index]
    content = path.read_bytes()[:longest] or b"\n"
    return Example((np.frombuffer(content, np.uint8).astype(np.int64) + 1,), label)


@cache
def _files(folder: Path, name: str) -> list[tuple[Path, int]]:
    """Return the files of a split with their classes: 0 negative, 1 positive."""
    sides: list[list[tuple[Path, int]]] = []
    for label, side in enumerate(("neg", "pos")):
        files = sorted((folder / name / side).glob("*.txt"))
        if not files:
            raise TrainingError(
                f"{folder / name / side}: found no reviews (*.txt); give a folder that has "
                "aclImdb with --data"
            )
        sides.append([(path, label) for path in files])
    pairs = [one for pair in zip(*sides, strict=False) for one in pair]
    shorter = min(map(len, sides))
    return pairs + [one for side in sides for one in side[shorter:]]
