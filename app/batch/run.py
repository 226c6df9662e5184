"""Generates batches for listening tests: clips, audio of equal loudness, and a manifest.

A clip depends only on its own prompt, condition, options and seed. Its music equals the output of
`relpe continue` or `relpe generate` for them, regardless of the other clips of the batch and of how
many are generated at once.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

from app.audio.synth.soundfont import SoundError
from app.batch.anchors import anchor_of, real_music
from app.batch.clips import (
    BatchOptions,
    Clip,
    Source,
    clips_of,
    opening_of,
    planned_row,
    printable,
    prompt_data,
    prompts_by_name,
    sources_of,
    sources_of_nothing,
)
from app.batch.complete import complete_study
from app.batch.excerpt import Excerpt
from app.batch.files import ClipFiles, Savers, lock_folder, make_folders, refuse_unlisted
from app.batch.manifest import NAME, Row, read_manifest, write_manifest
from app.batch.shards import check_shards, merge, missing_of_shards, of_shard, remove_shards
from app.compose.continuation import finish
from app.compose.engine import Engine
from app.compose.models import PREPARING_NOTICE, Models, MusicModel
from app.compose.piece import Draft
from app.errors import CommandError
from app.text import plural
from tokenization.errors import MidiError, TokenizerError

SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_BETWEEN_MANIFESTS = 2.0
"""If the process is killed, clips finished since the last manifest have to be generated again."""
OF_ONE_PROMPT = (MidiError, TokenizerError, SoundError, CommandError)
"""Errors of a single prompt, which do not end the batch."""


@dataclass(frozen=True)
class BatchProgress:
    """Progress of a batch."""

    done: float
    """Number of finished clips; unfinished clips count as a fraction."""
    total: int
    kept: int
    """Number of clips among `done` that an earlier run has made."""
    doing: str
    """The current activity, in a few words."""
    notice: str = ""
    """One line for the user."""


@dataclass(frozen=True)
class BatchResult:
    """The result of a batch, with statistics."""

    total: int
    """Number of requested clips, except those of prompts that cannot be used."""
    made: int
    kept: int
    """Number of clips that an earlier run has made."""
    failed: tuple[str, ...]
    """Prompts that cannot be used, and clips that cannot be made."""
    stopped: bool
    seconds: float
    """Duration of generation and audio rendering, without reading prompts and preparing models."""
    tokens: int
    music_seconds: float
    """Duration of the new music."""
    models: tuple[MusicModel, ...]

    @property
    def clips_per_minute(self) -> float:
        """Clips made per minute, with all their files."""
        return self._per_second(60 * self.made)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all clips, without prompts, per second."""
        return self._per_second(self.tokens)

    @property
    def real_time_factor(self) -> float:
        """Seconds of new music per second of work."""
        return self._per_second(self.music_seconds)

    def _per_second(self, amount: float) -> float:
        return amount / self.seconds if self.seconds else 0.0


BatchSteps: TypeAlias = "Iterator[BatchProgress | BatchResult]"


def make_batch(
    options: BatchOptions, models: Models, stop: Callable[[], bool] = lambda: False
) -> BatchSteps:
    """Make all clips. Yields BatchProgress, and finally the BatchResult.

    The work ends early when `stop` returns True; finished clips are kept, and the manifest
    lists them.

    Raises:
        CommandError: the batch cannot be made with these options.
        CheckpointError, TokenizerError: a model cannot be used.
    """
    prompts = prompts_by_name(options)
    if options.output.exists() and not options.output.is_dir():
        raise CommandError(f"--output {options.output}: this is a file, expected a folder")
    check_shards(options)
    manifest = options.place / NAME
    if manifest.exists() and not options.resume:
        raise CommandError(
            f"--output {options.place}: this folder already contains a batch; use --resume to "
            "complete it, or choose another folder"
        )
    if not manifest.exists():
        refuse_unlisted(options.place, options.folders)
    return BatchRun(options, models, stop, prompts, read_manifest(manifest)).steps()


