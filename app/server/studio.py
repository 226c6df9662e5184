"""Runs the jobs of all sessions on shared models, without a user interface."""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.compose.continuation import Result
from app.compose.options import MAX_SECONDS, MAX_WAITING, MusicOptions, with_seed
from app.compose.piece import Opening
from app.errors import DiskError
from app.player.frames import Frame, blank_timeline
from app.server.admission import Bounds, Owner, Queue
from app.server.downloads import SOUND_KINDS
from app.server.job import NEW_PIECE, PROMPT_ALONE, Job
from app.server.scheduler import MAX_ROWS, Scheduler
from app.server.store import KeptJobs, SessionFolders
from app.server.studies import Studies

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    from app.compose.models import Models
    from app.compose.prompt.prompt import Prompt
    from app.server.uploads import Upload
    from tokenization.score import Score

_log = logging.getLogger(__name__)

MAX_JOBS_OF_SESSION = 4
"""Jobs of a session at the same time; a page has one, scripts may have more."""
SOUNDS_AT_ONCE = 1
"""Pieces whose sound is rendered at once; each occupies a core and up to 423 MB."""
MOST_SOUNDS = Bounds(waiting=24, of_session=8)
"""Calls that wait for sound; each occupies one of the page's 40 threads."""
FRAME_SECONDS = 0.2
"""Shortest time between two frames while music is generated."""
LAST_SECONDS = 1.5
"""Time for jobs to write their files when the page closes."""
EMPTY = Frame(job="", phase="empty", variations=[])
"""The frame of a player without music."""


