"""Studies without audio, for tests of listening tests."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import yaml

from app.batch.manifest import NAME, Row, write_manifest
from app.listening.answers import PREFERENCE, QUESTIONS, TABLE, Answer, write_answers
from app.listening.clips import read_study

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

RATING = Answer(
    listener="listener-01",
    trial=1,
    kind="rating",
    question=QUESTIONS[0],
    first="midi/a.mid",
    answer="3",
    heard_first=10.0,
    seconds=20.25,
    answered_at="2026-01-01T00:00:00Z",
)
PAIR = replace(
    RATING,
    kind="preference",
    question=PREFERENCE,
    second="midi/b.mid",
    answer="first",
    confidence=3,
    heard_second=10.0,
)
_KINDS = {"shuffled bars": "shuffled_bars", "shuffled notes": "shuffled_notes", "real": "real"}


def clip_row(name: str, prompt: str, condition: str, repetition: int, **fields: str) -> Row:
    """The row of a clip in the manifest and the key."""
    told = dict.fromkeys(("audio", "model", "model_sha256", "backend", "seed"), "")
    told |= {"file": f"midi/{name}.mid", "settings": "{}", "clip_seconds": "16.0"}
    return Row(prompt=prompt, condition=condition, repetition=str(repetition), **told | fields)


def write_study(
    folder: Path,
    conditions: Sequence[str] = ("piano", "real", "shuffled notes"),
    *,
    prompts: int = 2,
    repetitions: int = 1,
) -> None:
    """Write manifest, key and study into a folder, as `relpe batch` does; there are no clips."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for prompt in range(prompts):
        for place, condition in enumerate(conditions):
            for repetition in range(1 if condition == "real" else repetitions):
                number = (prompt * len(conditions) + place) * repetitions + repetition
                name = f"{number * 7919 % 100_003:06d}"
                rows.append(clip_row(name, f"prompt{prompt}.mid", condition, repetition + 1))
    write_manifest(folder / NAME, rows, blind=True)
    told = [{"kind": _KINDS.get(name, "model"), "name": name} for name in conditions]
    (folder / "study.yaml").write_text(yaml.safe_dump({"name": "A study", "conditions": told}))


def answer_all(folder: Path, liked: Mapping[str, float], *, listeners: int = 12) -> None:
    """Write answers of listeners who rate all clips and compare all pairs of conditions.

    A condition that is liked by 1 more is rated higher by a point, and preferred in 73 % of the
    pairs. Tastes differ. The last listener hears little of each clip.
    """
    rng = np.random.default_rng(1)
    clips = sorted(read_study(folder).clips.values())
    found: list[Answer] = []
    for number in range(1, listeners + 1):
        code, heard = f"listener-{number:02d}", 16.0 if number < listeners else 1.6
        common = {"listener": code, "heard_first": heard}
        names = sorted({clip.condition for clip in clips})
        taste = {name: rng.normal(liked.get(name, 0.0), 0.3) for name in names}
        for trial, clip in enumerate(clips, 1):
            for question in QUESTIONS:
                value = str(np.clip(round(3 + taste[clip.condition] + 0.7 * rng.normal()), 1, 5))
                told = {"trial": trial, "question": question, "first": clip.file, "answer": value}
                found.append(replace(RATING, **common, **told))
        for trial, pair in enumerate(combinations(clips, 2), 1 + len(clips)):
            first, second = pair if rng.random() < 0.5 else pair[::-1]
            if first.prompt != second.prompt or first.condition == second.condition:
                continue
            more = taste[first.condition] - taste[second.condition]
            preference = replace(
                PAIR,
                **common,
                trial=trial,
                first=first.file,
                second=second.file,
                answer="first" if rng.random() < 1 / (1 + math.exp(-more)) else "second",
                confidence=int(rng.integers(1, 6)),
                heard_second=heard,
            )
            found.append(preference)
    write_answers(folder / TABLE, found)
