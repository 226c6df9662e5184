"""The task `series`: the class of a time series of the UCR and UEA archives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from relpe.encodings.base import Encoding
from relpe.encodings.offset.base import OffsetEncoding
from relpe.models.classifier.inputs import ValueInputConfig
from training.errors import TrainingError, check_range
from training.learning.seeding import generator
from training.tasks.classification.examples import Example, LabelledExamples, in_memory
from training.tasks.classification.task import ClassificationTask, Split
from training.tasks.series.ts_file import Labelled, Series, read_split

_ROUNDING = 1e-6
"""Difference from whole numbers up to which positions are places."""


@dataclass(frozen=True, kw_only=True)
class SeriesTask(ClassificationTask):
    """Series of any length and number of channels, sampled regularly or not.

    Values are standardised by the mean and the deviation of each channel over the file TRAIN. The
    model does not read times at which all channels are missing; a value that is missing at another
    time is 0, the mean.
    """

    num_classes: ClassVar[int | None] = None
    input_kinds: ClassVar[tuple[str, ...]] = ("values",)

    kind: Literal["series"] = "series"
    data: Path
    """Folder, zip or wheel with the files of the set, `NAME_TRAIN.ts` and `NAME_TEST.ts`."""
    name: str
    """Name of the set, such as GunPoint."""
    max_length: int
    """Largest number of times of a series; longer ones are refused."""
    validation_share: float = 0.0
    """Share of the series of TRAIN that validates, of each class; 0: all of them train."""
    times: Literal["real", "index"] = "real"
    """Positions: differences of time from the first time of the series, or places of values."""
    time_step: float | None = None
    """Difference of time of two positions, for dates in seconds; None: the median difference
    between values that follow each other in TRAIN."""
    dropped: float = 0.0
    """Share of the times that the model does not read, chosen at random for each series, which
    makes sampling irregular."""
    mark_missing: bool = False
    """Whether each channel has a second one beside it, 1 where its value is missing, otherwise 0,
    so that the model has twice as many channels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("max_length", self.max_length, 1)
        check_range("validation_share", self.validation_share, 0, 0.5)
        check_range("time_step", self.time_step, 0, above=True)
        check_range("dropped", self.dropped, 0, 0.95)

    @property
    def origin(self) -> str:
        """The set and where it is."""
        return f"{self.name} in {self.data}"

    @property
    def length(self) -> int:
        """The largest number of times."""
        return self.max_length

    def split(self, name: Split) -> LabelledExamples:
        """Return the series of a split.

        TRAIN is divided into those for training and for validation.
        """
        of_file = read_split(self.data, self.name, "TEST" if name == "test" else "TRAIN")
        self.check_classes(len(self._scale.classes))
        indices = range(len(of_file.series)) if name == "test" else self._part(name)
        series = [self._read(of_file, index, name) for index in indices]
        self._check_positions(series)
        return in_memory(series)

    def _part(self, name: Split) -> list[int]:
        """Return which series of TRAIN are of a split: of each class, every n-th validates."""
        every = round(1 / self.validation_share) if self.validation_share else 0
        labels = np.array([one.label for one in self._train.series])
        order = generator(0, 0, "data").permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        validates = np.zeros(len(labels), bool)
        if every:
            validates[order[every - 1 :: every]] = True
        return np.flatnonzero(validates == (name == "validation")).tolist()

    @cached_property
    def _train(self) -> Labelled:
        return read_split(self.data, self.name, "TRAIN")

    @cached_property
    def _scale(self) -> _Scale:
        """What the values and times of a series are divided by."""
        series = self._train.series
        values = np.concatenate([one.values for one in series])
        steps = np.concatenate([np.diff(_present(one).times) for one in series])
        channels = values.shape[1] * (2 if self.mark_missing else 1)
        reads = self.model.input
        if isinstance(reads, ValueInputConfig) and reads.channels != channels:
            raise TrainingError(
                f"model.input.channels is {reads.channels}, but the series of {self.name} have "
                f"{channels}; set task.model.input.channels={channels}"
            )
        is_finite = np.isfinite(values)
        counts = np.maximum(is_finite.sum(0), 1)
        mean = values.sum(0, where=is_finite) / counts
        deviation = np.sqrt(((values - mean) ** 2).sum(0, where=is_finite) / counts)
        step = float(np.median(steps)) if len(steps) else 1.0
        return _Scale(
            self._train.classes,
            mean,
            np.where(deviation > 0, deviation, 1.0),
            self.time_step or step,
        )

    def _read(self, of_file: Labelled, index: int, name: Split) -> Example:
        """Return a series as the model reads it.

        Raises:
            TrainingError: it has another class or other channels than those of TRAIN, or is empty
                or too long.
        """
        series, scale = of_file.series[index], self._scale
        where = f"{self.name}, {name}: series {index + 1}"
        label = of_file.classes[series.label]
        if label not in scale.classes or series.values.shape[1] != len(scale.mean):
            raise TrainingError(
                f"{where} is of class {label} and has {series.values.shape[1]} channels, expected "
                f"{len(scale.mean)} channels and one of the classes {', '.join(scale.classes)}, as "
                f"in {self.name}_TRAIN.ts"
            )
        start = series.times[0]
        series = _present(series)
        if self.dropped:
            draws = generator(0, index, "test" if name == "test" else "data", row=1)
            chances = draws.random(len(series.times))
            kept = chances >= min(self.dropped, chances.max(initial=0.0))  # at least one
            series = series._replace(times=series.times[kept], values=series.values[kept])
        if not 0 < len(series.times) <= self.max_length:
            raise TrainingError(
                f"{where} has values at {len(series.times):,} times, expected 1 to max_length, "
                f"{self.max_length:,}; set task.max_length, or remove the series"
            )
        values = (series.values - scale.mean) / scale.deviation
        missing = np.isnan(values)
        values[missing] = 0.0
        if self.mark_missing:
            values = np.stack([values, missing], -1).reshape(len(values), -1)
        positions = (series.times - start) / scale.step
        regular = np.abs(positions - np.arange(len(positions))).max() < _ROUNDING
        if self.times == "index" or regular:
            positions = None
        return Example((values.astype(np.float32),), scale.classes.index(label), positions)

    def _check_positions(self, series: Sequence[Example]) -> None:
        """Raise TrainingError if the encoding cannot read the times of these series."""
        timed = [one.positions for one in series if one.positions is not None]
        if not timed:
            return
        fractional = (one for one in timed if (one != np.rint(one)).any())
        read = next(fractional, timed[0])
        model = self.model
        encoding = model.encoding.build(
            num_layers=model.num_layers,
            num_heads=model.num_heads,
            head_dim=model.width // model.num_heads,
        )
        why = _why_not_at(read, encoding)
        if why is not None:
            raise TrainingError(
                f"model.encoding {model.encoding.kind} cannot read the times of {self.name} "
                f"({why}); set task.times=index to read places instead, or choose another encoding"
            )


def _why_not_at(positions: NDArray[np.float64], encoding: Encoding) -> str | None:
    """Return why an encoding cannot read positions (l,); None if it can."""
    if isinstance(encoding, OffsetEncoding):
        return "it scores places"
    try:
        state = encoding.init_state(0, torch.device("cpu"))
        encoding.prepare(torch.from_numpy(positions)[None, :, None], state)
    except ValueError as error:
        return str(error)
    return None


class _Scale(NamedTuple):
    """What is known of the file TRAIN."""

    classes: tuple[str, ...]
    mean: NDArray[np.float64]
    """(c,): of each channel."""
    deviation: NDArray[np.float64]
    """(c,): its standard deviation; 1 if all values are equal."""
    step: float
    """Difference of time of two positions."""


def _present(series: Series) -> Series:
    """Return the series without the times at which all channels are missing."""
    kept = ~np.isnan(series.values).all(1)
    return series._replace(times=series.times[kept], values=series.values[kept])
