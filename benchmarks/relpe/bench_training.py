"""Training steps of small decoders beside Hugging Face's Llama of the same size.

    python -m benchmarks.relpe.bench_training 1x1024 8x1024 1x4096
    python -m benchmarks.relpe.bench_training 1x1024 --profile "linear, sine SPE"

Sizes are sequences times tokens. Prints a Markdown table: CPU milliseconds of a forward and
backward pass on one thread in float32, medians over turns in which all decoders take part, and the
ratio to Llama. Decoders have width 256, four layers, four heads and 1,246 tokens; random codes have
64 draws, and new noise in every step. Needs transformers. With `--profile`, prints instead where
the time of one of the decoders goes: the operators of a step with the most time of their own.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

import relpe
from benchmarks.timing import medians, run, table_output, turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SIZE: dict[str, Any] = {
    "vocabulary_size": 1246,
    "width": 256,
    "num_layers": 4,
    "num_heads": 4,
    "hidden": 704,
}
LINEAR, SOFTMAX = relpe.LinearAttentionConfig(), relpe.SoftmaxAttentionConfig()
LLAMA = "Llama of transformers"
DECODERS: dict[str, tuple[Any, Any]] = {
    "softmax, RoPE": (SOFTMAX, relpe.RopeConfig()),
    "linear, none": (LINEAR, relpe.NoEncodingConfig()),
    "linear, sine SPE": (LINEAR, relpe.SineSPEConfig()),
    "linear, sine SPE, sparse noise": (LINEAR, relpe.SineSPEConfig(noise="sparse")),
}


def main(sizes: list[str], /, *, repeats: int = 5, profile: str | None = None) -> None:
    """Run the comparison."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    names = [LLAMA, *DECODERS] if profile is None else [profile]
    if not {*names} <= {LLAMA, *DECODERS}:
        sys.exit(
            f"there is no decoder {profile!r}, expected one of {', '.join([LLAMA, *DECODERS])}"
        )
    ways = {name: _llama() if name == LLAMA else _decoder(*DECODERS[name]) for name in names}
    if profile is not None:
        for size in sizes:
            print_profile(partial(_step, ways[profile], _ids(size)), size, repeats)
        return
    titles = [f"{size}: {what}" for what in ("ms", "ratio") for size in sizes]
    table = table_output("", *titles)
    columns: list[dict[str, float]] = []
    for size in sizes:
        ids = _ids(size)
        steps = {name: partial(_step, logits, ids) for name, logits in ways.items()}
        turns(steps, 1)  # warms up
        columns.append(medians(turns(steps, repeats)))
    for name in ways:
        times = [column[name] for column in columns]
        first = [column[LLAMA] for column in columns]
        ratios = [f"{time / least:.2f}" for time, least in zip(times, first, strict=True)]
        table(name, *(f"{time:,.0f}" for time in times), *ratios)


def print_profile(step: Callable[[], object], title: str, repeats: int) -> None:
    """Print the 12 operators of a step with the most CPU time of their own, as a Markdown table."""
    step()  # warms up
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as record:
        for _ in range(repeats):
            step()
    operators = sorted(record.key_averages(), key=lambda x: -x.self_cpu_time_total)
    whole = sum(operator.self_cpu_time_total for operator in operators)
    table = table_output(title, "share of the time", "calls")
    for operator in operators[:12]:
        share = operator.self_cpu_time_total / whole
        table(operator.key, f"{share:.1%}", f"{operator.count // repeats}")


def _ids(size: str) -> Tensor:
    rows, length = map(int, size.split("x"))
    return torch.randint(0, SIZE["vocabulary_size"], (rows, length))


def _decoder(attention: Any, encoding: Any) -> Callable[[Tensor], Tensor]:  # noqa: ANN401
    config = relpe.DecoderConfig(attention=attention, encoding=encoding, **SIZE)
    return partial(_logits, config.build().train())


def _llama() -> Callable[[Tensor], Tensor]:
    transformers = import_module("transformers")
    config = transformers.LlamaConfig(
        vocab_size=SIZE["vocabulary_size"],
        hidden_size=SIZE["width"],
        intermediate_size=SIZE["hidden"],
        num_hidden_layers=SIZE["num_layers"],
        num_attention_heads=SIZE["num_heads"],
        num_key_value_heads=SIZE["num_heads"],
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config).train()
    return lambda ids: model(input_ids=ids).logits


def _logits(decoder: relpe.Decoder, ids: Tensor) -> Tensor:
    positions = torch.arange(ids.shape[1])[None, :, None]
    return decoder(ids, positions, decoder.init_state(ids.shape[0]))[0]


def _step(logits: Callable[[Tensor], Tensor], ids: Tensor) -> None:
    functional.cross_entropy(logits(ids).flatten(0, 1), ids.flatten()).backward()


if __name__ == "__main__":
    run(main)
