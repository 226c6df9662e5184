"""The page in a browser, behind a proxy below a path and with a login."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support import fakes
from tests.support.browser import opened
from tests.support.served import served

PREFIX = "/music"


class Proxy(ThreadingHTTPServer):
    """A proxy that removes PREFIX from paths; other paths return 404."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}{PREFIX}"
        self.page = urlsplit(target).netloc
        self.is_down = False
        self.open: set[socket.socket] = set()

    def interrupt(self, seconds: float) -> None:
        """Ends all connections, and refuses new ones for some seconds."""
        self.is_down = True
        for end in list(self.open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self.is_down = False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # an answer that is cut off has no last chunk
    server: Proxy  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format, *_):  # noqa: A002 - named so by the base class
        """Logs nothing."""

    def pass_on(self):
        self.close_connection = True
        if self.server.is_down:
            return
        if not self.path.startswith(f"{PREFIX}/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        line = http.client.HTTPConnection(self.server.page, timeout=60)
        headers = {name: text for name, text in self.headers.items() if name != "Connection"}
        headers |= {"X-Forwarded-Host": self.headers["Host"], "X-Forwarded-Proto": "http"}
        line.connect()
        ends = {self.connection, line.sock}
        self.server.open |= ends
        try:
            line.request(self.command, self.path.removeprefix(PREFIX), body, headers)
            answer = line.getresponse()
            self.send_response(answer.status)
            for name, text in answer.getheaders():
                if name.lower() not in {"connection", "date", "server"}:
                    self.send_header(name, text)
            self.send_header("Connection", "close")
            self.end_headers()
            while part := answer.read1(65536):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if answer.chunked else part)
            self.wfile.write(b"0\r\n\r\n" if answer.chunked else b"")
        except (OSError, http.client.HTTPException):
            return  # the browser, or the page, has gone
        finally:
            self.server.open -= ends
            line.close()

    do_GET = do_HEAD = do_POST = pass_on  # noqa: N815 - named so by the base class


@contextmanager
def proxy(target):
    with Proxy(target) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_everything_works_below_a_path_with_a_login_and_after_a_loss_of_the_connection(
    browser, tmp_path
):
    page_of = served(tmp_path, speed=5.0, root_path=PREFIX, accounts=(("ada", "se:cret"),))
    with (
        page_of as running,
        proxy(running.address) as outside,
        opened(browser, f"{outside.address}/", ready="input[type=password]") as page,
    ):
        wrong = []
        page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else 0)
        assert page.locator(".player-roll").count() == 0
        page.fill("input[type=text]", "ada")
        page.fill("input[type=password]", "se:cret")
        page.button("Login").click()
        page.wait_for_selector(".player-roll[aria-valuetext]")
        page.get_by_role("tab", name="About").click()
        page.shows(f'Client("{outside.address}", auth=("ada", "PASSWORD"))', ".about pre")
        page.get_by_role("tab", name="Write").click()
        page.upload(fakes.example_midi(bars=2))
        page.phase("prompt")
        page.set_length(32)
        page.go.click()
        page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
        outside.interrupt(1.0)
        page.shows("music that was being generated")
        page.phase("prompt")
        running.model.speed = 200.0
        page.set_length(1)
        page.compose()
        page.wait_for_function("document.querySelector('[data-part=loading]').hidden")
        page.part("play").click()
        page.wait_for_selector(".player.playing")
        assert page.downloaded()[0].endswith(".mid")
        # browsers request these two from the root of the host
        lost = [url for url in wrong if not url.endswith("/favicon.ico")]
        assert lost == []
