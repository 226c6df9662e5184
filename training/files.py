"""Pictures, Markdown tables, checked reading of JSON, and locking of folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from relpe.files import atomic_write, remove_parts
from training.errors import TrainingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LOCK = ".lock"
"""Name of the file in the folder of a run or sweep that is locked while it trains."""


@contextmanager
def alone_in(folder: Path, command: str = "fit", option: str = "--run") -> Iterator[None]:
    """Create a folder and lock it against other processes of a command of `relpe-train`.

    `option` is the one that names the folder. The lock is released when the process ends, however
    it ends. Temporary files that a killed process left are removed, and so is a new folder in which
    nothing was written, with the parents that were created for it.

    Raises:
        TrainingError: it is already locked.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise TrainingError(
            f"{folder}: another relpe-train {command} is working in this folder; wait until it "
            f"has ended, or choose another folder with {option}"
        ) from error
    remove_parts(folder)
    try:
        yield
    finally:
        # otherwise the file stays, since two processes could lock different files
        unused = new and [path.name for path in folder.iterdir()] == [LOCK]
        if unused:
            (folder / LOCK).unlink()
        lock.release()
        if unused:
            for path in new:
                path.rmdir()


@contextmanager
def picture(path: Path, width: float, height: float, dpi: int) -> Iterator[Figure]:
    """Yield a figure with a size in inches, which is then written as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    yield figure
    with atomic_write(path) as beside:
        figure.savefig(beside, format="png", dpi=dpi, metadata={"Software": None})


def markdown(rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table, whose first row has the names of the columns."""
    head, *others = rows
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *others)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def read_json(path: Path, names: Sequence[str], remedy: str) -> dict[str, Any]:
    """Read a JSON object that has at least the keys `names`.

    Raises:
        TrainingError: the file is damaged or of an earlier version; the message ends with
            `remedy`.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise TrainingError(f"{path}: damaged, expected JSON ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise TrainingError(f"{path}: damaged, expected a JSON object; {remedy}")
    missing = [name for name in names if name not in content]
    if missing:
        raise TrainingError(
            f"{path}: found no {', '.join(missing)}, so it is damaged or of an earlier version; "
            f"{remedy}"
        )
    return content
