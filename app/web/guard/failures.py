"""Errors of the server itself, described without what callers have sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

FAILED = "The call failed; see the program's log."


def described(caught: BaseException) -> str:
    """An error and its place in one line, without paths and values that a caller has sent."""
    where, at = "", caught.__traceback__
    while at is not None:
        where, at = _place(at), at.tb_next
    text = caught.strerror if isinstance(caught, OSError) else str(caught)
    text = " ".join(_PRIVATE.sub("…", (text or "")[:2000]).split())
    return f"{type(caught).__name__}: {text[:200]}{where}"


_PRIVATE = re.compile(r"""'[^']*'?|"[^"]*"?|\S*[/\\]\S*|\w{20,}""")
"""Parts of an error's text: quotations, paths, and long names."""


def _place(traceback: TracebackType) -> str:
    code = traceback.tb_frame.f_code
    return f" ({'/'.join(code.co_filename.split('/')[-2:])}:{traceback.tb_lineno})"