class BatchRun:
    """A run of a batch, which may complete an earlier run."""

    def __init__(
        self,
        options: BatchOptions,
        models: Models,
        stop: Callable[[], bool],
        prompts: dict[str, Path],
        before: dict[str, Row],
    ) -> None:
        """`prompts` is keyed by name; `before`, the manifest of an earlier run, by file."""
        self.options, self.models, self.stop = options, models, stop
        self.prompts, self.before = prompts, before
        self.sources: list[Source] = []
        self.unreadable: set[str] = set()
        """Prompts that cannot be used."""
        self.planned: dict[Clip, Row] = {}
        self.rows: dict[str, Row] = {}
        """Finished clips, keyed by file."""
        self.others: list[Row] = []
        """Clips of an earlier run that are kept although their prompts are gone or unreadable."""
        self.failed: list[str] = []
        self.kept = self.tokens = 0
        self.seconds = self.music_seconds = 0.0
        self._manifest = options.place / NAME
        self._savers = Savers(options.place, options.folders, audio=options.audio is not None)
        self._notices: deque[str] = deque()
        self._reported = self._listed = time.monotonic()

    def steps(self) -> BatchSteps:
        """Read the prompts, keep intact clips of an earlier run, and make the others."""
        yield from self._read_prompts()
        if not self.sources and not self.stop():
            raise CommandError("none of the prompts can be used")
        used = dict.fromkeys(source.model for source in self.sources if source.model)
        models = [self.models.load(name) for name in used]
        planned: dict[Clip, Row] = {}
        for source in self.sources:
            model = self.models.load(source.model) if source.model else None
            for clip in clips_of(self.options, source):
                planned[clip] = planned_row(self.options, clip, model)
        all_rows = list(planned.values())
        files = {row.file for row in of_shard(all_rows, *self.options.shard)}
        self.planned = {clip: row for clip, row in planned.items() if row.file in files}
        if not self.stop():
            yield from self._keep()
        if not self.stop():
            make_folders(self.options.place, self.options.folders)
            with lock_folder(self.options.place):
                yield from self._make(models)
                if len(self.rows) == len(self.planned) and self.options.shard[1] == 1:
                    self._complete(list(self.rows.values()))
            if len(self.rows) == len(self.planned) and self.options.shard[1] > 1:
                yield from self._merge(all_rows)
        read = {source.path for source in self.sources}
        all_read = len(read) + len(self.unreadable) >= len(self.prompts)
        yield BatchResult(
            total=len(self.planned),
            made=len(self.rows) - self.kept,
            kept=self.kept,
            failed=tuple(self.failed),
            stopped=self.stop() and not (all_read and len(self.rows) == len(self.planned)),
            seconds=self.seconds,
            tokens=self.tokens,
            music_seconds=self.music_seconds,
            models=tuple(models),
        )

    def _read_prompts(self) -> Iterator[BatchProgress]:
        """Find the sources: usable prompts, or models if no prompts were given."""
        if not self.prompts:
            self.sources = sources_of_nothing(self.options, self.models)
        for name, path in self.prompts.items():
            if self.stop():
                return
            notice = ""
            try:
                self.sources += sources_of(self.options, self.models, name, path)
            except OF_ONE_PROMPT as error:
                if self.options.is_blind:  # conditions can only be compared on the same prompts
                    raise
                self.unreadable.add(printable(path))
                self.failed.append(printable(path))
                notice = _about(printable(path), error)
            yield self._progress("reading the prompts", notice=notice)

    def _keep(self) -> Iterator[BatchProgress]:
        """Keep clips of an earlier run if their files are intact."""
        self.others = self._unplanned()
        gone = Counter(row.prompt for row in self.others if row.prompt not in self.unreadable)
        for prompt, count in gone.items():
            clips = "its clip is kept" if count == 1 else f"its {count:,} clips are kept"
            notice = f"{prompt}: this prompt no longer exists; {clips}"
            yield self._progress("checking existing clips", notice=notice)
        for row in self.planned.values():
            if self.stop():
                return
            if earlier := self.before.get(row.file):
                damage = earlier.damage(self.options.place)
                if damage is None:
                    self.rows[row.file] = earlier
                    self.kept += 1
                else:
                    self._notices.append(f"{damage}; the clip is generated again")
                yield from self._report("checking existing clips")

    def _unplanned(self) -> list[Row]:
        """Return clips of an earlier run that are kept although their prompts cannot be read now.

        Raises CommandError for other clips that were not requested now, or that were made with
        other settings.
        """
        planned = {row.file: row for row in self.planned.values()}
        others: list[Row] = []
        for file, row in self.before.items():
            if file not in planned:
                # `Path.exists` raises an error if the name is too long
                gone = row.prompt and not os.path.exists(row.prompt)  # noqa: PTH110
                if self.options.is_blind:
                    raise CommandError(
                        f"{self._manifest}: {file} is not a clip of this study; resume with the "
                        "study of this folder, or choose another --output"
                    )
                if not gone and row.prompt not in self.unreadable:
                    raise CommandError(
                        f"{self._manifest}: {file} was not requested; resume with the same prompts "
                        "and models and at least the same --count, or choose another --output"
                    )
                others.append(row)
            elif difference := row.difference(planned[file]):
                raise CommandError(
                    f"{self._manifest}: {file} was generated with {difference}; resume with the "
                    "same options and version, or choose another --output"
                )
        return others

    def _make(self, models: Sequence[MusicModel]) -> Iterator[BatchProgress]:
        """Make the missing clips: real music and anchors, then one model after another."""
        self._list()
        try:
            with self._timed():
                yield from self._make_real()
            for model in models:
                missing = [
                    clip
                    for clip, row in self.planned.items()
                    if clip.source.model == model.name and row.file not in self.rows
                ]
                for _ in model.preparing() if missing else ():
                    yield from self._report(PREPARING_NOTICE)
                    if self.stop():
                        break
                if missing and not self.stop():
                    with self._timed():
                        yield from self._generate(model, missing)
            with self._timed():
                while len(self._savers) and not self.stop():
                    self._take(SECONDS_BETWEEN_REPORTS)
                    yield from self._report("rendering audio")
                yield from self._finish_rendering()
        except (KeyboardInterrupt, GeneratorExit):  # stopped immediately
            self._savers.kill()
            raise
        finally:
            try:
                self._savers.close()
                self._take()
            finally:
                self._list()
        yield from self._report("generating")

    def _complete(self, rows: Sequence[Row]) -> None:
        """Complete a study."""
        if self.options.study is not None:
            with self._reported_errors():
                complete_study(self.options, self.options.study, rows)

    def _merge(self, planned: Sequence[Row]) -> Iterator[BatchProgress]:
        """Merge the shards, if all are complete; otherwise says which are not."""
        options = self.options
        with lock_folder(options.output, wait=True):
            if (options.output / NAME).exists():
                return  # by a shard that ended at the same time
            if missing := missing_of_shards(options, planned):
                self._notices.append(missing)
            else:
                with self._reported_errors():
                    rows = merge(options, planned)
                    if options.study is None:
                        write_manifest(options.output / NAME, rows)
                self._complete(rows)
                remove_shards(options)
                self._notices.append(f"{options.output}: all shards are complete and merged")
        yield from self._report("merging the shards")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the time of the work."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began

    @contextmanager
    def _reported_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CommandError(
                f"--output {self.options.output}: {error.strerror or error}; check the free disk "
                "space, then use --resume"
            ) from error

    def _make_real(self) -> Iterator[BatchProgress]:
        """Make the missing clips of real music and anchors."""
        for clip, row in self.planned.items():
            source, kind = clip.source, clip.source.condition.kind
            if kind == "model" or row.file in self.rows or self.stop():
                continue
            try:
                assert source.last_bar is not None
                music = real_music(
                    prompt_data(self.options, source),
                    source.shown_path,
                    source.last_bar,
                    source.condition.music.bars,
                    source.condition.music.beats,
                )
                excerpt = anchor_of(
                    music,
                    source.last_bar,
                    kind,
                    clip.seed,
                    (self.options.kind, self.options.clip_bars),
                )
                self._put(clip, excerpt, source.condition.music.bars)
            except OF_ONE_PROMPT as error:
                self._fail(row.file, error)
            yield from self._wait_for_savers()

    def _finish_rendering(self) -> Iterator[BatchProgress]:
        """Wait for the clips that are being rendered when the batch is stopped."""
        self._savers.discard_queue()
        if len(self._savers):
            clips = plural(len(self._savers), "clip")
            self._notices.append(
                f"stopping as soon as {clips} in work are complete; press Ctrl+C again to stop "
                "immediately"
            )
        while len(self._savers):
            yield from self._report("rendering the last clips")
            self._take(SECONDS_BETWEEN_REPORTS)

    def _generate(self, model: MusicModel, clips: Sequence[Clip]) -> Iterator[BatchProgress]:
        """Make clips with one model; their audio may still be rendered afterwards."""
        engine = Engine(model, self.options.width)
        running: dict[Draft, Clip] = {}
        waiting = ((source, list(group)) for source, group in groupby(clips, lambda c: c.source))
        while not self.stop():
            while engine.has_room and (following := next(waiting, None)):
                source, of_source = following
                try:
                    opening = opening_of(self.options, source, model)
                except OF_ONE_PROMPT as error:
                    self._fail(source.shown_path, error)
                    continue
                drafts = engine.add(opening, [clip.seed for clip in of_source])
                running.update(zip(drafts, of_source, strict=True))
            if not running:
                break
            done = [(running.pop(draft), draft) for draft in engine.step()]
            for clip, draft in done:
                if draft.sample.error is not None:
                    raise draft.sample.error
                self._save(clip, draft)
                yield from self._wait_for_savers(running)
            self._take()
            yield from self._report("generating", running)

    def _wait_for_savers(self, drafts: Iterable[Draft] = ()) -> Iterator[BatchProgress]:
        """Wait until the savers take another clip, or the batch is stopped."""
        while self._savers.full and not self.stop():
            self._take(SECONDS_BETWEEN_REPORTS)
            yield from self._report("rendering audio", drafts)

    def _save(self, clip: Clip, draft: Draft) -> None:
        """Pass a finished piece to the savers, which write the files of its clip."""
        options = self.options
        try:
            piece = finish(draft)
            excerpt = Excerpt.of_piece(piece, draft.opening.prompt, options.kind, options.clip_bars)
            is_whole = options.kind == "whole" and not options.is_blind
            choice = "" if piece.choice is None else piece.choice.line()
            self._put(clip, excerpt, piece.bars, choice, piece.midi if is_whole else None)
        except OF_ONE_PROMPT as error:
            self._fail(self.planned[clip].file, error)
            return
        self.tokens += piece.tokens
        self.music_seconds += piece.seconds

    def _put(
        self, clip: Clip, excerpt: Excerpt, bars: int, choice: str = "", midi: bytes | None = None
    ) -> None:
        """Pass a clip to the savers; `midi` is the whole piece if that is the clip."""
        row = replace(
            self.planned[clip],
            bars=str(bars),
            notes=str(excerpt.notes),
            seconds=f"{excerpt.seconds - excerpt.new_seconds:.3f}",
            new_bar=str(excerpt.new_bar),
            new_seconds=f"{excerpt.new_seconds:.3f}",
            choice=choice,
            clip_seconds=f"{excerpt.seconds:.3f}",
        )
        midi = excerpt.midi(blind=self.options.is_blind) if midi is None else midi
        files = ClipFiles(midi, excerpt, self.options.soundfont, self.options.loudness)
        self._savers.put(row, files)

    def _take(self, seconds: float = 0.0) -> None:
        """Record clips whose files are complete, after waiting at most `seconds` for one."""
        problem: CommandError | None = None
        for row, future in self._savers.take(seconds):
            try:
                self.rows[row.file] = future.result()
            except SoundError as error:
                self._fail(row.file, error)
            except OSError as error:
                problem = CommandError(
                    f"--output {self.options.place}: {row.file} cannot be written "
                    f"({error.strerror or error}); check the free disk space, then use --resume"
                )
            except BrokenProcessPool:
                self._savers.remove_files(row)
                if not self.stop():  # otherwise the signal has also ended that process
                    problem = CommandError(
                        "a process that renders audio was killed, perhaps for lack of memory; "
                        "finished clips are kept, and --resume generates the others"
                    )
        if problem is not None:
            raise problem
        if time.monotonic() - self._listed >= SECONDS_BETWEEN_MANIFESTS:
            self._list()

    def _fail(self, what: str, error: Exception) -> None:
        self.failed.append(what)
        self._notices.append(_about(what, error))

    def _list(self) -> None:
        """Write the manifest, in the order in which the clips were planned."""
        self._listed = time.monotonic()
        finished = (self.rows[row.file] for row in self.planned.values() if row.file in self.rows)
        try:
            rows = [*finished, *self.others]
            write_manifest(self._manifest, rows, blind=self.options.is_blind)
        except OSError as error:
            raise CommandError(
                f"{self._manifest}: {error.strerror or error}; check the free disk space, "
                "then use --resume"
            ) from error

    def _report(self, doing: str, drafts: Iterable[Draft] = ()) -> Iterator[BatchProgress]:
        """Yield all notices at once, and the progress at intervals."""
        while self._notices:
            yield self._progress(doing, drafts, self._notices.popleft())
        now = time.monotonic()
        if now - self._reported >= SECONDS_BETWEEN_REPORTS:
            self._reported = now
            yield self._progress(doing, drafts)

    def _progress(
        self, doing: str, drafts: Iterable[Draft] = (), notice: str = ""
    ) -> BatchProgress:
        done = len(self.rows) + len(self._savers) + sum(draft.part_done for draft in drafts)
        return BatchProgress(done, len(self.planned), self.kept, doing, notice)


def _about(what: str, error: Exception) -> str:
    """Return an error's message, prefixed with the name of the prompt or file if it is missing."""
    return str(error) if str(error).startswith(what) else f"{what}: {error}"