def waiting(upload: Upload | None, bars: int) -> Frame:
    """Return the frame before a job is admitted.

    `bars` is the length of a piece without an upload.
    """
    if upload is None:
        frame = Frame(title=NEW_PIECE, timeline=blank_timeline(bars), variations=[])
    else:
        frame = upload.frame()
    line = "Waiting for the model …"
    return frame | Frame(phase="waiting", job=secrets.token_hex(4), line=line, status=line)


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Limits for the users that share a page."""

    max_rows: int = MAX_ROWS
    """Maximum number of pieces that a model generates at the same time."""
    max_waiting: int = MAX_WAITING
    """Maximum number of jobs that wait for each model."""
    max_seconds: float | None = MAX_SECONDS
    """Maximum generation time of a job; the music so far is kept. None: no limit."""

    @property
    def max_jobs(self) -> int:
        """Maximum number of jobs, including those whose sound is being rendered."""
        return self.max_rows + self.max_waiting


class Studio:
    """The models, sessions and jobs of a page.

    Every session has its own folder below `output_folder`; with `keep`, nothing is removed there.
    Until it has files, a job is identified by the event that stops it.
    """

    def __init__(
        self,
        models: Models,
        output_folder: Path,
        *,
        keep: bool = False,
        sharing: Sharing | None = None,
        soundfont: Path | None = None,
    ) -> None:
        """`soundfont` renders the sound; None: the General MIDI one."""
        self.models, self.soundfont = models, soundfont
        self.folders = SessionFolders(output_folder, keep=keep)
        self.sharing = sharing or Sharing()
        self.scheduler = Scheduler(self.sharing.max_rows, self.sharing.max_waiting)
        self.studies = Studies(models, self.folders, self.sharing.max_seconds)
        self.kept = KeptJobs()
        self._sounds: Queue[None] = Queue("sound", SOUNDS_AT_ONCE, MOST_SOUNDS)
        bounds = Bounds(waiting=0, of_session=MAX_JOBS_OF_SESSION)
        self._jobs: Queue[None] = Queue("the models", self.sharing.max_jobs, bounds)
        self._sessions: dict[threading.Event, str] = {}  # of all waiting and running jobs

    def begin(self, session: str) -> threading.Event:
        """Register a job: from now on it can be stopped, even while it waits for the model."""
        job = threading.Event()
        self._sessions[job] = session
        return job

    def stop_all(self) -> None:
        """Stop all jobs, and give them a moment to write their files.

        Does not wait for the jobs to end, since jobs whose sessions have ended do not advance.
        """
        self.studies.stop_all()
        jobs = list(self._sessions)
        for job in jobs:
            job.set()
        if jobs:
            time.sleep(LAST_SECONDS)

    def end(self, job: threading.Event) -> bool:
        """Unregister a job that has ended; return whether it was registered."""
        return self._sessions.pop(job, None) is not None

    def stop(self, session: str) -> bool:
        """Stop the jobs of a session and keep the music so far; return whether there were any.

        A running job stops at its next token, a waiting one at once.
        """
        jobs = self._jobs_of(session)
        for job in jobs:
            job.set()
        return bool(jobs)

    def leave(self, session: str) -> None:
        """End a session and its jobs, which write no more files."""
        self.stop(session)
        self.studies.stop(session)
        for job in self._jobs_of(session):
            self.end(job)

    def _jobs_of(self, session: str) -> list[threading.Event]:
        return [job for job, owner in list(self._sessions.items()) if owner == session]

    def compose(
        self,
        session: str,
        upload: Upload | None,
        options: MusicOptions,
        asked: threading.Event | None = None,
        model_name: str | None = None,
        user: str = "",
        *,
        listens: bool = False,
    ) -> Iterator[Frame]:
        """Generate music: yields frames with its progress, and then its MIDI files.

        Without an upload, the model named `model_name`, by default the automatic choice, generates
        a piece from nothing. `asked` is the event from `begin`, if that was called; `user` is an
        account or address, if known. With `listens`, the player begins to play while bars are
        written. Closing the iterator ends the job.

        Raises:
            BusyError: too many jobs are waiting already, or this user has too many.
            DiskError: the music cannot be saved.
            MidiError: the prompt cannot be continued.
            CheckpointError, TokenizerError: the model cannot be used.
        """
        stop = asked or self.begin(session)
        try:
            if upload is not None:
                model = upload.model
            elif model_name is not None:
                model = self.models.load(model_name)
            else:
                model = self.models.to_generate(options)
            job = Job(model, upload, options)
            if listens:
                job.listen()
            if stop.is_set():
                yield job.ended_empty()
                return
            owner = Owner(user, session)
            with self._jobs.enter(None, owner=owner):
                yield job.starting()
                result, ended = yield from self._generate(job, stop, owner)
                if not any(piece.new.num_notes for piece in result.pieces):
                    yield job.ended_empty(ended)
                    return
                if stop not in self._sessions:  # the session has ended
                    return
                folder = self.folders.new(session)
                try:
                    job.write(result.pieces, folder)
                except DiskError:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                self.kept.add(session, job)
                alert = ended and f"{ended}; the music so far is kept."
                yield job.frame("done", status="Ready to play.") | _alert(alert)
        finally:
            self.end(stop)

    def _generate(
        self, job: Job, stop: threading.Event, owner: Owner
    ) -> Generator[Frame, None, tuple[Result, str]]:
        """Yield frames while a job waits and generates; return the result.

        Also returns the reason if the job has exceeded its time limit, otherwise an empty string.
        The time of compilation does not count.
        """
        options = with_seed(job.options)
        if job.upload is None:
            opening = Opening.of_nothing(job.model, options)
        else:
            opening = Opening.after(job.model, job.upload.prompt, options)
        steps = self.scheduler.generate(opening, stop, owner)
        began = shown = 0.0
        ended, most = "", self.sharing.max_seconds
        with closing(steps):
            for step in steps:
                now = time.monotonic()
                if isinstance(step, Result):
                    job.bars = max((piece.bars for piece in step.pieces), default=0)
                    return step, ended
                if step.place:
                    yield job.waiting(step)
                    continue
                if not step.preparing:
                    began = began or now
                if began and most is not None and now - began > most and not stop.is_set():
                    stop.set()
                    ended = f"The job was stopped after {most:g} s, the time limit of this page"
                if now - shown >= FRAME_SECONDS:
                    shown = now
                    yield job.progress(step)
        return Result(()), ended

    def seconds_needed(
        self, model_name: str, prompt: Prompt | None, bars: float, variations: int
    ) -> float | None:
        """Estimate the seconds until all takes are written; None before the first job."""
        rows = variations * MusicOptions(variations=variations).num_takes
        return self.scheduler.seconds_needed(model_name, prompt, bars, rows)

    def opened(self, session: str, upload: Upload) -> Job:
        """Return a job without new music.

        Its upload can be played as the variation PROMPT_ALONE.
        """
        new_folder = partial(self.folders.new, session)
        job = Job(upload.model, upload, MusicOptions(), new_folder)
        self.kept.add(session, job)
        return job

    def file(self, job: str, variation: int, kind: str, without: Collection[int] = ()) -> Path:
        """Return the path of a file of a job, made if necessary; sound waits for other renderings.

        `without` are ids of tracks that are left out of the sound.

        Raises:
            LookupError: there is no such job, or no file of this kind.
            SoundError: the sound cannot be rendered.
            BusyError: too many calls are waiting for sound.
        """
        session, kept_job = self.kept.get(job)
        if kind not in SOUND_KINDS:
            return kept_job.file(variation, kind)
        sound = kept_job.sound(variation)
        if path := sound.find(kind, without):
            return path
        with self._sounds.enter(None, owner=Owner(session=session)) as ticket:
            self._sounds.wait(ticket)
            return sound.file(kind, without, self.soundfont)

    def shown(self, job: str, variation: int) -> tuple[bytes, Score, list[int]]:
        """Return a piece as it is downloaded, its score, and the ids of its tracks in the frames.

        Raises the errors of `file`.
        """
        _, kept_job = self.kept.get(job)
        sound = kept_job.sound(variation)
        return kept_job.file(variation, "midi").read_bytes(), sound.score, sound.ids

    def render(self, session: str, upload: Upload) -> Path:
        """Return the sound of an uploaded file, as FLAC.

        Raises the errors of `file`.
        """
        return self.file(self.opened(session, upload).id, PROMPT_ALONE, "flac")

    def knows(self, job: str) -> bool:
        """Return whether the files of a job can be requested."""
        with suppress(LookupError):
            self.kept.get(job)
            return True
        return False

    def health(self) -> dict[str, object]:
        """Return the state of the page: its models, and the numbers of running and waiting jobs."""
        running, waiting = self.scheduler.counts
        jobs = {"running": running, "waiting": waiting}
        return {"status": "ok", "models": list(self.models.names), "jobs": jobs}


def _alert(text: str) -> Frame:
    return Frame(alert=text) if text else Frame()
