"""Cost of one layer of attention with each encoding: training time, and size of the state.

    python -m benchmarks.relpe.bench_layers

Prints a Markdown table. Times are CPU milliseconds of a forward and backward pass of 4,096 tokens
on one thread in float32, in as many sequences as the length allows: medians over turns in which all
layers take part. A layer has width 256 and 8 heads, random codes have 32 draws. In models, layers
share codes, which are computed here each time. The state is that of one sequence.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.relpe.timing import medians, turns
from relpe import (
    AlgebraicConfig,
    AlibiConfig,
    Attention,
    AttentionLayerConfig,
    ConvSPEConfig,
    DeltaAttentionConfig,
    FavorConfig,
    KerpleConfig,
    LearnedPositionConfig,
    LinearAttentionConfig,
    NoEncodingConfig,
    RopeConfig,
    SelectiveRopeConfig,
    ShawConfig,
    SineSPEConfig,
    SinusoidConfig,
    SirenConfig,
    SirenSPEConfig,
    SoftmaxAttentionConfig,
    T5Config,
    TransformerXLConfig,
    TreeSQConfig,
    WindowedAttentionConfig,
)

WIDTH, TOKENS = 256, 4096
LINEAR, DELTA = LinearAttentionConfig(), DeltaAttentionConfig()
FAVOR = LinearAttentionConfig(feature_map=FavorConfig(num_features=64))
WINDOW, SOFTMAX = WindowedAttentionConfig(span=256), SoftmaxAttentionConfig()
LAYERS: dict[str, tuple[Any, Any]] = {
    "softmax, none": (SOFTMAX, NoEncodingConfig()),
    "softmax, RoPE": (SOFTMAX, RopeConfig()),
    "softmax, selective RoPE": (SOFTMAX, SelectiveRopeConfig()),
    "softmax, algebraic": (SOFTMAX, AlgebraicConfig()),
    "window of 256, RoPE": (WINDOW, RopeConfig()),
    "window of 256, ALiBi": (WINDOW, AlibiConfig()),
    "window of 256, Kerple": (WINDOW, KerpleConfig()),
    "window of 256, T5": (WINDOW, T5Config()),
    "window of 256, Shaw": (WINDOW, ShawConfig(window=64)),
    "window of 256, Transformer-XL": (WINDOW, TransformerXLConfig()),
    "window learned from 64, SIREN": (WindowedAttentionConfig(), SirenConfig()),
    "linear, none": (LINEAR, NoEncodingConfig()),
    "linear, sinusoid": (LINEAR, SinusoidConfig()),
    "linear, learned positions": (LINEAR, LearnedPositionConfig()),
    "linear, nodes of a tree (Shiv & Quirk)": (LINEAR, TreeSQConfig()),
    "linear, sine SPE": (LINEAR, SineSPEConfig(num_realizations=32)),
    "linear, convolutional SPE": (LINEAR, ConvSPEConfig(num_realizations=32)),
    "linear, SIREN-generated SPE": (LINEAR, SirenSPEConfig(num_realizations=32)),
    "linear (FAVOR+, 64 features), algebraic": (FAVOR, AlgebraicConfig()),
    "linear, algebraic in the numerator": (LINEAR, AlgebraicConfig(placement="numerator")),
    "delta, none": (DELTA, NoEncodingConfig()),
    "delta, algebraic": (DELTA, AlgebraicConfig()),
    "delta, selective RoPE": (DELTA, SelectiveRopeConfig()),
    "delta with negative eigenvalues, none": (
        DeltaAttentionConfig(negative_eigenvalues=True),
        NoEncodingConfig(),
    ),
}


def main() -> None:
    """Measures all layers at each length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    layers = {
        name: Attention(AttentionLayerConfig(width=WIDTH, attention=attention, encoding=encoding))
        for name, (attention, encoding) in LAYERS.items()
    }
    found: dict[str, list[float]] = {name: [] for name in layers}
    state: dict[str, float] = {}
    for length in options.lengths:
        x = torch.randn(max(1, TOKENS // length), length, WIDTH)
        ways = {name: partial(train, layer, x) for name, layer in layers.items()}
        turns(ways, 1)  # warms up
        times = medians(turns(ways, options.repeats))
        for name, layer in layers.items():
            found[name].append(times[name])
            with torch.no_grad():
                state[name] = sum(4 * one.numel() for one in tensors(layer(x[:1])[1].layer)) / 1000
    titles = " | ".join(f"ms at {length:,}" for length in options.lengths)
    last = options.lengths[-1]
    print(f"| attention, encoding | {titles} | kB of state at {last:,} |")
    print("|---|" + "---|" * (len(options.lengths) + 1))
    for name, times in found.items():
        cells = " | ".join(f"{one:,.0f}" for one in times)
        print(f"| {name} | {cells} | {state[name]:,.0f} |", flush=True)


def train(layer: Attention, x: Tensor) -> None:
    """A forward and backward pass of x (b, l, m)."""
    layer(x)[0].square().mean().backward()


def tensors(state: object) -> Iterator[Tensor]:
    """All tensors of a state, which consists of nested tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)


if __name__ == "__main__":
    main()
