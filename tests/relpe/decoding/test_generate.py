"""The loop from prompts to ids: a sequence does not depend on the other sequences."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.decoding.eager import PlainSteps
from relpe.decoding.generate import Generation, Request, Sample
from relpe.decoding.sampling import SamplingOptions
from tests.support.decoders import small_decoder

VOCABULARY = 12
DECODER = small_decoder(VOCABULARY)


class Counted(NamedTuple):
    """Allows `left` more tokens; the last one ends the sequence."""

    left: int

    @property
    def allowed(self) -> np.ndarray:
        return np.full(VOCABULARY, self.left > 0)

    def advance(self, token: int) -> Counted:
        return Counted(self.left - 1)


REQUESTS = [
    Request(np.array([3, 1, 4, 1, 5]), Counted(9), [1, 2, 3]),
    Request(np.array([9, 2, 6]), Counted(4), [4], SamplingOptions(temperature=1.3, top_p=1.0)),
    Request(np.array([5]), Counted(12), [5, 6]),
    Request(np.arange(11), Counted(0), [7]),
]


def finish(generation: Generation[Counted]) -> list[Sample[Counted]]:
    """Steps until the end; returns all finished samples in order."""
    done = []
    while len(generation):
        done += generation.step()
    return done


def alone(request: Request[Counted]) -> list[list[int]]:
    """The tokens of each seed, generated separately."""
    rows = []
    for seed in request.seeds:
        generation = Generation(DECODER, PlainSteps(DECODER))
        one = Request(request.prompt, request.rule, [seed], request.options)
        (sample,) = generation.add(one)
        finish(generation)
        rows.append(sample.tokens)
    return rows


ALONE = [alone(request) for request in REQUESTS]


@settings(max_examples=10)
@given(
    max_rows=st.none() | st.integers(1, 5),
    chunk=st.integers(1, 6),
    steps_between=st.lists(st.integers(0, 6), min_size=4, max_size=4),
    order=st.permutations(range(4)),
)
def test_sequences_do_not_depend_on_each_other(max_rows, chunk, steps_between, order):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relpe.decoding.eager.PREFILL_CHUNK", chunk)
        steps = PlainSteps(DECODER)
        generation = Generation(DECODER, steps, max_rows)
        samples = {}
        for place, pause in zip(order, steps_between, strict=True):
            samples[place] = generation.add(REQUESTS[place])
            for _ in range(pause):
                generation.step()
                assert max_rows is None or len(generation._rows) <= max_rows
        finish(generation)
    assert [[sample.tokens for sample in samples[place]] for place in range(4)] == ALONE
    assert all(sample.done for group in samples.values() for sample in group)
    assert not steps._rows


def test_the_token_that_ends_a_sequence_is_not_part_of_it():
    generation = Generation(DECODER, PlainSteps(DECODER))
    (sample,) = generation.add(Request(np.array([1, 2]), Counted(3)))
    assert finish(generation) == [sample]
    assert len(sample.tokens) == 2
    assert sample.rule == Counted(0)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_removing_a_sample_does_not_affect_the_others(after):
    steps = PlainSteps(DECODER)
    generation = Generation(DECODER, steps)
    groups = [generation.add(request) for request in REQUESTS[:3]]
    for _ in range(after):
        generation.step()
    generation.remove(groups[0][1])
    generation.remove(groups[1][0])
    generation.remove(groups[1][0])
    done = finish(generation)
    assert groups[1][0].done
    assert groups[1][0] not in done
    assert [groups[0][0].tokens, groups[0][2].tokens] == [ALONE[0][0], ALONE[0][2]]
    assert [sample.tokens for sample in groups[2]] == ALONE[2]
    assert not steps._rows


def test_an_unreadable_prompt_ends_only_its_own_samples(monkeypatch):
    is_read = Generation._is_read

    def broken(self, reading):
        if reading.request is REQUESTS[0]:
            raise ZeroDivisionError
        return is_read(self, reading)

    monkeypatch.setattr(Generation, "_is_read", broken)
    generation = Generation(DECODER, PlainSteps(DECODER))
    failed, fine = generation.add(REQUESTS[0]), generation.add(REQUESTS[2])
    done = finish(generation)
    assert set(done) == {*failed, *fine}
    assert all(isinstance(sample.error, ZeroDivisionError) for sample in failed)
    assert [sample.tokens for sample in fine] == ALONE[2]
    assert all(sample.error is None for sample in fine)


def test_prompts_are_read_between_the_steps_of_rows(monkeypatch):
    monkeypatch.setattr("relpe.decoding.eager.PREFILL_CHUNK", 2)
    order = []

    def noted(kind, method):
        def call(self):
            order.append(kind)
            return method(self)

        return call

    monkeypatch.setattr(Generation, "_read", noted("read", Generation._read))
    monkeypatch.setattr(Generation, "_generate", noted("step", Generation._generate))
    generation = Generation(DECODER, PlainSteps(DECODER))
    generation.add(Request(np.array([1]), Counted(1000)))
    generation.step()
    generation.add(Request(np.arange(12), Counted(1)))
    order.clear()
    while order.count("read") < 6:
        generation.step()
    assert "step" in order
    assert ("read", "read") not in list(pairwise(order[:-1]))


def test_prompts_that_delay_no_row_are_read_one_after_the_other(monkeypatch):
    """Also if the first is read slowly, so that their rows are generated side by side."""
    times = iter(range(0, 1000, 100))  # each call takes 100 s
    monkeypatch.setattr("relpe.decoding.generate.time.monotonic", lambda: next(times))
    generation = Generation(DECODER, PlainSteps(DECODER))
    samples = [generation.add(Request(np.array([1]), Counted(9), [seed]))[0] for seed in (1, 2)]
    for _ in range(3):
        generation.step()
    assert [len(sample.tokens) for sample in samples] == [1, 1]


def test_free_rows_are_reported():
    generation = Generation(DECODER, PlainSteps(DECODER), max_rows=2)
    assert generation.has_room
    generation.add(Request(np.array([1]), Counted(2), [1]))
    assert generation.has_room
    generation.add(Request(np.array([1]), Counted(2), [1, 2]))
    assert not generation.has_room
    assert len(finish(generation)) == 3
    assert generation.has_room
    assert generation.step() == []
    assert generation.add(Request(np.array([1]), Counted(2), [])) == []
