import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from app.errors import CommandError
from app.listening.answers import (
    COLUMNS,
    CREATE,
    DATABASE,
    TABLE,
    read_answers,
    save_answer,
    write_answers,
)
from tests.support import blind_studies

RATING = replace(blind_studies.RATING, trial=3)
PREFERENCE = replace(blind_studies.PAIR, trial=4, expected="second", repeats=3)


def test_table_and_database_have_the_answers_as_they_were_saved(tmp_path):
    """An answer that a listener changes replaces the earlier one."""
    write_answers(tmp_path / TABLE, [PREFERENCE, RATING])
    text = (tmp_path / TABLE).read_text()
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert read_answers(tmp_path) == [RATING, PREFERENCE]
    (tmp_path / TABLE).write_text(text.replace(",3,rating,", ",three,rating,"))
    with pytest.raises(CommandError, match="trial is 'three', expected a number"):
        read_answers(tmp_path)
    changed = replace(RATING, answer="1", seconds=30.0)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute(CREATE)
        for answer in (PREFERENCE, RATING, changed):
            save_answer(connection, answer)
    assert read_answers(tmp_path) == [changed, PREFERENCE]  # the table is a copy, which is not read


def test_an_answer_that_no_trial_can_have_is_refused():
    for answer, changes, problem in (
        (RATING, {"answer": "6"}, "answer is '6', expected one of 1, 2, 3, 4, 5"),
        (RATING, {"answer": "first"}, "answer is 'first'"),
        (RATING, {"kind": "test"}, "kind is 'test'"),
        (RATING, {"question": "beauty"}, "question is 'beauty'"),
        (RATING, {"second": "midi/b.mid"}, "found two clips"),
        (RATING, {"confidence": 3}, "found a confidence"),
        (PREFERENCE, {"second": ""}, "found one clip"),
        (PREFERENCE, {"confidence": None}, "found no confidence"),
        (PREFERENCE, {"confidence": 0}, "confidence is 0, expected 1 to 5"),
        (PREFERENCE, {"expected": "3"}, "expected is '3'"),
    ):
        with pytest.raises(ValueError, match=problem):
            replace(answer, **changes)


def test_other_files_are_refused(tmp_path):
    short_row = ",".join(COLUMNS).encode() + b"\nx,1\n"
    for name, content in (
        *((TABLE, data) for data in (b"a,b\n1,2\n", short_row, b"\xff\xfe")),
        (DATABASE, b"no database " * 100),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CommandError, match="these are not the answers of a listening test"):
            read_answers(tmp_path)
