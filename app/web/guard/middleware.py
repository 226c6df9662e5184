"""The middleware in front of the page: every request passes it before Gradio sees it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import cookie_parser

from app.errors import DiskError
from app.player.assets import Modules
from app.web.guard.answers import Policy, Send, Sent, answer, error, respond
from app.web.guard.bodies import Body, Receive, receive_again, too_large
from app.web.guard.hosts import Hosts
from app.web.guard.limits import (
    LOGIN_SECONDS,
    MAX_LOGINS,
    UPLOAD_SECONDS,
    UPLOADS,
    Recent,
    address_of,
)
from app.web.guard.refused import RefusedError
from app.web.guard.routes import Route

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FAILED = "The call failed; see the program's log."
HEALTH = "/healthz"
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
"""Headers of a module or SoundFont, whose address changes with its content."""
_TYPES = {".js": "text/javascript; charset=utf-8", ".sf2": "application/octet-stream"}
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
_log = logging.getLogger(__name__)


class Guard:
    """ASGI middleware around a page's server.

    In this order, it checks the host and the origin of a request, its route, the login, the size
    of its body and what a call names; and it adds security headers to the answer. Slow clients,
    the number of connections and the rate of requests are left to a proxy.
    """

    def __init__(
        self,
        app: App,
        *,
        route_of: Callable[[str, str], Route],
        is_known: Callable[[Mapping[str, str]], bool],
        health: Callable[[], Mapping[str, object]],
        hosts: Hosts,
        policy: Policy,
        modules: Sequence[Modules],
        check_call: Callable[[bytes], None] = lambda _: None,
        max_upload_bytes: int = 0,
        root_path: str = "",
        make_room: Callable[[], object] = lambda: None,
        cookie_of: Callable[[str, str], str | None] = lambda *_: None,
    ) -> None:
        """Put a guard in front of `app`.

        Args:
            app: the page's server.
            route_of: returns the route of a method and a path, or raises RefusedError.
            is_known: whether cookies are those of a login, or the page needs none.
            health: returns the state of the page; it needs no login.
            hosts: the names under which the page is served.
            policy: the Content-Security-Policy of the page.
            modules: JavaScript of the page, and the SoundFont of its synthesizer.
            check_call: raises RefusedError if the body of a call is malformed.
            max_upload_bytes: maximum size of an uploaded file.
            root_path: the page's path behind a proxy, which may be part of paths.
            make_room: called before a file is uploaded.
            cookie_of: returns the cookie of a login with an account and its password, or None.
        """
        self.app, self.route_of, self.is_known, self.health = app, route_of, is_known, health
        self.hosts, self.check_call, self.make_room = hosts, check_call, make_room
        self.cookie_of = cookie_of
        self.passwords = Recent(MAX_LOGINS, LOGIN_SECONDS)
        self.uploads = Recent(UPLOADS * max_upload_bytes, UPLOAD_SECONDS)
        self._policy, self._modules, self._root = policy, modules, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to the page."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"].removeprefix(self._root) or "/"
        headers = MutableHeaders(raw=scope["headers"])
        zipped = "gzip" in headers.get("accept-encoding", "")
        sent = Sent(send, self._policy, zipped=zipped)
        body, route = Body(receive, 0), Route()
        try:
            self.hosts.check(method, path, headers)
            if method in {"GET", "HEAD"} and await self._answer(path, send, zipped=zipped):
                return
            route = self.route_of(method, path)
            if not (route.is_public or self.is_known(cookie_parser(headers.get("cookie", "")))):
                self._log_in(headers, address_of(scope.get("client")))
            if path == "/":
                del headers["accept-encoding"]  # the guard reads the page
            size = int(headers.get("content-length", route.most_bytes))
            if size > route.most_bytes:
                raise too_large(route.most_bytes)
            body = Body(receive, size)
            await self._pass(scope, body, sent, route)
            await sent.end()
        except RefusedError as refused:
            if sent.begun:
                raise  # the connection is closed
            wait = refused.retry_after
            more = {} if wait is None else {"Retry-After": f"{max(1, round(wait))}"}
            if method == "POST":  # the body may be longer than what is read of it
                await body.discard()
                more["Connection"] = "close"
            if route.kind == "upload":  # the page shows all of the answer
                await respond(send, refused.status, str(refused).encode(), _TEXT | more)
                return
            await answer(send, refused.status, error(str(refused)), more)
        except Exception:
            if sent.begun:
                raise
            _log.exception("a request failed")
            await answer(send, 400, error(FAILED))

    def _log_in(self, headers: MutableHeaders, address: str) -> None:
        """Replace account and password of HTTP's Basic authentication by the cookie of a login.

        Raises RefusedError if there are none, or they are wrong.
        """
        kind, _, words = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            raise RefusedError(401, "found no login, expected one; log in first")
        self._check_password(address)
        try:
            account, _, password = base64.b64decode(words).decode().partition(":")
        except ValueError:
            account = password = ""
        cookie = self.cookie_of(account, password)
        if cookie is None:
            raise RefusedError(401, "account or password is wrong; log in with others")
        self.passwords.add(address, -1)
        del headers["authorization"]
        headers["cookie"] = cookie

    def _check_password(self, address: str) -> None:
        """Count a password. Raises RefusedError if there were too many wrong ones."""
        self.passwords.check(address, f"found {MAX_LOGINS} wrong passwords within a minute")
        self.passwords.add(address)

    async def _answer(self, path: str, send: Send, *, zipped: bool) -> bool:
        """Answer a health check, or a request for a module; return whether it was one."""
        if path == HEALTH:
            await answer(send, 200, self.health())
            return True
        for modules in self._modules:
            module = modules.at(path)
            if module is not None:
                kind = {"Content-Type": _TYPES[PurePosixPath(path).suffix]} | _FOREVER
                if zipped and path.endswith(".js"):
                    kind |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
                    module = gzip.compress(module)
                await respond(send, 200, module, kind)
                return True
        return False

    async def _pass(self, scope: Scope, body: Body, sent: Sent, route: Route) -> None:
        """Pass a request to the page, if its address is within the limits."""
        address = address_of(scope.get("client"))
        if route.kind in ("upload", "program"):
            self.uploads.check(address, f"found over {self.uploads.most:,} bytes of uploads")
            self.uploads.add(address, body.most_bytes)  # also those in progress count
            try:
                await asyncio.to_thread(self.make_room)
                await self.app(scope, body, sent)
            except OSError as caught:
                _log.warning("an uploaded file was not stored: %s", caught.strerror)
                raise RefusedError(507, str(DiskError(caught, "file"))) from caught
            finally:
                self.uploads.add(address, body.size - body.most_bytes)
            return
        if route.kind == "login":
            self._check_password(address)
        read = await body.read() if scope["method"] == "POST" else b""
        if route.kind == "call":
            self.check_call(read)
        await self.app(scope, receive_again(read, body), sent)
        if route.kind == "login" and sent.status == 200:
            self.passwords.add(address, -1)
