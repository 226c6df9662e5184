"""A picture of the images that a run generates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from relpe.decoding.choose import choose_steps
from relpe.decoding.generate import Generation, Request, Sample
from relpe.decoding.sampling import SamplingOptions
from relpe.models.decoder import Decoder
from training.files import picture
from training.tasks.images.pixels import PixelsTask, Raster

COLUMNS = 8
"""Number of images of each row of the picture."""
COMPLETIONS = 2
"""Number of completions of each given half."""


def draw_images(
    decoder: Decoder, task: PixelsTask, given: NDArray[np.integer[Any]], path: Path
) -> None:
    """Draw images `given` (n, l), completions of their upper halves, and images from nothing.

    Every value is drawn from the distribution of the model, with fixed seeds.
    """
    given, half = given[:COLUMNS], task.shape[0] // 2 * (task.length // task.shape[0])
    maker = choose_steps(decoder, precision="float32", threads=torch.get_num_threads())
    generation: Generation[Raster] = Generation(decoder, maker.make())
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

    completed = [add(image[:half], range(COMPLETIONS)) for image in given]
    new = add(given[0, :0], range(len(given)))
    with tqdm(total=len(generation), desc="images", disable=None, delay=2) as bar:
        while len(generation):
            for sample in generation.step():
                if sample.error is not None:
                    raise sample.error
                bar.update()
    rows = {"test images": [task.picture(image) for image in given]}
    halves = [image.copy() for image in rows["test images"]]
    for image in halves:
        image[task.shape[0] // 2 :] = np.nan
    rows["given"] = halves
    for seed in range(COMPLETIONS):
        rows[f"completed, {seed}"] = [
            task.picture(np.concatenate([image[:half], samples[seed].tokens]))
            for image, samples in zip(given, completed, strict=True)
        ]
    rows["from nothing"] = [task.picture(np.array(sample.tokens)) for sample in new]
    with picture(path, 0.9 * len(given) + 0.9, 0.9 * len(rows), 120) as figure:
        axes = np.atleast_2d(figure.subplots(len(rows), len(given), squeeze=False))
        for line, (name, images) in zip(axes, rows.items(), strict=True):
            for axis, image in zip(line, images, strict=True):
                axis.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=1)
                axis.set(xticks=[], yticks=[])
            line[0].set_ylabel(name, fontsize=7)
