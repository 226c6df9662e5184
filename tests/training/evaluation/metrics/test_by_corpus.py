from __future__ import annotations

import numpy as np

from training.evaluation.metrics.by_corpus import nats_by_corpus


def test_only_predicted_tokens_of_a_corpus_count():
    nats = [np.array([1.0, 2.0]), np.array([4.0, np.nan, 6.0]), np.array([3.0])]
    found = nats_by_corpus(["a", "b", "a"], [2, 5, 1], {"streaming": nats, "windows_8": nats[::-1]})
    assert list(found) == ["a", "b"]
    assert found["a"] == {"pieces": 2, "notes": 3, "streaming": 2.0, "windows_8": 2.0}
    assert found["b"] == {"pieces": 1, "notes": 5, "streaming": 2.0, "windows_8": 2.0}


def test_a_corpus_without_notes_has_no_infinite_figures():
    found = nats_by_corpus(["a"], [0], {"streaming": [np.array([2.0])]})
    assert found["a"] == {"pieces": 1, "notes": 0, "streaming": 2.0}
