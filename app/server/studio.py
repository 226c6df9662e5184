"""Behind the page: who has a job, where its files go, who may stop it. It knows no widgets."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.audio.synth.soundfont import SoundError
from app.compose import continuation
from app.compose.options import MAX_WAITING, MusicOptions
from app.files import SessionFolders
from app.player.frames import Frame, blank_timeline
from app.server.job import NEW_PIECE, PROMPT_ALONE, Job
from app.server.job_audio import SOUND_KINDS
from app.server.line import Line
from app.server.scheduler import MAX_ROWS, Desk
from app.server.sound_calls import SoundCalls
from app.server.store import KeptJobs

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    from app.compose.models import Models
    from app.server.uploads import Upload

_log = logging.getLogger(__name__)

FRAME_SECONDS = 0.2
"""Least time between two frames while music is written."""
LAST_SECONDS = 1.5
"""What jobs that are stopped at the end have for their files."""
NO_SOUND = "The sound could not be made, and the program's log says why; the MIDI files are there."
EMPTY = Frame(job="", phase="empty", variations=[])
"""The player before anything is there."""


def waiting(upload: Upload | None, bars: int) -> Frame:
    """The player while the model is busy with someone else's music; of a new piece so many bars."""
    if upload is None:
        frame = Frame(title=NEW_PIECE, timeline=blank_timeline(bars), variations=[])
    else:
        frame = upload.frame()
    line = "Waiting for the model …"
    return frame | Frame(phase="waiting", job=secrets.token_hex(4), line=line, status=line)


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How many may use a page at once, and for how long."""

    max_rows: int = MAX_ROWS
    """Pieces that a model writes at the same time."""
    max_waiting: int = MAX_WAITING
    """Jobs that may wait for each model."""
    max_seconds: float | None = None
    """Longest time that a job's music is written for; what is written then stays."""

    @property
    def max_jobs(self) -> int:
        """That may be there at all, with those whose sound is made."""
        return self.max_rows + self.max_waiting


