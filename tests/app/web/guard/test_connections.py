"""Connections that send nothing are closed, and do not keep others out."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn

from app.web.guard import connections
from app.web.guard.connections import Connection, max_connections

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


async def answer(scope, receive, send):
    assert scope["type"] == "http"
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def server():
    """The port of a server that answers every request."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        answer, http=Connection, ws="none", lifespan="off", timeout_graceful_shutdown=1
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    running.should_exit = True
    thread.join(5)
    listening.close()


def connected(port, sent=b""):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(sent)
    return connection


def is_answered(port):
    with connected(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as one:
        return one.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"])
def test_a_request_that_is_not_complete_in_time_is_given_up(monkeypatch, sent):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    with server() as port, connected(port, sent) as waiting:
        began = time.monotonic()
        assert waiting.recv(100) == b""
        assert 0.2 < time.monotonic() - began < 5


def test_a_second_request_has_its_own_time(monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.3)
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server() as port, connected(port) as one:
        for _ in range(3):
            time.sleep(0.2)
            one.sendall(request)
            received = b""
            while not received.endswith(b"ok"):
                received += one.recv(1000)
        one.sendall(request[:10])
        assert one.recv(1000) == b""


def test_requests_that_are_never_completed_do_not_keep_others_out(monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    with server() as port:
        half = [connected(port, b"GET / HTTP/1.1\r\nHost:") for _ in range(100)]
        assert all(is_answered(port) for _ in range(5))
        for one in half:
            one.close()


def test_there_are_fewer_connections_with_few_descriptors(monkeypatch):
    resource = pytest.importorskip("resource", reason="only on POSIX")
    assert max_connections() <= connections.MAX_CONNECTIONS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert max_connections() == 128
