"""Files that are either whole or not there, and what JSON files hold."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.errors import TrainingError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; takes its place at the end, and is gone after an error.

    What was written is on the disk before it takes the place of what was there.

    Raises:
        OSError: the disk is full, say; names `path`.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        with partial.open("rb+") as stream:
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        # what fails in a write does not say where
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path, names: Sequence[str], remedy: str) -> dict[str, Any]:
    """The object of a JSON file, which has to have `names`.

    Raises:
        TrainingError: the file is damaged; says so, and the remedy.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise TrainingError(f"{path}: damaged, expected JSON ({error}); {remedy}") from error
    missing = [name for name in names if not isinstance(content, dict) or name not in content]
    if missing or not isinstance(content, dict):
        wanted = f"an object with {', '.join(missing)}" if missing else "an object"
        raise TrainingError(f"{path}: damaged, expected {wanted}; {remedy}")
    return content
