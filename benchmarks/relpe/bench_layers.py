"""Cost of one layer of attention with each encoding: training time, and size of the state.

    python -m benchmarks.relpe.bench_layers

Prints a Markdown table. Times are CPU milliseconds of a forward and backward pass of 4,096 tokens
on one thread in float32, in as many sequences as the length allows: medians over turns in which all
layers take part. A layer has width 256 and 8 heads, random codes have 32 draws. In models, layers
share codes, which are computed here each time. The state is that of one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

import relpe
from benchmarks.timing import medians, run, turns

WIDTH, TOKENS = 256, 4096
LINEAR, DELTA = relpe.LinearAttentionConfig(), relpe.DeltaAttentionConfig()
FAVOR = relpe.LinearAttentionConfig(feature_map=relpe.FavorConfig(num_features=64))
WINDOW, SOFTMAX = relpe.WindowedAttentionConfig(span=256), relpe.SoftmaxAttentionConfig()
LAYERS: dict[str, tuple[Any, Any]] = {
    "softmax, none": (SOFTMAX, relpe.NoEncodingConfig()),
    "softmax, RoPE": (SOFTMAX, relpe.RopeConfig()),
    "softmax, selective RoPE": (SOFTMAX, relpe.SelectiveRopeConfig()),
    "softmax, algebraic": (SOFTMAX, relpe.AlgebraicConfig()),
    "window of 256, RoPE": (WINDOW, relpe.RopeConfig()),
    "window of 256, ALiBi": (WINDOW, relpe.AlibiConfig()),
    "window of 256, Kerple": (WINDOW, relpe.KerpleConfig()),
    "window of 256, T5": (WINDOW, relpe.T5Config()),
    "window of 256, Shaw": (WINDOW, relpe.ShawConfig(window=64)),
    "window of 256, Transformer-XL": (WINDOW, relpe.TransformerXLConfig()),
    "window learned from 64, SIREN": (relpe.WindowedAttentionConfig(), relpe.SirenConfig()),
    "linear, none": (LINEAR, relpe.NoEncodingConfig()),
    "linear, sinusoid": (LINEAR, relpe.SinusoidConfig()),
    "linear, learned positions": (LINEAR, relpe.LearnedPositionConfig()),
    "linear, nodes of a tree (Shiv & Quirk)": (LINEAR, relpe.TreeSQConfig()),
    "linear, sine SPE": (LINEAR, relpe.SineSPEConfig(num_realizations=32)),
    "linear, convolutional SPE": (LINEAR, relpe.ConvSPEConfig(num_realizations=32)),
    "linear, SIREN-generated SPE": (LINEAR, relpe.SirenSPEConfig(num_realizations=32)),
    "linear (FAVOR+, 64 features), algebraic": (FAVOR, relpe.AlgebraicConfig()),
    "linear, algebraic in the numerator": (LINEAR, relpe.AlgebraicConfig(placement="numerator")),
    "delta, none": (DELTA, relpe.NoEncodingConfig()),
    "delta, algebraic": (DELTA, relpe.AlgebraicConfig()),
    "delta, selective RoPE": (DELTA, relpe.SelectiveRopeConfig()),
    "delta with negative eigenvalues, none": (
        relpe.DeltaAttentionConfig(negative_eigenvalues=True),
        relpe.NoEncodingConfig(),
    ),
}


def main(lengths: Sequence[int] = (1024, 4096), repeats: int = 3) -> None:
    """Measure all layers at each length."""
    torch.set_num_threads(1)
    layers = {
        name: relpe.Attention(
            relpe.AttentionLayerConfig(width=WIDTH, attention=attention, encoding=encoding)
        )
        for name, (attention, encoding) in LAYERS.items()
    }
    all_times: dict[str, list[float]] = {name: [] for name in layers}
    state: dict[str, float] = {}
    for length in lengths:
        x = torch.randn(max(1, TOKENS // length), length, WIDTH)
        ways = {name: partial(train, layer, x) for name, layer in layers.items()}
        turns(ways, 1)  # warms up
        times = medians(turns(ways, repeats))
        for name, layer in layers.items():
            all_times[name].append(times[name])
            with torch.no_grad():
                state[name] = sum(4 * one.numel() for one in tensors(layer(x[:1])[1].layer)) / 1000
    titles = " | ".join(f"ms at {length:,}" for length in lengths)
    last = lengths[-1]
    print(f"| attention, encoding | {titles} | kB of state at {last:,} |")
    print("|---|" + "---|" * (len(lengths) + 1))
    for name, times in all_times.items():
        cells = " | ".join(f"{one:,.0f}" for one in times)
        print(f"| {name} | {cells} | {state[name]:,.0f} |", flush=True)


def train(layer: relpe.Attention, x: Tensor) -> None:
    """Return a forward and backward pass of x (b, l, m)."""
    layer(x)[0].square().mean().backward()


def tensors(state: object) -> Iterator[Tensor]:
    """Yield all tensors of a state, which consists of nested tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from tensors(part)


if __name__ == "__main__":
    run(main)
