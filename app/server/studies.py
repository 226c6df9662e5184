"""Makes listening studies for sessions of the page, as `relpe batch STUDY.yaml` does.

The work is done in a process of its own, at low priority: prompts are untrusted files, and
generation would slow down the music of others. One study is made at a time.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import threading
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from app.batch.files import end_with_parent
from app.batch.run import BatchProgress, make_batch
from app.batch.study import ModelConfig, StudyConfig, as_yaml, options_of, read_study
from app.compose.models import Models
from app.errors import BusyError, CommandError, DiskError, input_errors
from app.files import safe_name, size_on_disk
from app.server.admission import POLL_SECONDS, Bounds, Owner, Queue
from app.text import plural
from relpe.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from app.compose.models import ComputeOptions
    from app.server.store import SessionFolders

_log = logging.getLogger(__name__)

MOST_CLIPS = 60
"""Maximum number of clips of a study that is made on the page."""
MOST_PROMPTS = 12
MOST_BYTES = 1 << 30
"""Maximum size of the files of a study."""
MOST_WAITING = 4
"""Maximum number of studies that wait while one is made."""
NICENESS = 5
"""How much lower the priority of the process is."""
FOLDER, CONFIG, PROMPTS = "study", "config.yaml", "prompts"
"""What the ZIP file contains: the output of `relpe batch`, its configuration, and the prompts."""
_SECONDS_BETWEEN_SIZES = 2.0
_BROKEN = "The study could not be made; see the program's log"


@dataclass(frozen=True)
class StudyProgress:
    """Progress of a study."""

    done: float
    total: int
    doing: str
    """The current activity, in a few words."""


@dataclass(frozen=True)
class StudyFiles:
    """A study that is complete."""

    zip: Path
    clips: int
    config: str
    """The configuration as YAML."""


def clips_of(study: StudyConfig, prompts: int) -> int:
    """Return the number of clips of a study; there is one real continuation of each prompt."""
    of_prompt = [1 if c.kind == "real" else study.repetitions for c in study.conditions]
    return sum(of_prompt) * max(1, prompts)


def check_size(study: StudyConfig, prompts: int) -> None:
    """Raise CommandError for a study that is too large for the page."""
    advice = "make the study on your own computer with relpe batch"
    if prompts > MOST_PROMPTS:
        raise CommandError(
            f"Found {plural(prompts, 'prompt')}, expected at most {MOST_PROMPTS}; choose fewer, or "
            f"{advice}."
        )
    if (clips := clips_of(study, prompts)) > MOST_CLIPS:
        raise CommandError(
            f"This study has {clips:,} clips, expected at most {MOST_CLIPS}; choose fewer prompts, "
            f"conditions or repetitions, or {advice}."
        )


class Studies:
    """The studies of all sessions; only the newest ZIP file of a session is kept."""

    def __init__(
        self, models: Models, folders: SessionFolders, max_seconds: float | None = None
    ) -> None:
        """`max_seconds` is the maximum time for a study; None: no limit."""
        self._models, self._folders, self._max_seconds = models, folders, max_seconds
        self.model_names = tuple(name for name in models.names if models.folder(name))
        """Models that a study can use; the process loads them from their folders."""
        self._queue: Queue[None] = Queue("studies", 1, Bounds(waiting=MOST_WAITING))
        self._stops: dict[str, threading.Event] = {}
        self._processes: dict[str, SpawnProcess] = {}
        self._newest: dict[str, Path] = {}
        self._lock = threading.Lock()

    def make(
        self, session: str, study: StudyConfig, prompts: Sequence[tuple[str, Path]], user: str = ""
    ) -> Generator[StudyProgress | StudyFiles]:
        """Make a study: yields its progress, and finally its files, unless it was stopped.

        Closing the iterator stops the work.

        Args:
            session: the session that asked for it.
            study: the configuration, except its prompts; models are named.
            prompts: names and paths of the prompts.
            user: an account or address, if known.

        Raises:
            BusyError: too many studies are waiting, or this session has one already.
            CommandError: the study is too large or cannot be made, or takes too long.
            DiskError: its files cannot be written.
        """
        check_size(study, len(prompts))
        stop = threading.Event()
        with self._lock:
            if session in self._stops:
                raise BusyError(
                    "A study is already being made; wait until it is complete, or stop it"
                )
            self._stops[session] = stop
        try:
            with self._queue.enter(None, owner=Owner(user, session)) as ticket:
                while not self._queue.wait(ticket, POLL_SECONDS):
                    if stop.is_set():
                        return
                    count = len(self._queue.ahead_of(ticket))
                    ahead = "1 study" if count == 1 else f"{count} studies"
                    yield StudyProgress(0, 0, f"waiting: {ahead} before yours")
                yield from self._make(session, study, prompts, stop)
        finally:
            with self._lock:
                del self._stops[session]

    def stop(self, session: str) -> None:
        """Stop the study of a session; its files are removed."""
        if stop := self._stops.get(session):
            stop.set()
        if process := self._processes.get(session):
            process.kill()

    def stop_all(self) -> None:
        """Stop all studies."""
        for session in list(self._stops):
            self.stop(session)

    def _make(
        self,
        session: str,
        study: StudyConfig,
        prompts: Sequence[tuple[str, Path]],
        stop: threading.Event,
    ) -> Iterator[StudyProgress | StudyFiles]:
        folder = self._folders.new(session)
        is_made = False
        try:
            try:
                config = _write(folder, study, prompts)
                yield from self._work(session, folder, study, stop)
                if stop.is_set():
                    return
                clips = clips_of(study, len(prompts))
                yield StudyProgress(clips, clips, "packing the files")
                packed = _pack(folder, study)
            except OSError as error:
                raise DiskError(error, "study") from error
            is_made = True
        finally:
            if not is_made:
                shutil.rmtree(folder, ignore_errors=True)
        earlier = self._newest.get(session)
        self._newest[session] = folder
        if earlier is not None and not self._folders.keep:
            shutil.rmtree(earlier, ignore_errors=True)
        yield StudyFiles(packed, clips, config)

    def _work(
        self, session: str, folder: Path, study: StudyConfig, stop: threading.Event
    ) -> Iterator[StudyProgress]:
        """Run the process, and yield its progress."""
        used = dict.fromkeys(one.model for one in study.conditions if isinstance(one, ModelConfig))
        places = [place for name in used if (place := self._models.folder(name))]
        spawn = multiprocessing.get_context("spawn")  # forking a process with threads may hang
        receiver, sender = spawn.Pipe(duplex=False)
        arguments = sender, folder, places, self._models.compute
        process = spawn.Process(target=_run, args=arguments)
        process.start()
        sender.close()
        self._processes[session] = process
        try:
            connection = cast("Connection", receiver)  # Windows has a class of its own
            yield from self._told(connection, folder, stop)
        finally:
            del self._processes[session]
            process.kill()
            process.join()
            receiver.close()

    def _told(
        self, receiver: Connection, folder: Path, stop: threading.Event
    ) -> Iterator[StudyProgress]:
        began = measured = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            if self._max_seconds is not None and now - began > self._max_seconds:
                raise CommandError(
                    f"The study was stopped after {self._max_seconds:g} s, the time limit of this "
                    "page; choose fewer clips, or make it on your own computer with relpe batch"
                )
            if now - measured > _SECONDS_BETWEEN_SIZES:
                measured = now
                if size_on_disk(folder) > MOST_BYTES:
                    raise CommandError(
                        f"The files of the study exceed {MOST_BYTES >> 20:,} MB; choose fewer or "
                        "shorter clips, or make it on your own computer with relpe batch"
                    )
            if not receiver.poll(POLL_SECONDS):
                continue
            try:
                kind, value = receiver.recv()
            except EOFError:
                if not stop.is_set():
                    _log.error("the process that makes a study has ended")
                    raise CommandError(_BROKEN) from None
                return
            if kind == "progress":
                yield value
            elif kind == "done":
                return
            else:
                raise CommandError(value)


def _write(folder: Path, study: StudyConfig, prompts: Sequence[tuple[str, Path]]) -> str:
    """Write the configuration and the prompts; return the former."""
    (folder / PROMPTS).mkdir()
    for name, path in prompts:
        shutil.copyfile(path, folder / PROMPTS / name)
    config = as_yaml(study)
    (folder / CONFIG).write_text(config, encoding="utf-8")
    return config


def _pack(folder: Path, study: StudyConfig) -> Path:
    """Pack the files into a ZIP file and remove them; the same files give the same bytes."""
    packed = folder / f"{safe_name(study.name)}.zip"
    parts = [folder / name for name in (CONFIG, PROMPTS, FOLDER)]
    files = [path for part in parts for path in (part, *sorted(part.rglob("*"))) if path.is_file()]
    with atomic_write(packed) as beside, zipfile.ZipFile(beside, "w") as archive:
        for path in files:
            if path.name.startswith("."):
                continue
            about = zipfile.ZipInfo(path.relative_to(folder).as_posix())  # of 1 January 1980
            about.external_attr = 0o644 << 16
            with path.open("rb") as source, archive.open(about, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    for part in parts:
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    return packed


def _run(
    sender: Connection, folder: Path, places: list[Path], compute: ComputeOptions | None
) -> None:
    """Make the study in a folder: the main function of the process."""
    end_with_parent()
    with suppress(ValueError, AttributeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the page, which ends this
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)

    def tell(kind: str, value: Any = None) -> None:  # noqa: ANN401
        sender.send((kind, value))

    try:
        config = folder / CONFIG
        models = Models(places, compute)
        options = options_of(
            read_study(config), folder, folder / FOLDER, loaded=models.names, width=8
        )
        failed: tuple[str, ...] = ()
        for step in make_batch(options, models):
            if isinstance(step, BatchProgress):
                tell("progress", StudyProgress(step.done, step.total, step.doing))
            else:
                failed = step.failed
        tell("error", f"{failed[0]}: this clip could not be made") if failed else tell("done")
    except input_errors() as error:
        text = str(error)
        for place in (f"{folder / PROMPTS}/", f"{folder}/"):  # users must not see it
            text = text.replace(place, "")
        tell("error", text)
    except Exception:  # noqa: BLE001 - it is logged
        _log.exception("a study could not be made")
        tell("error", _BROKEN)
