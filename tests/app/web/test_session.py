"""Sessions of pages that are closed and opened again."""

from __future__ import annotations

import pytest

from app.player.frames import Frame
from app.web import session as history
from app.web.session import Sessions, Step


def test_the_least_recently_used_sessions_are_dropped_first(monkeypatch):
    monkeypatch.setattr(history, "MOST_SESSIONS", 3)
    sessions = Sessions()
    first = {name: sessions.of(name) for name in "abc"}
    assert sessions.of("a") is first["a"]
    sessions.of("d")
    assert sessions.of("a") is first["a"]
    assert sessions.of("b") is not first["b"]
    sessions.leave("a")
    assert sessions.of("a") is first["a"]


TOKENS = ["0" * 31 + digit for digit in "0123456789abcdef"]


@pytest.fixture
def sessions():
    return Sessions()


def test_a_page_that_was_left_continues_in_its_tab_of_the_browser(sessions):
    assert sessions.adopt("a", "", TOKENS[0]) is None  # the first page of a tab
    mine = sessions.of("a")
    sessions.leave("a")
    assert sessions.adopt("b", TOKENS[0], TOKENS[1]) is mine
    assert sessions.of("b") is mine
    assert sessions.of("a") is not mine
    sessions.leave("c")  # a script, which never opened the page


def test_a_session_has_one_page_at_a_time(sessions):
    sessions.adopt("a", "", TOKENS[0])
    mine = sessions.of("a")
    assert sessions.adopt("b", TOKENS[0], TOKENS[1]) is None  # a duplicated tab
    sessions.leave("a")
    for guess in ("", TOKENS[5], TOKENS[0][:-1], TOKENS[0] + "0", "ä", TOKENS[1]):
        assert sessions.adopt("c", guess, TOKENS[2]) is None
    assert sessions.adopt("c", TOKENS[0], TOKENS[3]) is mine
    sessions.leave("c")
    assert sessions.adopt("d", TOKENS[0], TOKENS[4]) is None  # a token is valid once


def test_a_token_that_can_be_guessed_or_is_old_is_ignored(sessions, monkeypatch):
    for weak in ("", "0", "x" * 32, "0" * 33, "0" * 31 + "\n"):
        sessions.adopt("a", "", weak)
        sessions.leave("a")
        assert sessions.adopt("b", weak, TOKENS[1]) is None
    sessions.adopt("a", "", TOKENS[0])
    sessions.leave("a")
    monkeypatch.setattr(history, "LEFT_SECONDS", -1.0)
    assert sessions.adopt("b", TOKENS[0], TOKENS[1]) is None


def steps(sizes):
    """Steps whose frames have texts of these sizes."""
    return [Step(None, Frame(phase="prompt", line="x" * size)) for size in sizes]


def test_sessions_drop_their_earliest_steps_if_they_take_too_much_memory(monkeypatch, sessions):
    monkeypatch.setattr(history, "MOST_BYTES_OF_SESSION", 3_000_000)
    session = sessions.of("a")
    for step in steps([1_000_000] * 5):
        session.work.go(step)
        sessions.trim(session)
    assert [len(step.frame.get("line", "")) for step in session.work.past] == [1_000_000]
    assert session.work.frame.get("line") == "x" * 1_000_000
    assert session.size <= 3_000_000
    session.work.go(*steps([5_000_000]))  # what is shown is kept
    sessions.trim(session)
    assert not session.work.past
    assert session.work.frame.get("line") == "x" * 5_000_000
    # all sessions together have a limit, which scripts with many sessions could reach
    monkeypatch.setattr(history, "MOST_BYTES", 4_000_000)
    for number in range(10):
        session = sessions.of(str(number))
        session.work.go(*steps([1_000_000]))
        sessions.trim(session)
    assert sum(each.size for each in sessions._sessions.values()) <= 4_000_000
    assert sessions.of("9").work.frame.get("line")
    assert not sessions.of("0").work.frame.get("line")
