from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.guided import A, B, C, piano_bar, rule_of, sample
from tokenization.constraints.repetition import OSTINATO_BARS, Repetition
from tokenization.constraints.rule import ConstrainedGrammar
from tokenization.remi.multitrack import MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import (
    BAR,
    MULTITRACK_FAMILIES,
    PIANO_FAMILIES,
    POSITION,
    TEMPO,
    Families,
)

IDS = PianoRemi().vocabulary.ids


EMPTY = ()


def copies(*bars: tuple[tuple[int, int], ...], then: tuple[str, ...] = ()) -> dict[str, int]:
    """Tokens that would continue a copy, if a new bar after `bars` begins with `then`."""
    tokens = [token for notes in bars for token in piano_bar(*notes)] + [IDS["Bar"]]
    repetition = Repetition.after(PIANO_FAMILIES, [*tokens, *(IDS[name] for name in then)])
    names = PianoRemi().vocabulary.names
    return {names[token]: times for token, times in repetition.copies}


def test_a_repeated_pair_of_bars_is_a_copy() -> None:
    assert copies(A, B) == {}
    assert copies(A, B, A) == {"Position_0": 1}
    assert copies(A, B, A, then=("Position_0",)) == {"Pitch_62": 1}
    assert copies(A, B, A, then=("Position_0", "Pitch_62")) == {"Position_6": 1}
    assert copies(A, B, A, then=("Position_0", "Pitch_61")) == {}
    assert copies(A, B, A, B, A) == {"Position_0": 2}
    assert copies(A, B, A, C, A, then=("Position_0",)) == {"Pitch_62": 1, "Pitch_40": 1}


def test_a_single_repeated_bar_is_not_a_copy() -> None:
    assert copies(A, B, C, A, then=("Position_0",)) == {"Pitch_62": 1}  # A B, not A
    assert copies(A, B, A, C, B) == {"Position_0": 1}  # B A
    assert copies(B, A, C) == {}
    assert copies(A, EMPTY, A, EMPTY) == {}


def test_an_ostinato_has_no_bias_for_a_phrase() -> None:
    for times in range(1, OSTINATO_BARS):
        assert copies(*[A] * times) == {}
    assert copies(*[A] * OSTINATO_BARS) == {"Position_0": 1}
    assert copies(*[A] * (OSTINATO_BARS + 1)) == {"Position_0": 2}


def test_loudness_duration_and_tempo_do_not_matter() -> None:
    tokens = (
        piano_bar(*A, tempo="89.9")
        + piano_bar(*B)
        + piano_bar(*A, velocity=20)
        + piano_bar(tempo="91.6")[:1]
    )
    assert Repetition.after(PIANO_FAMILIES, tokens).copies == [(IDS["Position_0"], 1)]
    late = ((6, 60),)
    tokens = piano_bar(*late, tempo="89.9") + piano_bar(*B) + piano_bar(*late) + [IDS["Bar"]]
    assert Repetition.after(PIANO_FAMILIES, tokens).copies == [(IDS["Position_0"], 1)]
    empty = piano_bar(tempo="89.9") + piano_bar(*A) + piano_bar(tempo="80.1") + [IDS["Bar"]]
    assert not Repetition.after(PIANO_FAMILIES, empty).copies


def test_instruments_are_distinguished() -> None:
    ids = MultitrackRemiConfig().build().vocabulary.ids

    def played_by(program: str) -> list[int]:
        names = ["Bar", "Position_0", program, "Pitch_60", "Velocity_16", "Duration_6"]
        return [ids[name] for name in names]

    piano, organ = played_by("Program_0"), played_by("Program_16")
    tokens = piano + organ + piano + organ[:2]
    found = Repetition.after(MULTITRACK_FAMILIES, tokens).copies
    assert found == [(ids["Program_16"], 1)]


BARS = st.lists(st.sampled_from([A, B, C, EMPTY]), max_size=12)


@given(common=BARS, first=BARS, second=BARS, order=st.randoms(use_true_random=False))
def test_rows_with_the_same_beginning_are_independent(common, first, second, order) -> None:
    start = Repetition.after(PIANO_FAMILIES, [t for notes in common for t in piano_bar(*notes)])
    rows = [[t for notes in bars for t in piano_bar(*notes)] for bars in (first, second)]
    now, seen = [start, start], [[], []]
    left = [0] * len(rows[0]) + [1] * len(rows[1])
    order.shuffle(left)
    places = [0, 0]
    for row in left:
        now[row] = now[row].advance(rows[row][places[row]])
        places[row] += 1
        seen[row].append(now[row].copies)
    for row in (0, 1):
        alone = Repetition.after(PIANO_FAMILIES, [t for notes in common for t in piano_bar(*notes)])
        for token, found in zip(rows[row], seen[row], strict=True):
            alone = alone.advance(token)
            assert alone.copies == found


# as a bias


def copying(rule: ConstrainedGrammar, families: Families) -> np.ndarray:
    """Logits of a model that alternates between two bars."""
    bars = ([*piano_bar(*A)[1:], BAR], [*piano_bar(*B)[1:], BAR])
    logits = np.zeros(families.size, np.float32)
    played = bars[rule.limit.notated_bar(rule.grammar) % 2]
    logits[next(token for token in played if rule.allowed[token])] = 12
    return logits


def contents(tokens: list[int]) -> list[tuple[int, ...]]:
    """Positions and pitches of each bar."""
    bars: list[list[int]] = [[]]
    for token in tokens:
        if token == BAR:
            bars.append([])
        elif POSITION <= token < TEMPO or PIANO_FAMILIES.pitch <= token < PIANO_FAMILIES.velocity:
            bars[-1].append(token)
    return [tuple(content) for content in bars[:-1]]


def biased(strength: float) -> ConstrainedGrammar:
    """A rule of eighty bars."""
    biases = [Repetition.after(PIANO_FAMILIES, (), strength)] if strength else []
    return rule_of(*biases, bars=80, four_four=True)


def copied_pairs(strength: float) -> int:
    """Count of the most frequent pair of bars in eighty bars of the copying model."""
    bars = contents(sample(biased(strength), seed=3, logits=copying)[0])
    assert len(bars) == 80
    pairs = list(pairwise(bars))
    return max(pairs.count(pair) for pair in set(pairs))


def test_a_model_that_copies_forever_is_diverted() -> None:
    free, half, full = (copied_pairs(strength) for strength in (0.0, 0.5, 1.0))
    assert free > 30
    assert full <= half < 15
    assert full < 10


def test_the_bias_grows_with_the_number_of_copies() -> None:
    least = []
    for times in range(1, 9):
        rule = biased(0.5)
        for token in [
            *piano_bar(*A)[1:],
            *(piano_bar(*B) + piano_bar(*A)) * times,
            BAR,
            POSITION,
        ]:
            rule = rule.advance(token)
        assert rule.bias is not None
        (liked,) = np.flatnonzero(rule.bias)
        assert PianoRemi().vocabulary.names[liked] == "Pitch_62"
        least.append(rule.bias[liked])
    assert least[:3] == [-0.25, -1.0, -2.25]
    assert min(least) == least[-1] == -8.0
