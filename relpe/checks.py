"""Checks of what a user passes: configs that are made in Python, and tensors.

Configs of files are checked when they are read.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral, Real
from types import UnionType
from typing import Literal

import torch
from torch import Tensor

from relpe.transforms import can_read


class Checked:
    """Base of configs: each field has a value of its type.

    Where the type is a config, any object with `build` that is not of relpe will do, too, since
    users have encodings of their own. A subclass with more checks first calls
    `super().__post_init__()`.
    """

    def __post_init__(self) -> None:
        """Check the types and choices.

        Raises:
            ValueError: a value is not of the type of its field, or not among its choices.
        """
        for name, hint in _hints(type(self)).items():
            value = getattr(self, name)
            if not _is_of(value, hint):
                raise ValueError(f"{name} is {_shown(value)}, expected {_described(hint)}")


@lru_cache(maxsize=256)
def _hints(config: type) -> dict[str, object]:
    return typing.get_type_hints(config)


def _is_of(value: object, hint: object) -> bool:
    """Return whether a value has the type of a field; types that no config has are not checked."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any:
        return True
    if origin is Literal:
        return value in args
    if origin in (typing.Union, UnionType):
        return any(_is_of(value, choice) for choice in args)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        hints = args[:1] * len(value) if args[-1] is Ellipsis else args
        return len(hints) == len(value) and all(map(_is_of, value, hints))
    if hint in (int, float):
        number = Integral if hint is int else Real
        return isinstance(value, number) and not isinstance(value, bool)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        is_own = not isinstance(value, type) and type(value).__module__.split(".")[0] != "relpe"
        return isinstance(value, hint) or (is_own and hasattr(value, "build"))
    return not isinstance(hint, type) or isinstance(value, hint)


def _described(hint: object) -> str:
    """Return what a field of this type may be."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (typing.Union, UnionType):
        # one config stands for all
        configs = [choice for choice in args if dataclasses.is_dataclass(choice)]
        return " or ".join(_described(x) for x in args if x not in configs[1:])
    if origin is tuple:
        count = "any number of values" if args[-1] is Ellipsis else f"{len(args)} values"
        return f"a tuple of {count}, each {_described(args[0])}"
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return f"a config such as {hint.__name__}()"
    names: dict[object, str] = {
        int: "an integer",
        float: "a number",
        bool: "True or False",
        str: "a string",
        type(None): "None",
    }
    return names.get(hint, str(hint))


def _shown(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    plain = value is None or isinstance(value, str | Real | tuple | list | dict)
    return repr(value) if plain else f"of type {type(value).__name__}"


def at_least(lowest: float, **values: float) -> None:
    """Check that no value is below `lowest`.

    Raises:
        ValueError: one is, or is not a number.
    """
    for name, value in values.items():
        if not value >= lowest:
            raise ValueError(f"{name} is {value}, expected at least {lowest}")


def positive(**values: float) -> None:
    """Check that all values are above zero.

    Raises:
        ValueError: one is not, or is not a number.
    """
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}, expected a positive number")


def check_type(name: str, value: object, kind: type) -> None:
    """Check that a value is an instance of a class.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, kind):
        actual = "None" if value is None else f"of type {type(value).__name__}"
        raise TypeError(f"{name} is {actual}, expected {kind.__name__}")
    if isinstance(value, Tensor) and (value.is_nested or value.layout != torch.strided):
        raise TypeError(f"{name} is a sparse or nested tensor, expected one of the usual layout")


def check_features(name: str, x: Tensor, length: str, width: int, weight: Tensor) -> None:
    """Check that x (b, l, width) can be multiplied by a weight; `length` is the letter for l.

    With autocast, x may be of any floating dtype but float64.

    Raises:
        TypeError: x is not a tensor.
        ValueError: its shape, device or dtype does not fit.
    """
    check_type(name, x, Tensor)
    if x.ndim != 3 or x.shape[2] != width:
        raise ValueError(f"{name} has the shape {tuple(x.shape)}, expected (b, {length}, {width})")
    check_device(name, x, weight)
    check_dtype(name, x, weight)


def check_dtype(name: str, x: Tensor, weight: Tensor) -> None:
    """Check that x has the dtype of a weight, or one that autocast converts.

    Raises:
        ValueError: it has not.
    """
    if x.dtype == weight.dtype:
        return
    casts = x.is_floating_point() and x.dtype != torch.float64
    if not casts or not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"{name} is {x.dtype} and the weights are {weight.dtype}, expected one dtype, or "
            "floating dtypes within torch.autocast"
        )


