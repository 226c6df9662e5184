from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from relpe.decoding.batch import ContinuousBatch, Row
from relpe.decoding.eager import PlainSteps, prefill
from relpe.decoding.sampling import SamplingOptions
from relpe.models.decoder import DecoderState
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


class Piece(NamedTuple):
    """The tokens generated after a prompt with some seeds."""

    prompt: list[int]
    seeds: list[int]
    rule: Rule
    options: SamplingOptions = SamplingOptions()


PIECES = (
    Piece([3, 1, 4, 1, 5], [1, 2, 3], Rule(12)),
    Piece([9, 2, 6], [4], Rule(5, least=4), SamplingOptions(temperature=1.3, top_p=1.0)),
    Piece([5, 3, 5, 8, 9, 7, 9], [5, 6], Rule(20), SamplingOptions(top_k=3)),
    Piece([1], [7], Rule(0)),
)


class Recorder:
    """A batch that records the tokens of its rows."""

    def __init__(self) -> None:
        self.decoder = small_decoder(VOCABULARY)
        self.steps = PlainSteps(self.decoder)
        self.batch: ContinuousBatch[Rule] = ContinuousBatch(self.steps)
        self.rows: dict[Row[Rule], list[int]] = {}

    def enter(self, piece: Piece) -> list[Row[Rule]]:
        state: DecoderState = prefill(
            self.decoder, self.decoder.init_state(1), torch.tensor([piece.prompt[:-1]])
        )
        rows = self.batch.enter(
            state, len(piece.prompt) - 1, piece.prompt[-1], piece.rule, piece.options, piece.seeds
        )
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


def alone(piece: Piece) -> list[list[int]]:
    """The tokens of each seed, generated alone."""
    rows = []
    for seed in piece.seeds:
        recorder = Recorder()
        (row,) = recorder.enter(piece._replace(seeds=[seed]))
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


def test_rows_differ_only_by_their_seeds() -> None:
    one, two, three = alone(PIECES[0])
    assert one != two != three
    assert [one, two, three] == alone(PIECES[0])
    assert alone(PIECES[0]._replace(seeds=[2, 2])) == [two, two]


def test_a_row_without_allowed_tokens_never_enters() -> None:
    recorder = Recorder()
    (row,) = recorder.enter(PIECES[3])
    assert row.ended
    assert not recorder.batch.rows
    assert not recorder.steps._rows


@pytest.mark.parametrize("liked", [2, 9])
def test_the_bias_of_a_rule_applies_and_allows_no_other_token(liked: int) -> None:
    (row,) = alone(Piece([3, 1], [1], Rule(30, least=5, liked=liked)))
    assert min(row) >= 5
    assert (set(row) == {9}) == (liked == 9)
