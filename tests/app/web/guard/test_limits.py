"""Limits for each address."""

from __future__ import annotations

import pytest

from app.web.guard import limits
from app.web.guard.limits import Limits, Recent, address_of
from app.web.guard.refused import RefusedError


def test_a_user_of_ipv6_has_all_addresses_of_a_network():
    assert address_of(("10.0.0.1", 5)) == address_of(("::ffff:10.0.0.1", 5)) == "10.0.0.1"
    assert address_of(("2001:db8:1:2:3:4:5:6", 5)) == "2001:db8:1:2::/64"
    assert (address_of(("testclient", 5)), address_of(None)) == ("testclient", "")


def test_amounts_are_forgotten_after_a_while_and_the_oldest_addresses_first(monkeypatch):
    now = [100.0]
    recent = Recent(10.0, lambda: now[0])
    recent.add("a", 3)
    now[0] += 4
    recent.add("a", 2)
    assert (recent.of("a"), recent.of("b")) == ((5, 6.0), (0, 0.0))
    now[0] += 6
    assert recent.of("a") == (0, 0.0)
    recent.add("a", 1)
    assert recent.of("a") == (1, 10.0)
    monkeypatch.setattr(limits, "MAX_ADDRESSES", 3)
    for name in "bcad":
        recent.add(name, 1)
    assert [recent.of(name)[0] for name in "abcd"] == [2, 0, 1, 1]


def test_requests_that_ended_no_longer_count(monkeypatch):
    monkeypatch.setattr(limits, "MAX_OPEN", 1)
    counted = Limits(100)
    for _ in range(3):
        with counted.request("a"), counted.request("b"), pytest.raises(RefusedError) as refused:
            counted.request("a").__enter__()
        assert (refused.value.status, refused.value.retry_after) == (429, 5)
    assert not counted._open
