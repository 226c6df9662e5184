"""Sections that keep their letters when new bars are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compose.plan.sections import read_sections, sections_text, until, with_asked
from tokenization.analysis.form import Phrase

sections = st.lists(st.tuples(st.sampled_from(["A", "B", "C", "AA"]), st.integers(1, 16)))


def phrases(pairs):
    return read_sections(" ".join(f"{letter}{count}" for letter, count in pairs))


def letters(found):
    return [phrase.letter for phrase in found for _ in range(phrase.num_bars)]


@given(sections)
def test_sections_are_written_and_read_again(pairs):
    assert read_sections(sections_text(phrases(pairs))) == phrases(pairs)


@given(sections.filter(bool), st.integers(0, 40), st.integers(1, 20), st.booleans())
def test_given_bars_keep_their_letters_and_asked_ones_get_theirs(pairs, first, count, asks):
    before = letters(phrases(pairs))
    first = min(first, len(before))
    found = with_asked(phrases(pairs), first, count, "X3 A2" if asks else None)
    ends = [0, *(phrase.first_bar + phrase.num_bars for phrase in found)]
    assert [phrase.first_bar for phrase in found] == ends[:-1]  # without a gap
    asked = list("XXXAA")[:count] if asks else []
    assert letters(found) == before[:first] + asked + before[first + len(asked) :]
    if not asks:
        assert found == phrases(pairs)


@given(sections, st.integers(0, 40))
def test_phrases_until_a_bar_are_those_of_the_bars_before_it(pairs, stop):
    found = until(phrases(pairs), stop)
    assert letters(found) == letters(phrases(pairs))[:stop]
    assert found[:-1] == [*phrases(pairs)][: len(found)][:-1]  # only the last may be cut


def test_a_letter_without_a_number_is_as_long_as_its_last_section_if_there_is_one():
    given = phrases([("A", 8), ("B", 4)])
    assert with_asked(given, 12, 16, "B C2 A")[2:] == (
        Phrase("B", 12, 4),
        Phrase("C", 16, 2),
        Phrase("A", 18, 8),
    )
    for text in ("A", "A0", "8", "a8", "A8,B8", "A-8"):
        with pytest.raises(ValueError, match="expected a letter and a number of bars"):
            read_sections(text)
