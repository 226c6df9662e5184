"""Small batches, and the contents of their folders."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.batch.run import BatchOptions, BatchProgress, BatchResult, make_batch
from app.compose.models import Models
from app.compose.options import MusicOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from app.compose.models import MusicModel

MUSIC = MusicOptions(takes=1, bars=2, seed=5)


def options(output: Path, prompts: Path | None = None, **others: Any) -> BatchOptions:
    made = BatchOptions(output=output, music=MUSIC, prompts=(prompts,) if prompts else (), count=3)
    return replace(made, **others)


def run(
    model: MusicModel, asked: BatchOptions, stop: Callable[[], bool] = lambda: False
) -> tuple[list[str], BatchResult]:
    """Make a batch; return the notices for the user, and the result."""
    *progress, result = make_batch(asked, Models.only(model), stop)
    assert isinstance(result, BatchResult)
    told = [step.notice for step in progress if isinstance(step, BatchProgress) and step.notice]
    return told, result


def after(steps: int) -> Callable[[], bool]:
    """A `stop` function that returns True after `steps` calls."""
    asked = iter(range(steps))
    return lambda: next(asked, None) is None


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder except the lock, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def listed(folder: Path) -> list[dict[str, str]]:
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
