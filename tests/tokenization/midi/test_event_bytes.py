"""Compiled and uncompiled, bytes are read as by a slow parser, and the results are the same."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import midi_files
from tests.support.midi_files import END, meta, midi_file, note
from tokenization.errors import MidiError
from tokenization.midi import event_bytes, read_midi, write_midi
from tokenization.midi.chunks import open_midi


def load_uncompiled() -> ModuleType:
    """A copy of the module of which nothing is compiled yet."""
    copy = ModuleType("copy")
    source = Path(event_bytes.__file__).read_text("utf-8")
    exec(compile(source, event_bytes.__file__, "exec"), vars(copy))
    return copy


MODULES = (load_uncompiled(), event_bytes)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    assert event_bytes.compile_all() == (find_spec("numba") is not None)


def check(data: bytes, most_singles: int = 1000) -> None:
    try:
        file = open_midi(data, "test")
    except MidiError:
        return
    spans = np.array([(chunk.start, chunk.end) for chunk in file.tracks], np.int64)
    slow = [midi_files.slow_scan(file.data[: chunk.end], chunk.start) for chunk in file.tracks]
    track_rows = np.cumsum([0, *(len(track.rows) for track in slow)])
    chunk = np.repeat(np.arange(len(slow)), np.diff(track_rows))
    tracks = [[int(row), *track[1:]] for row, track in zip(track_rows, slow, strict=False)]
    table = np.array([row for track in slow for row in track.rows], np.int64).reshape(-1, 6)
    over = (table[:, 4:] > 127) & (table[:, 3:4] < 0xF0)
    table[:, 4:][over] = 127
    start, body, tick, status, first, second = table.T
    singles = int(((status >= 0xF0) | over.any(1)).sum())
    events = np.stack((chunk, tick, status, first, second), axis=1).tolist()
    pairs = midi_files.slow_pairs(events)
    ends = {on: off for on, off in pairs.items() if off is not None}
    endless = [on for on, off in pairs.items() if off is None]
    dtypes: list[list[np.dtype]] = []
    for module in MODULES:
        scan = module.scan(file.data, spans, most_singles)
        assert (scan.singles > most_singles) == (singles > most_singles)
        if singles > most_singles:
            continue
        expected = (start, body, tick, chunk, status, first, second, tracks, over.sum(), singles)
        assert_equal(scan, expected)
        pairs = module.pair_notes(*scan[3:7])
        assert_equal(pairs, (list(ends), list(ends.values()), endless))
        on, off, _ = pairs
        notes = module.note_table(*scan[2:7], on, off)
        rows = np.stack((tick[on], tick[off] - tick[on], first[on], second[on]), axis=1)
        assert_equal(notes, (rows, chunk[on], status[on] & 15, on))
        programs = module.chunk_programs(scan.status, scan.first, track_rows, *notes[1:])
        assert programs.tolist() == [midi_files.slow_program(events, row) for row in on]
        dtypes.append([array.dtype for array in (*scan[:8], *pairs, *notes, programs)])
    assert dtypes[:1] == dtypes[1:]


def assert_equal(results: Iterable, expected: Iterable) -> None:
    for result, value in zip(results, expected, strict=True):
        assert np.array_equal(result, value)


@given(data=midi_files.files_of_anything() | midi_files.musical_files())
def test_legal_files(data):
    check(data)


PIECES = [
    *(note(60), note(61, channel=3), meta(1, b"text"), END),
    *(b"\x00\xf0\x02\x01\xf7", b"\x05\xf7\x00", b"\x83\x60", b"\xff\xff\xff\xff", b"\x00\xc3\x85"),
    *(b"\x00\x90\xc8\x40", b"\x00\xd0\x7f", b"\x00\xe0\x7f\x80", b"\x3c\x40", b"\x00"),
    *(bytes([0, status, 1, 2]) for status in range(0xF1, 0xF7)),
    *(bytes([0, status]) for status in range(0xF8, 0xFF)),
]
CONTENTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=9).map(b"".join)


@given(first=CONTENTS, second=CONTENTS, most_singles=st.sampled_from([1000, 1000, 2]))
def test_any_track_content(first, second, most_singles):
    check(midi_file(first, note(60) + END, second), most_singles)


DELTAS = st.sampled_from([0, 127, 128, 2**14 - 1, 2**14, 2**21 - 1, 2**21, 2**28 - 1])


@given(st.lists(st.tuples(DELTAS, st.binary(max_size=4)), max_size=8))
def test_events_are_written_with_their_delta_times(events):
    deltas = np.array([delta for delta, _ in events], np.int64)
    sizes = np.array([len(content) for _, content in events], np.int64)
    ticks, starts = np.cumsum(deltas), np.cumsum(sizes) - sizes + 1
    content = np.frombuffer(b"?" + b"".join(content for _, content in events), np.uint8)
    parts = [midi_files.quantity(delta) + content for delta, content in events]
    for module in MODULES:
        written, offsets = module.write_events(ticks, ticks - deltas, starts, sizes, content)
        assert written.tobytes() == b"".join(parts)
        assert offsets.tolist() == [0, *np.cumsum([len(part) for part in parts])]


def test_a_process_begins_uncompiled_and_compiles_when_it_has_enough_to_do(monkeypatch):
    module, calls = load_uncompiled(), []
    monkeypatch.setattr(module, "compile_all", lambda: calls.append("compiled"))
    for at, size in enumerate((module.PLAIN_BYTES, 1)):
        module.prepare(size)
        assert len(calls) == at
    monkeypatch.setattr(event_bytes, "prepare", calls.append)
    file = midi_file(note(60) + END)
    write_midi(read_midi(file))
    assert calls[1] == len(file) > calls[2] > 0


def test_without_numba_nothing_is_compiled(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    module = load_uncompiled()
    assert not module.compile_all()
    assert len(module.scan(b"\x00\xf8", np.array([[0, 2]]), 9).start) == 1
