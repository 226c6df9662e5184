"""Which of PyTorch's transforms are active, and what this changes.

Operations with a backward pass of their own save time and memory, but have only first derivatives,
in reverse mode. Where others may be asked for, the same is computed by PyTorch's own operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

P = ParamSpec("P")
T = TypeVar("T")

_HIGHER = ContextVar("higher", default=False)


@contextmanager
def higher_derivatives() -> Iterator[None]:
    """Compute what is called within the context so that it has derivatives of any order.

    It then takes more time and memory. Derivatives in forward mode and `torch.func` need it only
    with PyTorch's softmax attention, whose fast kernels have first derivatives in reverse mode.
    """
    token = _HIGHER.set(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        _HIGHER.reset(token)


def needs_all_derivatives() -> bool:
    """Return whether `higher_derivatives`, forward mode or a `torch.func` transform is active."""
    in_func = torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]
    return _HIGHER.get() or forward_ad._current_level >= 0 or in_func


# compilers ask while they trace, instead of tracing it
needs_all_derivatives._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def may_keep(device: torch.device) -> bool:
    """Return whether a result may be kept for later calls: it has values and is in no graph."""
    return device.type != "meta" and not (torch.is_grad_enabled() or _is_transformed())


def check_draws() -> None:
    """Refuse to draw noise within `torch.export`, whose graph would draw other noise in each call.

    Raises:
        ValueError: a model is exported.
    """
    if torch.compiler.is_exporting():
        raise ValueError(
            "an exported model would draw other noise in each call; make its state by init_state "
            "before, and pass it as an argument"
        )


def can_read(x: Tensor) -> bool:
    """Return whether a check may read the values of x: they exist, and nothing waits for them."""
    return x.device.type == "cpu" and not _is_transformed()


class _NoContext:
    """What `forward` of a function gets where PyTorch differentiates what it does."""

    def save_for_backward(self, *tensors: object) -> None:
        """Do nothing, since there is no backward pass of its own."""


def apply(function: type[torch.autograd.Function], *inputs: Any) -> Any:  # noqa: ANN401
    """Apply a function with a backward pass of its own, or without it if it does not suffice."""
    if needs_all_derivatives():
        return function.forward(_NoContext(), *inputs)
    return function.apply(*inputs)


def first_derivatives(backward: Callable[..., T]) -> Callable[..., T]:
    """Mark a backward pass that cannot be differentiated: it is refused where it would be.

    `torch.autograd.function.once_differentiable` fails only if a later pass reaches its node, and
    lets `torch.autograd.grad` return second derivatives without its part.
    """

    @wraps(backward)
    def run(ctx: Any, *grads: Any) -> T:  # noqa: ANN401
        if torch.is_grad_enabled():
            raise RuntimeError(
                "attention has only first derivatives here; for create_graph=True, compute the "
                "outputs within relpe.higher_derivatives()"
            )
        with without_autocast(grads[0].device):  # its state is that of the caller
            return backward(ctx, *grads)

    return run


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast, which the meta device does not have."""
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def kept_on_device(function: Callable[P, T]) -> Callable[P, T]:
    """Keep the tensors that a function makes, unless they belong to a graph or a fake mode."""
    kept = lru_cache(maxsize=64)(function)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if _is_transformed():
            return function(*args, **kwargs)
        with torch.inference_mode(False):
            return kept(*args, **kwargs)

    return run


def _is_transformed() -> bool:
    """Return whether tensors belong to a graph or a transform, or have no values."""
    compiling = torch.compiler.is_compiling()
    return compiling or needs_all_derivatives() or detect_fake_mode() is not None


def outside_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function run eagerly, between two graphs.

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
    """Define `torch.ops.relpe.NAME`, which compilers and autograd do not look into.

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
    """Set the backward pass of an operation, and what it keeps; see `register_autograd`."""
    torch.library.register_autograd(f"relpe::{name}", gradient, setup_context=keep, lib=_LIBRARY)
