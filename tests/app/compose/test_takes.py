"""Several takes of a piece: the best is a piece that its own seed gives alone."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from app.compose.continuation import Result, continue_prompt, finish, generate_piece
from app.compose.engine import Engine
from app.compose.options import LARGEST_SEED, MusicOptions
from app.compose.piece import Draft, Opening
from app.compose.prompt.prompt import read_prompt
from tests.support.scores import two_hands
from tokenization.measures.takes import take_seed
from tokenization.midi import write_midi

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt.prompt import Prompt


@pytest.fixture(scope="module")
def prompt():
    return read_prompt(write_midi(two_hands()))


def made(model: MusicModel, prompt: Prompt | None, **options: Any) -> Result:
    options = {"bars": 2} | options
    music = MusicOptions(**options)
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


def test_takes_that_are_ranked_again_and_again_go_on_from_the_best(quick_model, prompt):
    for begins in (prompt, None):
        engine, draft = started(quick_model, begins, bars=6)
        decisions: list[list[int]] = []
        begin = heard = draft.done_ticks
        decided = None
        while len(engine):
            engine.step()
            assert draft.done_ticks >= heard  # finished bars stay
            heard = draft.done_ticks
            assert (heard > begin) == (draft.decided is not None)
            if draft.decided is not decided and draft.decided is not None:
                decided = draft.decided
                decisions.append(decided.tokens)
                assert all(sample.tokens == decided.tokens for sample in draft.samples)
        assert len(decisions) == 2
        for before, after in pairwise([*decisions, draft.sample.tokens]):
            assert after[: len(before)] == before
            assert after != before
        assert draft.choice is not None
        assert draft.seed == 5
        again = made(quick_model, begins, seed=5, takes=3, rank_every=2, bars=6)
        assert again.pieces[0].midi == finish(draft).midi


def test_ranking_after_the_last_bar_is_ranking_at_the_end(quick_model, prompt):
    first, second = (
        made(quick_model, prompt, seed=5, takes=3, rank_every=every).pieces[0] for every in (0, 2)
    )
    assert (first.midi, first.choice) == (second.midi, second.choice)


def test_a_stopped_piece_keeps_the_bars_that_were_decided(quick_model, prompt):
    engine, draft = started(quick_model, prompt, bars=6)
    while draft.decided is None:
        engine.step()
    engine.step()
    engine.remove([draft])
    assert len(engine) == 0
    assert draft.sample.tokens == draft.decided.tokens
    assert finish(draft).stopped


def started(model: MusicModel, prompt: Prompt | None, **options: Any) -> tuple[Engine, Draft]:
    """Three takes of a piece that are ranked every two bars."""
    music = MusicOptions(seed=5, takes=3, rank_every=2, **options)
    opening = (
        Opening.of_nothing(model, music) if prompt is None else Opening.after(model, prompt, music)
    )
    engine = Engine(model)
    (draft,) = engine.add(opening, [5])
    return engine, draft
