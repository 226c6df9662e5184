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
    from collections.abc import Sequence

    from app.batch.clips import BatchOptions


def of_shard(rows: Sequence[Row], shard: int, shards: int) -> list[Row]:
    """The part of the planned rows that a shard makes; `shard` counts from 1."""
    return list(rows[shard - 1 :: shards])


def check_shards(options: BatchOptions) -> None:
    """Raises CommandError if the folder contains shards that do not fit the request."""
    others = sorted(
        path.name
        for path in options.output.glob("shard-*-of-*")
        if not path.name.endswith(f"-of-{options.shard[1]}")
    )
    if others and options.shard[1] == 1:
        raise CommandError(
            f"--output {options.output}: this folder contains {others[0]}; complete the shards "
            "with --shard, or choose another folder"
        )
    if others:
        raise CommandError(
            f"--output {options.output}: this folder contains {others[0]}; use the same number of "
            "shards, or choose another folder"
        )
    if options.shard[1] > 1 and (options.output / NAME).exists():
        raise CommandError(
            f"--output {options.output}: this folder already contains a complete batch; choose "
            "another folder"
        )


def missing_of_shards(options: BatchOptions, planned: Sequence[Row]) -> str:
    """One sentence that names the shards whose clips are missing; empty if none are."""
    shards = options.shard[1]
    told: list[str] = []
    count = 0
    for shard in range(1, shards + 1):
        place = shard_place(options.output, shard, shards)
        rows = read_manifest(place / NAME)
        wanted = of_shard(planned, shard, shards)
        missing = [row for row in wanted if row.file not in rows]
        if missing:
            told.append(f"{shard}/{shards} ({plural(len(missing), 'clip')})")
            count += len(missing)
    if not told:
        return ""
    return (
        f"{options.output}: of {len(planned):,} clips, {count:,} are missing, those of "
        f"--shard {', '.join(told)}; the shard that ends last merges all"
    )


def merge(options: BatchOptions, planned: Sequence[Row]) -> list[Row]:
    """Copies the clips of all shards to the output folder, and returns their rows as planned.

    Raises CommandError if a clip is damaged or was made with other settings.
    """
    make_folders(options.output, options.folders)
    merged: dict[str, Row] = {}
    shards = options.shard[1]
    for shard in range(1, shards + 1):
        place = shard_place(options.output, shard, shards)
        rows = read_manifest(place / NAME)
        for wanted in of_shard(planned, shard, shards):
            row = rows[wanted.file]
            problem = row.damage(place)
            if difference := row.difference(wanted):
                problem = f"{row.file} was generated with {difference}"
            if problem:
                raise CommandError(
                    f"{place}: {problem}; run --shard {shard}/{shards} again, with --resume or in "
                    "a new folder"
                )
            for name in filter(None, (row.file, row.audio)):
                with atomic_write(options.output / name) as beside:
                    shutil.copyfile(place / name, beside)
            merged[row.file] = row
    return [merged[row.file] for row in planned]


def remove_shards(options: BatchOptions) -> None:
    """Removes the folders of the shards after they were merged."""
    for shard in range(1, options.shard[1] + 1):
        shutil.rmtree(shard_place(options.output, shard, options.shard[1]))
