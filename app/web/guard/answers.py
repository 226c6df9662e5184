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
_SCRIPT = re.compile(rb"<script(?![^>]*src=)[^>]*>(.*?)</script>", re.DOTALL)
_MANIFEST = b'<link rel="manifest" href="/manifest.json" />'
"""Of Gradio's page; the address is wrong behind a proxy, and the page is no app to install."""
_SAME_SITE = re.compile(r"; *samesite=\w+", re.IGNORECASE)


def policy(scripts: Iterable[bytes] = ()) -> str:
    """Return the Content-Security-Policy of a page with these inline scripts and no others."""
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
    """Return the policy of Gradio's page, with `unsafe-eval`.

    Only `gr.HTML` needs it, of which the player, the cards and the results are made: Gradio
    compiles the template and the `js_on_load` of each by `Function(...)` (6.31.0,
    `assets/HTML-*.js`). Without it, Chromium reports only these calls, and none of them appears.
    """
    return policy(scripts).replace("script-src 'self'", "script-src 'self' 'unsafe-eval'")


class Sent:
    """An ASGI `send` that adds the headers.

    Two kinds of answers are held back until `end`: a page of HTML, since its policy has hashes of
    its scripts, and an answer with status 500, since Starlette raises the error after it. They are
    compressed if the client accepts it (`zipped`).
    """

    def __init__(self, send: Send, policy: Policy, *, zipped: bool) -> None:
        self._send, self._policy, self._zipped = send, policy, zipped
        self.begun = False
        """Whether a part of the answer was sent."""
        self.status = 0
        self._holds = False
        self._held: list[Message] = []

    async def __call__(self, message: Message) -> None:
        """Send a message, or hold it back."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message["headers"])
            _restrict(headers)
            is_page = headers.get("content-type", "").startswith("text/html")
            self._holds = is_page or self.status == 500
        if self._holds:
            self._held.append(message)
        else:
            self.begun = True
            await self._send(message)

    async def end(self) -> None:
        """Send what is held back; Gradio answers calls that it refuses with 500 instead of 400."""
        if not self._held:
            return
        start, *parts = self._held
        if self.status == 500:
            start["status"] = 400
        page = b"".join(part.get("body", b"") for part in parts).replace(_MANIFEST, b"")
        headers = MutableHeaders(raw=start["headers"])
        headers["Content-Security-Policy"] = self._policy(_SCRIPT.findall(page))
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
    cookies = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for cookie in cookies:
        headers.append("set-cookie", f"{_SAME_SITE.sub('', cookie)}; SameSite=Lax")


async def answer(
    send: Send,
    status: int,
    content: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with JSON."""
    kind = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    await respond(send, status, json.dumps(content).encode(), kind | dict(headers or {}))


async def respond(send: Send, status: int, data: bytes, headers: Mapping[str, str]) -> None:
    """Answer with any content."""
    all_headers = MutableHeaders({**headers, "Content-Length": str(len(data))})
    _restrict(all_headers)
    await send({"type": "http.response.start", "status": status, "headers": all_headers.raw})
    await send({"type": "http.response.body", "body": data})


def error(message: str) -> dict[str, str]:
    """Return an error for Gradio's clients, and in FastAPI's form."""
    return {"error": message, "detail": message}
