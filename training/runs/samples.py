"""Sample continuations of a run, written after validations."""

from __future__ import annotations

import io
import logging
import multiprocessing
import shutil
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.models.decoder import DecoderConfig
from tokenization.presets import load_tokenizer
from training.continuations import continuations, write_sample
from training.data.corpus import Corpus
from training.runs.weights import fill
from training.tasks.module import TaskModule

logger = logging.getLogger(__name__)

PROMPT_BARS = 4
"""Bars of the prompt of a sample."""
NEW_BARS = 8
"""New bars of a sample."""
SAMPLE_SECONDS = 30.0
"""Time limit for samples: generation ends with the first bar completed after it."""
ENDING_SECONDS = 60.0
"""Time that a process that writes samples has to end after the run, besides `SAMPLE_SECONDS`."""


class Samples:
    """Generates continuations of validation pieces after each validation.

    Writes MIDI files and piano rolls to folders such as `samples/step_000500` in the run's folder.
    Prompts and seeds are always the same, so that samples differ only because of the weights, which
    are those just validated. Training is not affected: the random state is restored, and errors are
    logged in one line. With several processes, another process on the CPU writes them, since all
    would wait for the one that does.
    """

    def __init__(self, folder: Path, data: Path, count: int) -> None:
        self._folder = folder / "samples"
        self._data = data
        self._count = count
        self.due: int | None = None
        """The step whose samples are still to be written; checkpoints contain it."""
        self._process: BaseProcess | None = None

    @staticmethod
    def are_due(checkpoint: dict[str, Any], run: Path) -> bool:
        """Return whether a run that resumes from this checkpoint must write its samples first."""
        state, step = checkpoint["callbacks"].get("Samples", {}), checkpoint["global_step"]
        return state.get("due") == step and not _folder_of(run / "samples", step).exists()

    def note_due(self, step: int) -> None:
        """Note that samples are due, for the checkpoint that is written after the validation."""
        self.due = step if self._count else None

    def write(self, module: TaskModule[Any]) -> None:
        """Write the samples of a step, by the process of rank 0."""
        self.due = None
        fabric = module.fabric
        if not self._count or not fabric.is_global_zero:
            return
        folder, stream = _folder_of(self._folder, module.step), io.BytesIO()
        weights = {"state_dict": module.decoder.state_dict(), "average": module.average.state()}
        torch.save(weights, stream)  # tensors themselves would be moved to shared memory
        config = module.decoder.config
        job = SampleJob(config, stream.getvalue(), self._data, self._count, folder)
        if fabric.world_size == 1:
            job.write(fabric.device)
            return
        if self._process is not None and self._process.is_alive():
            logger.warning(
                "no samples at step %d: the previous ones are still being written; training "
                "continues",
                module.step,
            )
            return
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=job.write_alone, daemon=True)
        self._process.start()

    def wait(self) -> None:
        """Wait for samples that are being written."""
        if self._process is not None:
            self._process.join(SAMPLE_SECONDS + ENDING_SECONDS)
            self._process = None


def _folder_of(samples: Path, step: int) -> Path:
    """Return the folder of the samples of a step, which exists if they are complete."""
    return samples / f"step_{step:06d}"


@dataclass(frozen=True)
class SampleJob:
    """Samples of a model, and the folder in which they appear when they are complete."""

    config: DecoderConfig
    weights: bytes
    """The weights and their average, as torch stores them."""
    data: Path
    count: int
    folder: Path

    def write_alone(self) -> None:
        """Write the samples on one core, while other processes train."""
        torch.set_num_threads(1)
        self.write(torch.device("cpu"))

    def write(self, device: torch.device) -> None:
        """Write the samples; an error must not end hours of training, and is logged."""
        partial = self.folder.with_name(f"{self.folder.name}.partial")
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                self._write_to(partial, device)
            if self.folder.exists():  # of a run that was killed and repeats this step
                shutil.rmtree(self.folder)
            partial.rename(self.folder)
        except Exception as error:  # noqa: BLE001
            shutil.rmtree(partial, ignore_errors=True)
            logger.warning(
                "no samples at step %s: %s: %s; training continues",
                self.folder.name.removeprefix("step_").lstrip("0"),
                type(error).__name__,
                error,
            )

    def _write_to(self, folder: Path, device: torch.device) -> None:
        # a model of its own, since values that encodings cache in inference mode have no gradient
        decoder = self.config.build()
        weights = torch.load(io.BytesIO(self.weights), map_location="cpu", weights_only=True)
        fill(decoder, weights, folder)
        decoder.to(device).eval()
        tokenizer = load_tokenizer(self.data)
        prompts = validation_prompts(self.data, self.count)
        deadline = time.monotonic() + SAMPLE_SECONDS
        pieces = continuations(
            decoder,
            tokenizer,
            [ids for ids, _ in prompts],
            bars=NEW_BARS,
            enough=lambda: time.monotonic() > deadline,
        )
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
        folder.mkdir(parents=True)
        for number, (ids, (_, bars)) in enumerate(zip(pieces, prompts, strict=True)):
            write_sample(ids, tokenizer, folder / str(number), bars)


def validation_prompts(data: Path, count: int) -> list[tuple[NDArray[np.int64], int]]:
    """Return first bars of up to `count` pieces of the validation split: ids, number of bars."""
    corpus = Corpus.load(data, "validation")
    indices = np.unique(np.linspace(0, len(corpus), count, endpoint=False).astype(int))
    prompts: list[tuple[NDArray[np.int64], int]] = []
    for index in indices:
        ids, lines = corpus.piece(index).astype(np.int64), corpus.piece_bars(index)
        end = lines[PROMPT_BARS] if len(lines) > PROMPT_BARS else len(ids)
        prompts.append((ids[:end], min(PROMPT_BARS, len(lines))))
    return prompts
