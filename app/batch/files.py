"""Writes the files of clips while others are generated; audio is rendered in other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from app.audio.loudness import LOUDNESS_LUFS
from app.audio.synth.soundfont import SoundError
from app.batch.manifest import NAME, Row, sha256_of
from app.errors import CommandError
from app.files import check_folder
from relpe.files import atomic_write, remove_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from app.batch.excerpt import Excerpt

MOST_PROCESSES = 4
"""Maximum number of processes that render audio, each in up to 400 MB. More would sit idle."""
WAITING_FOR_EACH = 2
"""Maximum number of pieces in the queue per process; when it is full, generation pauses."""


def make_folders(output: Path, folders: Sequence[str]) -> None:
    """Create the folders of a batch, and remove temporary files that a killed process left.

    Raises CommandError if the folders cannot be created or written to.
    """
    try:
        for folder in (output, *(output / name for name in folders)):
            folder.mkdir(parents=True, exist_ok=True)
            check_folder(folder)
            remove_parts(folder)
    except OSError as error:
        raise CommandError(
            f"--output {output}: {error.strerror or error}; choose another folder"
        ) from error


def refuse_unlisted(output: Path, folders: Sequence[str]) -> None:
    """Raise CommandError if there are files in the folders of a batch that has no manifest."""
    for name in folders:
        if paths := sorted((output / name).glob("[!.]*")):
            raise CommandError(
                f"--output {output}: {name} contains {paths[0].name}, but there is no {NAME}; "
                "choose another folder, or move these files away"
            )


@contextmanager
def lock_folder(output: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder against other batches; if it is locked, wait, or raise CommandError.

    The lock file is not removed afterwards: otherwise two processes could lock different files.
    """
    lock = FileLock(output / ".lock", timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout as error:
        raise CommandError(
            f"--output {output}: another relpe batch is writing to this folder; wait until it has "
            "ended, or choose another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class ClipFiles:
    """The contents of a clip's files."""

    midi: bytes
    excerpt: Excerpt
    soundfont: Path | None = None
    loudness: float = LOUDNESS_LUFS
    """Of the audio, in LUFS."""


class Savers:
    """Writes the files of clips to a folder, with a bounded number of clips in memory."""

    def __init__(self, folder: Path, folders: Sequence[str], *, audio: bool) -> None:
        self._folder, self._folders = folder, folders
        processes = min(os.cpu_count() or 1, MOST_PROCESSES) if audio else 0
        self._pool = None
        if processes:
            spawn = multiprocessing.get_context("spawn")  # forking a process with threads may hang
            self._pool = ProcessPoolExecutor(processes, spawn, end_with_parent)
        self._most = 1 + processes * (1 + WAITING_FOR_EACH)
        self._rows: dict[Future[Row], Row] = {}

    def __len__(self) -> int:
        """Return the number of clips whose rows have not been taken."""
        return len(self._rows)

    @property
    def full(self) -> bool:
        """Whether rows must be taken before more clips are put in."""
        return len(self._rows) >= self._most

    def put(self, row: Row, files: ClipFiles) -> None:
        """Write the files that a row names, in another process if there is audio."""
        future: Future[Row] = Future()
        work = self._folder, row, files
        try:
            if self._pool is None:
                future.set_result(save_clip(*work))
            else:
                with _blocked(signal.SIGINT):  # the main process handles it
                    future = self._pool.submit(save_clip, *work)
        except Exception as error:  # noqa: BLE001 - raised when the row is taken
            future.set_exception(error)
        self._rows[future] = row

    def take(self, seconds: float = 0.0) -> list[tuple[Row, Future[Row]]]:
        """Remove and return the finished rows, with their results.

        If there are none, waits at most `seconds` for the first one.
        """
        finished = wait(self._rows, seconds, FIRST_COMPLETED).done
        return [(self._rows.pop(future), future) for future in finished if not future.cancelled()]

    def discard_queue(self) -> None:
        """Remove the clips in the queue, so that only those being rendered are left."""
        for future in [future for future in self._rows if future.cancel()]:
            del self._rows[future]

    def kill(self) -> None:
        """End the processes at once; the clips that they were rendering fail."""
        if self._pool is not None:
            for process in multiprocessing.active_children():
                process.kill()

    def close(self) -> None:
        """Wait for files that are being written, and discard clips in the queue.

        A signal is handled afterwards: an exception while the pool ends could leave it waiting
        forever.
        """
        if self._pool is not None:
            with _blocked(signal.SIGINT, signal.SIGTERM):
                self._pool.shutdown(cancel_futures=True)
            for name in self._folders:  # a process may have been killed
                remove_parts(self._folder / name)

    def remove_files(self, row: Row) -> None:
        """Remove the files of a clip that may be incomplete."""
        for name in filter(None, (row.file, row.audio)):
            (self._folder / name).unlink(missing_ok=True)


def save_clip(folder: Path, row: Row, files: ClipFiles) -> Row:
    """Write a clip's MIDI file and, if the row names one, its audio file: both, or neither.

    Audio is rendered by the built-in player, which gives the same samples on every machine. Returns
    the row with the loudness and the hashes.

    Raises:
        SoundError: the audio cannot be rendered.
        OSError: a file cannot be written.
    """
    with atomic_write(folder / row.file) as midi:
        midi.write_bytes(files.midi)
        row = replace(row, midi_sha256=sha256_of(midi))
        if row.audio:
            from app.audio.render import render_clip, save_audio

            excerpt = files.excerpt
            sound = render_clip(
                excerpt.score,
                excerpt.begin_seconds,
                excerpt.begin_seconds + excerpt.seconds,
                soundfont=files.soundfont,
                lufs=files.loudness,
            )
            with atomic_write(folder / row.audio) as audio:
                try:
                    save_audio(sound, audio)
                except SoundError as error:
                    raise OSError(str(error)) from error
                sha256, loudness = sha256_of(audio), f"{sound.loudness:.2f}"
                row = replace(row, audio_sha256=sha256, loudness=loudness)
    return row


@contextmanager
def _blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Block signals in this thread, which receives them afterwards, and in processes started here.

    Ctrl+C reaches all processes of a terminal.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """End this process when its parent process ends, and not by signals to the parent's group.

    A pool whose processes end by a signal while their work is cancelled prints a traceback.
    """
    if hasattr(os, "setpgid"):  # not on Windows
        os.setpgid(0, 0)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
