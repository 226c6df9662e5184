"""Comparison of causal attention operations: time and memory.

Run from the top of the repository: `python -m benchmarks.relpe.bench_attention`. Prints CSV, or
Markdown with `--table`. All implementations take turns in one process; results are medians of CPU
time with one thread, and of wall time with `--threads`. Memory is the growth of the peak resident
size of a separate process. `--ways` selects some of them, besides ours. Packages that are not
installed (`pip install -e ".[bench]"`) are left out.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.relpe.comparison import Measured, compare
from benchmarks.timing import csv_output, run, table_output, turns
from relpe.attention.delta.rule import gated_delta_rule
from relpe.attention.linear.attention import LinearState, causal_linear_attention
from tests.support import reference_linear

HEADS, WIDTH, FEATURES = 8, 64, 128
LONGEST_QUADRATIC = 2048
"""Maximum length for implementations that store all scores, or the sums at all positions."""
OURS = "linear: ours"


class Way(NamedTuple):
    """One implementation: features (b, l, h, f) and values (b, l, h, e) to (b, l, h, e)."""

    run: Callable[[Tensor, Tensor, Tensor], Tensor]
    longest: int | None = None
    half: bool = True
    """Whether it supports bfloat16."""


def ours(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return this package's operation."""
    shape = (q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    state = LinearState.empty(shape, device=q.device, dtype=torch.float32)
    return causal_linear_attention(q, k, v, state, None)[0]


def delta(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Apply the gated delta rule with constant gates to unit vectors as wide as the values."""
    dtype = torch.promote_types(v.dtype, torch.float32)
    q, k = (functional.normalize(x[..., :WIDTH].to(dtype), dim=-1) for x in (q, k))
    gate = q.new_ones(q.shape[:3])
    state = q.new_zeros(len(q), HEADS, WIDTH, WIDTH)
    values, _ = gated_delta_rule(q, k, v.to(dtype), 0.5 * gate, -0.01 * gate, state)
    return values.to(v.dtype)


def heads_first(
    operation: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, *, width: int = WIDTH
) -> Tensor:
    """Return an operation on (b, h, l, d); queries and keys are cut to a width."""
    tensors = (q[..., :width], k[..., :width], v)
    return operation(*(x.transpose(1, 2) for x in tensors)).transpose(1, 2)


def installed() -> dict[str, Way]:
    """Return all implementations that are installed."""
    softmax = partial(functional.scaled_dot_product_attention, is_causal=True)
    ways = {
        OURS: Way(ours),
        "delta rule: ours": Way(delta),
        "linear: all weights": Way(reference_linear.causal_linear_attention, LONGEST_QUADRATIC),
        "softmax: torch": Way(partial(heads_first, softmax)),
    }
    with suppress(ImportError):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its decorators use names that torch deprecates
            peer = import_module("performer_pytorch.performer_pytorch")
        performer = partial(heads_first, peer.causal_linear_attention_noncuda, width=FEATURES)
        ways["linear: performer-pytorch"] = Way(performer, LONGEST_QUADRATIC, half=False)
    with suppress(ImportError):
        attend = import_module("x_transformers.attend").Attend(causal=True, heads=HEADS)
        peer = partial(heads_first, lambda *x: attend(*x)[0])
        ways["softmax: x-transformers"] = Way(peer, LONGEST_QUADRATIC)
    return ways


def prepare(
    name: str, length: int, dtype: torch.dtype, train: bool, short: bool
) -> Callable[[], None]:
    """Return a forward pass of random features and values and, if `train`, a backward pass."""
    generator = torch.Generator().manual_seed(length)
    length = 64 if short else length
    q, k = torch.rand(2, 1, length, HEADS, FEATURES, generator=generator).unbind(0)
    v = torch.randn(1, length, HEADS, WIDTH, generator=generator)
    tensors = [x.to(dtype).requires_grad_(train) for x in (q, k, v)]
    way = installed()[name]

    def call() -> None:
        with torch.set_grad_enabled(train):
            out = way.run(*tensors)
            if train:
                torch.autograd.grad(out.float().square().sum(), tensors)

    return call


def product_rate(dtype: torch.dtype) -> float:
    """Return the GFLOP/s of large matrix products with one thread, best of five."""
    torch.set_num_threads(1)
    a, b = torch.randn(2, 1024, 1024).to(dtype).unbind(0)
    times = turns({"product": lambda: torch.mm(a, b)}, 6)["product"]
    return 2 * 1024**3 / min(times[1:]) / 1e6


def main(
    lengths: Sequence[int] = (512, 2048, 8192),
    repeats: int = 5,
    threads: int = 2,
    ways: Sequence[str] = (),
    *,
    table: bool = False,
) -> None:
    """Measure all implementations that support a type, a mode and a length."""
    available = installed()
    unknown = [name for name in ways if name not in available]
    if unknown:
        sys.exit(f"--ways: found {unknown}, expected some of {[*available]}")
    selected = {name: available[name] for name in (OURS, *ways)} if ways else available
    print(f"# b=1 h={HEADS} f={FEATURES} e={WIDTH}; softmax: h={HEADS} d=e={WIDTH}")
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    for name, dtype in dtypes.items():
        print(f"# products of 1024 x 1024 in {name}: {product_rate(dtype):.0f} GFLOP/s")
    columns = ("dtype", "mode", "way", "length", *Measured._fields)
    out = table_output(*columns) if table else csv_output(*columns, packages=["torch"])
    for dtype, train, length in itertools.product(dtypes, (False, True), sorted(lengths)):
        makers = {
            name: partial(prepare, name, length, dtypes[dtype], train)
            for name, way in selected.items()
            if (way.half or dtype == "float32") and length <= (way.longest or length)
        }
        for name, measured in compare(makers, repeats, threads).items():
            out(dtype, "train" if train else "forward", name, length, *measured)


if __name__ == "__main__":
    run(main)
