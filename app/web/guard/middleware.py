"""The middleware in front of the page: every request passes it before Gradio sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from starlette.datastructures import MutableHeaders
from starlette.requests import cookie_parser

from app.errors import DiskError
from app.player.assets import Modules
from app.web.guard.answers import Policy, Send, Sent, answer, error, respond
from app.web.guard.bodies import Body, Incoming, Receive, again, too_large
from app.web.guard.failures import FAILED, described
from app.web.guard.hosts import Hosts
from app.web.guard.limits import Limits, address_of
from app.web.guard.refused import RefusedError
from app.web.guard.routes import API, Route

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH = "/healthz"
_FOREVER = {
    "Content-Type": "text/javascript; charset=utf-8",
    "Cache-Control": "public, max-age=31536000, immutable",
}
"""Headers of a module, whose address changes with its content."""
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
_log = logging.getLogger(__name__)


class Routes(Protocol):
    """The routes of a page."""

    def at(self, method: str, path: str) -> Route:
        """The route of a request. Raises RefusedError if there is none."""
        ...


class Calls(Protocol):
    """Checks of requests that may use a route."""

    def check(self, route: Route, body: bytes) -> None:
        """Raises RefusedError for a malformed call."""
        ...

    def check_stream(self, path: str, query: bytes) -> None:
        """Raises RefusedError for the stream of an unknown session."""
        ...


class Logins(Protocol):
    """Who has logged in."""

    cookie_id: str
    tokens: dict[str, str]

    @property
    def auth(self) -> object:
        """The accounts; None if the page needs no login."""
        ...


class Guard:
    """ASGI middleware around a page's server.

    In this order, it checks the host and the origin of a request, its route, the limits of its
    address, the login, and the size, deadline and shape of its body; and it adds security headers
    to the answer.
    """

    def __init__(
        self,
        app: App,
        *,
        routes: Routes,
        calls: Calls,
        logins: Logins,
        health: Callable[[], Mapping[str, object]],
        hosts: Hosts,
        policy: Policy,
        modules: Sequence[Modules],
        max_upload_bytes: int = 0,
        root_path: str = "",
        make_room: Callable[[], object] = lambda: None,
    ) -> None:
        """Puts a guard in front of `app`.

        Args:
            app: the page's server.
            routes: the routes that may be used.
            calls: the calls of the page.
            logins: knows whose cookie is valid.
            health: returns the state of the page; it needs no login.
            hosts: the names under which the page is served.
            policy: the Content-Security-Policy of the page.
            modules: JavaScript of the page.
            max_upload_bytes: maximum size of an uploaded file.
            root_path: the page's path behind a proxy, which may be part of paths.
            make_room: called before a file is uploaded.
        """
        self.app, self.calls, self.logins, self.health = app, calls, logins, health
        self.hosts, self.make_room = hosts, make_room
        self.routes, self.limits = routes, Limits(max_upload_bytes)
        self._policy, self._modules = policy, modules
        self._root = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it to the page."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page uses no WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return
        method, path = scope["method"], scope["path"].removeprefix(self._root) or "/"
        headers = MutableHeaders(raw=scope["headers"])
        zipped = "gzip" in headers.get("accept-encoding", "")
        sent, route = Sent(send, zipped=zipped, policy=self._policy), Route()
        receive = Incoming(receive)
        try:
            self.hosts.check(method, path, headers)
            if method in {"GET", "HEAD"} and await self._own(method, path, send):
                return
            route = self.routes.at(method, path)
            address = address_of(scope.get("client"))
            with self.limits.request(address):
                await self._pass(scope, receive, sent, headers, route, address)
            await sent.end()
        except RefusedError as refused:
            if sent.begun:
                raise  # the connection is closed
            wait = refused.retry_after
            more = {} if wait is None else {"Retry-After": f"{max(1, round(wait))}"}
            if method == "POST":  # the body may be longer than what is read of it
                await receive.discard(headers.get("content-length", ""))
                more["Connection"] = "close"
            if route.is_upload:  # the page shows all of the answer
                await respond(send, refused.status, str(refused).encode(), _TEXT | more)
                return
            await answer(send, refused.status, error(str(refused)), headers=more)
        except Exception as caught:
            if sent.begun:
                raise
            # without the rest of the path, which may name files and sessions
            name = path.partition(API)[2].split("/")[0].partition("=")[0]
            _log.warning("%s %.40s: %s", method, name or "/", described(caught))
            await answer(send, 400, error(FAILED))

    async def _own(self, method: str, path: str, send: Send) -> bool:
        """Answers a health check, or a request for a module; returns whether it was one."""
        if path == HEALTH:
            await answer(send, 200, self.health(), body=method == "GET")
            return True
        for modules in self._modules:
            module = modules.at(path)
            if module is not None:
                await respond(send, 200, module, _FOREVER, body=method == "GET")
                return True
        return False

    async def _pass(
        self,
        scope: Scope,
        receive: Receive,
        sent: Sent,
        headers: MutableHeaders,
        route: Route,
        address: str,
    ) -> None:
        """Passes a request to the page, if it may use this route and its body is well formed."""
        path = scope["path"].removeprefix(self._root) or "/"
        if not (route.is_public or self._is_known(headers)):
            raise RefusedError(401, "found no login, expected one; log in first")
        if path == "/":
            del headers["accept-encoding"]  # the guard reads the page
        if scope["method"] != "POST":
            self.calls.check_stream(path, scope["query_string"])
            await self.app(scope, receive, sent)
            return
        with suppress(ValueError):
            if int(headers.get("content-length", "0")) > route.most_bytes:
                raise too_large(route.most_bytes)
        if route.is_upload:
            await asyncio.to_thread(self.make_room)
            count = partial(self.limits.upload, address)
            try:
                await self.app(scope, Body(receive, route.most_bytes, count), sent)
            except OSError as caught:
                _log.warning("an uploaded file was not stored: %s", described(caught))
                raise RefusedError(507, str(DiskError(caught, "file"))) from caught
            return
        if route.is_login:
            self.limits.login(address)
        body = await Body(receive, route.most_bytes).read()
        if route.call:
            self.calls.check(route, body)
        await self.app(scope, again(body, receive), sent)
        if route.is_login and sent.status == 200:
            self.limits.logged_in(address)

    def _is_known(self, headers: MutableHeaders) -> bool:
        """Whether a request has the cookie of a login, or the page needs none."""
        if self.logins.auth is None:
            return True
        cookies = cookie_parser(headers.get("cookie", ""))
        names = (f"access-token-{kind}{self.logins.cookie_id}" for kind in ("", "unsecure-"))
        return any(cookies.get(name) in self.logins.tokens for name in names)
