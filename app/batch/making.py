"""The work of a batch: clips are written, their files made, and the manifest kept up to date."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from app.audio.synth.soundfont import SoundError
from app.batch.clips import BatchOptions, Clip, Source, opening_of
from app.batch.files import Savers, alone_in, make_folders
from app.batch.manifest import NAME, Row, write_manifest
from app.batch.writing import Writing
from app.cli.arguments import CommandError
from app.compose.continuation import finish
from app.compose.models import PREPARING_TOLD
from tokenization.errors import MidiError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from app.compose.models import MusicModel
    from app.compose.piece import Draft, Opening

SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_BETWEEN_MANIFESTS = 2.0
"""Where the process is killed, clips of so many seconds are made again."""
OF_ONE_PROMPT = (MidiError, TokenizerError, SoundError, CommandError)
"""Errors after which the other prompts go on."""


@dataclass(frozen=True)
class BatchProgress:
    """How far the work is."""

    done: float
    """Clips; of those that are being written their part."""
    total: int
    kept: int
    """Of those done, clips that were there before."""
    doing: str
    """What is being done, in a few words."""
    notice: str = ""
    """One line for the user."""


def about(what: str, error: Exception) -> str:
    """An error's message, which names what it is about."""
    return str(error) if str(error).startswith(what) else f"{what}: {error}"


class Making:
    """Makes clips, and knows which are there."""

    def __init__(
        self, options: BatchOptions, planned: dict[Clip, Row], stop: Callable[[], bool]
    ) -> None:
        self.options, self.planned, self.stop = options, planned, stop
        self.rows: dict[str, Row] = {}
        """Of the clips that are there, by their file."""
        self.others: list[Row] = []
        """Of clips whose prompts are gone or cannot be read any more; they stay."""
        self.kept = self.tokens = 0
        self.seconds = self.music_seconds = 0.0
        self.failed: list[str] = []
        self._savers = Savers(options.output, audio=options.audio is not None)
        self._notices: deque[str] = deque()
        self._reported = self._listed = time.monotonic()

    def keep(self, before: dict[str, Row]) -> Iterator[BatchProgress]:
        """Keeps clips of an earlier session that are whole."""
        for row in self.planned.values():
            if self.stop():
                return
            if earlier := before.get(row.file):
                damage = earlier.damage(self.options.output)
                if damage is None:
                    self.rows[row.file] = earlier
                    self.kept += 1
                else:
                    self._notices.append(f"{damage}: the clip is made again")
                yield from self._report("looking at what is there")

    def make(self, models: Sequence[MusicModel]) -> Iterator[BatchProgress]:
        """Makes all others, one model after the other."""
        make_folders(self.options.output, audio=self.options.audio is not None)
        with alone_in(self.options.output):
            yield from self._make_all(models)

    def _make_all(self, models: Sequence[MusicModel]) -> Iterator[BatchProgress]:
        self._list()
        try:
            for model in models:
                if not (clips := self._missing(model)):
                    continue
                for _ in model.preparing():
                    yield from self._report(PREPARING_TOLD)
                    if self.stop():
                        return
                yield from self._make_with(model, clips)
        finally:
            try:
                self._savers.close()
                self._take()
            finally:
                self._list()
        yield from self._report("writing")

    def _missing(self, model: MusicModel) -> list[Clip]:
        """Clips of a model that are not there."""
        missing = (clip for clip, row in self.planned.items() if row.file not in self.rows)
        return [clip for clip in missing if clip.source.model == model.name]

    def _make_with(self, model: MusicModel, clips: Sequence[Clip]) -> Iterator[BatchProgress]:
        """Makes clips by one model, all their files included."""
        started, before = time.monotonic(), self.seconds
        writing = Writing(
            model, clips, lambda source: self._opening(source, model), self.options.width
        )
        for ended in writing.steps(self.stop):
            for clip, draft in ended:
                self._save(clip, draft)
                while self._savers.full and not self.stop():
                    self._take(SECONDS_BETWEEN_REPORTS)
                    yield from self._report("making sound", writing.drafts)
            self._take()
            self.seconds = before + time.monotonic() - started
            yield from self._report("writing", writing.drafts)
        while len(self._savers) and not self.stop():
            self._take(SECONDS_BETWEEN_REPORTS)
            self.seconds = before + time.monotonic() - started
            yield from self._report("making sound")

    def _opening(self, source: Source, model: MusicModel) -> Opening | None:
        """Where clips begin; None, and a notice, where their prompt cannot be used any more."""
        try:
            return opening_of(self.options, source, model)
        except OF_ONE_PROMPT as error:
            self._fail(source.said, error)
            return None

    def _save(self, clip: Clip, draft: Draft) -> None:
        """Has the files of a clip written."""
        try:
            piece = finish(draft)
        except OF_ONE_PROMPT as error:
            self._fail(self.planned[clip].file, error)
            return
        self.tokens += piece.tokens
        self.music_seconds += piece.seconds
        row = replace(
            self.planned[clip],
            bars=str(piece.bars),
            notes=str(piece.notes),
            seconds=f"{piece.seconds:.3f}",
        )
        self._savers.put(row, piece)

    def _take(self, seconds: float = 0.0) -> None:
        """Notes which files are there; waits for the next one, no longer than so many seconds."""
        problem: CommandError | None = None
        for row, future in self._savers.take(seconds):
            try:
                self.rows[row.file] = future.result()
            except SoundError as error:
                self._fail(row.file, error)
            except OSError as error:
                problem = CommandError(
                    f"--output {self.options.output}: {row.file} cannot be written "
                    f"({error.strerror or error}); see that there is room, then --resume"
                )
            except BrokenProcessPool:
                if not self.stop():  # a signal to all processes ends those as well
                    problem = CommandError(
                        "a process that makes sound was ended, perhaps for lack of memory; what "
                        "is finished stays, --resume makes the rest"
                    )
        if problem is not None:
            raise problem
        if time.monotonic() - self._listed >= SECONDS_BETWEEN_MANIFESTS:
            self._list()

    def _fail(self, what: str, error: Exception) -> None:
        self.failed.append(what)
        self._notices.append(about(what, error))

    def _list(self) -> None:
        """Writes the manifest, in the order in which clips were planned."""
        self._listed = time.monotonic()
        there = (self.rows[row.file] for row in self.planned.values() if row.file in self.rows)
        try:
            write_manifest(self.options.output / NAME, [*there, *self.others])
        except OSError as error:
            raise CommandError(
                f"{self.options.output / NAME}: {error.strerror or error}; see that there is room, "
                "then --resume"
            ) from error

    def _report(self, doing: str, drafts: Sequence[Draft] = ()) -> Iterator[BatchProgress]:
        """Every notice, and now and then how far the work is."""
        while self._notices:
            yield self._progress(doing, drafts, self._notices.popleft())
        now = time.monotonic()
        if now - self._reported >= SECONDS_BETWEEN_REPORTS:
            self._reported = now
            yield self._progress(doing, drafts)

    def _progress(self, doing: str, drafts: Sequence[Draft], notice: str = "") -> BatchProgress:
        done = len(self.rows) + len(self._savers) + sum(draft.part_done for draft in drafts)
        return BatchProgress(done, len(self.planned), self.kept, doing, notice)
