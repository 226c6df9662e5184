"""Limits for each address, so that one visitor cannot occupy the whole page."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from app.web.guard.refused import RefusedError

MAX_LOGINS, LOGIN_SECONDS = 5, 60.0
"""Passwords that an address may try within this time; a correct one does not count."""
UPLOADS, UPLOAD_SECONDS = 25, 600.0
"""Files of maximum size that an address may upload within this time."""
MAX_ADDRESSES = 10_000


class Recent:
    """Amounts that addresses have used within a time; the oldest are forgotten first."""

    def __init__(
        self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most = most
        """Amount after which `check` refuses an address."""
        self._seconds, self._clock = seconds, clock
        self._used: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: the start of its time, and the amount since then."""

    def check(self, address: str, complaint: str) -> None:
        """Raise RefusedError if an address has used up its amount."""
        began, used = self._current(address)
        if used >= self.most:
            left = began + self._seconds - self._clock()
            raise RefusedError(429, f"{complaint}; try again in {left:.0f} s", retry_after=left)

    def add(self, address: str, amount: int = 1) -> None:
        """Add an amount, or give one back that is negative."""
        began, used = self._current(address)
        self._used[address] = began, max(used + amount, 0)
        self._used.move_to_end(address)
        while len(self._used) > MAX_ADDRESSES:
            self._used.popitem(last=False)

    def _current(self, address: str) -> tuple[float, int]:
        now = self._clock()
        began, used = self._used.get(address, (now, 0))
        return (began, used) if now < began + self._seconds else (now, 0)


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address of a client; one user of IPv6 has all addresses of a /64 network."""
    host = client[0] if client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host[:100]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host
