from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tokenization.analysis.form import MAX_BARS, Phrase, find_form
from tokenization.plan import BarPlan, Chord, Plan, PlannedChord


def bar(root: int, source: int = 0) -> BarPlan:
    return BarPlan(source, (PlannedChord(0, Chord(root, 0)),))


def piece(*sections: str) -> Plan:
    """Sections of eight bars; those of one letter return, and each has its own chords."""
    chords = {"A": (0, 5, 7, 0, 0, 5, 7, 7), "B": (9, 2, 9, 4, 8, 1, 6, 11), "C": (3, 10) * 4}
    bars: list[BarPlan] = []
    for place, letter in enumerate(sections):
        before = [earlier for earlier in range(place) if sections[earlier] == letter]
        distance = 8 * (place - before[-1]) if before else 0
        bars += [bar(root, distance) for root in chords[letter]]
    return Plan(tuple(bars))


def test_sections_that_return_have_one_letter():
    for form in ("AABA", "ABAB", "ABCA", "AABB", "ABAC"):
        letters = "".join(phrase.letter * phrase.num_bars for phrase in find_form(piece(*form)))
        assert letters == "".join(letter * 8 for letter in form)


some_bars = st.lists(
    st.builds(bar, st.integers(0, 11), st.integers(0, 8))
    | st.just(BarPlan(0, (PlannedChord(0, None),)))
    | st.just(BarPlan()),
    max_size=60,
)


def plan_of(bars):
    return Plan(tuple(BarPlan(min(b.source, i), b.chords) for i, b in enumerate(bars)))


@given(some_bars, some_bars)
def test_known_phrases_stay_whatever_follows_and_the_rest_is_filled(bars, more):
    known = find_form(plan_of(bars))
    assert find_form(plan_of(bars), known) == known
    found = find_form(plan_of(bars + more), known)
    assert found[: len(known)] == known
    assert sum(phrase.num_bars for phrase in found) == len(bars + more)
    shorter = find_form(plan_of(bars[:-3]), known)
    letters = [phrase.letter for phrase in shorter for _ in range(phrase.num_bars)]
    assert letters == [p.letter for p in known for _ in range(p.num_bars)][: len(bars[:-3])]


def test_a_new_letter_is_one_that_no_known_phrase_has():
    known = [Phrase("B", 0, 8)]
    assert [phrase.letter for phrase in find_form(piece(*"ABA"), known)] == ["B", "A", "B"]


@given(some_bars, st.integers(0, 11))
def test_phrases_fill_the_piece_and_transposition_changes_nothing(bars, semitones):
    bars = plan_of(bars).bars
    found = find_form(Plan(bars))
    assert sum(phrase.num_bars for phrase in found) == len(bars)
    ends = [0, *(phrase.first_bar + phrase.num_bars for phrase in found)]
    assert [phrase.first_bar for phrase in found] == ends[:-1]
    assert all(1 <= phrase.num_bars <= 16 for phrase in found)
    moved = [
        BarPlan(
            b.source,
            tuple(
                c._replace(chord=c.chord and Chord((c.chord.root + semitones) % 12, 0))
                for c in b.chords
            ),
        )
        for b in bars
    ]
    assert find_form(Plan(tuple(moved))) == found


def test_letters_continue_after_z_and_very_long_pieces_have_no_form():
    # no bar resembles another: no chords, no returns
    found = find_form(Plan((BarPlan(),) * 600))
    letters = [phrase.letter for phrase in found]
    assert letters[0] == "A"
    assert letters[25:28] == ["Z", "AA", "AB"]
    assert find_form(Plan((BarPlan(),) * (MAX_BARS + 1))) == ()
    assert find_form(Plan(())) == ()
