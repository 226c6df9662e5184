"""Tasks whose examples are images."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from relpe.models.classifier.inputs import ConvolutionInputConfig, TokenInputConfig
from training.errors import TrainingError
from training.tasks.classification.examples import Example, LabelledExamples
from training.tasks.classification.task import ClassificationTask, Split


@dataclass(frozen=True, kw_only=True)
class ImageTask(ClassificationTask):
    """Classification of images, read as a sequence of pixels if the encoding has one axis.

    Models with `tokens` read the brightness of each pixel as an id; others read values from -1 to
    1.
    """

    input_kinds: ClassVar[tuple[str, ...]] = ("values", "tokens", "convolution")
    shape: ClassVar[tuple[int, ...]]
    """Height, width and channels of an image."""

    def __post_init__(self) -> None:
        super().__post_init__()
        reads, channels = self.model.input, self.shape[-1]
        if isinstance(reads, TokenInputConfig):
            if reads.vocabulary_size < 256 or channels > 1:
                raise TrainingError(
                    f"model.input reads {reads.vocabulary_size} tokens, but pixels have {channels} "
                    "channels of 256 values; use the input kind values, or grey images with 256"
                )
        elif reads.channels != channels:
            raise TrainingError(
                f"model.input.channels is {reads.channels}, but pixels have {channels}; set "
                f"task.model.input.channels={channels}"
            )
        if isinstance(reads, ConvolutionInputConfig) and len(self.shape) != 3:
            raise TrainingError("model.input.kind is convolution, but examples are no images")

    @property
    def axes(self) -> int:
        """Those of the image."""
        return len(self.shape) - 1

    @property
    def length(self) -> int:
        """Number of pixels."""
        return math.prod(self.shape[:-1])


@dataclass(frozen=True, kw_only=True)
class LoadedImageTask(ImageTask):
    """Classification of images that fit into memory."""

    @abstractmethod
    def images(self, name: Split) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return images (n, *shape) of a split, uint8 or float32 from -1 to 1, and classes (n,).

        Raises:
            TrainingError: the data are missing or damaged.
        """

    def split(self, name: Split) -> LabelledExamples:
        """Return the examples of a split."""
        images, labels = self.images(name)
        as_values = not isinstance(self.model.input, TokenInputConfig)
        return LabelledExamples(len(labels), partial(_image, images, labels, as_values))


def _image(images: NDArray[Any], labels: NDArray[np.int64], as_values: bool, index: int) -> Example:
    """Return an image as values (..., c), or as ids (...)."""
    image = images[index]
    if not as_values:
        image = image[..., 0].astype(np.int64)
    elif image.dtype == np.uint8:
        image = image.astype(np.float32) / 127.5 - 1
    return Example((image,), int(labels[index]))


def part_of_train(name: Split, count: int) -> slice:
    """Return which of `count` training images a split consists of: the last tenth validates."""
    border = count - count // 10
    return slice(border) if name == "train" else slice(border, None)
