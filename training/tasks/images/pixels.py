"""The task `pixels`: images, generated pixel by pixel.

Pixels are read from left to right and from top to bottom, each channel by itself (van den Oord et
al., 2016). The likelihood is given in bits per dimension, a dimension being a channel of a pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from relpe.decoding.sampling import SamplingOptions
from relpe.models.decoder import Decoder
from training.errors import TrainingError, check_range
from training.files import picture
from training.tasks.images.cifar10 import Cifar10Task, cifar10
from training.tasks.images.digits import DigitsTask, digits
from training.tasks.images.mnist import MnistTask, mnist
from training.tasks.likelihood import LikelihoodTask, Rows
from training.tasks.task import Measured, Split

if TYPE_CHECKING:
    from relpe.decoding.generate import Sample

COLUMNS = 8
"""Number of images of each row of the picture."""
COMPLETIONS = 2
"""Number of completions of each given half."""
_SHAPES = {"digits": DigitsTask.shape, "mnist": MnistTask.shape, "cifar10": Cifar10Task.shape}


@dataclass(frozen=True, kw_only=True)
class PixelsTask(LikelihoodTask):
    """Prediction of each value of an image from those before it.

    Ids are those of the first channel from dark to bright, then those of the next; the last one
    begins an image. Positions have three axes: the index, and row and column of the pixel that is
    predicted.
    """

    kind: Literal["pixels"] = "pixels"
    data: Path | None = None
    """Folder of the images, as for the task with the name of `images`; digits have none."""
    images: Literal["digits", "mnist", "cifar10"]
    """Images that are read, with the splits of the task of this name."""
    levels: int = 256
    """Number of values of a channel: the 256 of the images in ranges of nearly equal size."""

    def __post_init__(self) -> None:
        check_range("levels", self.levels, 2, 256)
        if self.images not in _SHAPES:
            raise TrainingError(f"images is {self.images}, expected one of {', '.join(_SHAPES)}")
        if self.images != "digits" and self.data is None:
            raise TrainingError(f"{self.images} needs a folder with its files; give --data")
        super().__post_init__()

    @property
    def shape(self) -> tuple[int, ...]:
        """Height, width and channels of an image."""
        return _SHAPES[self.images]

    @property
    def num_tokens(self) -> int:
        """The levels of each channel, and the beginning of an image."""
        return self.levels * self.shape[-1] + 1

    @property
    def length(self) -> int:
        """Number of dimensions of an image."""
        return math.prod(self.shape)

    @property
    def axes(self) -> int:
        """Index, row and column."""
        return 3

    @property
    def origin(self) -> str:
        """Names of the images and the number of levels, for reports."""
        return f"{self.images} with {self.levels} levels"

    def ids(self, name: Split) -> NDArray[np.int16]:
        """Return the ids (n, l) of the images of a split.

        Raises:
            TrainingError: the images are missing or damaged.
        """
        if self.images == "digits":
            images, _ = digits(name)
        else:
            assert self.data is not None
            images, _ = (mnist if self.images == "mnist" else cifar10)(self.data, name)
        ids = (images.astype(np.int32) * self.levels >> 8).astype(np.int16)
        ids += self.levels * np.arange(self.shape[-1], dtype=np.int16)
        return ids.reshape(len(images), -1)

    def rows(self, name: Split) -> Rows:
        """Return the images of a split."""
        ids = self.ids(name)
        begin = np.full((len(ids), 1), self.num_tokens - 1, ids.dtype)
        return np.stack([np.concatenate([begin, ids[:, :-1]], 1), ids], -1)

    def picture(self, ids: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return the brightness (h, w, c) from 0 to 1 of an image with the ids (l,)."""
        return ids.reshape(self.shape) % self.levels / (self.levels - 1)

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """Row and column (l + 1, 2) of the pixel predicted at each position, and of the end."""
        places = np.indices(self.shape)[:2].reshape(2, -1).T
        return np.concatenate([places, [(self.shape[0], 0)]])

    def positions(self, tokens: Tensor) -> Tensor:
        """Return the index, row and column (1, l, 3) of tokens (b, l), which begin an image."""
        length = tokens.shape[1]
        index = np.arange(length)[:, None]
        positions = np.concatenate([index, self.places[:length]], 1)
        return torch.from_numpy(positions).to(tokens.device)[None]

    def figures(self, name: Split, nats: NDArray[np.float64]) -> dict[str, float]:
        """Return bits per dimension: of the model, and of the frequencies of values at each place.

        The frequencies are those of the training images, plus one, so that none is 0.
        """
        train = self.ids("train") % self.levels
        values = self.ids(name) % self.levels
        bits = 0.0
        for place in range(self.length):
            counts = np.bincount(train[:, place], minlength=self.levels) + 1
            bits -= float(np.log2(counts / counts.sum())[values[:, place]].sum())
        return {
            "bits_per_dimension": float(nats.sum() / (values.size * math.log(2))),
            "by_place": bits / values.size,
        }

    def evaluate(self, model: Decoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the likelihood, and draw images that the model completes or generates."""
        measured = super().evaluate(model, run, split, batch_size)
        return measured._replace(
            write=lambda folder: draw_images(model, self, self.ids(split), folder / "images.png")
        )


@dataclass(frozen=True)
class Raster:
    """How an image is generated: which ids may come next, and where the next id is."""

    task: PixelsTask
    place: int = 0
    """Number of values so far."""

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Mask (v,) of the levels of the next channel; after the last one, of another beginning."""
        task = self.task
        mask = np.zeros(task.num_tokens, np.bool_)
        if self.place < task.length:
            first = self.place % task.shape[-1] * task.levels
            mask[first : first + task.levels] = True
        elif self.place == task.length:
            mask[-1] = True  # ends the image and is no part of it
        return mask

    def advance(self, token: int) -> Raster:
        """Return the raster after one more value."""
        del token
        return replace(self, place=self.place + 1)

    def read(self, ids: NDArray[np.integer]) -> tuple[NDArray[np.int64], Raster]:
        """Return row and column (l, 2) of the pixels that are predicted after each id (l,)."""
        stop = self.place + len(ids)
        return self.task.places[self.place : stop], replace(self, place=stop)


def draw_images(
    decoder: Decoder, task: PixelsTask, ids: NDArray[np.integer[Any]], path: Path
) -> None:
    """Draw the first images of ids (n, l), completions of their upper halves, and new images.

    Every value is drawn from the distribution of the model, with fixed seeds.
    """
    images = ids[:COLUMNS]
    num_rows = task.shape[0] // 2
    half = num_rows * (task.length // task.shape[0])
    completions, new = _generate(decoder, task, images[:, :half])
    rows = {
        "test images": [task.picture(image) for image in images],
        "given": [task.picture(image) for image in images],
    }
    for image in rows["given"]:
        image[num_rows:] = np.nan
    for seed in range(COMPLETIONS):
        rows[f"completed, {seed}"] = [
            task.picture(np.concatenate([image[:half], samples[seed].tokens]))
            for image, samples in zip(images, completions, strict=True)
        ]
    rows["from nothing"] = [task.picture(np.array(sample.tokens)) for sample in new]
    with picture(path, 0.9 * len(images) + 0.9, 0.9 * len(rows), 120) as figure:
        axes = np.atleast_2d(figure.subplots(len(rows), len(images), squeeze=False))
        for line, (name, pictures) in zip(axes, rows.items(), strict=True):
            for axis, image in zip(line, pictures, strict=True):
                axis.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
                axis.set(xticks=[], yticks=[])
            line[0].set_ylabel(name, fontsize=7)


def _generate(
    decoder: Decoder, task: PixelsTask, beginnings: NDArray[np.integer[Any]]
) -> tuple[list[list[Sample[Raster]]], list[Sample[Raster]]]:
    """Return the completions of each beginning (n, l), and as many images from nothing."""
    from relpe.decoding.choose import choose_steps
    from relpe.decoding.generate import Generation, Request

    steps = choose_steps(decoder, precision="float32", threads=torch.get_num_threads())
    generation: Generation[Raster] = Generation(decoder, steps.make())
    begin = np.array([task.num_tokens - 1])

    def add(prompt: NDArray[np.integer[Any]], seeds: range) -> list[Sample[Raster]]:
        return generation.add(
            Request(
                np.concatenate([begin, prompt]),
                Raster(task, len(prompt)),
                seeds,
                SamplingOptions(top_p=1.0),
                Raster(task),
            )
        )

    completions = [add(beginning, range(COMPLETIONS)) for beginning in beginnings]
    new = add(beginnings[0, :0], range(len(beginnings)))
    with tqdm(total=len(generation), desc="images", disable=None, delay=2) as bar:
        while len(generation):
            for sample in generation.step():
                if sample.error is not None:
                    raise sample.error
                bar.update()
    return completions, new
