"""What the guard refuses before Gradio sees it, and what it adds to answers."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import re
import time

import pytest

from app.player.assets import MODULES
from app.web.guard import HEALTH
from app.web.guard.limits import MAX_LOGINS
from app.web.guard.routes import FORM_BYTES, MAX_CALL_BYTES, MAX_SMALL_BYTES
from tests.support.guarded import client_of, guarded_page, post

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
LARGEST = 20_000


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("music")
    with guarded_page(folder, max_upload_bytes=LARGEST, root_path="/music") as page:
        yield page


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A page with a login."""
    with guarded_page(tmp_path_factory.mktemp("music"), accounts=(("ana", "right"),)) as page:
        yield page


@pytest.fixture
def client(page):
    return client_of(page.guard)


def login(client, password, **headers):
    return client.post("/login", data={"username": "ana", "password": password}, headers=headers)


def test_health_describes_the_page(client):
    answer = client.get(HEALTH)
    assert answer.status_code == 200
    expected = {"status": "ok", "models": ["fake"], "jobs": {"running": 0, "waiting": 0}}
    assert answer.json() == expected
    assert answer.headers["cache-control"] == "no-store"
    assert client.head(HEALTH).content == b""


def test_modules_of_the_player_are_served_as_javascript_that_may_be_cached(client):
    answer = client.get(f"/music{MODULES.route}player.js")
    assert answer.status_code == 200
    assert answer.content == MODULES.sources["player.js"]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert client.head(f"{MODULES.route}player.js").content == b""
    for path in ("", "roll", "none.js", "../player.html", "..%2fplayer.html", "/etc/passwd"):
        assert client.get(MODULES.route + path).status_code == 404
    assert client.post(f"{MODULES.route}player.js").status_code == 404


@pytest.mark.parametrize("route", ["cancel", "reset", "run/stop", "component_server", "queue/join"])
@pytest.mark.parametrize("item", ["[]", "{}", '"x"', '{"a":[]}'])
def test_a_body_of_millions_of_values_is_not_parsed(client, route, item):
    """Gradio needs 11 s for one of 3.9 MB, during which nobody is served."""
    body = ('{"data":[' + ",".join([item] * 300_000) + "]}").encode()
    began = time.process_time()
    assert post(client, route, body).status_code == 413
    assert time.process_time() - began < 0.5


def test_a_body_without_length_is_not_read_beyond_its_maximum(page):
    received = []

    async def receive():
        received.append(None)
        return {"type": "http.request", "body": b"x" * 10_000, "more_body": True}

    headers = [(b"host", b"localhost")]
    assert asked(page.guard, "POST", "/gradio_api/cancel", receive, headers)[0] == 413
    assert len(received) == 1 + MAX_SMALL_BYTES // 10_000
    received.clear()
    assert asked(page.guard, "POST", "/gradio_api/run/stop", receive, headers)[0] == 413
    assert len(received) == 1 + MAX_CALL_BYTES // 10_000


def test_a_refused_body_of_moderate_length_is_read_to_its_end(page):
    """Otherwise the connection is reset, and the client may not get the answer."""
    parts = [
        {"type": "http.request", "body": b"x" * 50_000, "more_body": at < 3} for at in range(4)
    ]
    left = list(parts)

    async def receive():
        return left.pop(0)

    headers = [(b"host", b"localhost"), (b"content-length", b"200000")]
    assert asked(page.guard, "POST", "/gradio_api/run/stop", receive, headers)[0] == 413
    assert not left
    left = list(parts)
    headers[1] = (b"content-length", b"20000000")
    assert asked(page.guard, "POST", "/gradio_api/run/stop", receive, headers)[0] == 413
    assert len(left) == len(parts)


