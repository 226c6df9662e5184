"""Damaged files are either read, tokenized, decoded and continued, or refused in one sentence."""

from __future__ import annotations

import multiprocessing
import random
import re
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.midi_files import (
    END,
    Mutation,
    bad_files,
    chunk,
    header,
    melody,
    meta,
    midi_file,
    mutated,
    note,
    quantity,
    riff,
    tempo,
)
from tokenization.errors import MidiError
from tokenization.midi import append_to_midi, cut_midi, read_midi, write_midi
from tokenization.midi.chunks import open_midi
from tokenization.midi.events import scan_events
from tokenization.presets import PRESETS
from tokenization.score import Score, Tempo, TimeSignature, Track

SEED = 20_261_121
NUM_FILES = 200_000
FILES_PER_SHARD = 2_500
TOKENIZERS: list[Any] = [PRESETS[name].build() for name in ("piano-2", "multitrack-2")]


# ---- files, before and after


def metre(numerator: int, power: int, delta: int = 0) -> bytes:
    return meta(0x58, bytes([numerator, power, 24, 8]), delta)


def band() -> Score:
    """Drums, a bass, five tracks of one program; metres that are hard to count; long notes."""
    rows = [(120 * i, 60 + 120 * (i % 3), 40 + 7 * i % 50, 30 + 5 * i) for i in range(16)]
    tracks = [Track.of(rows, 0, is_drum=True), Track.of(rows[::2], 33)]
    tracks += [Track.of(rows[part::5], 48) for part in range(5)]
    tracks.append(Track.of([(0, 48_000, 60, 80), (30, 10, 60, 90), (960, 40_000, 62, 3)], 5))
    metres = [(0, 7, 8), (840, 5, 16), (1000, 13, 4), (7240, 1, 128), (9000, 4, 4)]
    tempos = [(0, 90.0), (7, 91.0), (500, 1000.0), (900, 4.0)]
    return Score(
        240,
        tuple(tracks),
        tuple(Tempo(*change) for change in tempos),
        tuple(TimeSignature(*change) for change in metres),
    )


def seed_files() -> list[bytes]:
    """Small valid files, ordinary and unusual ones."""
    events = b"".join(bytes((1, 0xB0, 64, i % 128, 1, 0xE0, i % 128, 64)) for i in range(20))
    running = b"\x00\x90\x3c\x40" + b"".join(
        bytes((10, 60 + i % 9, 0, 0, 61 + i % 9, 64)) for i in range(30)
    )
    dump = b"\x00\xf0\x05\x7e\x7f\x09\x01\xf7" + b"\x05\xf7\x02\x01\x02"
    parts = (metre(3, 3) + tempo(300_000), running, b"\x00\xc9\x10" + note(36, channel=9) * 9)
    later = b"".join(note(60, delta=quarters) for quarters in (0, 100, 5_000, 60_000))
    music = write_midi(band())
    return [
        *(file.data for file in bad_files() if isinstance(file.outcome, int)),
        midi_file(tempo(400_000), b"\x00\xc0\x05" + events + dump + melody() + END),
        midi_file(*parts),
        midi_file(*parts, midi_format=2, division=24),
        midi_file(metre(6, 3) + dump + running, midi_format=0, division=0x7FFF),
        midi_file(metre(1, 7) + later, division=1),
        midi_file(metre(5, 4) + later + tempo(1) + metre(255, 0, delta=3) + later, division=1),
        header(2, rest=b"\x01\x02")
        + chunk(b"XFIH", b"odd")
        + chunk(b"MTrk", running)
        + chunk(b"MTrk", melody() + END),
        music,
        riff(music),
    ]


SEED_FILES = seed_files()


def _splice(data: bytearray, noise: random.Random) -> None:
    other = noise.choice(SEED_FILES)
    data[noise.randrange(len(data)) :] = other[noise.randrange(len(other)) :]


def _cut_slice(data: bytearray, noise: random.Random) -> None:
    start = noise.randrange(len(data))
    del data[start : start + noise.randrange(1, 80)]


def _repeat_often(data: bytearray, noise: random.Random) -> None:
    start = noise.randrange(len(data))
    slice_ = data[start : start + noise.randrange(1, 80)]
    data[start:start] = slice_ * noise.choice([1, 2, 10, 100, 1000])


def _long_time(data: bytearray, noise: random.Random) -> None:
    start = noise.randrange(14, len(data)) if len(data) > 14 else 0
    ticks = noise.choice([1, 0x7F, 0x3FFF, 65_535, 0x1FFFFF, 0x0FFFFFFF, noise.randrange(1 << 28)])
    data[start : start + noise.randrange(2)] = quantity(ticks, padding=noise.randrange(4))


def _behind(data: bytearray, noise: random.Random, mark: bytes, content: bytes) -> None:
    """Overwrites the bytes after one of the marks with `content`, if there is a mark."""
    places = [at for at in range(len(data)) if data.startswith(mark, at)]
    if places:
        at = noise.choice(places) + len(mark)
        data[at : at + len(content)] = content


def _length(data: bytearray, noise: random.Random) -> None:
    sizes = [0, 1, 4, 255, noise.randrange(400), 0x7FFFFFFF, 0xFFFFFFFF]
    size = noise.choice(sizes).to_bytes(4, "big")
    _behind(data, noise, noise.choice([b"MTrk", b"MTrk", b"MThd", b"data"]), size)


