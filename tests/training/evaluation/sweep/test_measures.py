from __future__ import annotations

from tests.support.results import music, results
from training.evaluation.sweep.measures import MeasuredValue, measures


def test_measures_of_a_classifier_begin_with_its_accuracy():
    found = measures({"examples": 360, "nats_per_example": 0.5, "accuracy": 0.25, "seed": 1})
    assert list(found.items()) == [
        ("accuracy", MeasuredValue(25.0, "%")),
        ("nats per example", MeasuredValue(0.5, "nats")),
    ]


def test_measures_of_forecasts_are_their_figures():
    found = measures({"parameters": 9, "figures": {"nats_per_value": -0.5, "skill": 0.25}})
    assert found["nats per value"] == MeasuredValue(-0.5, "nats")


def test_measures_of_a_generated_task_begin_with_the_size_of_training():
    answers = {size: {"tokens": 0.5, "examples": 0.25} for size in ("8", "16", "32")}
    found = measures({"size": 16, "chance": 0.1, "answers": answers})
    names = [
        *[f"token accuracy, {n}" for n in (16, 8, 32)],
        *[f"exact match, {n}" for n in (8, 16, 32)],
    ]
    assert [*found] == names
    assert found["exact match, 8"] == MeasuredValue(25.0, "%")


def test_measures_of_music_are_likelihoods_and_style_by_quarters():
    found = measures(results() | {"music_8_32": music()})
    assert found["nats per token, windows of 512 tokens"] == MeasuredValue(1.25, "nats")
    assert found["nats per token, whole pieces"] == MeasuredValue(1.2, "nats")
    quarters = [found[f"music 8 32 style onset drum, quarter {n}"].value for n in (1, 2, 3, 4)]
    assert quarters == [0.8, 0.8, 0.8, 0.75]