def check_tokens(name: str, tokens: Tensor, weight: Tensor, *, grid: bool = False) -> None:
    """Check that tokens are ids (b, l), or (b, ...) on a grid, on the device of a weight.

    Whether they are below the size of the vocabulary, the rows of the weight, is checked on the CPU
    only, since this would synchronise with other devices.

    Raises:
        TypeError: they are not a tensor.
        ValueError: their shape, dtype or device does not fit.
    """
    check_type(name, tokens, Tensor)
    # no tokens may have any dtype, since those of an empty list are float32
    are_ids = tokens.dtype in (torch.int64, torch.int32) or not tokens.numel()
    if not (tokens.ndim == 2 or (grid and tokens.ndim > 2)) or not are_ids:
        raise ValueError(
            f"{name} has the shape {tuple(tokens.shape)} and is {tokens.dtype}, expected "
            f"{'(b, ...)' if grid else '(b, l)'} and int64"
        )
    check_device(name, tokens, weight)
    if not tokens.numel() or not can_read(tokens):
        return
    least, greatest = int(tokens.min()), int(tokens.max())
    if least < 0 or greatest >= len(weight):
        raise ValueError(
            f"{name} are {least} to {greatest}, expected 0 to {len(weight) - 1}, below the size of "
            "the vocabulary"
        )


def check_device(name: str, x: Tensor, other: Tensor) -> None:
    """Check that a tensor is on the device of another one.

    Raises:
        ValueError: it is not.
    """
    if x.device != other.device:
        raise ValueError(
            f"{name} is on {x.device}, expected {other.device}; move it with "
            f".to({str(other.device)!r})"
        )


def check_mask(name: str, mask: Tensor, x: Tensor) -> None:
    """Check that a mask is (b, l), for x (b, l, ...).

    Raises:
        TypeError: it is not a tensor.
        ValueError: its shape, dtype or device does not fit.
    """
    check_type(name, mask, Tensor)
    if mask.shape != x.shape[:2] or mask.dtype != torch.bool:
        raise ValueError(
            f"{name} has the shape {tuple(mask.shape)} and is {mask.dtype}, expected "
            f"{tuple(x.shape[:2])} and bool, False at padding"
        )
    check_device(name, mask, x)


def check_key_mask(mask: Tensor, shape: Sequence[int]) -> None:
    """Check that a mask of keys is of (1 or b, ...), the `shape` of keys without their features.

    Raises:
        TypeError: it is not a tensor, or not of bool.
        ValueError: its shape does not fit.
    """
    check_type("key_mask", mask, Tensor)
    if mask.dtype != torch.bool:
        raise TypeError(f"key_mask is {mask.dtype}, expected bool with True for visible keys")
    if mask.shape[1:] != shape[1:] or mask.shape[0] not in (1, shape[0]):
        raise ValueError(
            f"key_mask has the shape {tuple(mask.shape)}, expected (1 or {shape[0]}, "
            f"{', '.join(map(str, shape[1:]))})"
        )


def check_start(batch_size: int = 0, **numbers: int | None) -> None:
    """Check what a state begins with: its number of rows, seeds, and sizes that may be None.

    Raises:
        ValueError: one is no integer, a number of rows is negative, or a seed has over 63 bits.
    """
    numbers["batch_size"] = batch_size
    for name, value in numbers.items():
        if value is not None and not isinstance(value, Integral | torch.SymInt):
            raise ValueError(f"{name} is {_shown(value)}, expected an integer")
        if value is not None and "seed" in name and not -(2**63) <= value < 2**63 - 1:
            raise ValueError(f"{name} is {value}, expected an integer of at most 63 bits")
    if batch_size < 0:
        raise ValueError(f"batch_size is {batch_size}, expected at least 0")


def check_rows(held: int, rows: int) -> None:
    """Check that a state has as many rows as the inputs.

    Raises:
        ValueError: it has not.
    """
    if held != rows:
        raise ValueError(
            f"the state has {held} rows and the inputs have {rows}, expected the same number; "
            "begin with init_state for these inputs"
        )


def check_state(actual: object, expected: object) -> None:
    """Check that what identifies a state, such as its type or sizes, is that of this model.

    Raises:
        TypeError: it is not.
    """
    if actual != expected:
        raise TypeError(
            "the state is that of another model or layer; begin with init_state of this one"
        )


def check_attention(q: Tensor, k: Tensor, v: Tensor, *by_key: Tensor) -> None:
    """Check queries (b, l, h, f), keys (b, s, h, f), values (b, s, h, e) and others (b, s, h).

    Raises:
        ValueError: their shapes do not fit each other, or one has no floating dtype.
    """
    given = (q, k, v, *by_key)
    fit = q.ndim == k.ndim == v.ndim and q.ndim >= 4 and v.shape[:-1] == k.shape[:-1]
    fit = fit and (q.shape[0], *q.shape[-2:]) == (k.shape[0], *k.shape[-2:])
    if not fit or any(x.shape != k.shape[:-1] for x in by_key):
        raise ValueError(
            f"q, k, v have the shapes {', '.join(str(tuple(x.shape)) for x in given)}, expected "
            "(b, l, h, f), (b, s, h, f) and (b, s, h, e), then (b, s, h) for what there is of keys"
        )
    if not all(x.is_floating_point() for x in given):
        raise ValueError(
            f"q, k, v are {', '.join(str(x.dtype) for x in given)}, expected floating dtypes"
        )


def check_causal(q: Tensor, k: Tensor) -> None:
    """Check that there are as many queries as keys.

    Raises:
        ValueError: there are not.
    """
    if q.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            f"q has the shape {tuple(q.shape)} and k {tuple(k.shape)}, expected as many queries as "
            "keys"
        )
