"""The proxy's configuration that ships, in Debian's Caddy and in front of a small page."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import NamedTuple

import httpx
import pytest

from app.web.guard import Guard, Hosts
from app.web.guard.answers import policy, respond
from app.web.guard.port import served
from app.web.guard.routes import Route
from tests.support.loaded import CADDY, caddy_before, free_port

LARGEST = 100_000
PATIENCE = 60.0
"""Seconds until a test gives up."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CADDY is None, reason="caddy is not installed: apt install caddy"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Proxied(NamedTuple):
    """A page behind Caddy."""

    address: str
    port: int
    heard: threading.Event
    """Set by a test that has received the first part of a stream."""


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    heard = threading.Event()

    async def page(scope, receive, send):
        if scope["type"] == "lifespan":
            return
        if scope["path"] == "/stream":
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for part in (b"data: one\n\n", b"data: two\n\n"):
                await send({"type": "http.response.body", "body": part, "more_body": True})
                await asyncio.to_thread(heard.wait, PATIENCE)
            await send({"type": "http.response.body", "body": b""})
            return
        while (await receive()).get("more_body"):
            pass
        headers = {"Content-Type": "text/html"}
        await respond(send, 200, f"from {scope['client'][0]}".encode(), headers)

    guard = Guard(
        page,
        route_of=lambda *_: Route(most_bytes=10 * LARGEST),
        is_known=lambda _: True,
        health=dict,
        hosts=Hosts(),
        policy=policy,
        modules=(),
    )
    folder = tmp_path_factory.mktemp("caddy")
    with (
        served(guard, "127.0.0.1", free_port()) as address,
        caddy_before(address, folder, LARGEST) as port,
    ):
        yield Proxied(f"http://127.0.0.1:{port}", port, heard)


def test_the_page_answers_with_its_own_name_and_the_address_of_the_client(proxied):
    """Clients cannot claim other addresses or names."""
    claims = {"X-Forwarded-For": "10.9.8.7", "X-Forwarded-Host": "evil.example"}
    for headers in ({}, claims, {"Origin": proxied.address}):
        answer = httpx.get(proxied.address, headers=headers)
        assert (answer.status_code, answer.text) == (200, "from 127.0.0.1")
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert httpx.get(proxied.address, headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_client_that_dribbles_headers_is_cut_off(proxied):
    with socket.create_connection(("127.0.0.1", proxied.port), timeout=PATIENCE) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{proxied.port}\r\nX: ".encode())
        over = threading.Event()

        def dribble():
            while not over.wait(0.5):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            answer = connection.recv(1000)
        except ConnectionResetError:
            answer = b""
        finally:
            over.set()
            thread.join()
    assert not answer.startswith(b"HTTP/1.1 200")


def test_a_body_that_is_too_large_is_refused(proxied):
    assert httpx.post(proxied.address, content=b"x" * LARGEST).status_code == 200
    for content in (b"x" * (LARGEST + 1), iter([b"x" * LARGEST] * 2)):
        assert httpx.post(proxied.address, content=content).status_code == 413


def test_a_stream_arrives_piece_by_piece(proxied):
    """The page sends the second piece only when the first was received."""
    with httpx.stream("GET", f"{proxied.address}/stream", timeout=PATIENCE) as answer:
        pieces = answer.iter_text()
        assert next(pieces) == "data: one\n\n"
        proxied.heard.set()
        assert "".join(pieces) == "data: two\n\n"
