"""Properties of the tokenizers on whole corpora, checked against a naive quantizer.

RELPE_CORPORA=FOLDER pytest -m slow tests/slow/test_corpora.py
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.reference_notes import notes_by_rank, slow_notes
from tokenization.midi import read_midi
from tokenization.presets import PRESETS
from tokenization.remi.tempo_range import in_tempo_range
from tokenization.score import Score, Track

CORPORA = os.environ.get("RELPE_CORPORA", "")
"""Folder that contains groove.zip, pop909.zip and giantmidi_sample.zip at any depth."""


def violations(preset: str, score: Score) -> tuple[Any, list[str]]:
    """The TokenSequence of a score, and the properties that it violates."""
    tokenizer: Any = PRESETS[preset].build()
    sequence = tokenizer.encode(score)
    ids = sequence.ids
    names_of_tracks = (sequence.tracks,) if preset == "multitrack-2" else ()
    decoded: Score = tokenizer.decode(ids, sequence.signatures, *names_of_tracks)
    notes, merged, clipped = slow_notes(tokenizer, in_tempo_range(score))
    heard = sum(len(track) for track in score.tracks if preset != "piano-2" or not track.is_drum)
    properties = {
        "the notes are the quantized ones": notes_by_rank(tokenizer, decoded) == notes,
        "what is lost is counted": (sequence.merged, sequence.clipped) == (merged, clipped),
        "no note is lost besides": heard == decoded.num_notes + sequence.merged,
        "ids come back": np.array_equal(tokenizer.encode(decoded).ids, ids),
        "ids come back without names": np.array_equal(
            tokenizer.encode(tokenizer.decode(ids)).ids, ids
        ),
        "only padding may follow": list(np.flatnonzero(tokenizer.grammar().resume(ids).allowed))
        == [0],
    }
    if preset == "multitrack-2":
        found, given = (
            identities(tokenizer.track_ranks(tracks), tracks)
            for tracks in (decoded.tracks, score.tracks)
        )
        properties["tracks have their names"] = found.items() >= given.items()
    return sequence, [name for name, holds in properties.items() if not holds]


def identities(
    ranks: Sequence[int], tracks: Sequence[Track]
) -> dict[int, tuple[str, int, int, int | None]]:
    """For each rank, name, program, channel and chunk of the track with the most notes."""
    fullest: dict[int, Track] = {}
    for rank, track in zip(ranks, tracks, strict=True):
        if len(track) > (len(fullest[rank]) if rank in fullest else 0):
            fullest[rank] = track
    return {
        rank: (track.name, track.program, track.channel, track.chunk)
        for rank, track in fullest.items()
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
    ("multitrack-2", "groove/midi"): Totals(
        5_671, 5_034_716, 56_470, 0, 17_672_935, "6c99ef399662b7df"
    ),
    ("piano-2", "pop909/solo"): Totals(864, 1_414_642, 17, 0, 5_044_970, "3a246bf46a7f6b89"),
    ("multitrack-2", "pop909/solo"): Totals(864, 1_414_642, 17, 0, 5_749_438, "e4b7ba7fe329f775"),
    ("piano-2", "pop909/original"): Totals(
        864, 1_458_335, 42_602, 0, 5_202_116, "50d15f66bd025b3f"
    ),
    ("multitrack-2", "pop909/original"): Totals(
        864, 1_458_335, 2_776, 0, 7_191_161, "eb504bf22db6ab85"
    ),
    ("piano-2", "giantmidi"): Totals(48, 202_586, 3, 0, 737_979, "ca8f7763442a0390"),
    ("multitrack-2", "giantmidi"): Totals(48, 202_586, 3, 0, 856_717, "afeff34a7cd15f4e"),
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
