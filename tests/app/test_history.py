"""What the page remembers of those who have it open."""

from __future__ import annotations

from app import history
from app.history import Sessions


def test_those_who_were_away_longest_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(history, "MOST_SESSIONS", 3)
    sessions = Sessions()
    first = {name: sessions.of(name) for name in "abc"}
    assert sessions.of("a") is first["a"]
    sessions.of("d")
    assert sessions.of("a") is first["a"]
    assert sessions.of("b") is not first["b"]
    sessions.leave("a")
    assert sessions.of("a") is first["a"]
