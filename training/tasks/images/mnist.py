"""The task `mnist`: handwritten digits of 28 x 28 pixels (LeCun et al., 1998)."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.learning.seeding import generator
from training.tasks.classification.task import Split
from training.tasks.images.task import LoadedImageTask, part_of_train


@dataclass(frozen=True, kw_only=True)
class MnistTask(LoadedImageTask):
    """MNIST; the last tenth of the 60,000 training images validates.

    With an encoding of one axis, this is sequential MNIST.
    """

    shape: ClassVar[tuple[int, ...]] = (28, 28, 1)

    kind: Literal["mnist"] = "mnist"
    data: Path
    """Folder with the four idx files, with or without `.gz`."""
    permuted: bool = False
    """Whether pixels are in one random order for all images (permuted MNIST; Le et al., 2015)."""

    def images(self, name: Split) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the images and classes of a split."""
        images, labels = mnist(self.data, name)
        if self.permuted:
            order = generator(0, 1, "data").permutation(28 * 28)
            images = images.reshape(len(images), -1)[:, order].reshape(images.shape)
        return images, labels


def mnist(data: Path, name: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 28, 28, 1) and classes of a split.

    Raises:
        TrainingError: a file is missing or damaged.
    """
    stem = "t10k" if name == "test" else "train"
    images = read_idx(data, f"{stem}-images-idx3-ubyte", 3)
    labels = read_idx(data, f"{stem}-labels-idx1-ubyte", 1)
    if images.shape[1:] != (28, 28) or len(images) != len(labels) or labels.max() > 9:
        raise TrainingError(
            f"{data}: found {images.shape} and {len(labels):,} classes, expected as many "
            "images of 28 x 28 with classes from 0 to 9"
        )
    part = slice(None) if name == "test" else part_of_train(name, len(labels))
    return images[part, ..., None], labels[part].astype(np.int64)


@cache
def read_idx(folder: Path, stem: str, axes: int) -> NDArray[np.uint8]:
    """Return an array of bytes from an idx file, with or without `.gz`.

    A dot may replace the last hyphen.

    Raises:
        TrainingError: the file is missing or damaged.
    """
    names = [stem, stem.replace("-idx", ".idx")]
    paths = [folder / f"{name}{end}" for name in names for end in ("", ".gz")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise TrainingError(
            f"{folder}: found no {stem} and no {stem}.gz; give a folder with the files of MNIST "
            "with --data"
        )
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise TrainingError(f"{path}: damaged ({error}); download it again") from error
    sizes = np.frombuffer(content[4 : 4 + 4 * axes], ">u4").astype(np.int64)
    body = content[4 + 4 * axes :]
    if content[:4] != bytes([0, 0, 8, axes]) or not len(body) or len(body) != sizes.prod():
        raise TrainingError(f"{path}: not an idx file of bytes with {axes} axes; download it again")
    return np.frombuffer(body, np.uint8).reshape(*sizes)
