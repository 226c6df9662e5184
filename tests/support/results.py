"""Artificial results, in the format that `relpe-train evaluate` writes."""

from __future__ import annotations

from copy import deepcopy

from training.runs.weights import Origin

HISTOGRAM = {
    "divergence": 0.1,
    "divergence_of_real_halves": 0.05,
    "generated": [3, 1],
    "real": [1, 1],
}
MEANS = {
    "bars_of_prompt": 0.2,
    "harmonic_period": 0.5,
    "static_chord": 0.0,
    "self_similarity_4": 0.2,
    "self_similarity_8": 0.25,
    "self_similarity_16": 0.15,
    "bars_of_any_earlier": 0.45,
    "most_similar_earlier": 0.7,
    "roots_over_chance_4": 0.15,
    "roots_over_chance_8": 0.2,
    "like_bar_before": 0.1,
}
BIN = {"first": 1, "last": 256, "nats_per_token": 1.5, "standard_error": None, "pieces": 1}
DIFFERENCE = {"mean": -0.05, "standard_error": 0.025, "prompts": 2}


def music(prompt_bars=8, bars=32, **means):
    """Results for music of a piano model that reaches all goals; `means` replaces some means."""
    figures = {name: {"mean": mean, "deviation": 0.1} for name, mean in MEANS.items()}
    generated = {name: {"mean": mean, "deviation": 0.1} for name, mean in (MEANS | means).items()}
    style = {"onset_drum": {g: {"mean": [0.8, 0.8, 0.8, 0.75]} for g in ("generated", "real")}}
    copied = {"shares": {"8": 0.25, "16": None}, "longest": 12, "notes": 900}
    return deepcopy(
        {
            "protocol": {
                "continuations": 4,
                "prompts": 2,
                "pieces": [0, 5],
                "prompt_bars": prompt_bars,
                "bars": bars,
                "real_bars": 30.5,
                "several_tracks": False,
                "temperature": 1.0,
                "top_p": 0.97,
                "memory": 1.0,
                "takes": 1,
            },
            "figures": {"generated": generated, "real": figures},
            "differences": dict.fromkeys(MEANS, DIFFERENCE),
            "faults": {
                g: {"stuck_notes": 0, "silent_instruments": 0, "accident": 0}
                for g in ("generated", "real")
            },
            "twins": 0,
            "style": {"exact": style, "compat": {}},
            "self_similarity": {"lags": [1, 2], "generated": [0.5, None], "real": [0.5, 0.25]},
            "histograms": {"pitch_class": HISTOGRAM, "duration": HISTOGRAM},
            "copies": {"generated": copied, "real": copied},
        }
    )


def results(**changes):
    """Results of a model that reaches all goals; `changes` replaces some entries."""
    found = {
        "model": "x",
        "weights": Origin("best.ckpt", "0", tokens=1_000_000)._asdict(),
        "parameters": 1234,
        "data": "abcdef0123456789",
        "split": "test",
        "corpora": [],
        "pieces": 12,
        "tokens": 3456,
        "draws": 1,
        "trained_length": 512,
        "windows_512": {"nats_per_token": 1.25, "nats_per_note": 4.5, "nats_per_bar": 70.125},
        "streaming": {"nats_per_token": 1.2, "nats_per_note": 4.25, "nats_per_bar": 67.5},
        "by_position": {"bins": [BIN, BIN | {"first": 257, "last": 512, "nats_per_token": 1.0}]},
        "beyond_training": {
            "pieces": 7,
            "within": 1.0,
            "within_deviation": 0.1,
            "beyond": 1.04,
            "beyond_deviation": None,
            "difference": 0.04,
            "difference_deviation": 0.02,
        },
        "relativity": {"length": 64, "translation_invariance": {"mean": 0.125}},
        "music_8_32": music(),
    }
    return deepcopy(found) | changes


def changed(path, value):
    found = results()
    part = found
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return found
