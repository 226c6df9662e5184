"""What the guard refuses before Gradio sees it, and what it adds to answers."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re

import pytest

from app.player.assets import MODULES
from app.web.guard import HEALTH, bodies
from app.web.guard.limits import MAX_LOGINS
from app.web.guard.routes import FORM_BYTES, MAX_CALL_BYTES, MAX_SMALL_BYTES
from tests.support.guarded import LARGEST, client_of, guarded_page, post

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A page with a login."""
    with guarded_page(tmp_path_factory.mktemp("music"), accounts=(("ana", "right"),)) as page:
        yield page


def login(client, password, **headers):
    return client.post("/login", data={"username": "ana", "password": password}, headers=headers)


def uploaded(client, size, name="a.mid"):
    return client.post("/gradio_api/upload", files={"files": (name, b"x" * size)})


def asked(guard, path, receive, length=None):
    """Status and headers of the answer to a POST whose body is received in parts."""
    sent = []

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"localhost")]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    asyncio.run(guard(scope | {"headers": headers, "client": ("10.0.0.9", 1)}, receive, send))
    return sent[0]["status"], {n.decode(): v.decode() for n, v in sent[0]["headers"]}


def part(size, *, more=True):
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


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


def test_every_answer_restricts_what_a_browser_does_with_it(client):
    for path in ("/", "/config", "/gradio_api/info", "/music/gradio_api/none"):
        headers = client.get(path).headers
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
    # the page is compressed
    page = client.get("/", headers={"accept-encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    plain = client.get("/", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == page.content
    assert plain.headers["content-security-policy"] == page.headers["content-security-policy"]


def test_only_the_routes_and_methods_of_the_page_are_served(client):
    for path in (
        *("gradio_api/token", "gradio_api/user", "gradio_api/deep_link?session_hash=x", "docs"),
        *("gradio_api/runs", "monitoring", "openapi.json", "pwa_icon", "gradio_api/dev/reload"),
        *("gradio_api/queue/status", "gradio_api/startup-events", "gradio_api/vibe-code"),
    ):
        assert client.get(f"/{path}").status_code == 404
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        answer = client.request(method, "/", headers={"access-control-request-method": "POST"})
        assert answer.status_code == 405
    assert client.get("/%00").status_code == 400
    assert client.get("/gradio_api/app_id").json()["app_id"]  # of a page that reconnects


def test_another_website_gets_no_answer_and_no_credentials(client):
    for origin in ("https://evil.example", "null"):
        headers = {"host": "music.example", "origin": origin}
        assert client.get("/gradio_api/info", headers=headers).status_code == 421
        answer = client.get("/gradio_api/info", headers={"origin": origin})
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    answer = client.get("/config", headers={"x-forwarded-host": "evil.example"})
    assert answer.status_code == 200
    assert "evil.example" not in answer.text
    answer = post(client, "cancel", {"session_hash": "x", "fn_index": ["y" * 3000]})
    assert answer.status_code == 422
    assert len(answer.content) < 300  # the wrong value is not repeated
    assert "fn_index" in answer.json()["error"]


def test_a_body_of_millions_of_values_is_not_parsed(client):
    """Gradio needs 11 s for one of 3.9 MB, during which nobody is served."""
    body = ('{"data":[' + ",".join(["[]"] * 300_000) + "]}").encode()
    for route in ("cancel", "reset", "run/stop", "component_server", "queue/join"):
        assert post(client, route, body).status_code == 413


def test_a_body_without_length_is_not_read_beyond_its_maximum(page):
    for path, most in (("cancel", MAX_SMALL_BYTES), ("run/stop", MAX_CALL_BYTES)):
        received = []

        async def receive(received=received):
            received.append(None)
            return part(10_000)

        assert asked(page.guard, f"/gradio_api/{path}", receive)[0] == 413
        assert len(received) == 1 + most // 10_000


def test_a_refused_body_of_moderate_length_is_read_to_its_end(page):
    """Otherwise the connection is reset, and the client may not get the answer."""
    for length, unread in ((200_000, 0), (20_000_000, 4)):
        left = [part(50_000), part(50_000), part(50_000), part(50_000, more=False)]

        async def receive(left=left):
            return left.pop(0)

        assert asked(page.guard, "/gradio_api/run/stop", receive, length)[0] == 413
        assert len(left) == unread


def test_a_body_that_does_not_arrive_is_refused_in_time(page, monkeypatch):
    async def never():
        await asyncio.Event().wait()

    monkeypatch.setattr(bodies, "IDLE_SECONDS", 0.01)
    status, headers = asked(page.guard, "/gradio_api/run/stop", never)
    assert (status, headers["connection"]) == (408, "close")


def test_without_a_login_a_request_is_refused_before_it_is_parsed(private):
    client = client_of(private.guard)
    for path in (
        *("config", "gradio_api/info", "gradio_api/heartbeat/x", "gradio_api/app_id"),
        *("gradio_api/openapi.json", "gradio_api/file=/etc/passwd", "gradio_api/queue/data"),
    ):
        assert client.get(f"/{path}").status_code == 401
    for path in ("cancel", "reset", "upload", "run/stop", "queue/join"):
        answer = post(client, path, b"{")
        assert answer.status_code == 401
        assert "found no login, expected one; log in first" in answer.text
    assert client.get("/").status_code == 200  # it has the form of the login
    assert client.get(HEALTH).status_code == 200


def test_a_login_gives_a_cookie_that_other_websites_do_not_send(private):
    with client_of(private.guard, "https://localhost") as client:
        cookies = login(client, "right").headers.get_list("set-cookie")
        assert len(cookies) == 2
        for cookie in cookies:
            assert cookie.endswith("; SameSite=Lax")
            assert cookie.lower().count("samesite") == 1
            assert "httponly" in cookie.lower()
        assert client.get("/config").status_code == 200
        assert post(client, "run/stop", {"data": [], "session_hash": "x"}).status_code == 200


def test_passwords_cannot_be_guessed_quickly(private, caplog):
    client = client_of(private.guard)
    forget = private.guard.limits._logins.forget
    forget("testclient")
    assert {login(client, "wrong").status_code for _ in range(MAX_LOGINS)} == {400}
    for password in ("wrong", "right"):
        answer = login(client, password)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert all(record.levelno < logging.ERROR for record in caplog.records)
    forget("testclient")
    assert {login(client, "right").status_code for _ in range(MAX_LOGINS + 1)} == {200}


def test_a_file_that_is_too_large_and_too_many_from_one_address_are_refused(
    page, client, monkeypatch
):
    assert uploaded(client, LARGEST).status_code == 200
    assert uploaded(client, LARGEST + FORM_BYTES).status_code == 413
    many = {"files": ("a.mid", b"x" * LARGEST), "more": ("b.mid", b"x" * LARGEST)}
    assert client.post("/gradio_api/upload", files=many).status_code == 413
    limits = page.guard.limits
    monkeypatch.setattr(limits, "_max_uploaded", 50_000)
    limits._uploads.forget("testclient")
    statuses = [uploaded(client, LARGEST - 1, f"{n}.mid").status_code for n in range(4)]
    assert statuses == [200, 200, 429, 429]
    limits._uploads.forget("testclient")
    monkeypatch.setattr("app.web.guard.limits.MAX_OPEN", 2)
    with limits.request("testclient"), limits.request("testclient"):
        answer = client.get("/config")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert client.get("/config").status_code == 200


def test_a_full_disk_refuses_an_upload_in_one_sentence(client, page, monkeypatch, caplog):
    async def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(page.uploads))

    with monkeypatch.context() as full:
        full.setattr("gradio.route_utils.GradioUploadFile.write", write)
        answer = uploaded(client, 10)
    assert answer.status_code == 507
    assert answer.text.startswith("The file cannot be saved (No space left on device); the disk")
    (line,) = caplog.messages
    assert line.startswith("an uploaded file was not stored: OSError: No space left on device")
    assert str(page.uploads) not in line
    assert all(record.exc_info is None for record in caplog.records)
    (cut_off,) = (path for path in page.uploads.iterdir() if path.is_file())
    os.utime(cut_off, (0, 0))
    assert uploaded(client, 10).status_code == 200
    assert not cut_off.exists()


def test_a_folder_is_not_a_file(page, client):
    """Gradio's clean-up would try to delete it as a file, and end."""
    (path,) = uploaded(client, 10).json()
    assert path.startswith(str(page.uploads))
    folders = (str(page.uploads), path.rpartition("/")[0], "/etc/passwd", "http://x.example/a")
    for name in ("inspect", "render", "continue"):
        fn = next(fn for fn in page.blocks.fns.values() if fn.api_name == name)
        for folder in folders:
            file = {"path": folder, "meta": {"_type": "gradio.FileData"}}
            data = [file] + [None] * (len(fn.inputs) - 1)

            async def called(fn=fn, data=data):
                await page.blocks.process_api(fn, data)

            with pytest.raises(Exception, match="not uploaded"):
                asyncio.run(called())
    kept = {path for files in page.blocks.temp_file_sets for path in files}
    assert not kept & set(folders)
