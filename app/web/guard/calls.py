"""Checks of the JSON of Gradio's calls, which Gradio itself does not make."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from app.web.guard.refused import RefusedError

MAX_SESSION = 64
"""Maximum length of the name of a session; Gradio's names have 36 characters."""


def check_call(body: bytes, uploads: Path) -> None:
    """Raise RefusedError unless a call is a JSON object that names only files in `uploads`.

    It is checked here since Gradio's own check is off in a page that is mounted in another app
    (6.31.0, `processing_utils._check_allowed`): a call could name any file of the machine, and
    read a copy of it from the folder of uploads. Gradio would also download from the address of
    another server. Names of sessions are kept while the program runs.
    """
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict):
        raise RefusedError(400, "found no JSON object, expected that of a call")
    if len(str(call.get("session_hash"))) > MAX_SESSION:
        raise RefusedError(400, f"session_hash is too long, expected up to {MAX_SESSION} letters")
    left: list[object] = [call]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
            path = value.get("path")
            if isinstance(path, str) and path and not is_file_in(uploads, path):
                raise RefusedError(
                    400, "found a file that was not uploaded, expected an upload; upload it first"
                )


def is_file_in(folder: Path, path: str) -> bool:
    """Whether a path is that of a file in a folder, also after all links."""
    try:
        real = Path(path).resolve(strict=True)
        return real.is_relative_to(folder.resolve()) and stat.S_ISREG(real.stat().st_mode)
    except (OSError, ValueError, RuntimeError):
        return False
