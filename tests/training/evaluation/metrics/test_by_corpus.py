from __future__ import annotations

import numpy as np
import pytest

from training.evaluation.metrics.by_corpus import nats_by_corpus


def test_only_predicted_tokens_of_a_corpus_count():
    nats = [np.array([1.0, 2.0]), np.array([4.0, np.nan, 6.0]), np.array([3.0])]
    found = nats_by_corpus(["a", "b", "a"], [2, 5, 1], {"streaming": nats, "windows_8": nats[::-1]})
    assert list(found) == ["a", "b"]
    assert found["a"] == {"pieces": 2, "notes": 3, "streaming": 2.0, "windows_8": 2.0}
    assert found["b"] == {"pieces": 1, "notes": 5, "streaming": 2.0, "windows_8": 2.0}


def test_corpora_weighted_by_their_notes_add_up_to_the_whole():
    rng = np.random.default_rng(3)
    nats = [rng.random(size) for size in rng.integers(1, 30, 12)]
    notes = rng.integers(1, 9, 12).tolist()
    names = [str(name) for name in rng.choice(["a", "b", "c"], 12)]
    found = nats_by_corpus(names, notes, {"streaming": nats}).values()
    total = sum(of["notes"] * of["streaming"] for of in found)
    assert total == pytest.approx(sum(piece.sum() for piece in nats))


def test_a_corpus_without_notes_has_no_infinite_figures():
    found = nats_by_corpus(["a"], [0], {"streaming": [np.array([2.0])]})
    assert found["a"] == {"pieces": 1, "notes": 0, "streaming": 2.0}
