"""The compiled scanner and the one by NumPy give the same results for all bytes."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import midi_files
from tests.support.midi_files import END, midi_file, note
from tokenization.errors import MidiError
from tokenization.midi import bytes_numpy, events
from tokenization.midi.chunks import open_midi

bytes_kernel = pytest.importorskip("tokenization.midi.bytes_kernel")
NEVER = 1 << 40


def check(data: bytes, most_singles: int = 1000) -> None:
    try:
        file = open_midi(data, "test")
    except MidiError:
        return
    spans = np.array([(chunk.start, chunk.end) for chunk in file.tracks], np.int64)
    fast, slow = (s.scan(file.data, spans, most_singles) for s in (bytes_kernel, bytes_numpy))
    assert (fast.singles > most_singles) == (slow.singles > most_singles)
    if slow.singles > most_singles:
        return
    assert_same(fast, slow)
    tick, chunk, status, first, second, tracks, *_ = slow[2:]
    pairs = [s.pair_notes(chunk, status, first, second) for s in (bytes_kernel, bytes_numpy)]
    assert_same(*pairs)
    begins, ends, _ = pairs[0]
    columns = (tick, chunk, status, first, second, np.append(tracks[:, 0], len(tick)))
    tables = [s.note_table(*columns, begins, ends) for s in (bytes_kernel, bytes_numpy)]
    assert_same(*tables)
    notes, places, programs = tables[0]
    instruments = places << 7 | programs
    for some in (notes, notes[::-1].copy()):
        assert_same(*(s.sort_notes(some, instruments) for s in (bytes_kernel, bytes_numpy)))
    for kind in (0xB0, 0xE0):
        for until in (NEVER, int(tick.max(initial=0)) // 2):
            rows = [s.rows_of_kind(status, tick, kind, until) for s in (bytes_kernel, bytes_numpy)]
            assert_same(rows[:1], rows[1:])


def assert_same(fast, slow) -> None:
    for one, other in zip(fast, slow, strict=True):
        assert np.array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


@given(data=midi_files.files_of_anything())
def test_legal_files(data):
    check(data)


@given(data=st.binary(max_size=200))
def test_any_track_content(data):
    check(midi_file(data, note(60) + END, data))


def test_bad_and_damaged_files():
    noise = random.Random(0)
    files = [file.data for file in midi_files.bad_files()]
    for data in files:
        check(data)
    # NumPy reads tracks one at a time: 20,000 of them would take most of the time
    many = max(range(len(files)), key=lambda index: len(files[index]))
    files[many] = midi_files.header(200) + midi_files.chunk(b"MTrk", END) * 200
    for _ in range(1500):
        check(midi_files.mutated(noise.choice(files), noise), noise.choice([1000, 1000, 2]))


def test_notes_that_are_far_from_sorted():
    """The compiled sort gives up on these, since insertion would take too long."""
    check(midi_file(b"".join(note(60 + i % 16, channel=i % 16, length=i % 7) for i in range(2000))))


def test_the_first_files_are_read_by_numpy_and_later_ones_by_compiled_code(monkeypatch):
    monkeypatch.setattr(events, "_uses", iter(range(events.USES_BY_NUMPY - 1, 1 << 40)))
    assert [events.fastest_kernel() for _ in range(3)] == [bytes_numpy, bytes_kernel, bytes_kernel]


def test_without_numba_there_is_numpy(monkeypatch):
    events.compiled_kernel.cache_clear()
    monkeypatch.delattr("tokenization.midi.bytes_kernel")
    monkeypatch.setitem(sys.modules, "tokenization.midi.bytes_kernel", None)
    assert events.compiled_kernel() is bytes_numpy
    events.compiled_kernel.cache_clear()
