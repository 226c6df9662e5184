"""Properties of the tokenizers on whole corpora, checked against a naive quantizer.

RELPE_CORPORA=FOLDER pytest -m slow tests/slow/test_corpora.py
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tokenization.midi import read_midi
from tokenization.presets import PRESETS
from tokenization.remi.tempo_range import in_tempo_range
from tokenization.score import Score, TimeSignature, Track

CORPORA = os.environ.get("RELPE_CORPORA", "")
"""Folder that contains groove.zip, pop909.zip and giantmidi_sample.zip at any depth."""


# ---- the quantizer, written from tokenization/README.md without code of the package

DURATIONS = [*range(1, 49), *(math.floor(48 * 2 ** (k / 4) + 0.5) for k in range(1, 17))]
NEVER = 1 << 40

Place = str | tuple[int, int]
"""The player: "piano", "drums", or a program and the index of its track."""
Row = tuple[int, int, int, int]
"""Onset, duration, pitch, velocity."""


def half_up(value: float) -> int:
    return math.floor(value + 0.5)


def places_of(preset: str, tracks: Iterable[Track]) -> list[Place]:
    if preset == "piano-2":
        return ["nobody" if track.is_drum else "piano" for track in tracks]
    places: list[Place] = []
    parts: dict[int, int] = defaultdict(int)
    for track in tracks:
        part = min(parts[track.program], 3)
        parts[track.program] += not track.is_drum
        places.append("drums" if track.is_drum else (track.program, part))
    return places


def without_repetitions(changes: dict[int, Any], end: int) -> list[tuple[int, Any]]:
    """Changes before `end` in order of time, without repeated values."""
    kept: list[tuple[int, Any]] = []
    for step, value in sorted(changes.items()):
        if step < end and (not kept or kept[-1][1] != value):
            kept.append((step, value))
    return kept


class Quantized(NamedTuple):
    notes: dict[Place, list[Row]]
    """Sorted notes of each place that has any."""
    tempos: list[tuple[int, float]]
    signatures: list[TimeSignature]
    end: int
    merged: int
    clipped: int


def quantized(score: Score, preset: str) -> Quantized:
    def step(tick: int) -> int:
        # multiply first, so that halves are exact
        return half_up(12 * tick / score.ticks_per_beat)

    struck: dict[tuple[Place, int], dict[int, tuple[int, int]]] = defaultdict(dict)
    merged = clipped = 0
    for place, track in zip(places_of(preset, score.tracks), score.tracks, strict=True):
        if place == "nobody":
            continue
        for tick, ticks, pitch, velocity in track.notes.tolist():
            onset, end = step(tick), step(tick + ticks)
            length = 1 if place == "drums" else max(end - onset, 1)
            key = struck[place, pitch]
            merged += onset in key
            key[onset] = max(key.get(onset, (0, 0)), (length, velocity // 4))

    notes: dict[Place, list[Row]] = defaultdict(list)
    for (place, pitch), key in struck.items():
        onsets = sorted(key)
        for onset, following in zip(onsets, [*onsets[1:], NEVER], strict=True):
            length, loudness = key[onset]
            room = following - onset
            length = min(length, room)
            clipped += length > DURATIONS[-1]
            if length > 48:
                fitting = [duration for duration in DURATIONS if duration <= room]
                length = min(fitting, key=lambda d, wanted=length: (abs(d - wanted), -d))
            notes[place].append((onset, length, pitch, 4 * loudness + 2))

    last = step(score.end_ticks)
    last = max([last, *(row[0] + row[1] for rows in notes.values() for row in rows)])
    metres, end = bars(score, last)
    # 36 an octave from 15 to 499
    tempos = {0: 108} | {
        step(tempo.tick): min(max(half_up(36 * math.log2(tempo.bpm / 15)), 0), 182)
        for tempo in score.tempos
    }
    return Quantized(
        notes={place: sorted(rows) for place, rows in notes.items()},
        tempos=[(step, 15 * 2 ** (at / 36)) for step, at in without_repetitions(tempos, end)],
        signatures=[TimeSignature(step, *metre) for step, metre in metres if step < end],
        end=end,
        merged=merged,
        clipped=clipped,
    )


def bars(score: Score, last: int) -> tuple[list[tuple[int, tuple[int, int]]], int]:
    """Metres with their first eighths, and the first bar line at or after `last`."""
    changes = {0: (4, 4)} | {
        6 * half_up(2 * tick / score.ticks_per_beat): (numerator, denominator)
        for tick, numerator, denominator in score.time_signatures
    }
    metres = without_repetitions(changes, NEVER)
    line = 0
    for (_, (numerator, denominator)), (stop, _) in zip(
        metres, [*metres[1:], (NEVER, None)], strict=True
    ):
        length, rest = divmod(48 * numerator, denominator)
        # other bars are split or moved to eighths; test_quantize.py covers them
        assert rest == 0
        assert length % 6 == 0
        assert length <= 96
        while line < min(last, stop):
            line = min(line + length, stop)
    return metres, line


# ---- the properties


def violations(preset: str, score: Score) -> tuple[Any, list[str]]:
    """The TokenSequence of a score, and the properties that it violates."""
    tokenizer: Any = PRESETS[preset].build()
    sequence = tokenizer.encode(score)
    ids = sequence.ids
    names_of_tracks = (sequence.tracks,) if preset == "multitrack-2" else ()
    decoded: Score = tokenizer.decode(ids, sequence.signatures, *names_of_tracks)
    expected = quantized(in_tempo_range(score), preset)
    places = places_of(preset, decoded.tracks)
    notes = {
        place: sorted(map(tuple, track.notes.tolist()))
        for place, track in zip(places, decoded.tracks, strict=True)
        if len(track)
    }
    heard = sum(len(track) for track in score.tracks if preset != "piano-2" or not track.is_drum)
    lost = (expected.merged, expected.clipped)
    properties = {
        "the notes are the quantized ones": notes == expected.notes,
        "so are the tempos": np.array_equal(
            np.round(decoded.tempos, 6), np.round(expected.tempos, 6)
        ),
        "so are the bars": list(decoded.time_signatures) == expected.signatures
        and decoded.end_ticks == expected.end,
        "what is lost is counted": (sequence.merged, sequence.clipped) == lost,
        "no note is lost besides": heard == decoded.num_notes + sequence.merged,
        "ids come back": np.array_equal(tokenizer.encode(decoded).ids, ids),
        "ids come back without names": np.array_equal(
            tokenizer.encode(tokenizer.decode(ids)).ids, ids
        ),
        "only padding may follow": list(np.flatnonzero(tokenizer.grammar().resume(ids).allowed))
        == [0],
    }
    if preset == "multitrack-2":
        properties["tracks have their names"] = (
            identities(places, decoded.tracks).items()
            >= identities(places_of(preset, score.tracks), score.tracks).items()
        )
    return sequence, [name for name, holds in properties.items() if not holds]


def identities(
    places: Sequence[Place], tracks: Sequence[Track]
) -> dict[Place, tuple[str, int, int, int | None]]:
    """For each place, name, program, channel and chunk of the track with the most notes."""
    fullest: dict[Place, Track] = {}
    for place, track in zip(places, tracks, strict=True):
        if len(track) > (len(fullest[place]) if place in fullest else 0):
            fullest[place] = track
    return {
        place: (track.name, track.program, track.channel, track.chunk)
        for place, track in fullest.items()
    }


def files_of(folder: str) -> Iterator[tuple[str, bytes]]:
    """MIDI files of a folder, sorted by name; the first part of `folder` is the corpus."""
    corpus = f"{folder.split('/')[0]}*.zip"
    paths = sorted(Path(CORPORA).rglob(corpus)) if CORPORA else []
    if not paths:
        pytest.skip(f"RELPE_CORPORA is not the path of a folder that contains {corpus}")
    with zipfile.ZipFile(paths[0]) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith(folder) and name.endswith(".mid"):
                yield name, archive.read(name)


class Totals(NamedTuple):
    files: int
    notes: int
    merged: int
    clipped: int
    tokens: int
    ids: str
    """The first 16 digits of the SHA-256 of all ids as int32, least byte first."""


KNOWN = {
    ("multitrack-2", "groove/midi"): Totals(0, 0, 0, 0, 0, ""),
    ("piano-2", "pop909/solo"): Totals(0, 0, 0, 0, 0, ""),
    ("multitrack-2", "pop909/solo"): Totals(0, 0, 0, 0, 0, ""),
    ("piano-2", "pop909/original"): Totals(0, 0, 0, 0, 0, ""),
    ("multitrack-2", "pop909/original"): Totals(0, 0, 0, 0, 0, ""),
    ("piano-2", "giantmidi"): Totals(0, 0, 0, 0, 0, ""),
    ("multitrack-2", "giantmidi"): Totals(0, 0, 0, 0, 0, ""),
}
"""Totals by preset and folder. Ids must not change, because released weights depend on them."""


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "folder"), KNOWN)
def test_the_properties_hold_for_every_file_of_a_corpus(preset, folder):
    hashed = hashlib.sha256()
    counts = np.zeros(5, np.int64)
    broken: dict[str, list[str]] = {}
    for name, data in files_of(folder):
        score = read_midi(data, name=name)
        sequence, violated = violations(preset, score)
        if violated:
            broken[name] = violated
        counts += (1, score.num_notes, sequence.merged, sequence.clipped, len(sequence.ids))
        hashed.update(sequence.ids.astype("<i4").tobytes())
    assert broken == {}
    assert Totals._make([*counts.tolist(), hashed.hexdigest()[:16]]) == KNOWN[preset, folder]
