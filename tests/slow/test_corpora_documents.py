"""The laws of version 2 on whole corpora: documents of all kinds come back with their plans.

RELPE_CORPORA=FOLDER [RELPE_EVERY=n] pytest -s -m slow tests/slow/test_corpora_documents.py

With `-o faulthandler_timeout=9999`, an archive may take more than ten minutes.
"""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenization.document import Document, Header, Selection
from tokenization.errors import MidiError
from tokenization.midi import read_midi
from tokenization.plan import BarPlan, Chord, Key, Plan, PlannedChord
from tokenization.presets import PRESETS
from tokenization.remi.vocabulary import BAR

CORPORA = os.environ.get("RELPE_CORPORA", "")
"""Folder that contains zip files of MIDI files at any depth."""
EVERY = int(os.environ.get("RELPE_EVERY", "1"))
"""Every n-th file is read."""
WALKED = 25
"""Every n-th of these is checked token by token."""
ARCHIVES = sorted(Path(CORPORA).rglob("*.zip")) if CORPORA else []


def files_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(archive) as opened:
        names = sorted(n for n in opened.namelist() if n.lower().endswith((".mid", ".midi")))
        for name in names[::EVERY]:
            yield name, opened.read(name)


def random_plan(tokenizer: Any, score: Any, draw: np.random.Generator) -> Plan:
    """A plan with arbitrary sources and chords."""
    sequence = tokenizer.encode(score)
    document = tokenizer.decode_document(sequence.ids, sequence.signatures)
    metres = document.score.time_signatures
    count = int(np.count_nonzero(sequence.ids == BAR))
    lines = bar_lines(tokenizer, sequence.ids)
    at = np.searchsorted([metre.tick for metre in metres], lines, side="right") - 1
    bars: list[BarPlan] = []
    for bar in range(count):
        roots = draw.integers(0, 12, 2).tolist()
        half = -(-metres[at[bar]].numerator // 2)
        chords = (PlannedChord(0, Chord(roots[0], 1)), PlannedChord(half, None))
        source = int(draw.integers(0, min(bar, 64) + 1))
        bars.append(BarPlan(source, chords[: int(draw.integers(0, 3))]))
    return Plan(tuple(bars), Key(int(draw.integers(12)), minor=True))


def bar_lines(tokenizer: Any, ids: np.ndarray) -> list[int]:
    """Start of each bar in steps, from the names of tokens."""
    names = [tokenizer.vocabulary.names[token] for token in ids]
    lines, now, length = [], 0, 48
    for name, after in zip(names, [*names[1:], ""], strict=True):
        if name == "Bar":
            now += length if lines else 0
            length = int(after.split("_")[1]) if after.startswith("TimeSignature") else length
            lines.append(now)
    return lines


def violations(preset: str, data: bytes, seed: int, *, walk: bool) -> list[str]:
    tokenizer: Any = PRESETS[preset].build()
    draw = np.random.default_rng(seed)
    score = read_midi(data)
    plan = random_plan(tokenizer, score, draw)
    count = len(plan.bars)
    first = int(draw.integers(0, count))
    stop = min(first + int(draw.integers(1, 17)), count)
    tracks = len(score.tracks) if preset == "multitrack-2" else 0
    given = tuple(np.flatnonzero(draw.random(tracks) < 0.5).tolist())
    header = Header(int(draw.integers(64)))
    kinds = {
        "continue": None,
        "infill": Selection(first, stop),
        "accompany": Selection(0, None, given),
        "infill with given parts": Selection(first, stop, given),
    }
    found: list[str] = []
    for kind, selection in kinds.items():
        for planned in (plan, None):
            sequence = tokenizer.encode(*Document(score, planned, header, selection))
            args = (sequence.signatures, sequence.tracks)
            document = tokenizer.decode_document(sequence.ids, *args)
            if not np.array_equal(tokenizer.encode(*document).ids, sequence.ids):
                found.append(f"{kind}: ids do not come back")
            if selection is None and document.plan != planned:
                found.append(f"{kind}: the plan does not come back")
            if selection is None or selection.stop is None:
                plain = tokenizer.encode(score)
                if tokenizer.decode(sequence.ids, *args) != tokenizer.decode(plain.ids, *args):
                    found.append(f"{kind}: the score does not come back")
            if walk:
                state = tokenizer.grammar()
                try:
                    for token in sequence.ids.tolist():
                        state = state.advance(token)
                except ValueError as error:
                    found.append(f"{kind}: {error}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.stem)
@pytest.mark.parametrize("preset", ["piano-2", "multitrack-2"])
def test_documents_of_every_file_come_back(preset, archive):
    broken: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    for number, (name, data) in enumerate(files_of(archive)):
        try:
            found = violations(preset, data, number, walk=number % WALKED == 0)
        except MidiError:
            counts["rejected"] += 1
            continue
        counts["files"] += 1
        if found:
            broken[name] = found
    print(f"{preset}, {archive.stem}: {dict(counts)}")  # noqa: T201
    assert broken == {}
    assert counts["files"]
