"""The released layout of the Long Range Arena, and its tasks of padded sequences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from relpe.models.classifier.inputs import TokenInputConfig
from training.errors import TrainingError, check_range
from training.tasks.classification.task import ClassificationTask


def released(folder: Path, *names: str) -> Path:
    """Return the folder of a task, by the first of its `names` that exists in `folder`, or itself.

    `folder` may be that of the task, `lra_release`, or the folder that contains it.

    Raises:
        TrainingError: there is no such folder.
    """
    if not folder.is_dir():
        raise TrainingError(f"{folder}: no such folder; give that of the data with --data")
    for parent in (folder, folder / "lra_release", folder / "lra_release" / "lra_release"):
        for name in names:
            if (parent / name).is_dir():
                return parent / name
    return folder


@dataclass(frozen=True, kw_only=True)
class SequenceTask(ClassificationTask):
    """Classification of sequences of token ids, in which 0 is padding."""

    num_ids: ClassVar[int] = 257
    """Number of token ids with padding; by default those of bytes."""

    max_length: int
    """Largest number of tokens; longer sequences are cut."""
    lra_compat: bool = False
    """Whether sequences are padded to `max_length` with tokens that the model reads like others, as
    in the published code. If not, padding has no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("max_length", self.max_length, 1)
        input_config = self.model.input
        if (
            isinstance(input_config, TokenInputConfig)
            and input_config.vocabulary_size < self.num_ids
        ):
            raise TrainingError(
                f"model.input.vocabulary_size is {input_config.vocabulary_size}, but the task has "
                f"{self.num_ids} token ids; set task.model.input.vocabulary_size={self.num_ids}"
            )

    @property
    def length(self) -> int:
        """The largest number of tokens."""
        return self.max_length

    @property
    def padded_length(self) -> int | None:
        """`max_length` with `lra_compat`."""
        return self.max_length if self.lra_compat else None
