"""Settings of tuning, which are options of its commands; does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from training.config import MOST_THREADS
from training.errors import TrainingError, check_range

Method: TypeAlias = Literal["low-rank", "full"]
_SEVERAL = {"action": "append", "nargs": None}


@dataclass(frozen=True, kw_only=True)
class FitPointerOptions:
    """Settings of a fit of a pointer."""

    model: str = field(metadata={"flag": "model", "metavar": "MODEL"})
    """Folder of a run, or folder or name of a released model."""
    data: Path
    """Prepared corpus."""
    split: str = "validation"
    """Split to which the pointer is fitted."""
    test_split: str = "test"
    """Split on which its gain is measured."""
    weights: Literal["best", "last"] = "best"
    """Checkpoint, if MODEL is a run."""
    output: Path | None = None
    """Folder for a copy of a released model with the pointer; not for runs, whose pointer is stored
    in pointer.json and written by export; None: the model's own folder."""
    pieces: int | None = field(default=None, metadata={"metavar": "N"})
    """Maximum number of pieces per split, evenly spaced; None: all."""
    balance: Sequence[str] = field(default=(), metadata={**_SEVERAL, "metavar": "NAME=LOG_ODDS"})
    """What generation adds to the fitted gates: strength, most, most_generated, aligned, near,
    named, imposed, notes, plan or run; may be repeated; none: what the model has, otherwise 0, and
    4 for imposed."""
    temperature: Sequence[str] = field(
        default=(), metadata={**_SEVERAL, "metavar": "FAMILY=FACTOR"}
    )
    """Factor of the temperature of a family of tokens, such as Pitch=0.95; may be repeated; none:
    what the model has, otherwise 1."""
    chunk: int = 1024
    """Tokens that the model reads per call."""
    batch_size: int = 8
    """Pieces per batch."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that computes; auto: a GPU if there is one."""
    threads: int | None = None
    """CPU threads of torch; None: that of torch."""

    def __post_init__(self) -> None:
        for name in ("pieces", "chunk", "batch_size"):
            check_range(f"--{name.replace('_', '-')}", getattr(self, name), 1)
        check_range("--threads", self.threads, 1, MOST_THREADS)
        if self.split == self.test_split:
            raise TrainingError(
                f"--split and --test-split are both {self.split!r}, expected two splits, since the "
                "gain is measured on pieces to which the gates were not fitted"
            )


@dataclass(frozen=True, kw_only=True)
class FitBalanceOptions:
    """Settings of a fit of what generation adds to a pointer."""

    model: str = field(metadata={"flag": "model", "metavar": "MODEL"})
    """Folder of a run, or folder or name of a released model; the balance is stored there."""
    data: Path
    """Prepared corpus."""
    corpora: Sequence[str] = field(default=(), metadata={"nargs": "+", "metavar": "NAME"})
    """Corpora of a mixture; none: all."""
    split: str = "validation"
    """Split whose pieces are continued."""
    lengths: Sequence[str] = field(
        default=("8:32", "40:16"), metadata={"nargs": "+", "metavar": "BARS:BARS"}
    )
    """Bars of prompts, and of their continuations."""
    prompts: int = field(default=60, metadata={"metavar": "N"})
    """Maximum number of pieces, evenly spaced."""
    per_prompt: int = field(default=1, metadata={"metavar": "N"})
    """Continuations of each prompt."""
    rounds: int = 2
    """How often each value is changed; each further round halves the changes."""
    seed: int = 500
    """Seed of the first continuation of each prompt."""
    threads: int | None = None
    """CPU threads of torch; None: that of torch."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """`lengths` as numbers."""
        pairs: list[tuple[int, int]] = []
        for text in self.lengths:
            bars, _, new_bars = text.partition(":")
            if not (bars.isdecimal() and new_bars.isdecimal() and int(bars) and int(new_bars)):
                raise TrainingError(
                    f"--lengths {text}: expected bars of the prompt and of its continuation, such "
                    "as 8:32"
                )
            pairs.append((int(bars), int(new_bars)))
        return pairs

    def __post_init__(self) -> None:
        for name in ("prompts", "per_prompt", "rounds"):
            check_range(f"--{name.replace('_', '-')}", getattr(self, name), 1)
        check_range("--seed", self.seed, 0)
        check_range("--threads", self.threads, 1, MOST_THREADS)
        assert self.pairs


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Settings of a tuning."""

    model: str = field(metadata={"metavar": "MODEL"})
    """Name or folder of a released model, or folder of a run."""
    corpus: tuple[Path, ...] = field(metadata={"action": "extend", "metavar": "FILE"})
    """Five or more MIDI files, or folders or zips of MIDI files."""
    output: Path
    """Folder for the new model."""
    minutes: float = 10.0
    """How long the command takes; it ends earlier if held-back pieces do not become more likely."""
    method: Method = "low-rank"
    """What is learned: low-rank: corrections of low rank, which are added to the weights at the
    end; full: all weights."""
    learning_rate: float | None = field(default=None, metadata={"metavar": "X"})
    """Peak learning rate; None: that of the method."""
    original: Path | None = field(default=None, metadata={"metavar": "DATA"})
    """Prepared corpus with which the model was trained, to measure on its validation split how much
    is forgotten; None: not measured."""
    clock: Literal["wall", "cpu"] = "wall"
    """What --minutes counts: wall-clock time, or CPU time, for comparisons."""
    seed: int = 0
    """Seed of the examples."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that computes; auto: a GPU if there is one."""
    threads: int | None = None
    """CPU threads of torch; None: that of torch."""

    def __post_init__(self) -> None:
        check_range("--minutes", self.minutes, 0, 24 * 60, above=True)
        check_range("--learning-rate", self.learning_rate, 0, 1, above=True)
        check_range("--seed", self.seed, 0, 2**63 - 1)
        check_range("--threads", self.threads, 1, MOST_THREADS)
        if self.method not in get_args(Method):
            raise TrainingError(f"--method {self.method}: expected {' or '.join(get_args(Method))}")
