"""The task `lra_image`: CIFAR-10 in grey, a token for each pixel (Tay et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from training.tasks.classification.task import Split
from training.tasks.images.cifar10 import cifar10
from training.tasks.images.task import LoadedImageTask

_GREY = (0.2989, 0.587, 0.114)


@dataclass(frozen=True, kw_only=True)
class LraImageTask(LoadedImageTask):
    """The brightness of 32 x 32 pixels; the last tenth of the training images validates."""

    shape: ClassVar[tuple[int, ...]] = (32, 32, 1)

    kind: Literal["lra_image"] = "lra_image"
    data: Path
    """Folder with `cifar-10-batches-py` or `cifar-10-batches-bin`."""

    def images(self, name: Split) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the grey images and classes of a split."""
        images, labels = cifar10(self.data, name)
        grey = np.rint(images.astype(np.float32) @ np.array(_GREY, np.float32))
        return grey.astype(np.uint8)[..., None], labels
