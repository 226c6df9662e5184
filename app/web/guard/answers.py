"""Answers of the page's server, with headers that restrict what a browser does with them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from starlette.datastructures import MutableHeaders

from app.web.guard.bodies import Message

Send = Callable[[Message], Awaitable[None]]
Policy = Callable[[Iterable[bytes]], str]
"""The Content-Security-Policy of a page with these inline scripts."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_SCRIPT = re.compile(rb"<script(?P<attributes>[^>]*)>(?P<code>.*?)</script>", re.DOTALL)


def policy(scripts: Iterable[bytes] = ()) -> str:
    """The Content-Security-Policy of a page with these inline scripts and no others."""
    hashes = (base64.b64encode(hashlib.sha256(code).digest()).decode() for code in scripts)
    inline = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src 'self' {inline}".rstrip(),
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "media-src 'self' data: blob:",
            "font-src 'self' data:",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        ]
    )


def gradio_policy(scripts: Iterable[bytes] = ()) -> str:
    """The policy of Gradio's page, with `unsafe-eval`.

    Only `gr.HTML` needs it, of which the player, the cards and the results are made: Gradio
    compiles the template and the `js_on_load` of each by `Function(...)` (6.31.0,
    `assets/HTML-*.js`). Without it, Chromium reports only these calls, and none of them appears.
    """
    return policy(scripts).replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")


class Sent:
    """An ASGI `send` that adds the headers.

    A page of HTML is held back until it is complete, since the policy has hashes of its scripts,
    and is compressed if the client accepts it (`zipped`). An answer with status 500 is held back
    until `end`: Gradio sends one when it refuses a call, and Starlette before it raises an error.
    """

    def __init__(self, send: Send, *, zipped: bool, policy: Policy) -> None:
        self._send, self._zipped, self._policy = send, zipped, policy
        self.begun = False
        """Whether a part of the answer was sent."""
        self.status = 0
        self._held: list[Message] = []

    async def __call__(self, message: Message) -> None:
        """Sends a message, or holds it back."""
        if self._held:
            self._held.append(message)
            if self.status != 500 and not message.get("more_body", False):
                await self._send_page()
            return
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message["headers"])
            _restrict(headers)
            if self.status == 500 or headers.get("content-type", "").startswith("text/html"):
                self._held.append(message)
                return
        self.begun = True
        await self._send(message)

    async def end(self) -> None:
        """Sends the answer to a call that Gradio has refused, as an error of the client."""
        for message in self._held:
            if message["type"] == "http.response.start":
                message["status"] = 400
            self.begun = True
            await self._send(message)

    async def _send_page(self) -> None:
        start, *parts = self._held
        self._held = []
        page = b"".join(part.get("body", b"") for part in parts)
        scripts = [
            found["code"] for found in _SCRIPT.finditer(page) if b"src=" not in found["attributes"]
        ]
        headers = MutableHeaders(raw=start["headers"])
        headers["Content-Security-Policy"] = self._policy(scripts)
        headers["Vary"] = "Accept-Encoding"
        if self._zipped and page:
            page = gzip.compress(page, compresslevel=5)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(page))
        self.begun = True
        await self._send(start)
        await self._send({"type": "http.response.body", "body": page})


def _restrict(headers: MutableHeaders) -> None:
    headers.update({**HEADERS, "Content-Security-Policy": policy()})
    for name in list(headers):
        if name.lower().startswith("access-control-"):
            del headers[name]
    cookies = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for cookie in cookies:
        parts = [part.strip() for part in cookie.split(";")]
        kept = [part for part in parts if not part.lower().startswith("samesite")]
        headers.append("set-cookie", "; ".join([*kept, "SameSite=Lax"]))


async def answer(
    send: Send,
    status: int,
    content: Mapping[str, object],
    *,
    body: bool = True,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answers with JSON; without it if `body` is False, as for HEAD."""
    data = json.dumps(content).encode()
    kind = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    await respond(send, status, data, kind | dict(headers or {}), body=body)


async def respond(
    send: Send, status: int, data: bytes, headers: Mapping[str, str], *, body: bool = True
) -> None:
    """Answers with any content."""
    own = MutableHeaders({**headers, "Content-Length": str(len(data))})
    _restrict(own)
    await send({"type": "http.response.start", "status": status, "headers": own.raw})
    await send({"type": "http.response.body", "body": data if body else b""})


def error(message: str) -> dict[str, str]:
    """An error for Gradio's clients, and in FastAPI's form."""
    return {"error": message, "detail": message}
