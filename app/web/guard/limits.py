"""Limits for each address, so that one visitor cannot occupy the whole page."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.web.guard.refused import RefusedError

MAX_OPEN = 128
"""Maximum number of requests of an address at the same time; an open page has two."""
MAX_LOGINS = 5
LOGIN_SECONDS = 60.0
"""Passwords that an address may try within this time; a correct one does not count."""
UPLOADS = 25
UPLOAD_SECONDS = 600.0
"""Files of maximum size that an address may upload within this time."""
MAX_ADDRESSES = 10_000


class Limits:
    """What each address has used recently."""

    def __init__(self, max_upload_bytes: int) -> None:
        self._open: Counter[str] = Counter()
        self._logins = Recent(LOGIN_SECONDS)
        self._uploads = Recent(UPLOAD_SECONDS)
        self._max_uploaded = UPLOADS * max_upload_bytes

    @contextmanager
    def request(self, address: str) -> Iterator[None]:
        """Counts a request while it is open. Raises RefusedError if there are too many."""
        if self._open[address] >= MAX_OPEN:
            raise RefusedError(
                429,
                f"found {MAX_OPEN} open requests of this address, expected fewer; close some pages",
                retry_after=5,
            )
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def login(self, address: str) -> None:
        """Counts an attempt to log in. Raises RefusedError if there were too many."""
        used, seconds = self._logins.of(address)
        if used >= MAX_LOGINS:
            raise RefusedError(
                429,
                f"found {MAX_LOGINS} wrong passwords within a minute; try again in {seconds:.0f} s",
                retry_after=seconds,
            )
        self._logins.add(address, 1)

    def logged_in(self, address: str) -> None:
        """Forgets earlier attempts, after a correct password."""
        self._logins.forget(address)

    def upload(self, address: str, size: int) -> None:
        """Counts bytes that are uploaded. Raises RefusedError if there were too many."""
        used, seconds = self._uploads.of(address)
        if used + size > self._max_uploaded:
            raise RefusedError(
                429,
                f"found over {self._max_uploaded:,} bytes of uploads within ten minutes; try again "
                f"in {seconds:.0f} s",
                retry_after=seconds,
            )
        self._uploads.add(address, size)


class Recent:
    """Amounts that addresses have used within a time; the oldest are forgotten first."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._used: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: the start of its time, and the amount since then."""

    def of(self, address: str) -> tuple[int, float]:
        """The amount of an address, and the seconds until it is forgotten."""
        began, used = self._used.get(address, (0.0, 0))
        left = began + self._seconds - self._clock()
        return (used, left) if used and left > 0 else (0, 0.0)

    def add(self, address: str, amount: int) -> None:
        """Adds an amount."""
        used, _ = self.of(address)
        began = self._used[address][0] if used else self._clock()
        self._used[address] = began, used + amount
        self._used.move_to_end(address)
        while len(self._used) > MAX_ADDRESSES:
            self._used.popitem(last=False)

    def forget(self, address: str) -> None:
        """Forgets what an address has used."""
        self._used.pop(address, None)


def address_of(client: tuple[str, int] | None) -> str:
    """The address of a client; one user of IPv6 has all addresses of a /64 network."""
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
