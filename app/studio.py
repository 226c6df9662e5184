"""Behind the page: who has a job, where its files go, who may stop it. It knows no widgets."""

from __future__ import annotations

import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile

from app import continuation
from app.ahead import newest
from app.files import SessionFolders, appearing
from app.job import NEW_PIECE, Job
from app.player import Frame, blank_timeline
from app.sound import SoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.continuation import Models, MusicOptions, Piece
    from app.upload import Upload

FRAME_SECONDS = 0.12
"""Least time between two frames while music is written."""
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


class Studio:
    """The models, and everyone who has the page open.

    Every session has its own folder below `output_folder`; `keep` says that nothing is removed
    there. A job is known by the event that stops it.
    """

    def __init__(self, models: Models, output_folder: Path, *, keep: bool = False) -> None:
        self.models = models
        self.folders = SessionFolders(output_folder, keep=keep)
        self._sessions: dict[threading.Event, str] = {}  # of all jobs that wait or run
        self._making_wav = threading.Lock()

    def begin(self, session: str) -> threading.Event:
        """A job is on its way: from now on it can be stopped, also while it waits for the model."""
        job = threading.Event()
        self._sessions[job] = session
        return job

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
        self.folders.leave(session)

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
            job = Job(model, upload, options)
            if stop.is_set():
                yield job.ended_empty()
                return
            yield job.starting()

            def write(stopped: Callable[[], bool]) -> continuation.Steps:
                if upload is None:
                    return continuation.generate_piece(model, options, stopped)
                return continuation.continue_prompt(model, upload.prompt, options, stopped)

            pieces: tuple[Piece, ...] = ()
            shown = 0.0
            for step in newest(write, stop.is_set):
                if isinstance(step, continuation.Result):
                    pieces, job.bars = step.pieces, step.bars
                elif time.monotonic() - shown >= FRAME_SECONDS:
                    shown = time.monotonic()
                    yield job.progress(step)
            if not any(piece.new.num_notes for piece in pieces):
                yield job.ended_empty()
                return
            if stop not in self._sessions:  # it has left
                return
            stop.clear()  # from here on it skips the sound
            job.write(pieces, self.folders.new(session))
            yield from self._render(job, pieces, stop)
        finally:
            self.end(stop)

    def _render(
        self, job: Job, pieces: tuple[Piece, ...], stop: threading.Event
    ) -> Iterator[Frame]:
        """Makes the sound of all variations, as far as it can be made and until it is stopped."""
        alert = Frame()
        for index, piece in enumerate(pieces):
            which = f" of variation {index + 1}" if len(pieces) > 1 else ""
            line = f"Making the sound{which} …"
            yield job.frame("rendering", line=line, status="The music is written.") | alert
            if stop.is_set():
                break
            try:
                job.render(index, piece)
            except SoundError as error:
                alert = Frame(alert=str(error))
        yield job.frame("done", status="Stopped." if stop.is_set() else "Ready to play.") | alert

    def wav(self, audio: str) -> str:
        """Path of the uncompressed version of a FLAC file that this studio made.

        Raises:
            ValueError: it is not one of this studio's files.
        """
        source = Path(audio).resolve()
        inside = source.is_relative_to(self.folders.root)
        if not (inside and source.suffix == ".flac" and source.is_file()):
            raise ValueError("not a sound made by this page")
        target = source.with_suffix(".wav")
        with self._making_wav:  # who asks for the same file at the same time waits for it
            if not target.exists():
                _decode(source, target)
        return target.as_posix()


def _decode(source: Path, target: Path) -> None:
    """Writes a FLAC file as WAV, in blocks."""
    with appearing(target) as beside, soundfile.SoundFile(source) as flac:
        wav = soundfile.SoundFile(
            beside, "w", flac.samplerate, flac.channels, "PCM_16", format="WAV"
        )
        with wav:
            for block in flac.blocks(1 << 18, dtype="int16"):
                wav.write(block)
