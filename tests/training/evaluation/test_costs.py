from __future__ import annotations

import pytest
import torch

from relpe.models.classifier.model import ClassifierConfig
from relpe.models.config import from_plain
from relpe.models.decoder import DecoderConfig
from relpe.models.events import EventsConfig
from training.evaluation.costs import costs, costs_line

LENGTH, WIDTH, HIDDEN, LAYERS, CLASSES = 24, 16, 32, 2, 5


def classifier(attention, encoding="none"):
    plain = {
        **{"input": {"kind": "tokens", "vocabulary_size": 8}, "num_classes": CLASSES},
        **{"width": WIDTH, "num_layers": LAYERS, "num_heads": 2, "hidden": HIDDEN},
        **{"attention": attention, "encoding": {"kind": encoding}},
    }
    return from_plain(ClassifierConfig, plain).build().eval()


def of(model, rows=3):
    x = torch.zeros(rows, LENGTH, dtype=torch.int64)
    return costs(model, lambda: model(x), rows)


PRODUCTS = 2 * LENGTH * WIDTH * (3 * WIDTH + WIDTH + 3 * HIDDEN)
"""Operations of the matrices of a layer: queries, keys and values, output, gated feed-forward."""
POOLING = 2 * LENGTH * WIDTH + 2 * WIDTH * CLASSES


def test_flops_are_those_of_the_formulas_of_the_attentions():
    scores_and_values = 2 * LENGTH * LENGTH * 2 * WIDTH
    found = of(classifier({"kind": "softmax"}))
    assert found["flops_per_example"] == LAYERS * (PRODUCTS + scores_and_values) + POOLING
    # sums of keys, read by queries, twice
    sums = 2 * LENGTH * (WIDTH // 2) * (2 * WIDTH + 2)
    found = of(classifier({"kind": "linear"}))["flops_per_example"]
    assert found > LAYERS * PRODUCTS + POOLING
    assert found == pytest.approx(LAYERS * (PRODUCTS + sums) + POOLING, rel=0.02)


def test_costs_of_an_example_do_not_depend_on_the_batch():
    one, found = (of(classifier({"kind": "softmax"}), rows) for rows in (1, 7))
    assert found["flops_per_example"] == one["flops_per_example"]
    assert found["parameters"] == one["parameters"]
    assert (one["examples_at_once"], found["examples_at_once"]) == (1, 7)
    assert found["seconds_per_example"] > 0


def test_costs_are_told_in_a_line():
    found = {"parameters": 1234, "flops_per_token": 2.5e6, "seconds_per_token": 0.001}
    found |= {"tokens_at_once": 64, "peak_memory_gib": 0.5}
    line = costs_line(found)
    for words in ("1,234 parameters", "per token 2.50 MFLOPs", "1.000 ms (64", "0.50 GiB"):
        assert words in line
    assert "memory" not in costs_line(found | {"peak_memory_gib": None})


def test_costs_of_models_that_pass_weights_between_modules_are_counted_in_inference_mode():
    model = DecoderConfig(
        vocabulary_size=8,
        width=WIDTH,
        num_layers=2,
        num_heads=2,
        hidden=HIDDEN,
        events=EventsConfig(closing=((1, 4),)),
    ).build()
    tokens = torch.ones(2, LENGTH, dtype=torch.int64)
    positions = torch.arange(LENGTH)[None, :, None]

    @torch.inference_mode()
    def call():
        model(tokens, positions, model.init_state(2))

    assert costs(model, call, 2)["flops_per_example"] > 0
    assert all(parameter.requires_grad for parameter in model.parameters())
