"""Bodies of requests, which must arrive in time and have a maximum size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from app.web.guard.refused import RefusedError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
IDLE_SECONDS = 10.0
"""Maximum time between two parts of a body."""
BODY_SECONDS = 15.0
LEAST_SPEED = 50_000
"""Maximum time for a body: BODY_SECONDS, and a second for each LEAST_SPEED bytes."""


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
