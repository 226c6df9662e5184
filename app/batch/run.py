"""Batches for listening tests: many clips, their sound at one loudness, and a manifest of them.

What a clip is hangs on its own prompt, model, options and seed: it is what `relpe continue` or
`relpe generate` makes of them, whatever else is in the batch and however many are written at once.
Clip i of every prompt, from 0, has the first seed plus i.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from app.batch.clips import (
    BatchOptions,
    Source,
    clips_of,
    planned_row,
    printable,
    prompts_by_name,
    source_of,
    unique_names,
)
from app.batch.files import refuse_unlisted
from app.batch.making import OF_ONE_PROMPT, BatchProgress, Making, about
from app.batch.manifest import NAME, read_manifest
from app.cli.arguments import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator
    from pathlib import Path

    from app.batch.manifest import Row
    from app.compose.models import Models, MusicModel


@dataclass(frozen=True)
class BatchResult:
    """What was made, and the work it took."""

    total: int
    """Clips asked for, of the prompts that can be used."""
    made: int
    kept: int
    """Clips that were there before."""
    failed: tuple[str, ...]
    """Prompts that cannot be used, and clips that cannot be made."""
    stopped: bool
    seconds: float
    """Of writing, sound included; models were made ready and prompts looked at before."""
    tokens: int
    music_seconds: float
    """Of new music."""
    models: tuple[MusicModel, ...]

    @property
    def clips_per_minute(self) -> float:
        """Clips made, with all their files."""
        return 60 * self.made / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Of all clips together, prompts not counted."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def real_time_factor(self) -> float:
        """Seconds of new music for each second of work."""
        return self.music_seconds / self.seconds if self.seconds else 0.0


BatchSteps: TypeAlias = "Iterator[BatchProgress | BatchResult]"


def make_batch(
    options: BatchOptions, models: Models, stop: Callable[[], bool] = lambda: False
) -> BatchSteps:
    """Makes all clips: yields BatchProgress meanwhile, and the BatchResult last.

    Where `stop` gives True the work ends; clips that are finished stay, and are in the manifest.

    Raises:
        CommandError: nothing can be made as it was asked for; the message says why.
        CheckpointError, TokenizerError: a model cannot be used.
    """
    prompts = prompts_by_name(options)
    if options.output.exists() and not options.output.is_dir():
        raise CommandError(f"--output {options.output}: it is a file, expected a folder")
    manifest = options.output / NAME
    if manifest.exists() and not options.resume:
        raise CommandError(
            f"--output {options.output}: there is a batch in this folder; give --resume to finish "
            "it, or choose another folder"
        )
    if not manifest.exists():
        refuse_unlisted(options.output)
    return _steps(options, models, stop, prompts, read_manifest(manifest))


def _steps(
    options: BatchOptions,
    models: Models,
    stop: Callable[[], bool],
    prompts: dict[str, Path],
    before: dict[str, Row],
) -> BatchSteps:
    """As `make_batch`, with the names of all prompts, and the rows of an earlier session."""
    failed: dict[str, str] = {}
    sources: list[Source] = []
    looked_at = 0
    if not prompts:
        names = models.names if options.models else models.names[:1]
        sources = list(map(Source, unique_names(names), names))
    for name, path in prompts.items():
        if stop():
            break
        looked_at += 1
        notice = ""
        try:
            sources.append(source_of(options, models, name, path))
        except OF_ONE_PROMPT as error:
            failed[name] = printable(path)
            notice = about(printable(path), error)
        yield BatchProgress(0, 0, 0, "looking at the prompts", notice)
    if not sources and not stop():
        raise CommandError(f"none of the prompts can be used, {len(prompts)} in all")
    used = [models.load(name) for name in dict.fromkeys(source.model for source in sources)]
    planned = {
        clip: planned_row(options, clip, models.load(source.model))
        for source in sources
        for clip in clips_of(options, source)
    }
    making = Making(options, planned, stop)
    if not stop():
        wanted = {row.file: row for row in planned.values()}
        read = frozenset(source.name for source in sources)
        making.others = _others(options.output / NAME, before, wanted, read, failed)
        gone = Counter(row.prompt for row in making.others if _source(row) not in failed)
        for prompt, count in gone.items():
            clips = "its clip stays" if count == 1 else f"its {count:,} clips stay"
            notice = f"{prompt}: there is no such prompt any more; {clips}"
            yield BatchProgress(0, len(planned), 0, "looking at what is there", notice)
        yield from making.keep(before)
    if not stop():
        yield from making.make(used)
    yield BatchResult(
        total=len(planned),
        made=len(making.rows) - making.kept,
        kept=making.kept,
        failed=(*failed.values(), *making.failed),
        stopped=stop() and (len(making.rows) < len(planned) or looked_at < len(prompts)),
        seconds=making.seconds,
        tokens=making.tokens,
        music_seconds=making.music_seconds,
        models=tuple(used),
    )


def _others(
    manifest: Path,
    before: dict[str, Row],
    wanted: dict[str, Row],
    read: Container[str],
    unread: Container[str],
) -> list[Row]:
    """Clips that stay although they cannot be made now, their prompts being gone or unreadable.

    `read` and `unread` are the names of the prompts that are there. Refuses to go on with clips
    that were made in another way, or are not asked for although they could be made.
    """
    others: list[Row] = []
    for file, row in before.items():
        name = _source(row)
        # of a name that is too long `Path.exists` is an error
        gone = row.prompt and name not in read and not os.path.exists(row.prompt)  # noqa: PTH110
        if name in unread or gone:
            others.append(row)
        elif file not in wanted:
            raise CommandError(
                f"{manifest}: {file} is not among the clips asked for; resume with the same "
                "prompts and models and no smaller --count, or choose another --output"
            )
        elif difference := row.difference(wanted[file]):
            raise CommandError(
                f"{manifest}: {file} was made with {difference}; resume with the same options, or "
                "choose another --output"
            )
    return others


def _source(row: Row) -> str:
    """The name of what a clip begins with, see `Clip.name`."""
    return row.file.removeprefix("midi/").rpartition("_v")[0]
