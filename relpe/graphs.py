"""What `torch.compile` leaves alone."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def outside_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """A function that runs as it is between two graphs, never in one.

    As `torch.compiler.disable`, which imports the compiler, two seconds, into programs that compile
    nothing.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            untraced: Callable[P, T] = torch.compiler.disable(function)  # pyright: ignore[reportAssignmentType]
            return untraced(*args, **kwargs)
        return function(*args, **kwargs)

    return run
