"""A sentence instead of a process that waits for ever: PyTorch's threads do not survive a fork."""

from __future__ import annotations

import os

_is_in_use = False
_is_lost = False


def use_threads() -> None:
    """Note that this process computes with PyTorch.

    Raises:
        RuntimeError: it was forked from one that had.
    """
    global _is_in_use
    if _is_lost:
        raise RuntimeError(
            "this process was forked after a model was loaded, so PyTorch's threads are missing in "
            "it; fork before that, or start processes with multiprocessing.get_context('spawn')"
        )
    _is_in_use = True


def _lose_threads() -> None:
    global _is_lost
    _is_lost = _is_in_use


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_lose_threads)
