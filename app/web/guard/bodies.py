"""Bodies of requests, which must arrive in time and have a maximum size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from app.web.guard.refused import RefusedError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
IDLE_SECONDS = 10.0
"""Maximum time between two parts of a body."""
BODY_SECONDS = 15.0
LEAST_SPEED = 50_000
"""Maximum time for a body: BODY_SECONDS, and a second for each LEAST_SPEED bytes."""
DISCARDED_BYTES, DISCARDED_SECONDS = 2**20, 2.0
"""Maximum stated length of a refused body whose rest is still read, and maximum time for it."""


class Incoming:
    """The messages of a request, of which the rest can be discarded."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False

    async def __call__(self) -> Message:
        """The next message."""
        message = await self._receive()
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def discard(self, length: str) -> None:
        """Reads the rest of a body of a stated, moderate length, before a refusal is sent.

        A connection that is closed while it has unread bytes is reset, and the client would lose
        the answer. `length` is the header Content-Length; the server does not pass on more bytes.
        """
        if not length.isdecimal() or int(length) > DISCARDED_BYTES:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARDED_SECONDS):
                while not self._ended:
                    await self()


class Body:
    """The body of a request, as an ASGI `receive` that enforces the limits.

    Raises RefusedError when a limit is exceeded.
    """

    def __init__(
        self, receive: Receive, most_bytes: int, count: Callable[[int], None] = lambda _: None
    ) -> None:
        """`count` is called with the size of each part."""
        self._receive, self._most, self._count = receive, most_bytes, count
        self._size = 0
        self._ends = time.monotonic() + BODY_SECONDS + most_bytes / LEAST_SPEED
        self.complete = False

    async def __call__(self) -> Message:
        """The next message; waits for the end of the connection after the last part."""
        if self.complete:
            return await self._receive()
        try:
            left = min(IDLE_SECONDS, self._ends - time.monotonic())
            message = await asyncio.wait_for(self._receive(), max(0.0, left))
        except TimeoutError:
            raise RefusedError(
                408, "the request did not arrive in time; send it again over a faster connection"
            ) from None
        size = len(message.get("body", b""))
        self._size += size
        if self._size > self._most:
            raise too_large(self._most)
        if size:
            self._count(size)
        self.complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    async def read(self) -> bytes:
        """The whole body."""
        parts: list[bytes] = []
        while not self.complete:
            message = await self()
            if message["type"] != "http.request":
                raise RefusedError(400, "the request ended before its body was complete")
            parts.append(message.get("body", b""))
        return b"".join(parts)


def too_large(most_bytes: int) -> RefusedError:
    """The refusal of a body that is too large."""
    return RefusedError(413, f"found more than {most_bytes:,} bytes, expected at most that many")


def again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read before, and then the following messages."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def call() -> Message:
        return left.pop() if left else await receive()

    return call
