"""The task `digits`: the handwritten digits of 8 x 8 pixels that scikit-learn includes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from training.errors import missing_package
from training.learning.seeding import generator
from training.tasks.classification.task import Split
from training.tasks.images.task import LoadedImageTask


@dataclass(frozen=True, kw_only=True)
class DigitsTask(LoadedImageTask):
    """Digits of 8 x 8 grey pixels (Alpaydin and Kaynak, 1998): 1,257, 180 and 360 of the splits."""

    shape: ClassVar[tuple[int, ...]] = (8, 8, 1)

    kind: Literal["digits"] = "digits"
    data: None = None
    """They come with scikit-learn."""

    @property
    def origin(self) -> str:
        """The package."""
        return "scikit-learn"

    def images(self, name: Split) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return images and classes of a split, in an order drawn at random, always the same."""
        return digits(name)


def digits(name: Split) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 8, 8, 1) and classes of a split.

    Raises:
        TrainingError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise missing_package("digits", "scikit-learn", "images") from error

    pixels, labels = (np.asarray(one) for one in load_digits(return_X_y=True))
    order = generator(0, 0, "data").permutation(len(labels))
    part = {"train": slice(1257), "validation": slice(1257, 1437), "test": slice(1437, None)}
    indices = order[part[name]]
    images = (pixels[indices] * (255 / 16)).round().astype(np.uint8).reshape(-1, *DigitsTask.shape)
    return images, labels[indices].astype(np.int64)
