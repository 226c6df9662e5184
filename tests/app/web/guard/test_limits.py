"""Limits for each address."""

from __future__ import annotations

import pytest

from app.web.guard import limits
from app.web.guard.limits import Recent, address_of
from app.web.guard.refused import RefusedError


def test_a_user_of_ipv6_has_all_addresses_of_a_network():
    assert address_of(("10.0.0.1", 5)) == address_of(("::ffff:10.0.0.1", 5)) == "10.0.0.1"
    assert address_of(("2001:db8:1:2:3:4:5:6", 5)) == "2001:db8:1:2::/64"
    assert (address_of(("testclient", 5)), address_of(None)) == ("testclient", "")


def test_amounts_are_forgotten_after_a_while_and_the_oldest_addresses_first(monkeypatch):
    now = [100.0]
    recent = Recent(5, 10.0, lambda: now[0])

    def wait_of(address):
        """The seconds until an address may go on; 0 if it may now."""
        try:
            recent.check(address, "found much")
        except RefusedError as refused:
            return refused.retry_after
        return 0

    recent.add("a", 3)
    now[0] += 4
    assert wait_of("a") == 0
    recent.add("a", 2)
    assert (wait_of("a"), wait_of("b")) == (6.0, 0)
    with pytest.raises(RefusedError, match="found much; try again in 6 s") as refused:
        recent.check("a", "found much")
    assert refused.value.status == 429
    now[0] += 6
    assert wait_of("a") == 0
    recent.add("a", 5)
    assert wait_of("a") == 10.0
    recent.add("a", -1)
    assert wait_of("a") == 0
    recent.add("a", -9)
    recent.add("a", 5)
    monkeypatch.setattr(limits, "MAX_ADDRESSES", 3)
    for name in "bcad":
        recent.add(name, 5)
    assert [wait_of(name) for name in "abcd"] == [10.0, 0, 10.0, 10.0]
