"""Fits the network and the confidence of the beat tracker, and writes `beat_salience.npz`.

    python -m benchmarks.tokenization.fit_beats DATA [--minutes 60] [--output beat_salience.npz]
    python -m benchmarks.tokenization.fit_beats DATA --check

DATA is the folder of the corpora. The network is fitted to performances of the scores in the
training splits, drawn anew for each step; the confidence to performances and recordings of the
validation splits. Nothing is fitted to test splits, nor to works of which there are recordings
(`benchmarks.tokenization.performances.RECORDED`). The released weights were fitted for 40 minutes
on a shared core, in two parts, the second of which began with the weights of the first; a new fit
gives other weights. `--check` fits the confidence to the released network and compares it with the
released confidence.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.timing import run
from benchmarks.tokenization.bench_beats import f_measure, recorded
from benchmarks.tokenization.midi_corpora import spread
from benchmarks.tokenization.performances import Performance, perform, read_scores, score_names
from tokenization.analysis import beat_salience
from tokenization.analysis.beat_salience import NUM_FEATURES, RATE, frames_of
from tokenization.analysis.beat_tracker import beat_frames, evidence
from tokenization.score import Score

SHARES = {
    "chopin": 0.24,
    "polish": 0.22,
    "mutopia": 0.2,
    "lieder": 0.13,
    "pop909": 0.11,
    "quartets": 0.04,
    "groove": 0.03,
    "leadsheets": 0.02,
    "groovemidi": 0.01,
}
"""Share of each corpus in the performances."""
FRAMES = 60 * RATE
NUM_ROWS = 4
WIDTH, NUM_LAYERS, NUM_TAPS = 24, 9, 5
LEARNING_RATE = 2.5e-3
SPREAD = {0: 1.0, 1: 0.6, 2: 0.25}
"""Target of a frame by its distance from the beat."""


class Network(nn.Module):
    """The network of `tokenization.analysis.beat_salience`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(NUM_FEATURES, WIDTH, NUM_TAPS, padding="same")
        self.dilated = nn.ModuleList(
            nn.Conv1d(WIDTH, WIDTH, NUM_TAPS, padding="same", dilation=2**layer)
            for layer in range(NUM_LAYERS)
        )
        self.mix = nn.ModuleList(nn.Conv1d(WIDTH, WIDTH, 1) for _ in range(NUM_LAYERS))
        self.last = nn.Conv1d(WIDTH, 2, 1)
        with torch.no_grad():
            for layer in self.mix.parameters():
                layer.mul_(0.3)
            nn.init.constant_(cast("torch.Tensor", self.last.bias), -3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the log-odds (b, frames, 2) of features (b, frames, NUM_FEATURES)."""
        hidden = self.first(features.transpose(1, 2)).relu()
        for dilated, mix in zip(self.dilated, self.mix, strict=True):
            hidden = hidden + mix(dilated(hidden).relu())
        return self.last(hidden.relu()).transpose(1, 2)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights, named as in `beat_salience.npz`."""

        def taps(layer: nn.Module) -> np.ndarray:
            return cast("torch.Tensor", layer.weight).detach().numpy().transpose(2, 1, 0)

        arrays = {"taps_first": taps(self.first), "bias_first": self.first.bias}
        for number, (dilated, mix) in enumerate(zip(self.dilated, self.mix, strict=True)):
            arrays |= {f"taps_{number}": taps(dilated), f"bias_{number}": dilated.bias}
            arrays |= {f"mix_weight_{number}": taps(mix)[0], f"mix_bias_{number}": mix.bias}
        arrays |= {"last_weight": taps(self.last)[0], "last_bias": self.last.bias}
        return {
            name: (value.detach().numpy() if isinstance(value, torch.Tensor) else value)
            for name, value in arrays.items()
        }


def example(performance: Performance) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (frames, NUM_FEATURES) and targets (frames, 2) of a performance."""
    features, start, _ = frames_of(performance.score)
    targets = np.zeros((len(features), 2), np.float32)
    beats = np.rint((performance.beats - start) * RATE).astype(np.int64)
    for column, frames in enumerate((beats, beats[performance.downbeats])):
        for distance, target in sorted(SPREAD.items(), reverse=True):
            for place in (frames - distance, frames + distance):
                inside = place[(place >= 0) & (place < len(targets))]
                targets[inside, column] = np.maximum(targets[inside, column], target)
    return features, targets


def batch(
    scores: dict[str, list[Score]], draw: random.Random
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the features, targets and a mask of frames, of excerpts of new performances."""
    features = np.zeros((NUM_ROWS, FRAMES, NUM_FEATURES), np.float32)
    targets = np.zeros((NUM_ROWS, FRAMES, 2), np.float32)
    mask = np.zeros((NUM_ROWS, FRAMES, 1), np.float32)
    for row in range(NUM_ROWS):
        corpus = draw.choices(list(SHARES), list(SHARES.values()))[0]
        performance = perform(draw.choice(scores[corpus]), draw.randrange(10**9))
        inputs, outputs = example(performance)
        # Some excerpts begin before the piece, since the network must know beginnings and ends.
        first = draw.randrange(-FRAMES // 4, max(1, len(inputs) - FRAMES // 2))
        begin, end = max(first, 0), min(len(inputs), first + FRAMES)
        features[row, begin - first : end - first] = inputs[begin:end]
        targets[row, begin - first : end - first] = outputs[begin:end]
        mask[row, begin - first : end - first] = 1
    return torch.from_numpy(features), torch.from_numpy(targets), torch.from_numpy(mask)


def fit(scores: dict[str, list[Score]], seconds: float, seed: int) -> Network:
    """Fit a network for a number of seconds."""
    torch.manual_seed(seed)
    draw, network = random.Random(seed), Network()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    begin, step, losses = time.monotonic(), 0, []
    while (done := (time.monotonic() - begin) / seconds) < 1:
        rate = LEARNING_RATE * min(1, step / 100) * (1 - done) ** 0.7 + 1e-5
        for group in optimizer.param_groups:
            group["lr"] = rate
        features, targets, mask = batch(scores, draw)
        loss = functional.binary_cross_entropy_with_logits(
            network(features), targets, reduction="none"
        )
        loss = (loss * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1)
        optimizer.step()
        step += 1
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"{done:.0%} step {step}: {np.mean(losses[-100:]):.4f}", file=sys.stderr)
    return network


def fit_confidence(performances: list[Performance], weights: dict[str, np.ndarray]) -> np.ndarray:
    """Return coefficients of the logistic regression of F-measures on the evidence of beats.

    `weights` are those of the network.
    """
    rows, scores = [], []
    for performance in performances:
        features, start, _ = frames_of(performance.score)
        odds = beat_salience.salience(features, weights)[:, 0]
        frames = beat_frames(odds)
        rows.append(evidence(odds, frames))
        scores.append(f_measure(start + frames / RATE, performance.beats))
    table, target = np.array(rows), np.array(scores)
    coefficients = np.zeros(table.shape[1])
    for _ in range(50):  # Newton's method, slightly regularised
        predicted = 1 / (1 + np.exp(-table @ coefficients))
        slope = table.T @ (target - predicted) - 0.01 * coefficients
        curvature = (table.T * (predicted * (1 - predicted))) @ table + 0.01 * np.eye(
            len(coefficients)
        )
        coefficients += np.linalg.solve(curvature, slope)
    return coefficients


def main(
    data: Path,
    /,
    *,
    minutes: float = 60,
    seed: int = 0,
    output: Path = beat_salience.WEIGHTS,
    check: bool = False,
) -> None:
    """Fit and write."""

    def read(corpus: str, split: str, at_most: int) -> list[Score]:
        names = spread(score_names(data, corpus, split), at_most)
        return [score for _, score in read_scores(data, corpus, names)]

    if check:
        arrays = {name: x for name, x in beat_salience.load().items() if name != "confidence"}
    else:
        scores = {corpus: read(corpus, "train", 10_000) for corpus in SHARES}
        arrays = fit(scores, 60 * minutes, seed).arrays()
        arrays = {name: value.astype(np.float16) for name, value in arrays.items()}
    held_out = [
        perform(score, seed)
        for corpus in SHARES
        for seed, score in enumerate(read(corpus, "validation", 10))
    ]
    held_out += recorded(data, "validation")
    weights = {name: value.astype(np.float32) for name, value in arrays.items()}
    confidence = fit_confidence(held_out, weights)
    print("confidence:", *(f"{number:.4f}" for number in confidence))
    if check:
        print("released:  ", *(f"{number:.4f}" for number in beat_salience.load()["confidence"]))
    else:
        np.savez_compressed(output, allow_pickle=False, **arrays, confidence=confidence)


if __name__ == "__main__":
    run(main)
