"""Which requests come from the page itself or from scripts, and not from other websites.

A website that a user has open can send requests to this server, and with a host name that it points
to this machine (DNS rebinding) even read the answers. Browsers say where a request comes from.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders

from app.web.guard.refused import RefusedError

LOCAL = ("localhost", "127.0.0.1", "::1")
_SITES_OF_PAGE = ("same-origin", "none")
"""Values of Sec-Fetch-Site of the page's requests, and of addresses that a user has typed."""
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/?#@\s]+)(:\d{1,5})?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Hosts:
    """The names under which the page is served.

    IP addresses are always allowed, since no website can claim one as its name.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = set(map(_normalize, (*LOCAL, *names)))

    @classmethod
    def of(cls, listening: str, allowed: Iterable[str], root_path: str) -> Hosts:
        """Return the names for an address to listen on, and those that the user allows."""
        everywhere = listening in ("0.0.0.0", "::", "[::]")
        machine = socket.gethostname()
        names = [machine, f"{machine}.local"] if everywhere else [listening]
        return cls([*names, *allowed, urlsplit(root_path).hostname or ""])

    def knows(self, host: str) -> bool:
        """Return whether a `Host` header names this page."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = _normalize(match["name"])
        return name in self._names or _is_address(name)

    def check(self, method: str, path: str, headers: MutableHeaders) -> None:
        """Remove the headers that are checked, so that nothing later relies on them.

        Raises:
            RefusedError: the request is for another host, or comes from another website.
        """
        host = headers.get("host", "")
        if not self.knows(host):
            raise RefusedError(
                421,
                f"found the host name {host[:100]!r}, expected one of this page; start it with "
                "--allow-host NAME to use another name",
            )
        forwarded = headers.get("x-forwarded-host")
        if forwarded is not None and self.knows(first := forwarded.partition(",")[0].strip()):
            host = headers["x-forwarded-host"] = first  # of a proxy that uses another name
        else:
            del headers["x-forwarded-host"]
        origin = headers.get("origin")
        if origin is not None and not _same(origin, host):
            raise RefusedError(403, "the request comes from another website, expected this page")
        site = headers.get("sec-fetch-site", "none")
        # a link on another website may open the page, but nothing else
        is_link = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if site not in _SITES_OF_PAGE and not is_link:
            raise RefusedError(403, "the request comes from another website, expected this page")
        del headers["origin"]


def _normalize(name: str) -> str:
    """Return a name in small letters, without brackets and the dot at its end."""
    return name.lower().strip("[]").rstrip(".")


def _same(origin: str, host: str) -> bool:
    """Return whether an origin is that of a host; the protocol may differ behind a proxy."""
    scheme, separator, authority = origin.lower().partition("://")
    default = _DEFAULT_PORTS.get(scheme)
    if not separator or default is None:
        return False  # null, or an extension
    return authority.removesuffix(default) == host.lower().removesuffix(default)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
