"""Keeps functions out of the graphs of `torch.compile`, or makes each a single node of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from relpe.transforms import without_autocast

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


_LIBRARY = torch.library.Library("relpe", "DEF")


def operation(
    name: str,
    schema: str,
    function: Callable[..., tuple[Tensor, ...]],
    shapes: Callable[..., tuple[Tensor, ...]],
) -> None:
    """Defines `torch.ops.relpe.NAME`, which compilers and autograd do not look into.

    `function` is computed without autocast, whose state in a backward pass is that of the caller.
    The first argument is a tensor. `shapes` returns tensors of the shapes and dtypes of the
    results, which must not share memory with each other or with arguments. Defined by hand because
    `torch.library.custom_op` imports the compiler at the first call (two seconds).
    """

    @wraps(function)
    def run(first: Tensor, *others: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
        with without_autocast(first.device):
            return function(first, *others)

    _LIBRARY.define(f"{name}{schema}")
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"relpe::{name}", shapes, lib=_LIBRARY)


def differentiate(
    name: str, gradient: Callable[..., Any], keep: Callable[[Any, tuple[Any, ...], Any], None]
) -> None:
    """Sets the backward pass of an operation, and what it keeps; see `register_autograd`."""
    torch.library.register_autograd(f"relpe::{name}", gradient, setup_context=keep, lib=_LIBRARY)
