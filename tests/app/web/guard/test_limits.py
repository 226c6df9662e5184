"""Limits for each address."""

from __future__ import annotations

import pytest

from app.web.guard import limits
from app.web.guard.limits import Limits, Recent, address_of
from app.web.guard.refused import RefusedError


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::/64"),
        (("testclient", 5), "testclient"),
        (None, ""),
    ],
)
def test_the_address_of_a_client(client, address):
    assert address_of(client) == address


def test_amounts_are_forgotten_after_a_while():
    now = [100.0]
    recent = Recent(10.0, lambda: now[0])
    recent.add("a", 3)
    now[0] += 4
    recent.add("a", 2)
    assert recent.of("a") == (5, 6.0)
    assert recent.of("b") == (0, 0.0)
    now[0] += 6
    assert recent.of("a") == (0, 0.0)
    recent.add("a", 1)
    assert recent.of("a") == (1, 10.0)


def test_a_number_of_addresses_is_remembered(monkeypatch):
    monkeypatch.setattr(limits, "MAX_ADDRESSES", 3)
    recent = Recent(10.0)
    for number in range(5):
        recent.add(str(number), 1)
    assert [recent.of(str(number))[0] for number in range(5)] == [0, 0, 1, 1, 1]


def test_requests_that_ended_no_longer_count(monkeypatch):
    monkeypatch.setattr(limits, "MAX_OPEN", 1)
    counted = Limits(100)
    for _ in range(3):
        with counted.request("a"), counted.request("b"), pytest.raises(RefusedError):
            counted.request("a").__enter__()
    assert not counted._open