def _mend_lengths(data: bytearray) -> None:
    """Makes the length of each track match its content, so that the events are parsed."""
    head, *tracks = data.split(b"MTrk")
    whole = (chunk(b"MTrk", bytes(track[4:])) for track in tracks)
    data[:] = b"".join((head, *whole))


def _header(data: bytearray, noise: random.Random) -> None:
    at = noise.choice([8, 10, 12, 12, 12])
    value = noise.choice([0, 1, 2, 3, 24, 0x7FFF, 0x8000, 0xE728, 0xFFFF])
    data[at : at + 2] = value.to_bytes(2, "big")


def _tempo(data: bytearray, noise: random.Random) -> None:
    value = noise.choice([0, 1, 249_000, 2_000_000, 0xFFFFFF]).to_bytes(3, "big")
    _behind(data, noise, b"\xff\x51\x03", value)


def _metre(data: bytearray, noise: random.Random) -> None:
    value = bytes([noise.choice([0, 1, 5, 13, 255]), noise.choice([0, 2, 4, 7, 8, 200, 255])])
    _behind(data, noise, b"\xff\x58\x04", value)


_STRUCTURAL: list[Mutation] = [
    *(_splice, _cut_slice, _repeat_often, _repeat_often, _long_time, _long_time),
    *(_length, _header, _tempo, _metre),
]


def damaged_file(noise: random.Random) -> bytes:
    data = bytearray(noise.choice(SEED_FILES))
    for _ in range(noise.choice([0, 1, 1, 2, 4])):
        if len(data) > 1:
            noise.choice(_STRUCTURAL)(data, noise)
    if noise.randrange(2):
        data = bytearray(mutated(bytes(data), noise))
    if noise.randrange(3):
        _mend_lengths(data)
    return bytes(data)


# ---- expected outcomes


def refusal(data: bytes) -> str:
    """Why a file is refused; empty if it is read and all further steps succeed."""
    try:
        score = read_midi(data)
        for track in score.tracks:
            notes = track.notes
            assert notes[:, :2].min() >= 0
            assert 0 <= notes[:, 2].min() <= notes[:, 2].max() < 128
            assert 0 < notes[:, 3].min() <= notes[:, 3].max() < 128
        for tokenizer in TOKENIZERS:
            ids = tokenizer.encode(score).ids
            assert np.array_equal(tokenizer.encode(tokenizer.decode(ids)).ids, ids)
        new = Track.of([(score.end_ticks, 10, 60, 80)])
        append_to_midi(data, Score(score.ticks_per_beat, (new,)), score.end_ticks)
        cut = cut_midi(data, score.end_ticks // 2, score.ticks_per_beat)
        assert scan_events(open_midi(cut, "the cut file")).is_whole.all()
    except MidiError as error:
        message = str(error)
        assert 20 < len(message) < 300
        assert len(message.splitlines()) == 1
        assert ". " not in message, "more than one sentence"
        return message
    return ""


class Shard(NamedTuple):
    """Outcomes for some of the files."""

    reasons: Counter[str]
    """Number of files by the reason of the refusal; "" for files that were read."""
    failures: list[str]


def run_shard(seed: int, count: int) -> Shard:
    noise = random.Random(seed)
    reasons: Counter[str] = Counter()
    failures = []
    for index in range(count):
        data = damaged_file(noise)
        try:
            reasons[_kind(refusal(data))] += 1
        # any other error is a failure; continue with the remaining files
        except Exception as error:  # noqa: BLE001
            failures.append(f"seed {seed}, file {index}: {error!r}: {data[:2000].hex()}")
    return Shard(reasons, failures)


def _kind(message: str) -> str:
    """The message of a refusal without details of the file."""
    return re.sub(r"\(.*|,.*|;.*|: export.*|0x\w+|\d+", "", message).strip()


def _warnings_are_errors() -> None:
    warnings.simplefilter("error")


def test_damaged_files_raise_nothing_but_midi_errors():
    shard = run_shard(SEED, 300)
    assert shard.failures == []
    assert shard.reasons[""] > 50


@pytest.mark.slow
def test_200_000_damaged_files_raise_nothing_but_midi_errors():
    num_shards = NUM_FILES // FILES_PER_SHARD
    with ProcessPoolExecutor(
        2, multiprocessing.get_context("spawn"), initializer=_warnings_are_errors
    ) as pool:
        seeds = range(SEED, SEED + num_shards)
        shards = list(pool.map(run_shard, seeds, [FILES_PER_SHARD] * num_shards))
    reasons = sum((shard.reasons for shard in shards), Counter[str]())
    print(  # noqa: T201  for `pytest -s`: figures for the documents
        *(f"{count:7,} {reason or 'read'}" for reason, count in reasons.most_common()),
        sep="\n",
    )
    assert [failure for shard in shards for failure in shard.failures] == []
    assert reasons[""] > NUM_FILES // 5


@given(data=st.binary(max_size=200), in_riff=st.booleans())
def test_any_track_content_gives_tokens_or_a_midi_error(data, in_riff):
    file = midi_file(data)
    refusal(riff(file) if in_riff else file)
