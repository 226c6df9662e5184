from __future__ import annotations

import numpy as np
import pytest

from benchmarks.relpe.bench_pointer import long_prompt, pointer_of, pointer_times, step_times
from tests.support.paths import ROOT
from tests.support.small_models import tiny_decoder
from tokenization.presets import PRESETS
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR


def test_steps_with_and_without_a_pointer_are_timed():
    tokenizer = PianoRemi()
    ids = long_prompt(tokenizer, ROOT / "examples/pop.mid", 3000)
    assert ids[-1] == BAR
    assert 3000 <= len(ids) < 6000
    assert np.count_nonzero(ids == BAR) > 20
    tokenizer.decode(ids)
    assert all(time > 0 for time in step_times(tiny_decoder(), tokenizer, ids, 2, 3))


def test_the_pointer_alone_is_timed_at_its_marks():
    rows = pointer_times([30, 50])
    assert [count for count, _ in rows] == [30, 50]
    assert all(microseconds > 0 for _, microseconds in rows)


@pytest.mark.parametrize("name", PRESETS)
def test_its_ids_are_those_of_a_tokenizer(name):
    tokenizer = PRESETS[name].build()
    pointer_of(tokenizer).check(len(tokenizer.vocabulary))
