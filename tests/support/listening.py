"""A small study with audio, as `relpe batch` makes it, and listeners who answer at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import soundfile

from app.batch.complete import STUDY_NAME
from app.batch.manifest import NAME, Row, write_manifest
from app.batch.study import StudyConfig, as_yaml
from relpe.models.config import from_plain

RATE = 8000
CONDITIONS = ("piano", "other", "real", "shuffled bars")


def study_folder(
    folder: Path,
    *,
    prompts: int = 2,
    seconds: float = 2.0,
    repetitions: int = 1,
    **listening: object,
) -> Path:
    """Makes a study of four conditions; `listening` are fields of its section."""
    told = {
        "name": "Two ways to go on",
        "prompts": [f"{name}.mid" for name in "abcdef"[:prompts]],
        "repetitions": repetitions,
        "conditions": [
            {"kind": "model", "name": "piano", "model": "piano"},
            {"kind": "model", "name": "other", "model": "piano-spe"},
            {"kind": "real"},
            {"kind": "shuffled_bars"},
        ],
        "listening": listening,
    }
    config = from_plain(StudyConfig, told, "study")
    (folder / "stimuli").mkdir(parents=True)
    rows: list[Row] = []
    for prompt in told["prompts"]:
        for place, condition in enumerate(CONDITIONS):
            for repetition in range(1, (1 if condition == "real" else repetitions) + 1):
                name = f"{prompt[0]}{place}{repetition}"
                times = np.arange(int((seconds + 0.5) * RATE)) / RATE
                sound = 0.1 * np.sin(2 * np.pi * (220 + 40 * place) * times)
                soundfile.write(folder / "stimuli" / f"{name}.wav", sound, RATE, subtype="PCM_16")
                rows.append(_row(name, prompt, condition, repetition, seconds))
    write_manifest(folder / NAME, rows, blind=True)
    (folder / STUDY_NAME).write_text(as_yaml(config), encoding="utf-8")
    return folder


def _row(name: str, prompt: str, condition: str, repetition: int, seconds: float) -> Row:
    return Row(
        file=f"midi/{name}.mid",
        audio=f"stimuli/{name}.wav",
        prompt=prompt,
        condition=condition,
        repetition=str(repetition),
        model="",
        model_sha256="",
        backend="",
        seed="",
        settings=json.dumps({}),
        new_seconds=str(seconds / 4),
        clip_seconds=str(seconds),
    )


def answers_to(state: dict, choose=lambda question: 3) -> list[dict]:
    """The answers of a listener who has heard all clips of a trial."""
    told = {"trial": state["position"], "seconds": 5.0}
    for side, clip in zip(("first", "second"), state["clips"], strict=False):
        told[f"heard_{side}"] = clip["seconds"]
    found = []
    for question in state["questions"]:
        if question == "preference":
            found.append(told | {"question": question, "answer": "first", "confidence": 4})
        else:
            found.append(told | {"question": question, "answer": str(choose(question))})
    return found