class Studio:
    """The models, and everyone who has the page open.

    Every session has its own folder below `output_folder`; `keep` says that nothing is removed
    there. A job is known by the event that stops it.
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
        """`soundfont` is what is played; None: the General MIDI one."""
        self.models, self.soundfont = models, soundfont
        self.folders = SessionFolders(output_folder, keep=keep)
        self.sharing = sharing or Sharing()
        self.desk = Desk(self.sharing.max_rows, self.sharing.max_waiting)
        self._kept, self._sounds = KeptJobs(), SoundCalls()
        self._jobs: Line[None] = Line("the models", self.sharing.max_jobs, 0)
        self._sessions: dict[threading.Event, str] = {}  # of all jobs that wait or run

    def begin(self, session: str) -> threading.Event:
        """A job is on its way: from now on it can be stopped, also while it waits for the model."""
        job = threading.Event()
        self._sessions[job] = session
        return job

    def stop_all(self) -> None:
        """Stops all jobs, as their owners could, and gives them a moment to write what is there.

        They are not waited for: whoever asked for them may be gone, and nobody goes on with them.
        Raw sound, which is no music, goes from the disk.
        """
        jobs = list(self._sessions)
        for job in jobs:
            job.set()
        if jobs:
            time.sleep(LAST_SECONDS)
        self._kept.close()

    def end(self, job: threading.Event) -> bool:
        """The job will not run any more. False: that was known."""
        return self._sessions.pop(job, None) is not None

    def stop(self, session: str) -> bool:
        """Ends the session's jobs; what is written stays. False: there were none.

        One that writes ends at the next note, one that waits before its first when its turn comes,
        one whose music is written makes no more sound.
        """
        jobs = [job for job, owner in list(self._sessions.items()) if owner == session]
        for job in jobs:
            job.set()
        return bool(jobs)

    def leave(self, session: str) -> None:
        """The session is over, and its jobs with it: they write nothing any more."""
        self.stop(session)
        for job, owner in list(self._sessions.items()):
            if owner == session:
                self.end(job)
        self._sounds.leave(session)
        self._kept.leave(session)
        self.folders.leave(session)

    def back(self, session: str) -> None:
        """A session that was left goes on: a lost connection looks like a closed tab."""
        self.folders.back(session)

    def compose(
        self,
        session: str,
        upload: Upload | None,
        options: MusicOptions,
        asked: threading.Event | None = None,
        model_name: str | None = None,
    ) -> Iterator[Frame]:
        """Writes music: frames while it grows, then one with the MIDI files, then with the sound.

        Without an upload a piece is made from nothing, by the model of that name. `asked` is what
        `begin` gave, if it was called. Closing the iterator ends the work. Where sound cannot be
        made, the MIDI files are there all the same, and the last frame has the reason as its alert.

        Raises:
            BusyError: too many wait already.
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
                model = self.models.to_generate()
            job = Job(model, upload, options, soundfont=self.soundfont)
            if stop.is_set():
                yield job.ended_empty()
                return
            with self._jobs.enter(None):
                yield job.starting()
                result, ended = yield from self._write(job, stop)
                if not any(piece.new.num_notes for piece in result.pieces):
                    yield job.ended_empty(ended)
                    return
                if stop not in self._sessions:  # it has left
                    return
                stop.clear()  # from here on it skips the sound
                job.write(result.pieces, self.folders.new(session))
                self._kept.add(session, job)
                yield from self._render(job, stop, ended and f"{ended}; what was written is kept.")
        finally:
            self.end(stop)

    def _write(
        self, job: Job, stop: threading.Event
    ) -> Generator[Frame, None, tuple[continuation.Result, str]]:
        """Frames while the music of a job waits and is written; returns what came of it.

        And why it ended, where it took too long. What is compiled first is not of its time.
        """
        if job.upload is None:
            steps = self.desk.generate_piece(job.model, job.options, stop)
        else:
            steps = self.desk.continue_prompt(job.model, job.upload.prompt, job.options, stop)
        began, shown, ended, most = 0.0, 0.0, "", self.sharing.max_seconds
        with closing(steps):
            for step in steps:
                now = time.monotonic()
                if isinstance(step, continuation.Result):
                    job.bars = step.bars
                    return step, ended
                if step.place:
                    yield job.waiting(step)
                    continue
                if not step.preparing:
                    began = began or now
                if began and most is not None and now - began > most and not stop.is_set():
                    stop.set()
                    ended = (
                        f"The work ended after {most:g} s, the most that this page gives to a job"
                    )
                if now - shown >= FRAME_SECONDS:
                    shown = now
                    yield job.progress(step)
        return continuation.Result(()), ended

    def _render(self, job: Job, stop: threading.Event, alert: str) -> Iterator[Frame]:
        """Makes the sound of all variations, as far as it can be made and until it is stopped.

        It waits for the sound of others, one piece each in turn, and no music waits for it. What
        goes wrong with it is said, and takes nobody's music away.
        """
        for index in range(len(job.pieces)):
            which = f" of variation {index + 1}" if len(job.pieces) > 1 else ""
            line = f"Making the sound{which} …"
            making = job.frame("rendering", line=line, status="The music is written.")
            making |= _alert(alert)
            yield making
            with self._sounds.turn(stop.is_set) as has_come:
                if not has_come:
                    break
                try:
                    for part in job.rendering(index, stop.is_set):
                        yield making | Frame(progress=part)
                except SoundError as error:
                    alert = str(error)
                except Exception:  # noqa: BLE001 - the log has it, and the music is written
                    _log.exception("the sound of a job could not be made")
                    alert = NO_SOUND
            self._kept.done(job)
        status = "Stopped." if stop.is_set() else "Ready to play."
        yield job.frame("done", status=status) | _alert(alert)

    def opened(self, session: str, upload: Upload) -> Job:
        """A job that has made nothing yet, whose upload can be heard: variation PROMPT_ALONE."""
        new_folder = partial(self.folders.new, session)
        job = Job(upload.model, upload, MusicOptions(), new_folder, self.soundfont)
        self._kept.add(session, job)
        return job

    def file(self, job: str, variation: int, kind: str) -> Path:
        """A file of a job by its id, made where it is not there; sound waits for that of others.

        Raises:
            LookupError: there is no such job, or nothing of the kind.
            SoundError: it cannot be made, or too many wait for sound.
        """
        if kind in SOUND_KINDS:
            return self._sound(job, variation, kind)
        return self._kept.get(job)[1].file(variation, kind)

    def mix(self, job: str, variation: int, without: Collection[int]) -> Path:
        """The sound of a job without some tracks, by their ids; raises as `file`."""
        return self._sound(job, variation, "wav" if without else "flac", without)

    def _sound(self, name: str, variation: int, kind: str, without: Collection[int] = ()) -> Path:
        """What is there already is given at once, what is rendered already waits for nobody."""
        session, job = self._kept.get(name)
        if path := job.sound.find(variation, kind, without):
            return path
        with self._sounds.call(session):
            if not job.sound.has(variation):
                make = partial(job.sound.render, variation)
                self._sounds.once(session, (job.id, variation), make)
            try:
                return job.sound.file(variation, kind, without)
            finally:
                self._kept.done(job)

    def render(self, session: str, upload: Upload) -> Path:
        """The sound of a file as it came, as FLAC. Raises SoundError where it cannot be made."""
        return self.file(self.opened(session, upload).id, PROMPT_ALONE, "flac")

    def knows(self, job: str) -> bool:
        """Whether files of a job can be asked for."""
        with suppress(LookupError):
            self._kept.get(job)
            return True
        return False

    def health(self) -> dict[str, object]:
        """How the page is: its models, the jobs at work and those that wait."""
        running, waiting = self.desk.counts
        jobs = {"running": running, "waiting": waiting}
        return {"status": "ok", "models": list(self.models.names), "jobs": jobs}


def _alert(text: str) -> Frame:
    return Frame(alert=text) if text else Frame()
