"""Studies without audio, for tests of listening tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from app.batch.manifest import NAME, Row, write_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KINDS = {"shuffled bars": "shuffled_bars", "shuffled notes": "shuffled_notes", "real": "real"}


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
