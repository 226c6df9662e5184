"""Merges the shards of a batch, which were made by separate processes or machines."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from app.batch.clips import shard_place
from app.batch.files import make_folders
from app.batch.manifest import NAME, Row, read_manifest
from app.errors import CommandError
from app.text import plural
from relpe.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from app.batch.clips import BatchOptions


def of_shard(rows: Sequence[Row], shard: int, shards: int) -> list[Row]:
    """Return the part of the planned rows that a shard makes; `shard` counts from 1."""
    return list(rows[shard - 1 :: shards])


def check_shards(options: BatchOptions) -> None:
    """Raise CommandError if the folder contains shards that do not fit the request."""
    shards = options.shard[1]
    names = sorted(path.name for path in options.output.glob("shard-*-of-*"))
    others = [name for name in names if not name.endswith(f"-of-{shards}")]
    if others:
        remedy = (
            "complete the shards with --shard" if shards == 1 else "use the same number of shards"
        )
        problem = f"{others[0]}; {remedy}, or"
    elif shards > 1 and (options.output / NAME).exists():
        problem = "a complete batch;"
    else:
        return
    raise CommandError(
        f"--output {options.output}: this folder already contains {problem} choose another folder"
    )


def _shards(
    options: BatchOptions, planned: Sequence[Row]
) -> Iterator[tuple[str, Path, dict[str, Row], list[Row]]]:
    """Yield each shard: its part as in `--shard`, its folder, its rows, and those planned."""
    shards = options.shard[1]
    for shard in range(1, shards + 1):
        place = shard_place(options.output, shard, shards)
        rows = read_manifest(place / NAME)
        yield f"{shard}/{shards}", place, rows, of_shard(planned, shard, shards)


def missing_of_shards(options: BatchOptions, planned: Sequence[Row]) -> str:
    """Return one sentence that names the shards whose clips are missing; empty if none are."""
    missing = {
        part: sum(row.file not in rows for row in planned_rows)
        for part, _, rows, planned_rows in _shards(options, planned)
    }
    if not any(missing.values()):
        return ""
    parts = (f"{part} ({plural(count, 'clip')})" for part, count in missing.items() if count)
    return (
        f"{options.output}: of {len(planned):,} clips, {sum(missing.values()):,} are missing, "
        f"those of --shard {', '.join(parts)}; the shard that ends last merges all"
    )


def merge(options: BatchOptions, planned: Sequence[Row]) -> list[Row]:
    """Copy the clips of all shards to the output folder, and return their rows as planned.

    Raises CommandError if a clip is damaged or was made with other settings.
    """
    make_folders(options.output, options.folders)
    merged: dict[str, Row] = {}
    for part, place, rows, planned_rows in _shards(options, planned):
        for planned_row in planned_rows:
            row = rows[planned_row.file]
            problem = row.damage(place)
            if difference := row.difference(planned_row):
                problem = f"{row.file} was generated with {difference}"
            if problem:
                raise CommandError(
                    f"{place}: {problem}; run --shard {part} again, with --resume or in a new "
                    "folder"
                )
            for name in filter(None, (row.file, row.audio)):
                with atomic_write(options.output / name) as beside:
                    shutil.copyfile(place / name, beside)
            merged[row.file] = row
    return [merged[row.file] for row in planned]


def remove_shards(options: BatchOptions) -> None:
    """Remove the folders of the shards after they were merged."""
    for shard in range(1, options.shard[1] + 1):
        shutil.rmtree(shard_place(options.output, shard, options.shard[1]))
