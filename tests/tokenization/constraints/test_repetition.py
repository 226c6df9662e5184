from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenization.constraints.repetition import OSTINATO_BARS, Repetition
from tokenization.remi.multitrack import MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import MULTITRACK_FAMILIES, PIANO_FAMILIES

IDS = PianoRemi().vocabulary.ids


def bar(*notes: tuple[int, int], tempo: int | None = None, velocity: int = 16) -> list[int]:
    """A bar of notes, each a position and a pitch."""
    tokens, at = [IDS["Bar"]], -1
    if tempo is not None:
        tokens += [IDS["Position_0"], IDS[f"Tempo_{tempo}"]]
        at = 0
    for position, pitch in notes:
        if position != at:
            tokens.append(IDS[f"Position_{position}"])
        at = position
        tokens += [IDS[f"Pitch_{pitch}"], IDS[f"Velocity_{velocity}"], IDS["Duration_6"]]
    return tokens


A, B, C = ((0, 60), (12, 64)), ((0, 62), (6, 65)), ((0, 40),)
EMPTY = ()


def copies(*bars: tuple[tuple[int, int], ...], then: tuple[str, ...] = ()) -> dict[str, int]:
    """What would go on with a copy in a new bar after some, and after the names that follow it."""
    tokens = [token for notes in bars for token in bar(*notes)] + [IDS["Bar"]]
    repetition = Repetition.after(PIANO_FAMILIES, [*tokens, *(IDS[name] for name in then)])
    names = PianoRemi().vocabulary.names
    return {names[token]: times for token, times in repetition.copies}


def test_a_pair_of_bars_that_comes_round_is_a_copy() -> None:
    assert copies(A, B) == {}
    assert copies(A, B, A) == {"Position_0": 1}
    assert copies(A, B, A, then=("Position_0",)) == {"Pitch_62": 1}
    assert copies(A, B, A, then=("Position_0", "Pitch_62")) == {"Position_6": 1}
    assert copies(A, B, A, then=("Position_0", "Pitch_61")) == {}
    assert copies(A, B, A, B, A) == {"Position_0": 2}
    assert copies(A, B, A, C, A, then=("Position_0",)) == {"Pitch_62": 1, "Pitch_40": 1}


def test_a_bar_that_comes_back_elsewhere_is_none() -> None:
    assert copies(A, B, C, A, then=("Position_0",)) == {"Pitch_62": 1}  # A B, not A
    assert copies(A, B, A, C, B) == {"Position_0": 1}  # B A
    assert copies(B, A, C) == {}
    assert copies(A, EMPTY, A, EMPTY) == {}


def test_a_longer_phrase_is_noticed_pair_by_pair() -> None:
    phrase = (A, B, C, ((3, 50),))
    assert copies(*phrase, A) == {"Position_0": 1}
    assert copies(*phrase, *phrase[:3]) == {"Position_3": 1}


def test_an_ostinato_is_left_alone_for_a_phrase() -> None:
    for times in range(1, OSTINATO_BARS):
        assert copies(*[A] * times) == {}
    assert copies(*[A] * OSTINATO_BARS) == {"Position_0": 1}
    assert copies(*[A] * (OSTINATO_BARS + 1)) == {"Position_0": 2}


def test_how_loud_how_long_and_how_fast_makes_no_difference() -> None:
    tokens = bar(*A, tempo=90) + bar(*B) + bar(*A, velocity=20) + bar(tempo=91)[:1]
    assert Repetition.after(PIANO_FAMILIES, tokens).copies == [(IDS["Position_0"], 1)]
    late = ((6, 60),)
    tokens = bar(*late, tempo=90) + bar(*B) + bar(*late) + [IDS["Bar"]]
    assert Repetition.after(PIANO_FAMILIES, tokens).copies == [(IDS["Position_0"], 1)]
    empty = bar(tempo=90) + bar(*A) + bar(tempo=80) + [IDS["Bar"]]
    assert not Repetition.after(PIANO_FAMILIES, empty).copies


def test_instruments_are_told_apart() -> None:
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
def test_rows_with_one_beginning_do_not_hear_each_other(common, first, second, order) -> None:
    start = Repetition.after(PIANO_FAMILIES, [t for notes in common for t in bar(*notes)])
    rows = [[t for notes in bars for t in bar(*notes)] for bars in (first, second)]
    now, seen = [start, start], [[], []]
    left = [0] * len(rows[0]) + [1] * len(rows[1])
    order.shuffle(left)
    places = [0, 0]
    for row in left:
        now[row] = now[row].advance(rows[row][places[row]])
        places[row] += 1
        seen[row].append(now[row].copies)
    for row in (0, 1):
        alone = Repetition.after(PIANO_FAMILIES, [t for notes in common for t in bar(*notes)])
        for token, found in zip(rows[row], seen[row], strict=True):
            alone = alone.advance(token)
            assert alone.copies == found


@given(bars=BARS)
def test_a_rule_that_stays_behind_sees_what_it_saw(bars) -> None:
    rules = [Repetition.after(PIANO_FAMILIES, [])]
    for token in [t for notes in bars for t in bar(*notes)]:
        rules.append(rules[-1].advance(token))
    fresh = Repetition.after(PIANO_FAMILIES, [])
    tokens = [t for notes in bars for t in bar(*notes)]
    for rule, token in zip(rules, [*tokens, None], strict=True):
        assert rule.copies == fresh.copies
        if token is not None:
            fresh = fresh.advance(token)
