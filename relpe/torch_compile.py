"""Keeps functions out of the graphs of `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def outside_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a function run eagerly, between two graphs.

    Like `torch.compiler.disable`, but without importing the compiler, which takes two seconds even
    in programs that compile nothing.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            untraced: Callable[P, T] = torch.compiler.disable(function)  # pyright: ignore[reportAssignmentType]
            return untraced(*args, **kwargs)
        return function(*args, **kwargs)

    return run
