"""The listeners of a study and their answers, in a database; each answer is written at once.

A write is on the disk when it returns: SQLite's write-ahead log is synchronised after each, so that
neither a killed program nor a power cut loses an answer that was acknowledged.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from app.batch.manifest import write_table
from app.errors import CommandError
from app.listening.answers import (
    CREATE,
    DATABASE,
    TABLE,
    Answer,
    read_answers,
    save_answer,
    select_answers,
    write_answers,
)
from app.listening.page.trials import Trial

LISTENERS = "listeners.csv"
_EXPORTED: tuple[str, ...] = ("listener", "joined_at", "completed_at", "completion_code")
"""Columns of the table of listeners."""
ABANDONED = timedelta(hours=3)
"""After this time without an answer, a new listener gets the trials of an unfinished one."""
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Of codes: no letters and digits that look alike."""
_CODE_LETTERS = 8
_CREATE_LISTENERS = """
CREATE TABLE IF NOT EXISTS listeners (
    listener TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    trials TEXT NOT NULL,
    position INTEGER NOT NULL,
    completion_code TEXT NOT NULL,
    joined_at TEXT NOT NULL,
    seen_at TEXT NOT NULL,
    completed_at TEXT NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Listener:
    """A listener, with the trials that were planned for them when they began."""

    code: str
    trials: tuple[Trial, ...]
    position: int
    """Number of the current trial, from 1; one more than there are trials at the end."""
    completion_code: str
    answers: dict[str, Answer]
    """Answers to the current trial, by question."""

    @property
    def trial(self) -> Trial | None:
        """The current trial; None at the end."""
        return self.trials[self.position - 1] if self.position <= len(self.trials) else None


class NoListenerError(Exception):
    """There is no listener with this code."""


class PastTrialError(Exception):
    """The trial is not the current one, or not all of its questions are answered."""


class Store:
    """The database of a study. Its methods may be called from several threads."""

    def __init__(self, folder: Path) -> None:
        """Open or create the database. Raises CommandError if it cannot be used."""
        self.folder = folder
        self._lock = threading.Lock()
        path = folder / DATABASE
        try:
            self._connection = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute(CREATE)
            self._connection.execute(_CREATE_LISTENERS)
        except sqlite3.Error as error:
            raise CommandError(
                f"{path}: the database of answers cannot be used ({error}); check the folder and "
                "its free space"
            ) from error

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _changes(self) -> Iterator[sqlite3.Connection]:
        """Run the block as a transaction, which is on the disk at its end."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def join(self, plan: Callable[[int], Sequence[Trial]], completion_code: str | None) -> str:
        """Add a listener and return their code.

        `plan` returns the trials of a listener by number. The number is the lowest that is free: no
        listener has it, or only listeners who gave up. So the trials of those who complete the test
        are balanced.
        """
        code, completion = _random_code(), completion_code or _random_code()
        with self._changes() as connection:
            abandoned_before = _now(-ABANDONED)
            taken = {
                number
                for (number,) in connection.execute(
                    "SELECT number FROM listeners WHERE completed_at != '' OR seen_at >= ?",
                    (abandoned_before,),
                )
            }
            number = next(number for number in count() if number not in taken)
            trials = json.dumps([asdict(trial) for trial in plan(number)])
            connection.execute(
                "INSERT INTO listeners VALUES (?, ?, ?, 1, ?, ?, ?, '')",
                (code, number, trials, completion, _now(), _now()),
            )
        return code

    def listener(self, code: str) -> Listener:
        """Return a listener by code. Raises NoListenerError if there is none."""
        with self._lock:
            return self._listener(code)

    def _listener(self, code: str) -> Listener:
        row = self._connection.execute(
            "SELECT trials, position, completion_code FROM listeners WHERE listener = ?", (code,)
        ).fetchone()
        if row is None:
            raise NoListenerError
        trials, position, completion_code = row
        of_trial = "WHERE listener = ? AND trial = ?"
        answers = select_answers(self._connection, of_trial, (code, position))
        return Listener(
            code,
            tuple(Trial(**trial) for trial in json.loads(trials)),
            position,
            completion_code,
            {answer.question: answer for answer in answers},
        )

    def answer(self, code: str, trial: int, make: Callable[[Trial, str], Answer]) -> None:
        """Write an answer to the current trial; `make` gets the trial and the time.

        Raises NoListenerError, PastTrialError, or an error of `make`.
        """
        with self._changes() as connection:
            listener = self._listener(code)
            if listener.trial is None or trial != listener.position:
                raise PastTrialError
            save_answer(connection, make(listener.trial, _now()))
            connection.execute(
                "UPDATE listeners SET seen_at = ? WHERE listener = ?", (_now(), code)
            )

    def advance(self, code: str, trial: int, questions: Callable[[Trial], Sequence[str]]) -> None:
        """End the current trial; `questions` returns those that must be answered.

        Does nothing if it has ended before. Raises NoListenerError or PastTrialError.
        """
        with self._changes() as connection:
            listener = self._listener(code)
            if trial == listener.position - 1:
                return
            if listener.trial is None or trial != listener.position:
                raise PastTrialError
            if not set(questions(listener.trial)) <= listener.answers.keys():
                raise PastTrialError
            completed = _now() if trial == len(listener.trials) else ""
            connection.execute(
                "UPDATE listeners SET position = ?, seen_at = ?, completed_at = ? "
                "WHERE listener = ?",
                (trial + 1, _now(), completed, code),
            )

    def counts(self) -> tuple[int, int]:
        """Return the numbers of listeners and of those who completed the test."""
        with self._lock:
            return self._connection.execute(
                "SELECT COUNT(*), COALESCE(SUM(completed_at != ''), 0) FROM listeners"
            ).fetchone()

    def export(self) -> None:
        """Write the tables of answers and listeners. Raises CommandError if it cannot."""
        with self._lock:
            columns = ", ".join(_EXPORTED)
            people = self._connection.execute(
                f"SELECT {columns} FROM listeners ORDER BY joined_at, listener"  # nosec B608 - its own
            ).fetchall()
        rows = (dict(zip(_EXPORTED, values, strict=True)) for values in people)
        try:
            write_answers(self.folder / TABLE, read_answers(self.folder))
            write_table(self.folder / LISTENERS, _EXPORTED, rows)
        except OSError as error:
            raise CommandError(
                f"{self.folder}: {error.strerror or error}; check its free space"
            ) from error


def _random_code() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LETTERS))


def _now(later: timedelta = timedelta(0)) -> str:
    """Return the time in UTC, in milliseconds."""
    now = datetime.now(UTC) + later
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
