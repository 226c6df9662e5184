"""Serves an app on a port."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from app.web.guard.middleware import Guard

FIRST_PORT = 7860
ENDING_SECONDS = 2
"""Time for answers in progress when the server ends."""


def wait_for_interruption() -> None:
    """Wait for Ctrl+C, which raises KeyboardInterrupt."""
    while True:  # `threading.Event.wait` cannot be interrupted on Windows
        time.sleep(0.2)


@contextmanager
def served(app: Guard, host: str, port: int | None) -> Iterator[str]:
    """Serve a guarded app during the block; yield its address.

    If `port` is None, it is the first free one from `FIRST_PORT` on. Raises OSError if it is taken.
    """
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        log_level="error",
        server_header=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, args=([listening],), name="server of the page", daemon=True
    )
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise OSError("the server ended before it was ready")
            time.sleep(0.01)
        yield _address(listening, host)
    finally:
        server.should_exit = True
        thread.join(ENDING_SECONDS + 3)
        listening.close()


def _listen(host: str, port: int | None) -> socket.socket:
    """Return a socket at this port, or at the first free one. Raises OSError if there is none."""
    ports = range(FIRST_PORT, FIRST_PORT + 100) if port is None else [port]
    for number in ports:
        family, _, _, _, where = socket.getaddrinfo(
            host.strip("[]"), number, type=socket.SOCK_STREAM
        )[0]
        try:
            return socket.create_server(where[:2], family=family, backlog=256)
        except OSError:
            if number == ports[-1]:
                raise
    raise AssertionError


def _address(listening: socket.socket, host: str) -> str:
    """Return the address at which a browser on this machine finds the page."""
    name = host.strip("[]")
    name = "localhost" if name in ("0.0.0.0", "::") else name  # nosec B104 - compared, not bound
    return f"http://{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}/"
