"""Malformed requests to the page: none ends in a 5xx, shows a file or keeps memory."""

from __future__ import annotations

import json
import random
import sys

import pytest

from tests.support.guarded import client_of, guarded_page
from tests.support.memory import resident
from tests.support.served import MARKS

pytestmark = [*MARKS, pytest.mark.filterwarnings("ignore")]
CALLS = 2500
ROUTES = (
    *("run/predict", "run/stop", "run/continue", "api/predict", "call/continue", "call/v2/stop"),
    *("queue/join", "component_server", "cancel", "reset", "upload", "stream/x", "login", "x"),
)
PATHS = (
    *("/", "/config", "/gradio_api/file=", "/gradio_api/call/x/", "/gradio_api/queue/data?"),
    *("/gradio_api/heartbeat/../", "/static/", "/assets/", "/theme.css", "/%00", "/?deep_link="),
    *("/gradio_api/info?all_endpoints=", "/?page=", "/gradio_api/proxy=", "/svelte/", "/login"),
)
NASTY = (
    *(None, True, -1, 2**70, 1e308, float("nan"), "", "\0", "\ud800", "../../etc/passwd", "é" * 99),
    *([], {}, [[]], {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, "x" * 5000),
    *(
        {"path": "http://10.0.0.1/"},
        {"path": "/tmp"},
        "<script>",
        "%s%n",
        "'; --",
        {"a": [{}] * 99},
    ),
)


class Fuzz:
    """Draws malformed requests."""

    def __init__(self, seed: int, functions: list[int], components: list[int]) -> None:
        self.draw = random.Random(seed)
        self.functions, self.components = functions, components

    def value(self, depth: int = 0) -> object:
        kind = self.draw.randrange(8 if depth < 4 else 6)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.draw.randrange(5))]
        if kind == 7:
            names = ("path", "meta", "url", "data", "job", "_type", "first", "variation", "kind")
            return {self.draw.choice(names): self.value(depth + 1) for _ in range(4)}
        return self.draw.choice(NASTY)

    def body(self) -> bytes:
        choice = self.draw.randrange(6)
        if choice == 0:
            return self.draw.randbytes(self.draw.choice((0, 10, 5000, 100_000)))
        if choice == 1:
            item = self.draw.choice(("[]", "{}", '{"a":[]}', '"x"', "[[[[]]]]", "1e999"))
            return ('{"data":[' + ",".join([item] * self.draw.choice((10, 7000, 300_000)))).encode()
        if choice == 2:
            return b"[" * self.draw.choice((10, 60_000)) + b"]" * 10
        call: dict[str, object] = {
            "data": [self.value() for _ in range(self.draw.randrange(22))],
            "fn_index": self.draw.choice([*self.functions, *NASTY]),
            "session_hash": self.draw.choice(["fuzz", *NASTY]),
            "event_data": self.value(),
            "event_id": self.draw.choice(["x", *NASTY]),
            "trigger_id": self.draw.choice([None, *self.components, *NASTY]),
            "component_id": self.draw.choice([*self.components, *NASTY]),
            "fn_name": self.draw.choice(("file", "__init__", *NASTY)),
        }
        for name in self.draw.sample(list(call), self.draw.randrange(4)):
            del call[name]
        return json.dumps(call).encode()

    def headers(self) -> dict[bytes, bytes]:
        """Headers as bytes, as a client may send characters outside ASCII."""
        found = {"content-type": self.draw.choice(("application/json", "text/html", "x"))}
        for name, values in (
            ("origin", ("http://localhost:7860", "null", "https://evil.example")),
            ("host", ("localhost", "evil.example", "[::1]", "x" * 300)),
            ("cookie", ("access-token=x", "a=" + "b" * 3000, "=;=;")),
            ("x-forwarded-host", ("evil.example", "localhost", ",,")),
            ("content-type", ("multipart/form-data", "multipart/form-data; boundary=x", "\xff")),
            ("range", ("bytes=0-0", "bytes=" + "0-1," * 500)),
            ("sec-fetch-site", ("cross-site", "same-origin", "x")),
        ):
            if self.draw.random() < 0.1:
                found[name] = self.draw.choice(values)
        return {name.encode(): value.encode("latin-1") for name, value in found.items()}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_malformed_requests_do_no_harm(tmp_path):
    with guarded_page(tmp_path) as page:
        client = client_of(page.guard)
        page.guard.passwords.most = CALLS  # else most logins are refused at once
        fuzz = Fuzz(0, list(page.blocks.fns), [n for n in page.blocks.blocks if type(n) is int])
        before = 0
        for number in range(CALLS):
            if number == 300:
                before = resident()
            if fuzz.draw.random() < 0.2:
                path = fuzz.draw.choice(PATHS) + fuzz.draw.choice(("", "x", "%ff", "../" * 9))
                request = client.build_request("GET", path, headers=fuzz.headers())
            else:
                path = f"/gradio_api/{fuzz.draw.choice(ROUTES)}"
                body, headers = fuzz.body(), fuzz.headers()
                request = client.build_request("POST", path, content=body, headers=headers)
            answer = client.send(request)
            assert answer.status_code < 500, (number, path, answer.text)
            assert "root:" not in answer.text
            assert "Traceback" not in answer.text
            assert len(answer.content) < 1_000_000
        assert resident() - before < 200_000
