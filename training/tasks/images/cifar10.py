"""The task `cifar10`: colour images of 32 x 32 pixels (Krizhevsky, 2009)."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.tasks.classification.task import Split
from training.tasks.images.task import LoadedImageTask, part_of_train

_FILES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
_FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin")


@dataclass(frozen=True, kw_only=True)
class Cifar10Task(LoadedImageTask):
    """CIFAR-10; the last tenth of the 50,000 training images validates."""

    shape: ClassVar[tuple[int, ...]] = (32, 32, 3)

    kind: Literal["cifar10"] = "cifar10"
    data: Path
    """Folder with `cifar-10-batches-py` or `cifar-10-batches-bin`, or that folder itself."""

    def images(self, name: Split) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the images and classes of a split."""
        return cifar10(self.data, name)


def cifar10(data: Path, name: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 32, 32, 3) and classes of a split.

    Raises:
        TrainingError: a file is missing or damaged.
    """
    images, labels = read_cifar10(data, "test" if name == "test" else "train")
    part = slice(None) if name == "test" else part_of_train(name, len(labels))
    return images[part], labels[part]


@cache
def read_cifar10(data: Path, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 32, 32, 3) and classes of the files of training or the test, in order.

    Raises:
        TrainingError: a file is missing or damaged.
    """
    folder = next((data / name for name in _FOLDERS if (data / name).is_dir()), data)
    rows: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    for stem in _FILES[name]:
        if (folder / f"{stem}.bin").is_file():
            more = _binary(folder / f"{stem}.bin")
        elif (folder / stem).is_file():
            more = _python(folder / stem)
        else:
            raise TrainingError(
                f"{folder}: found no {stem} and no {stem}.bin; give a folder with CIFAR-10 as "
                "Python or binary files with --data"
            )
        rows.append(more[0])
        labels.append(more[1])
    images = np.concatenate(rows).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.concatenate(labels)


def _binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % 3073:
        raise TrainingError(f"{path}: found {len(content):,} bytes, expected a multiple of 3,073")
    content = content.reshape(-1, 3073)
    return _checked(path, content[:, 1:], content[:, 0].astype(np.int64))


def _python(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels, labels = np.asarray(content[b"data"]), np.asarray(content[b"labels"], np.int64)
    except Exception as error:  # a damaged pickle raises errors of any kind
        raise TrainingError(f"{path}: not a Python file of CIFAR-10 ({error})") from error
    return _checked(path, pixels, labels)


def _checked(
    path: Path, pixels: NDArray[Any], labels: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    fits = pixels.dtype == np.uint8 and pixels.shape == (len(labels), 3072) and len(labels) > 0
    if not fits or labels.min() < 0 or labels.max() > 9:
        raise TrainingError(
            f"{path}: found {pixels.dtype} of {pixels.shape}, expected 3,072 bytes per image and "
            "classes from 0 to 9"
        )
    return pixels, labels


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays and plain values only, so that a file cannot run code."""

    _KNOWN: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module_name: str, global_name: str, /) -> Any:  # noqa: ANN401
        """Return a class or function that arrays need."""
        if (module_name, global_name) not in self._KNOWN:
            raise pickle.UnpicklingError(f"it contains {module_name}.{global_name}")
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)
