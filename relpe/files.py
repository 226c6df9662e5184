"""Atomic writing of files; does not import PyTorch."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces `path` at the end of the block.

    The new contents are flushed to the disk before they replace the old ones. After an error, the
    temporary file is removed. It has the suffix of `path` and a random name, so that concurrent
    writers do not interfere. If `path` is a link, the file that it names is written.

    Raises:
        OSError: writing fails, for example on a full disk; the message names `path`.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    beside = target.with_name(f".{secrets.token_hex(8)}.part{target.suffix}")
    try:
        yield beside
        with beside.open("rb+") as stream:
            os.fsync(stream.fileno())
        beside.replace(target)
    except OSError as error:
        # an error while writing names no file, and others the temporary one
        if error.errno is None or error.filename not in (None, str(beside)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):  # there is no such file or folder
            beside.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file by `atomic_write`, as UTF-8 with line feeds."""
    with atomic_write(path) as beside:
        beside.write_text(text, encoding="utf-8", newline="\n")


def remove_parts(folder: Path, *, untouched_seconds: float = 0.0) -> None:
    """Remove the temporary files of `atomic_write` that a killed process left in a folder.

    Files that have changed within `untouched_seconds` stay, since they may be in use.
    """
    before = time.time() - untouched_seconds
    for path in folder.glob(".*.part*"):
        if re.fullmatch(r"\.[0-9a-f]{16}\.part(\.\w+)?", path.name):
            with suppress(OSError):
                if path.stat().st_mtime <= before:
                    path.unlink()