def asked(guard, method, path, receive, headers):
    """Status and headers of the answer to a request."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": list(headers),
        "client": ("10.0.0.9", 1),
    }
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], {n.decode(): v.decode() for n, v in sent[0]["headers"]}


def test_a_body_that_does_not_arrive_is_refused_in_time(page, monkeypatch):
    monkeypatch.setattr("app.web.guard.bodies.IDLE_SECONDS", 0.05)

    async def receive():
        await asyncio.sleep(60)

    began = time.monotonic()
    status, headers = asked(
        page.guard, "POST", "/gradio_api/run/stop", receive, [(b"host", b"localhost")]
    )
    assert (status, headers["connection"]) == (408, "close")
    assert time.monotonic() - began < 10


def test_a_body_that_trickles_in_is_refused_in_time(page, monkeypatch):
    monkeypatch.setattr("app.web.guard.bodies.BODY_SECONDS", 0.2)
    monkeypatch.setattr("app.web.guard.bodies.LEAST_SPEED", 1e9)

    async def receive():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    headers = [(b"host", b"localhost")]
    assert asked(page.guard, "POST", "/gradio_api/run/stop", receive, headers)[0] == 408


def test_a_wrong_value_is_not_repeated_in_the_answer(client):
    body = {"session_hash": "x", "fn_index": ["y" * 3000], "event_id": "z"}
    answer = post(client, "cancel", body)
    assert answer.status_code == 422
    assert len(answer.content) < 300
    assert "fn_index" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/info", "/gradio_api/none"])
@pytest.mark.parametrize("root", ["", "/music"])
def test_every_answer_restricts_what_a_browser_does_with_it(client, root, path):
    headers = client.get(root + path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    scripts = re.search("script-src ([^;]*)", policy)
    assert scripts
    assert "unsafe-inline" not in scripts[1]
    assert ("sha256" in scripts[1]) == (path == "/")
    assert not [name for name in headers if name.startswith("access-control")]


def test_the_page_is_compressed(client):
    page = client.get("/", headers={"accept-encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    plain = client.get("/", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == page.content
    assert plain.headers["content-security-policy"] == page.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        *("gradio_api/token", "gradio_api/user", "gradio_api/deep_link?session_hash=x", "docs"),
        *("gradio_api/runs", "monitoring", "openapi.json", "pwa_icon", "gradio_api/dev/reload"),
        *("gradio_api/queue/status", "gradio_api/startup-events", "redoc", "gradio_api/stream/x"),
    ],
)
def test_routes_that_the_page_does_not_use_are_refused(client, path):
    assert client.get(f"/{path}").status_code == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(client, method):
    answer = client.request(method, "/", headers={"access-control-request-method": "POST"})
    assert answer.status_code == 405


def test_another_website_gets_no_answer_and_no_credentials(client):
    for origin in ("https://evil.example", "null"):
        headers = {"host": "music.example", "origin": origin}
        assert client.get("/gradio_api/info", headers=headers).status_code == 421
        answer = client.get("/gradio_api/info", headers={"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_a_page_that_reconnects_can_ask_for_the_id_of_the_program(client):
    answer = client.get("/gradio_api/app_id")
    assert answer.status_code == 200
    assert answer.json()["app_id"]


def test_a_foreign_name_reported_by_a_proxy_does_not_reach_the_page(client):
    answer = client.get("/config", headers={"x-forwarded-host": "evil.example"})
    assert answer.status_code == 200
    assert "evil.example" not in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", "config"), ("GET", "gradio_api/info"), ("GET", "gradio_api/heartbeat/x")),
        *(("GET", "gradio_api/openapi.json"), ("POST", "gradio_api/cancel")),
        *(("POST", "gradio_api/reset"), ("POST", "gradio_api/upload")),
        *(("POST", "gradio_api/run/stop"), ("POST", "gradio_api/queue/join")),
        *(("GET", "gradio_api/file=/etc/passwd"), ("GET", "gradio_api/queue/data")),
        ("GET", "gradio_api/app_id"),
    ],
)
def test_without_a_login_a_request_is_refused_before_it_is_parsed(private, method, path):
    client = client_of(private.guard)
    body = b"{" if method == "POST" else b""
    answer = client.request(method, f"/{path}", content=body)
    assert answer.status_code == 401
    assert "found no login, expected one; log in first" in answer.text
    assert client.get("/").status_code == 200  # it has the form of the login
    assert client.get(HEALTH).status_code == 200


def test_a_login_gives_a_cookie_that_other_websites_do_not_send(private):
    with client_of(private.guard, "https://localhost") as client:
        answer = login(client, "right")
        cookies = answer.headers.get_list("set-cookie")
        assert len(cookies) == 2
        for cookie in cookies:
            assert cookie.endswith("; SameSite=Lax")
            assert cookie.lower().count("samesite") == 1
            assert "httponly" in cookie.lower()
        assert client.get("/config").status_code == 200
        assert post(client, "run/stop", {"data": [], "session_hash": "x"}).status_code == 200


def test_passwords_cannot_be_guessed_quickly(private, caplog):
    client = client_of(private.guard)
    private.guard.limits._logins.forget("testclient")
    for _ in range(MAX_LOGINS):
        assert login(client, "wrong").status_code == 400
    for password in ("wrong", "right"):
        answer = login(client, password)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert all(record.levelno < logging.ERROR for record in caplog.records)
    private.guard.limits._logins.forget("testclient")
    for _ in range(2 * MAX_LOGINS):
        assert login(client, "right").status_code == 200


def uploaded(client, size, name="a.mid"):
    return client.post("/gradio_api/upload", files={"files": (name, b"x" * size)})


def test_a_file_that_is_too_large_is_refused(client, page):
    assert uploaded(client, LARGEST).status_code == 200
    assert uploaded(client, LARGEST + FORM_BYTES).status_code == 413
    many = {"files": ("a.mid", b"x" * LARGEST), "more": ("b.mid", b"x" * LARGEST)}
    assert client.post("/gradio_api/upload", files=many).status_code == 413


def test_an_address_can_upload_only_so_much(page, monkeypatch):
    monkeypatch.setattr(page.guard.limits, "_max_uploaded", 50_000)
    page.guard.limits._uploads.forget("testclient")
    client = client_of(page.guard)
    statuses = [uploaded(client, LARGEST - 1, f"{n}.mid").status_code for n in range(4)]
    assert statuses == [200, 200, 429, 429]
    page.guard.limits._uploads.forget("testclient")


def test_a_full_disk_refuses_an_upload_in_one_sentence(client, page, monkeypatch, caplog):
    async def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(page.uploads))

    with monkeypatch.context() as full:
        full.setattr("gradio.route_utils.GradioUploadFile.write", write)
        answer = uploaded(client, 10)
    assert answer.status_code == 507
    assert answer.text == (
        "The file cannot be saved (No space left on device); the disk of the computer that runs "
        "the page may be full"
    )
    (line,) = caplog.messages
    assert line.startswith("an uploaded file was not stored: OSError: No space left on device")
    assert str(page.uploads) not in line
    assert all(record.exc_info is None for record in caplog.records)
    (cut_off,) = (path for path in page.uploads.iterdir() if path.is_file())
    os.utime(cut_off, (0, 0))
    assert uploaded(client, 10).status_code == 200
    assert not cut_off.exists()


@pytest.mark.parametrize("name", ["inspect", "render", "continue"])
def test_a_folder_is_not_a_file(page, client, name, caplog):
    """Gradio's clean-up would try to delete it as a file, and end."""
    (path,) = uploaded(client, 10).json()
    assert path.startswith(str(page.uploads))
    kind = {"_type": "gradio.FileData"}
    for named in (str(page.uploads), path.rpartition("/")[0], "/etc/passwd", "http://x.example/a"):
        fn = next(fn for fn in page.blocks.fns.values() if fn.api_name == name)
        data = [{"path": named, "meta": kind}] + [None] * (len(fn.inputs) - 1)

        async def called(fn=fn, data=data):
            await page.blocks.process_api(fn, data)

        with pytest.raises(Exception, match="not uploaded"):
            asyncio.run(called())
    kept = [path for files in page.blocks.temp_file_sets for path in files]
    assert str(page.uploads) not in json.dumps([str(path) for path in kept if path == named])


def test_an_address_has_a_limited_number_of_open_requests(page, monkeypatch):
    monkeypatch.setattr("app.web.guard.limits.MAX_OPEN", 2)
    limits = page.guard.limits
    client = client_of(page.guard)
    with limits.request("testclient"), limits.request("testclient"):
        answer = client.get("/config")
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "5"
    assert client.get("/config").status_code == 200
