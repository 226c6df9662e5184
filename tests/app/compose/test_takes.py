"""Several takes of a piece: the best is a piece that its own seed gives alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from app.compose.continuation import Result, continue_prompt, generate_piece
from app.compose.engine import Engine
from app.compose.options import LARGEST_SEED, MusicOptions
from app.compose.piece import Opening
from app.compose.prompt import read_prompt
from tests.support.scores import two_hands
from tokenization.measures.takes import take_seed
from tokenization.midi import write_midi

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt import Prompt


@pytest.fixture(scope="module")
def prompt():
    return read_prompt(write_midi(two_hands()))


def made(model: MusicModel, prompt: Prompt | None, **options: Any) -> Result:
    music = MusicOptions(bars=2, **options)
    steps = continue_prompt(model, prompt, music) if prompt else generate_piece(model, music)
    *_, result = steps
    assert isinstance(result, Result)
    return result


def test_the_chosen_take_is_the_piece_of_its_seed(quick_model, prompt):
    for begins in (prompt, None):
        several = made(quick_model, begins, seed=5, takes=3, variations=2)
        assert len(several.pieces) == 2
        for place, piece in enumerate(several.pieces):
            assert piece.choice is not None
            assert len(piece.choice.likenesses) == len(piece.choice.accidents) == 3
            assert piece.seed == take_seed(5 + place, piece.choice.best)
            (alone,) = made(quick_model, begins, seed=piece.seed, takes=1).pieces
            assert alone.midi == piece.midi
            assert alone.choice is None
        tokens = sum(piece.tokens for piece in several.pieces)
        assert several.tokens > tokens  # those of the other takes were generated too
    (piece,) = made(quick_model, prompt, seed=LARGEST_SEED, takes=2).pieces
    assert 0 <= piece.seed <= LARGEST_SEED


def test_takes_have_different_seeds_and_the_first_one_is_that_of_the_piece(small_model, prompt):
    opening = Opening.after(small_model, prompt, MusicOptions(takes=4, seed=5))
    (draft,) = Engine(small_model).add(opening, [5])
    assert [sample.seed for sample in draft.samples] == [take_seed(5, take) for take in range(4)]
    assert draft.seed == 5
    # variations times takes are at most 32
    many = MusicOptions(takes=8, variations=5)
    assert (many.num_takes, MusicOptions(variations=64).num_takes) == (6, 1)


def test_a_stopped_piece_keeps_the_first_take(quick_model, prompt):
    music = MusicOptions(bars=8, seed=3, takes=3)
    *_, result = continue_prompt(quick_model, prompt, music, stop=lambda: True)
    assert isinstance(result, Result)
    (piece,) = result.pieces
    assert piece.stopped
    assert (piece.seed, piece.choice) == (3, None)


def test_removing_a_draft_ends_all_its_takes(quick_model, prompt):
    engine = Engine(quick_model)
    opening = Opening.after(quick_model, prompt, MusicOptions(bars=2, takes=3))
    kept, removed = engine.add(opening, [1, 2])
    engine.step()
    engine.remove([removed])
    assert len(engine) == 3
    finished, before = [], 0.0
    while len(engine):
        finished += engine.step()
        assert before <= kept.part_done <= 1  # that of the slowest take
        assert kept.done == (kept.part_done == 1)
        before = kept.part_done
    assert finished == [kept]
    assert kept.choice is not None
