"""The files of clips, written while others are composed; sound is made in other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from app.audio.synth.soundfont import SoundError
from app.batch.manifest import NAME, Row, sha256_of
from app.errors import CommandError
from app.files import appearing, check_folder, remove_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from app.compose.piece import Piece
    from tokenization.score import Score

FOLDERS = ("midi", "audio")
MOST_PROCESSES = 4
"""For sound: more would wait for the model, and each takes up to 400 MB."""
WAITING_FOR_EACH = 2
"""Pieces that wait for a process at most: then the writing waits as well."""


def make_folders(output: Path, *, audio: bool) -> None:
    """The folders of a batch, without what a killed process has left half-written.

    Raises CommandError where they cannot be made or written in.
    """
    try:
        for folder in (output, *(output / name for name in FOLDERS[: 1 + audio])):
            folder.mkdir(parents=True, exist_ok=True)
            check_folder(folder)
            remove_parts(folder)
    except OSError as error:
        raise CommandError(
            f"--output {output}: {error.strerror or error}; choose another folder"
        ) from error


def refuse_unlisted(output: Path) -> None:
    """Raises CommandError where the folders of a batch without manifest hold files."""
    for name in FOLDERS:
        if found := sorted((output / name).glob("[!.]*")):
            raise CommandError(
                f"--output {output}: {name} holds {found[0].name}, which no {NAME} lists; "
                "choose another folder, or move what is there away"
            )


@contextmanager
def alone_in(output: Path) -> Iterator[None]:
    """Keeps other batches out of a folder. Raises CommandError where there is one at work.

    The lock file stays: of two who try while it is removed, each could hold a file of its own.
    """
    lock = FileLock(output / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise CommandError(
            f"--output {output}: another relpe batch is writing there; wait for its end, or choose "
            "another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


class Savers:
    """Writes the files of clips in a folder, and holds only so many of them in memory."""

    def __init__(self, folder: Path, *, audio: bool) -> None:
        self._folder = folder
        processes = min(os.cpu_count() or 1, MOST_PROCESSES) if audio else 0
        self._pool = None
        if processes:
            spawn = multiprocessing.get_context("spawn")  # a fork of many threads may hang
            self._pool = ProcessPoolExecutor(processes, spawn, _end_with_parent)
        self._most = 1 + processes * (1 + WAITING_FOR_EACH)
        self._rows: dict[Future[Row], Row] = {}

    def __len__(self) -> int:
        """Clips whose files are not written, or not taken yet."""
        return len(self._rows)

    @property
    def full(self) -> bool:
        """Whether no more should be put in before some are taken."""
        return len(self._rows) >= self._most

    def put(self, row: Row, piece: Piece) -> None:
        """Writes the files that a row names, some time."""
        if self._pool is None:
            future: Future[Row] = Future()
            try:
                future.set_result(save_clip(self._folder, row, piece.midi, piece.score))
            except Exception as error:  # noqa: BLE001 - whoever takes the row gets it
                future.set_exception(error)
        else:
            future = self._submit(row, piece)
        self._rows[future] = row

    def _submit(self, row: Row, piece: Piece) -> Future[Row]:
        assert self._pool is not None
        try:
            with _unheard(signal.SIGINT):
                return self._pool.submit(save_clip, self._folder, row, piece.midi, piece.score)
        except BrokenProcessPool as error:
            future: Future[Row] = Future()
            future.set_exception(error)
            return future

    def take(self, seconds: float = 0.0) -> list[tuple[Row, Future[Row]]]:
        """Rows whose work is over, each once, and what came of it.

        Waits for the first one, no longer than so many seconds.
        """
        over = wait(self._rows, seconds, FIRST_COMPLETED).done
        return [(self._rows.pop(future), future) for future in over if not future.cancelled()]

    def close(self) -> None:
        """Waits for the files that are being written; those that are not begun are left."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            for name in FOLDERS:  # a process may have been killed
                remove_parts(self._folder / name)


def save_clip(folder: Path, row: Row, midi: bytes, score: Score) -> Row:
    """Writes a clip's MIDI file, and its sound where the row names it: both, or none.

    The player is the built-in one, which gives the same samples on every machine. Returns the row
    with the hashes. Raises SoundError where there can be no sound, OSError where a file cannot be
    written.
    """
    with appearing(folder / row.file) as beside:
        beside.write_bytes(midi)
        row = replace(row, midi_sha256=sha256_of(beside))
        if row.audio:
            from app.audio.render import render, save_audio

            sound = render(score, renderer="builtin")
            with appearing(folder / row.audio) as audio:
                try:
                    save_audio(sound, audio)
                except SoundError as error:
                    raise OSError(str(error)) from error
                row = replace(row, audio_sha256=sha256_of(audio))
    return row


@contextmanager
def _unheard(number: signal.Signals) -> Iterator[None]:
    """Processes that begin here never hear a signal; this thread hears it afterwards.

    Ctrl+C goes to all processes of a terminal, and is this one's to answer.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """Lets a process end when the one that began it is killed, and could not tell it."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
