"""Bodies of requests, which have a maximum size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from app.web.guard.refused import RefusedError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
DISCARDED_BYTES = 2**20
"""Maximum number of bytes of a refused body that are still read."""


class Body:
    """The body of a request, as an ASGI `receive` that raises RefusedError if it is too large."""

    def __init__(self, receive: Receive, most_bytes: int) -> None:
        self._receive, self.most_bytes = receive, most_bytes
        self.size = 0
        self._complete = False

    async def __call__(self) -> Message:
        """Return the next message; waits for the end of the connection after the last part."""
        message = await self._next()
        if self.size > self.most_bytes:
            raise too_large(self.most_bytes)
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self.size += len(message.get("body", b""))
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def read(self) -> bytes:
        """Return the whole body."""
        parts: list[bytes] = []
        while not self._complete:
            message = await self()
            if message["type"] != "http.request":
                raise RefusedError(400, "the request ended before its body was complete")
            parts.append(message.get("body", b""))
        return b"".join(parts)

    async def discard(self) -> None:
        """Read the rest of a body of moderate size, before a refusal is sent.

        A connection that is closed while it has unread bytes is reset, and the client would lose
        the answer.
        """
        while not self._complete and self.size < DISCARDED_BYTES:
            await self._next()


def too_large(most_bytes: int) -> RefusedError:
    """Return the refusal of a body that is too large."""
    return RefusedError(413, f"found more than {most_bytes:,} bytes, expected at most that many")


def receive_again(body: bytes, receive: Receive) -> Receive:
    """Receive a body that was read before, and then the following messages."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def call() -> Message:
        return left.pop() if left else await receive()

    return call
