"""Connections that send nothing are closed, and do not keep others out."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn

from app.web.guard import connections
from app.web.guard.connections import Connection, max_connections

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@contextmanager
def server():
    """The port of a server that answers every request."""
    started = threading.Event()

    async def answer(scope, receive, send):
        if scope["type"] == "lifespan":
            started.set()
            return
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(answer, http=Connection, ws="none", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    assert started.wait(30)
    yield listening.getsockname()[1]
    running.should_exit = True
    thread.join(5)
    listening.close()


def connected(port, sent=b""):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(sent)
    return connection


def test_requests_that_are_not_completed_in_time_are_given_up(monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.01)
    with server() as port:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost:"):
            with connected(port, sent) as connection:
                assert connection.recv(1000) == b""


def test_requests_that_are_never_completed_do_not_keep_others_out(monkeypatch):
    resource = pytest.importorskip("resource", reason="only on POSIX")
    assert max_connections() <= connections.MAX_CONNECTIONS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (10, 10))
    assert max_connections() == 5  # half of the descriptors
    with server() as port:
        half = [connected(port, b"GET / HTTP/1.1\r\nHost:") for _ in range(20)]
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with connected(port, request) as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        for connection in half:
            connection.close()
