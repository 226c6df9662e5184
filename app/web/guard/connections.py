"""Connections to the page's server, which are limited in number and in the time they may wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
"""Maximum time until the headers of a request are complete."""
STALLED_SECONDS = 60.0
"""Maximum time for which a client may stop reading an answer."""
MAX_CONNECTIONS = 512
"""Maximum number of connections; half of the descriptors of the process if that is less."""


def max_connections() -> int:
    """The maximum number of connections of this process."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors != resource.RLIM_INFINITY:
            return min(MAX_CONNECTIONS, descriptors // 2)
    return MAX_CONNECTIONS


class Connection(H11Protocol):
    """A connection that is closed if a request does not arrive in time, or answers are not read.

    If there are too many connections, the one that has waited longest for a request is closed.
    """

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    @property
    def _is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def _waiting_since(self) -> float:
        return self._deadline.when() if self._deadline else 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepts the connection, unless there are too many."""
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > max_connections():
            waiting = [
                one
                for one in self.connections
                if isinstance(one, Connection) and one._is_waiting and not one._is_closing
            ]
            if waiting:  # at least this one
                min(waiting, key=lambda one: one._waiting_since).transport.abort()

    @property
    def _is_closing(self) -> bool:
        return self.transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers."""
        super().connection_lost(exc)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Waits for the next request."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Starts or stops the time for the next request."""
        if not self._is_waiting:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def pause_writing(self) -> None:
        """Starts the time for a client to go on reading."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stops the time."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
