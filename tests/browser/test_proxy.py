"""The page in a browser, behind a proxy below a path and with a login."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests.support import fakes
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 60_000  # milliseconds: machines are shared
PREFIX = "/music"

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@contextmanager
def proxy(target):
    """Address of a proxy that removes PREFIX from paths; other paths return 404."""
    server_of_page = urlsplit(target).netloc

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format, *_):  # noqa: A002 - named so by the base class
            """Logs nothing."""

        def do_GET(self):
            self.hand_on()

        def do_HEAD(self):
            self.hand_on()

        def do_POST(self):
            self.hand_on()

        def hand_on(self):
            if not self.path.startswith(f"{PREFIX}/"):
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            line = http.client.HTTPConnection(server_of_page, timeout=60)
            headers = {name: text for name, text in self.headers.items() if name != "Connection"}
            headers |= {"X-Forwarded-Host": self.headers["Host"], "X-Forwarded-Proto": "http"}
            try:
                line.request(self.command, self.path.removeprefix(PREFIX), body, headers)
                answer = line.getresponse()
                self.send_response(answer.status)
                for name, text in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "date", "server"}:
                        self.send_header(name, text)
                self.end_headers()
                while part := answer.read1(65536):
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                return  # the browser, or the page, has gone
            finally:
                line.close()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_everything_works_below_a_path_and_with_a_login(tmp_path):
    accounts = (("ada", "se:cret"),)
    page_of = served(tmp_path, speed=200.0, root_path=PREFIX, accounts=accounts)
    with (
        page_of as running,
        proxy(running.address) as outside,
        playwright.sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.set_default_timeout(SLOWLY)
        wrong = []
        page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else 0)
        page.goto(f"{outside}{PREFIX}/")
        page.wait_for_selector("input[type=password]")
        assert page.locator(".player-roll").count() == 0
        page.locator("input[type=text], input:not([type])").first.fill("ada")
        page.locator("input[type=password]").fill("se:cret")
        page.get_by_role("button", name="Login").click()
        page.wait_for_selector(".player-roll")
        page.set_input_files(
            "#write-upload input[type=file]",
            files=[
                {"name": "a.mid", "mimeType": "audio/midi", "buffer": fakes.example_midi(bars=2)}
            ],
        )
        page.wait_for_selector(".player[data-phase=prompt]")
        length = page.locator("#write-tab .length input[type=number], #controls .length input")
        length.locator("visible=true").first.fill("1")
        length.locator("visible=true").first.press("Tab")
        page.get_by_role("button", name="Continue", exact=True).locator("visible=true").click()
        page.wait_for_selector(".player[data-phase=done]")
        page.wait_for_function("document.querySelector('.player audio').readyState > 2")
        with page.expect_download() as download:
            page.locator("[data-part=file-midi]").click()
        assert download.value.suggested_filename.endswith(".mid")
        # browsers request these two from the root of the host
        lost = [url for url in wrong if not url.endswith(("/manifest.json", "/favicon.ico"))]
        assert lost == []
        browser.close()
