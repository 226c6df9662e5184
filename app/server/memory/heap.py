"""Returns unused memory to the operating system, on systems with glibc.

glibc keeps freed memory for later. By default, threads share up to eight heaps for each processor
core, and after many jobs, each of these is almost empty, but not small.
"""

from __future__ import annotations

import ctypes
from typing import Any

MAX_HEAPS = 2
_M_ARENA_MAX = -8  # of malloc.h


def limit_heaps() -> None:
    """Make all threads share a few heaps; call it before threads are started."""
    if (library := _glibc()) is not None:
        library.mallopt(_M_ARENA_MAX, MAX_HEAPS)


def return_unused() -> bool:
    """Return freed memory to the operating system in about 0.1 s; True if there was any."""
    library = _glibc()
    return library is not None and bool(library.malloc_trim(0))


def _glibc() -> Any:  # noqa: ANN401 - functions that ctypes finds by name
    """Return the C library of this process, or None if it is not glibc."""
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:  # macOS, Windows; musl has no such file
        return None
    return library if hasattr(library, "malloc_trim") else None
