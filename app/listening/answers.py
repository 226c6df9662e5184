"""The answers of a listening test: their columns, their database and their table.

While listeners answer, `answers.sqlite` in the folder of the study is the only place of the
answers; `answers.csv` is a copy of it.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from app.batch.listening import Question
from app.batch.manifest import write_table
from app.errors import CommandError

DATABASE = "answers.sqlite"
TABLE = "answers.csv"

Kind = Literal["training", "rating", "preference"]
"""The kind of a trial: practice, a clip that is rated, or a pair of which one is chosen."""
QUESTIONS: tuple[Question, ...] = get_args(Question)
"""The questions about a clip, of the MIREX task, answered from 1 to 5."""
PREFERENCE = "preference"
"""The question about a pair, answered by `first` or `second`."""
LEAST, MOST = 1, 5
"""Range of ratings and confidences."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer; its fields are the columns of the table.

    Raises ValueError for an answer that no trial can have.
    """

    listener: str
    """Random code of the listener."""
    trial: int
    """1, 2, …, in the order in which this listener did the trials."""
    kind: Kind
    question: str
    """One of `QUESTIONS`, or `PREFERENCE`."""
    first: str
    """The clip, as its `file` in the manifest; of a pair, the one presented as A."""
    second: str = ""
    """The clip presented as B; empty for ratings."""
    answer: str
    """1 to 5; for preferences `first` or `second`."""
    confidence: int | None = None
    """1 to 5; only of preferences."""
    heard_first: float
    """Seconds for which the first clip was played before the answer."""
    heard_second: float | None = None
    seconds: float
    """Time from the beginning of the trial to the answer."""
    expected: str = ""
    """The answer of an attentive listener; only of attention trials."""
    repeats: int | None = None
    """Number of the trial that this one repeats."""
    answered_at: str
    """UTC, in the form of ISO 8601."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            expected = ", ".join(get_args(Kind))
            raise ValueError(f"kind is {self.kind!r}, expected one of {expected}")
        if self.question not in (*QUESTIONS, PREFERENCE):
            expected = ", ".join((*QUESTIONS, PREFERENCE))
            raise ValueError(f"question is {self.question!r}, expected one of {expected}")
        of_pair = self.question == PREFERENCE
        ratings = tuple(str(number) for number in range(LEAST, MOST + 1))
        choices = ("first", "second") if of_pair else ratings
        for name, value in (("answer", self.answer), ("expected", self.expected or choices[0])):
            if value not in choices:
                raise ValueError(f"{name} is {value!r}, expected one of {', '.join(choices)}")
        if of_pair != bool(self.second):
            part = "one clip" if of_pair else "two clips"
            raise ValueError(f"found {part} for the question {self.question}")
        if of_pair != (self.confidence is not None):
            part = "no confidence" if of_pair else "a confidence"
            raise ValueError(f"found {part} for the question {self.question}")
        if self.confidence is not None and not LEAST <= self.confidence <= MOST:
            raise ValueError(f"confidence is {self.confidence}, expected {LEAST} to {MOST}")


COLUMNS = tuple(field.name for field in fields(Answer))
_WHOLE = ("trial", "confidence", "repeats")
_SECONDS = ("heard_first", "heard_second", "seconds")

_TYPES = dict.fromkeys(COLUMNS, "TEXT") | dict.fromkeys(_WHOLE, "INTEGER")
_TYPES |= dict.fromkeys(_SECONDS, "REAL")
CREATE = f"""
CREATE TABLE IF NOT EXISTS answers (
    {", ".join(f"{name} {kind}" for name, kind in _TYPES.items())},
    PRIMARY KEY (listener, trial, question)
) WITHOUT ROWID
"""
"""Makes the table of the database; an answer that a listener changes replaces the earlier one."""


def save_answer(connection: sqlite3.Connection, answer: Answer) -> None:
    """Write an answer to the database, in place of an earlier one to the same question."""
    marks = ", ".join("?" * len(COLUMNS))
    connection.execute(f"INSERT OR REPLACE INTO answers VALUES ({marks})", astuple(answer))


def read_answers(folder: Path) -> list[Answer]:
    """Return the answers in the folder of a study: of its database, or else of its table.

    They are sorted by listener, trial and question. Raises CommandError if there are no such files,
    or if they cannot be read.
    """
    database, table = folder / DATABASE, folder / TABLE
    path = database if database.exists() else table
    try:
        answers = _of_database(path) if path == database else _of_table(path)
        return sorted(answers, key=lambda one: (one.listener, one.trial, one.question))
    except FileNotFoundError as error:
        raise CommandError(
            f"{folder}: found neither {DATABASE} nor {TABLE}, expected the answers of a listening "
            "test; make them with relpe listen"
        ) from error
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, csv.Error, sqlite3.Error) as error:
        raise CommandError(
            f"{path}: these are not the answers of a listening test ({error}), expected the "
            f"columns {', '.join(COLUMNS)}"
        ) from error


def write_answers(path: Path, answers: Iterable[Answer]) -> None:
    """Write the table atomically. Raises OSError if it cannot be written."""
    write_table(path, COLUMNS, (asdict(answer) for answer in answers))


def select_answers(
    connection: sqlite3.Connection, condition: str = "", values: Sequence[object] = ()
) -> list[Answer]:
    """Return the answers in the database, or those that meet a condition of SQL."""
    # the text is the program's own; what people send is among the values
    rows = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM answers {condition}",  # nosec B608
        values,
    )
    return [Answer(**dict(zip(COLUMNS, row, strict=True))) for row in rows]


def _of_database(path: Path) -> list[Answer]:
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        return select_answers(connection)


def _of_table(path: Path) -> list[Answer]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"found the columns {', '.join(reader.fieldnames or ())}")
        return [Answer(**{name: _value(name, row[name]) for name in COLUMNS}) for row in reader]


def _value(name: str, text: str | None) -> Any:  # noqa: ANN401 - as the field of `Answer`
    if text is None:
        raise ValueError(f"a row has no {name}")
    if name not in (*_WHOLE, *_SECONDS):
        return text
    try:
        kind = int if name in _WHOLE else float
        return kind(text) if text else None
    except ValueError:
        raise ValueError(f"{name} is {text!r}, expected a number") from None
