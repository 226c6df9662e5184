"""Behind the page: who has a job, where its files go, who may stop it. It knows no widgets."""

from __future__ import annotations

import hashlib
import itertools
import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile

from app import continuation
from app.job import NEW_PIECE, Job
from app.player import Frame, timeline
from tokenization.score import Score

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.continuation import MusicModel, MusicOptions, Piece
    from app.upload import Upload

MOST_VARIATIONS = 4
"""Variations of one job that the page offers."""
FRAME_SECONDS = 0.12
"""Least time between two frames while music is written."""
EMPTY = Frame(job="", phase="empty", variations=[])
"""The player before anything is there."""


def waiting(upload: Upload | None) -> Frame:
    """The player while the model is busy with someone else's music."""
    if upload is None:
        frame = Frame(title=NEW_PIECE, timeline=timeline(Score(12), 16 * 48), variations=[])
    else:
        frame = upload.frame()
    line = "Waiting for the model …"
    return frame | Frame(phase="waiting", job=secrets.token_hex(4), line=line, status=line)


def new_seed() -> int:
    """A seed drawn by the machine."""
    return secrets.randbelow(continuation.LARGEST_SEED - MOST_VARIATIONS)


class Studio:
    """One model, and everyone who has the page open.

    Every session has its own folder and its own stop event; the folder's name cannot be guessed
    from the session's.
    """

    def __init__(self, model: MusicModel, output_folder: Path) -> None:
        self.model = model
        self.output_folder = output_folder.resolve()
        self._stops: dict[str, threading.Event] = {}
        self._secret = secrets.token_bytes(16)
        self._numbers = itertools.count(1)

    def begin(self, session: str) -> None:
        """A job is on its way: from now on it can be stopped, also while it waits for the model."""
        self._stops[session] = threading.Event()

    def stop(self, session: str) -> bool:
        """Ends the session's job at the next note; what is written stays. False: there was none."""
        event = self._stops.get(session)
        if event is not None:
            event.set()
        return event is not None

    def leave(self, session: str) -> None:
        """The session has no job any more."""
        self.stop(session)
        self._stops.pop(session, None)

    def compose(
        self, session: str, upload: Upload | None, options: MusicOptions
    ) -> Iterator[Frame]:
        """Writes music: frames while it grows, then one with the MIDI files, then with the sound.

        Without an upload a piece is made from nothing. Closing the iterator ends the work.

        Raises:
            MidiError: the prompt cannot be continued.
            SoundError: the music is written and its MIDI files are there, but it cannot be played.
        """
        event = self._stops.setdefault(session, threading.Event())
        job = Job(self.model, upload, options)
        try:
            yield job.frame("composing", line="Reading the prompt …" if upload else "Starting …")
            if upload is None:
                steps = continuation.generate_piece(self.model, options, event.is_set)
            else:
                steps = continuation.continue_prompt(
                    self.model, upload.prompt, options, event.is_set
                )
            pieces: tuple[Piece, ...] = ()
            shown = 0.0
            for step in steps:
                if isinstance(step, continuation.Result):
                    pieces, job.bars = step.pieces, step.bars
                elif time.monotonic() - shown >= FRAME_SECONDS:
                    shown = time.monotonic()
                    yield job.progress(step)
            if not any(piece.new.num_notes for piece in pieces):
                yield job.ended_empty()
                return
            job.write(pieces, self._folder(session))
            for index, piece in enumerate(pieces):
                which = f" of variation {index + 1}" if len(pieces) > 1 else ""
                line = f"Making the sound{which} …"
                yield job.frame("rendering", line=line, status="The music is written.")
                job.render(index, piece)
            yield job.frame("done", status="Ready to play.")
        finally:
            self._stops.pop(session, None)

    def wav(self, audio: str) -> str:
        """Path of the uncompressed version of a FLAC file that this studio made.

        Raises:
            ValueError: it is not one of this studio's files.
        """
        source = Path(audio).resolve()
        inside = source.is_relative_to(self.output_folder)
        if not (inside and source.suffix == ".flac" and source.is_file()):
            raise ValueError("not a sound made by this page")
        target = source.with_suffix(".wav")
        if not target.exists():
            beside = target.with_suffix(".part")
            with soundfile.SoundFile(source) as flac:
                wav = soundfile.SoundFile(
                    beside, "w", flac.samplerate, flac.channels, "PCM_16", format="WAV"
                )
                with wav:
                    for block in flac.blocks(1 << 18, dtype="int16"):
                        wav.write(block)
            beside.replace(target)
        return target.as_posix()

    def _folder(self, session: str) -> Path:
        name = hashlib.blake2b(session.encode(), key=self._secret, digest_size=8).hexdigest()
        folder = self.output_folder / name / f"{next(self._numbers):03d}"
        folder.mkdir(parents=True)
        return folder
