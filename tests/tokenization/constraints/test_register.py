from __future__ import annotations

import numpy as np
import pytest

from tests.support.guided import FAMILIES
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.register import OUTSIDE_RANGE, Register, instrument_range
from tokenization.constraints.rule import biases_of_prompt
from tokenization.remi.documents.grammar import DocumentGrammar
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import Track
from tokenization.tokenizer import FixedBar, Rules

LIMIT = BarLimit(3, 6)
BASS, FLUTE = 32, 73


def rank_of(program: int, *, is_drum: bool = False) -> int:
    return MultitrackRemi().track_ranks([Track.of([], program=program, is_drum=is_drum)])[0]


@pytest.mark.parametrize("program", [BASS, FLUTE, 127])
def test_pitches_outside_the_range_of_a_new_track_are_less_likely(program: int) -> None:
    families = FAMILIES["multitrack"]
    rank = rank_of(program)
    bias = Register.of([rank]).logits(DocumentGrammar(families)._replace(track=rank), LIMIT)
    assert bias is not None
    lowest, highest = instrument_range(program)
    of_pitch = dict(enumerate(bias[families.pitch : families.drum]))
    assert {pitch for pitch, value in of_pitch.items() if value == 0} == {
        pitch for pitch in of_pitch if lowest <= pitch <= highest
    }
    assert set(of_pitch.values()) <= {0, -OUTSIDE_RANGE}
    assert not bias[: families.pitch].any()
    assert not bias[families.drum :].any()


@pytest.mark.parametrize(
    ("given", "highest"),
    [((), 55), ((70, 45, 50), 45), ((36,), 40), ((21,), 40), ((60, 72), 55)],
)
def test_a_bass_does_not_rise_above_the_given_notes(given: tuple[int, ...], highest: int) -> None:
    families = FAMILIES["multitrack"]
    notes = (families.drum + 8, *(families.pitch + note for note in given))
    rules = Rules(bars={4: FixedBar(given=notes)})
    grammar = DocumentGrammar(families, rules)._replace(bar=4, track=rank_of(BASS))
    for bar, expected in ((4, highest), (5, 55)):
        bias = Register.of([rank_of(BASS)]).logits(grammar._replace(bar=bar), LIMIT)
        assert bias is not None
        assert np.flatnonzero(bias[families.pitch : families.drum] == 0).max() == (expected)
    flute = grammar._replace(track=rank_of(FLUTE))
    bias = Register.of([rank_of(FLUTE)]).logits(flute, LIMIT)
    assert bias is not None
    assert bias[families.pitch + 96] == 0


def test_other_tracks_and_drums_have_no_bias() -> None:
    grammar = DocumentGrammar(FAMILIES["multitrack"])
    register = Register.of([rank_of(BASS), rank_of(0, is_drum=True)])
    for other in (rank_of(FLUTE), rank_of(0, is_drum=True), -1):
        assert register.logits(grammar._replace(track=other), LIMIT) is None


def test_only_new_tracks_have_a_range() -> None:
    tokenizer = MultitrackRemi()
    grammar = tokenizer.grammar()
    rank = rank_of(BASS)
    made = [
        [bias for bias in biases_of_prompt([], grammar, joining) if isinstance(bias, Register)]
        for joining in ((), {rank})
    ]
    assert made == [[], [Register.of({rank})]]


def test_every_range_is_at_least_an_octave() -> None:
    ranges = np.array([instrument_range(program) for program in range(128)])
    assert (ranges[:, 1] - ranges[:, 0] >= 12).all()
