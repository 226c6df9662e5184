"""Studies without audio, and answers of listeners, for tests of listening tests."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import yaml

from app.batch.manifest import NAME, Row, read_manifest, write_manifest
from app.listening.answers import PREFERENCE, QUESTIONS, TABLE, Answer, write_answers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KINDS = {"shuffled bars": "shuffled_bars", "shuffled notes": "shuffled_notes", "real": "real"}
_QUALITIES = {"real": 0.8, "shuffled notes": -0.3}


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
                rows.append(
                    Row(
                        file=f"midi/{number * 7919 % 100_003:06d}.mid",
                        audio="",
                        prompt=f"prompt{prompt}.mid",
                        condition=condition,
                        repetition=str(repetition + 1),
                        model="",
                        model_sha256="",
                        backend="",
                        seed="1",
                        settings="{}",
                        clip_seconds="16.0",
                    )
                )
    write_manifest(folder / NAME, rows, blind=True)
    told = [{"kind": _KINDS.get(name, "model"), "name": name} for name in conditions]
    (folder / "study.yaml").write_text(yaml.safe_dump({"name": "A study", "conditions": told}))


def write_listeners(folder: Path, listeners: int = 12) -> None:
    """Write the answers of listeners; the last one is simulated, careless, and hears little."""
    rows = list(read_manifest(folder / NAME).values())
    answers = []
    for number in range(1, listeners + 1):
        is_careless = number == listeners
        listener = f"{'simulated' if is_careless else 'person'}-{number:03d}"
        answers += _answers(rows, listener, Random(number), is_careless=is_careless)
    write_answers(folder / TABLE, answers)


def _answers(
    rows: Sequence[Row], listener: str, random: Random, *, is_careless: bool
) -> list[Answer]:
    """Answers about every clip and every pair of conditions, with two checks of attention."""
    answers: list[Answer] = []
    trial = 0

    def rate(row: Row, kind: str = "rating", expected: str = "") -> None:
        nonlocal trial
        trial += 1
        quality = _QUALITIES.get(row.condition, 0.0)
        for question in QUESTIONS:
            value = random.uniform(1, 5) if is_careless else 3 + quality + random.gauss(0, 0.8)
            answer = expected if expected and not is_careless else str(min(5, max(1, round(value))))
            add(kind, question, row, answer, expected=expected)

    def compare(first: Row, second: Row) -> None:
        nonlocal trial
        trial += 1
        apart = _QUALITIES.get(first.condition, 0.0) - _QUALITIES.get(second.condition, 0.0)
        answer = "first" if random.gauss(0, 1) < (0 if is_careless else apart) else "second"
        add("preference", PREFERENCE, first, answer, second, confidence=random.randint(1, 5))

    def add(
        kind: str, question: str, first: Row, answer: str, second: Row | None = None, **more: object
    ) -> None:
        heard = 1.0 if is_careless else round(random.uniform(12, 16), 2)
        fields = {
            "listener": listener,
            "trial": trial,
            "kind": kind,
            "question": question,
            "first": first.file,
            "second": second.file if second else "",
            "answer": answer,
            "heard_first": heard,
            "heard_second": heard if second else None,
            "seconds": 20.0,
            "answered_at": "2026-01-01T00:00:00Z",
        }
        answers.append(Answer(**fields | more))

    rate(rows[0], "training")
    for row in rows:
        rate(row)
    for place, (first, second) in enumerate(combinations(rows, 2)):
        if first.prompt == second.prompt and first.repetition == second.repetition:
            compare(*((second, first) if (place + len(listener)) % 2 else (first, second)))
    for row in rows[:2]:
        rate(row, expected="1")
    return answers
