"""Settings of evaluations, which are options of `relpe-train evaluate`; does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from relpe.decoding.sampling import SamplingOptions
from training.config import MOST_THREADS
from training.errors import TrainingError, check_range
from training.evaluation.results import music_key


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Settings of the music that is generated and measured."""

    continuations: int = field(default=200, metadata={"metavar": "N"})
    """Minimum number of continuations to generate and measure; each prompt gets the same number."""
    per_prompt: int = 1
    """Minimum number for each prompt, with consecutive seeds; more if there are few prompts."""
    prompt_bars: int = field(default=8, metadata={"metavar": "N"})
    """Bars of each prompt, the beginning of a piece; several numbers are measured separately."""
    bars: int = field(default=32, metadata={"metavar": "N"})
    """New bars of each continuation; one number for all prompts, or one for each number of
    --prompt-bars."""
    seed: int = 0
    """Seed of the first continuation of each prompt."""
    temperature: float = SamplingOptions.temperature
    """Sampling temperature, as in relpe continue."""
    top_p: float = SamplingOptions.top_p
    """Share of probability that sampling keeps, as in relpe continue."""
    presence: float = 1.0
    """How strongly instruments that rest for too long are brought back, 0 to 1."""
    recall: float = 1.0
    """How strongly new music of several instruments follows the prompt, 0 to 1."""
    memory: float = SamplingOptions.memory
    """Factor of the odds of the model's pointer to earlier music, 0 to 1; 0: no pointer."""
    takes: int = field(default=1, metadata={"metavar": "K"})
    """Number of takes of each continuation, of which the one most like real music is
    measured; the results are kept apart from those of single takes."""
    samples_output: Path | None = None
    """Folder for the continuations as MIDI and piano rolls; None: they are not written."""

    def __post_init__(self) -> None:
        for name in ("continuations", "per_prompt", "prompt_bars", "bars", "takes"):
            check_range(f"--{name.replace('_', '-')}", getattr(self, name), 1)
        check_range("--seed", self.seed, 0)
        check_range("--temperature", self.temperature, 0)
        check_range("--top-p", self.top_p, 0, 1)
        check_range("--presence", self.presence, 0, 1)
        check_range("--recall", self.recall, 0, 1)
        check_range("--memory", self.memory, 0, 1)

    @property
    def key(self) -> str:
        """Key of this music in the results."""
        return music_key(self.prompt_bars, self.bars, self.takes)


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Settings of the evaluation of a model of music."""

    model: str = field(metadata={"flag": "--run", "metavar": "RUN"})
    """Folder of a run, or folder or name of a released model."""
    data: Path | None = None
    """Prepared corpus, of a model of music. Runs of other tasks need none: classifiers and
    translation are measured on the data of the run unless others are given, and only --weights,
    --batch-size, --device, --threads, --output and --split apply to them; generated tasks are
    measured on their test examples, without --data and --split; None: see above."""
    split: str = "test"
    """Split to measure on."""
    corpora: Sequence[str] = field(default=(), metadata={"metavar": "NAME"})
    """Measure only the pieces of these corpora of a mixture; none: all."""
    weights: str = field(default="best", metadata={"metavar": "best|last|FILE"})
    """Checkpoint, if RUN is a run: the best, the last, or a file."""
    length: int = 1024
    """Tokens per window."""
    chunk: int = 1024
    """Tokens per call when whole pieces are read."""
    reach: int = 4096
    """Tokens that a piece must have to count for the loss by position."""
    batch_size: int | None = None
    """Pieces or windows per batch; None: 8, for a run of another task that of the task."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that computes; auto: a GPU if there is one."""
    draws: int = field(default=1, metadata={"metavar": "S"})
    """Draws of the noise and random features to average over; the first has the model's seed."""
    threads: int | None = None
    """CPU threads of torch; None: that of torch."""
    ngram: int | None = field(default=None, metadata={"metavar": "N"})
    """Also measure n-gram models of this order; None: none."""
    trained_length: int | None = field(default=None, metadata={"metavar": "N"})
    """Tokens per training example; needed only for a released model, to compare the loss within and
    beyond this length; None: that of the run."""
    map_length: int = 512
    """Positions of the measured attention maps."""
    music: tuple[GenerationOptions, ...] = field(default=(), metadata={"flag": None})
    """Music to generate and measure, for each length of prompt; none: no music."""
    music_only: bool = False
    """Measure only music; keep earlier results for the same weights."""
    output: Path | None = None
    """Output folder; None: RUN/evaluation for a run, else evaluation/NAME."""

    def __post_init__(self) -> None:
        counts = ("length", "chunk", "reach", "batch_size", "draws", "ngram", "trained_length")
        for name in counts:
            check_range(f"--{name.replace('_', '-')}", getattr(self, name), 1)
        check_range("--map-length", self.map_length, 2)
        if self.music_only and not self.music:
            raise TrainingError("--music-only needs --continuations, such as --continuations 200")
        if len({music.key for music in self.music}) < len(self.music):
            raise TrainingError(
                "--prompt-bars and --bars contain the same pair twice; give it once"
            )
        check_range("--threads", self.threads, 1, MOST_THREADS)
