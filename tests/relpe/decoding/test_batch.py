from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from relpe.decoding.batch import ContinuousBatch, Row
from relpe.decoding.eager import PlainSteps, prefill
from relpe.decoding.generate import Request
from relpe.decoding.sampling import SamplingOptions
from tests.support.decoders import small_decoder

VOCABULARY = 12


class Rule(NamedTuple):
    """Allows `left` tokens from `least` on; `liked`, if given, has almost all the probability."""

    left: int
    least: int = 0
    liked: int | None = None

    @property
    def allowed(self) -> np.ndarray:
        return (np.arange(VOCABULARY) >= self.least) & (self.left > 0)

    @property
    def bias(self) -> np.ndarray | None:
        return None if self.liked is None else 50.0 * (np.arange(VOCABULARY) == self.liked)

    def advance(self, token: int) -> Rule:
        assert self.allowed[token]
        return self._replace(left=self.left - 1)


PIECES = (
    Request(np.array([3, 1, 4, 1, 5]), Rule(12), [1, 2, 3]),
    Request(np.array([9, 2, 6]), Rule(5, 4), [4], SamplingOptions(temperature=1.3, top_p=1.0)),
    Request(np.array([5, 3, 5, 8, 9, 7, 9]), Rule(20), [5, 6], SamplingOptions(top_k=3)),
    Request(np.array([1]), Rule(0), [7]),
)


class Recorder:
    """A batch that records the tokens of its rows."""

    def __init__(self) -> None:
        self.decoder = small_decoder(VOCABULARY)
        self.steps = PlainSteps(self.decoder)
        self.batch: ContinuousBatch[Rule] = ContinuousBatch(self.steps)
        self.rows: dict[Row[Rule], list[int]] = {}

    def enter(self, piece: Request[Rule]) -> list[Row[Rule]]:
        prompt = torch.from_numpy(piece.prompt)[None]
        state = prefill(self.decoder, self.decoder.init_state(1), prompt[:, :-1])
        last = len(piece.prompt) - 1, int(piece.prompt[-1])
        rows = self.batch.enter(state, *last, piece.rule, piece.options, piece.seeds)
        self.rows |= {row: [] for row in rows}
        return rows

    def step(self) -> bool:
        written = self.batch.step()
        assert not torch.is_inference_mode_enabled()
        for row, token in written:
            self.rows[row].append(token)
        return bool(written)

    def to_the_end(self) -> None:
        while self.step():
            pass


def alone(piece: Request[Rule]) -> list[list[int]]:
    """The tokens of each seed, generated alone."""
    rows = []
    for seed in piece.seeds:
        recorder = Recorder()
        (row,) = recorder.enter(replace(piece, seeds=[seed]))
        recorder.to_the_end()
        rows.append(recorder.rows[row])
    return rows


def test_rows_that_enter_late_or_leave_early_equal_rows_alone() -> None:
    recorder = Recorder()
    first = recorder.enter(PIECES[0])
    for _ in range(3):
        recorder.step()
    others = [recorder.enter(piece) for piece in PIECES[1:]]
    for _ in range(2):
        recorder.step()
    recorder.batch.leave(first[1])
    recorder.to_the_end()
    rows = [[recorder.rows[row] for row in entered] for entered in (first, *others)]
    expected = [alone(piece) for piece in PIECES]
    expected[0][1] = expected[0][1][:5]
    assert rows == expected
    assert [len(row) for row in rows[0]] == [12, 5, 12]


def test_rows_end_independently_and_release_their_slots() -> None:
    recorder = Recorder()
    for piece in PIECES:
        recorder.enter(piece)
    recorder.to_the_end()
    assert not recorder.batch.rows
    assert not recorder.batch.step()
    assert not recorder.steps._rows
    assert sorted(map(len, recorder.rows.values())) == [0, 5, 12, 12, 12, 20, 20]


@pytest.mark.parametrize("liked", [2, 9])
def test_the_bias_of_a_rule_applies_and_allows_no_other_token(liked: int) -> None:
    (row,) = alone(Request(np.array([3, 1]), Rule(30, least=5, liked=liked), [1]))
    assert min(row) >= 5
    assert (set(row) == {9}) == (liked == 9)


def test_a_row_that_follows_another_one_has_its_tokens_and_its_own_random_numbers() -> None:
    piece = PIECES[0]
    recorder = Recorder()
    leader, row, paused = recorder.enter(piece)
    for _ in range(3):
        recorder.step()
    row.paused = paused.paused = True
    recorder.step()
    assert [len(recorder.rows[one]) for one in (leader, row, paused)] == [4, 3, 3]
    numbers = deepcopy(row.generator)
    recorder.batch.follow(row, leader)
    row.paused = False
    begun = np.array([*piece.prompt, *recorder.rows[leader]])
    recorder.to_the_end()
    apart = Recorder()
    (same,) = apart.enter(Request(begun, Rule(8), [0], piece.options))
    same.generator = numbers
    apart.to_the_end()
    assert recorder.rows[row][3:] == apart.rows[same]
    assert len(recorder.rows[paused]) == 3
