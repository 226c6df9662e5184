"""Number of steps after which a decoder learns to copy repeated random tokens.

    python -m benchmarks.relpe.bench_copying

Each row of 256 tokens repeats 24 to 99 random ones. Prints the nats per token in the second half of
each row, where every token is a repetition, as means over 50 steps. Chance is log 256 = 5.545.
"""

from __future__ import annotations

import argparse
import time
from typing import Literal, TypeAlias, get_args

import torch
from torch.nn import functional

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import AlgebraicConfig
from relpe.models.decoder import DecoderConfig

TOKENS, LENGTH, ROWS = 256, 256, 8
Start: TypeAlias = Literal["present", "delayed"]
"""See `DecoderConfig.convolution_start`."""


def main() -> None:
    """Trains a decoder of two layers with each start of its short convolution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", nargs="+", choices=get_args(Start), default=get_args(Start))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for start in args.starts:
        began = time.process_time()
        losses = train(start, args.steps, args.seed)
        means = [sum(losses[at : at + 50]) / 50 for at in range(0, len(losses) - 49, 50)]
        shown = " ".join(f"{mean:.3f}" for mean in means)
        print(f"{start:8} {shown}   {time.process_time() - began:.0f} CPU s", flush=True)


def train(start: Start, steps: int, seed: int) -> list[float]:
    """Trains a decoder; returns the loss of each step over the second halves of rows."""
    torch.manual_seed(seed)
    model = DecoderConfig(
        vocabulary_size=TOKENS,
        width=256,
        num_layers=2,
        num_heads=8,
        hidden=704,
        attention=WindowedAttentionConfig(span=1024),
        encoding=AlgebraicConfig(),
        convolution_start=start,
    ).build()
    rate, warmup = 1e-3, 30
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    draws = torch.Generator().manual_seed(seed + 1)
    positions = torch.arange(LENGTH)[None, :, None]
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / warmup)
        rows = torch.stack([_row(draws) for _ in range(ROWS)])
        logits, _ = model(rows[:, :-1], positions, model.init_state(ROWS))
        each = functional.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
        optimizer.zero_grad()
        each.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(each[:, LENGTH // 2 :].detach().mean()))
    return losses


def _row(draws: torch.Generator) -> torch.Tensor:
    period = int(torch.randint(24, 100, (), generator=draws))
    tokens = torch.randint(TOKENS, (period,), generator=draws)
    return tokens.repeat(LENGTH // period + 2)[: LENGTH + 1]


if __name__ == "__main__":
    main()
