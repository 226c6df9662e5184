"""Completes a study whose clips are all there: equal loudness, and files for rating tools."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from app.batch import webmushra
from app.batch.manifest import NAME, Row, sha256_of, write_manifest
from app.batch.mirex import generation, is_mirex
from app.files import safe_name
from relpe.files import write_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.batch.clips import BatchOptions, Study

STUDY_NAME = "study.yaml"
MIREX_FOLDER = "mirex"
_TIME = 946_684_800
"""The time of all files, 1 January 2000: the order in which they were made would reveal models."""
_SAME_LUFS = 0.005


def complete_study(options: BatchOptions, study: Study, rows: Sequence[Row]) -> list[Row]:
    """Write the files of a study beside its clips, and return the rows of its manifest.

    Running it again changes nothing. Raises OSError if a file cannot be written.
    """
    folder = options.output
    prompts = groupby(sorted(rows, key=lambda row: row.prompt), lambda row: row.prompt)
    rows = [row for _, of_prompt in prompts for row in _levelled(folder, list(of_prompt))]
    write_manifest(folder / NAME, rows, blind=True)
    write_text(folder / STUDY_NAME, study.config)
    if options.audio == "wav":
        text = webmushra.experiment(study.name, safe_name(study.name).lower(), study.question, rows)
        write_text(folder / webmushra.NAME, text)
    for row in rows:
        if is_mirex(Path(row.prompt)):
            (folder / MIREX_FOLDER).mkdir(exist_ok=True)
            text = generation((folder / row.file).read_bytes(), int(row.new_bar))
            write_text(folder / MIREX_FOLDER / f"{Path(row.file).stem}.json", text)
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            os.utime(path, (_TIME, _TIME))
    return rows


def _levelled(folder: Path, rows: list[Row]) -> list[Row]:
    """Return the clips of one prompt, turned down to the loudness of the softest one.

    They only differ if the peaks of one are too high for the loudness of the study.
    """
    heard = {row: float(row.loudness) for row in rows if row.loudness not in ("", "-inf")}
    lowest = min(heard.values(), default=0.0)
    return [
        _turned_down(folder, row, lowest) if heard.get(row, lowest) > lowest + _SAME_LUFS else row
        for row in rows
    ]


def _turned_down(folder: Path, row: Row, lufs: float) -> Row:
    import soundfile

    from app.audio.render import Audio, save_audio

    path = folder / row.audio
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    samples *= 10 ** ((lufs - float(row.loudness)) / 20)
    save_audio(Audio(samples, rate, "builtin"), path)
    return replace(row, loudness=f"{lufs:.2f}", audio_sha256=sha256_of(path))
