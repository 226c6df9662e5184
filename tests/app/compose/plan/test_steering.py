"""Effects of the steering options on pieces and continuations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from app.compose.continuation import Result, continue_prompt, generate_piece
from app.compose.engine import Engine
from app.compose.new_bars import in_bars
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.plan.steering import steer
from app.compose.prompt.prompt import read_prompt
from relpe.models.pointer.config import NUM_LENGTHS, GateConfig, PointerConfig
from tests.support.scores import two_hands
from tokenization.constraints.cadence import Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.key import KeyBias
from tokenization.constraints.repetition import Repetition
from tokenization.midi import write_midi
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR

if TYPE_CHECKING:
    from app.compose.continuation import Steps


def finish(steps: Steps) -> Result:
    *_, result = steps
    assert isinstance(result, Result)
    return result


def test_each_option_has_its_bias():
    tokenizer = PianoRemi()
    for options, kinds in (
        (MusicOptions(seconds=5), []),
        (MusicOptions(key="C"), [KeyBias]),
        (MusicOptions(density=3), [Density]),
        (MusicOptions(repetition=0.5), [Repetition]),
        (MusicOptions(ending="cadence"), [Cadence]),
        (
            MusicOptions(key="C", density=3, repetition=1, ending="cadence"),
            [KeyBias, Density, Cadence, Repetition],
        ),
    ):
        biases = steer(options, tokenizer.grammar(), ())
        assert [type(bias) for bias in biases] == kinds


def test_memory_is_the_strength_of_the_pointer_of_a_model_that_has_one(quick_model):
    gates = GateConfig(similar=(2.0,) * NUM_LENGTHS)
    config = replace(quick_model.decoder.config, pointer=PointerConfig(unit=BAR, gates=gates))
    decoder = config.build().eval().requires_grad_(requires_grad=False)
    with_pointer = replace(quick_model, decoder=decoder)
    prompt = read_prompt(write_midi(two_hands()))

    def made(model, memory):
        options = MusicOptions(bars=2, seed=1, memory=memory, ending="bar")
        steps = continue_prompt(model, prompt, options), generate_piece(model, options)
        first, second = (finish(one).pieces[0].midi for one in steps)
        return first, second

    without = made(quick_model, 1.0)
    assert made(quick_model, 0.5) == without == made(with_pointer, 0.0)
    pieces = [without, made(with_pointer, 0.3), made(with_pointer, 1.0)]
    for one in zip(*pieces, strict=True):
        assert len(set(one)) == 3


def test_pieces_and_continuations_last_as_long_as_asked_for(quick_model):
    prompt = read_prompt(write_midi(two_hands()))  # bars of two and a half seconds
    for seconds in (7.5, 7.6):
        options = MusicOptions(seconds=seconds, seed=1)
        (piece,) = finish(generate_piece(quick_model, options)).pieces
        lasts = piece.score.seconds_at(piece.score.end_ticks)
        longest_bar = max(96 / 12 * 60 / bpm for _, bpm in piece.score.tempos)
        assert seconds - 1e-3 <= lasts < seconds + longest_bar
        assert piece.seconds == pytest.approx(lasts, abs=0.01)
        result = finish(continue_prompt(quick_model, prompt, options))
        assert result.bars == -(-seconds // 2.5)
        assert result.pieces[0].seconds == pytest.approx(2.5 * result.bars, abs=0.01)
        assert in_bars(options, prompt).bars == result.bars
    assert in_bars(MusicOptions(bars=5), prompt) == MusicOptions(bars=5)
    waltz = read_prompt(write_midi(two_hands(metre=(3, 4))))
    assert in_bars(MusicOptions(seconds=5), waltz).bars == 3
    assert in_bars(MusicOptions(seconds=3600), waltz).bars == 1920


def test_progress_in_seconds_starts_before_the_music_is_done(quick_model):
    engine = Engine(quick_model)
    (draft,) = engine.add(Opening.of_nothing(quick_model, MusicOptions(seconds=60.0)), [1])
    seen = [draft.part_done]
    while len(engine):
        engine.step()
        seen.append(draft.part_done)
    assert seen[0] == 0
    assert 0 < seen[len(seen) // 2] < 1
    assert seen == sorted(seen)
    assert seen[-1] == 1


def test_notes_of_the_last_bar_ring_only_after_a_cadence(quick_model):
    prompt = read_prompt(write_midi(two_hands()))
    for ending in ("bar", "cadence"):
        options = MusicOptions(bars=2, seed=1, ending=ending)
        (piece,) = finish(continue_prompt(quick_model, prompt, options)).pieces
        onsets = np.concatenate([track.notes[:, 0] for track in piece.new.tracks])
        assert onsets.max() < 6 * 1920
        assert (piece.new.end_ticks > 6 * 1920) == (ending == "cadence")
        assert piece.score.end_ticks == piece.new.end_ticks
        assert piece.bars == 2


@pytest.mark.slow
def test_the_released_model_follows_density_and_key():
    from app.compose.models import load_music_model

    model = load_music_model("piano")

    def made(**wanted):
        """Notes per bar, and the share of them outside C major."""
        options = MusicOptions(bars=16, seed=0, variations=4, **wanted)
        pieces = finish(generate_piece(model, options)).pieces
        pitches = np.concatenate([t.notes[:, 2] for piece in pieces for t in piece.new.tracks])
        outside = np.isin(pitches % 12, [1, 3, 6, 8, 10]).mean()
        return len(pitches) / 16 / len(pieces), float(outside)

    free, sparse, dense = made(), made(density=8), made(density=30)
    assert abs(sparse[0] - 8) < 3
    assert abs(dense[0] - 30) < 6
    assert sparse[0] < free[0] < dense[0]
    assert made(key="C")[1] < free[1] / 5
