"""How the work of causal linear attention is cut, and what is fastest on a device."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch


class Tiling(NamedTuple):
    """How the work is cut. Results differ by rounding alone, except in `dtype`."""

    chunk: int
    """Positions whose scores are formed at once."""
    chunks: int
    """Chunks that go through one product."""
    rows: int
    """Batch rows times heads that go through one product; what they touch should fit the cache."""
    dtype: torch.dtype
    """Of the factors of products; sums are in that of the state."""


def tiling(device: torch.device, wanted: torch.dtype, sums: torch.dtype) -> Tiling:
    """The fastest for a device, where factors may be in `wanted`, sums in `sums`.

    CPUs: a loop over chunks of 64, eight heads at a time, stays in the cache. bfloat16 is taken
    where products are fast in it; not float16, which sums of a thousand keys overflow.
    """
    if wanted == torch.bfloat16 and _has_fast_bfloat16(device.type):
        return Tiling(128, 16, 8 if device.type == "cpu" else 2**30, wanted)
    if device.type == "cpu":
        return Tiling(64, 1, 8, sums)
    return Tiling(64, 64, 2**30, sums)


@lru_cache(maxsize=8)
def _has_fast_bfloat16(device: str) -> bool:
    """Whether matrix products in bfloat16 are in hardware."""
    if device != "cpu":
        return True
    has_amx = bool(torch.cpu._is_amx_tile_supported())
    return has_amx and "AVX512" in torch.backends.cpu.get_cpu_capability()
