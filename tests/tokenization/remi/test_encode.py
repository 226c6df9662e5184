"""The maximum number of tokens of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.midi_files import END, meta, midi_file, quantity
from tests.support.strategies import MULTITRACK_CASE, for_each_tokenizer
from tokenization.errors import MidiError
from tokenization.midi import read_midi
from tokenization.remi.vocabulary import BAR, POSITION

if TYPE_CHECKING:
    from numpy.typing import NDArray


BAR_TOKENS = 175_000


def most_others(file: bytes) -> int:
    """A file has at most 175,000 tokens for its bars, plus one for each of its bytes.

    Bars: `read_midi` refuses notes that end after 65,536 quarters, which are 786,432 steps.
    Rounding adds at most 61 steps to the last note, and its bar line 96. A bar takes one token, or
    two if its length differs from that of the previous bar. Lengths are multiples of 6, so two
    different bars have at least 18 steps together: two tokens for 9 steps. Two equal bars have at
    least 12: one token for 6 steps. The maximum is 2/9 of a token per step, 174,800 in all, which
    3/16 reaches with alternating bars of 12 and 6 steps. It does not depend on the size of the
    file.

    Other tokens: a note takes up to six (Position, Program, Part, Pitch, Velocity, Duration), and
    at least six bytes: time, pitch and velocity, twice. A tempo takes two, and at least seven
    bytes. BOS, EOS, and the first Position and Tempo are fewer than the bytes of the headers.
    """
    return len(file)


def assert_bounded(ids: NDArray[np.int32], file: bytes) -> None:
    bars = np.count_nonzero((ids >= BAR) & (ids < POSITION))
    assert bars <= BAR_TOKENS
    assert len(ids) - bars <= most_others(file)


def metre(numerator: int, power: int) -> bytes:
    return meta(0x58, bytes([numerator, power, 24, 8]))


def struck(delta: int, channel: int, pitch: int, length: int) -> bytes:
    """A note in as few bytes as possible."""
    on = quantity(delta) + bytes([0x90 | channel, pitch, 64])
    return on + quantity(length) + bytes([pitch, 0])


DELTAS = st.integers(0, 3) | st.sampled_from([127, 16_383, 65_535, 786_431, 2**21 - 1, 2**28 - 1])
TRACKS = st.lists(
    st.one_of(
        st.builds(metre, st.sampled_from([1, 3, 4, 5, 7, 9, 255]), st.integers(0, 7)),
        st.builds(meta, st.just(0x51), st.binary(min_size=3, max_size=3), DELTAS),
        st.builds(struck, DELTAS, st.sampled_from([0, 1, 9]), st.integers(0, 127), DELTAS),
    ),
    max_size=12,
).map(b"".join)


@for_each_tokenizer
@given(
    tracks=st.lists(TRACKS, min_size=1, max_size=3),
    division=st.sampled_from([1, 12, 96, 480, 0x7FFF]),
)
def test_the_size_of_a_file_bounds_the_number_of_its_tokens(case, tracks, division):
    data = midi_file(*(track + END for track in tracks), division=division)
    try:
        ids = case.remi.encode(read_midi(data)).ids
    except MidiError:
        return
    assert_bounded(ids, data)


@for_each_tokenizer
@pytest.mark.parametrize(("numerator", "power", "tokens"), [(1, 3, 131_073), (3, 4, 174_762)])
def test_the_longest_silences(case, numerator, power, tokens):
    data = midi_file(metre(numerator, power) + struck(65_535, 0, 60, 1) + END, division=1)
    ids = case.remi.encode(read_midi(data)).ids
    assert len(data) < 68
    assert np.count_nonzero((ids >= BAR) & (ids < POSITION)) == tokens
    assert_bounded(ids, data)


@for_each_tokenizer
def test_a_longer_silence_is_rejected(case):
    data = midi_file(struck(0, 0, 60, 1) + struck(2**28 - 1, 0, 60, 1) + END)
    with pytest.raises(MidiError, match="beat"):
        case.remi.encode(read_midi(data))


def test_notes_make_as_many_tokens_as_they_have_bytes():
    first = struck(0, 0, 60, 1)
    again = b"\x01" + first[2:]  # in running status
    data = midi_file(first + END, first + 5000 * again + END, division=12)
    ids = MULTITRACK_CASE.remi.encode(read_midi(data)).ids
    assert 0.99 * len(data) <= len(ids)
    assert_bounded(ids, data)
