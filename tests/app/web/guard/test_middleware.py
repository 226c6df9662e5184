"""What the guard refuses before Gradio sees it, and what it adds to answers."""

from __future__ import annotations

import asyncio
import errno
import os
import re

import pytest

from app.player.assets import MODULES
from app.web.guard import HEALTH
from app.web.guard.bodies import DISCARDED_BYTES
from app.web.guard.limits import MAX_LOGINS
from app.web.guard.refused import RefusedError
from app.web.guard.routes import FORM_BYTES, MAX_CALL_BYTES
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


def status_of(guard, receive):
    """Status of the answer to a call whose body is received in parts, without a stated length."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/gradio_api/run/stop", "query_string": b""}
    headers = [(b"host", b"localhost")]
    asyncio.run(guard(scope | {"headers": headers, "client": ("10.0.0.9", 1)}, receive, send))
    return sent[0]["status"]


def test_health_describes_the_page(client):
    answer = client.get(HEALTH)
    assert answer.status_code == 200
    expected = {"status": "ok", "models": ["fake"], "jobs": {"running": 0, "waiting": 0}}
    assert answer.json() == expected
    assert answer.headers["cache-control"] == "no-store"


def test_modules_of_the_player_are_served_as_javascript_that_may_be_cached(client):
    answer = client.get(f"/music{MODULES.route}player.js")
    assert answer.status_code == 200
    assert answer.content == MODULES.sources["player.js"]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" in answer.headers["cache-control"]
    assert client.head(f"{MODULES.route}player.js").status_code == 200
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


def test_the_page_is_compressed_if_the_browser_accepts_it(client):
    page = client.get("/", headers={"accept-encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    plain = client.get("/", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == page.content
    assert b"manifest.json" not in page.content  # its address is wrong behind a proxy
    (module,) = re.findall(rb'root \+ \\?"(/player-modules/[^"\\]+)', plain.content)
    assert client.get(module.decode()).headers["content-encoding"] == "gzip"
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
    """Parsing 3.9 MB would block the server for seconds."""
    body = ('{"data":[' + ",".join(["[]"] * 300_000) + "]}").encode()
    for route in ("cancel", "reset", "run/stop", "component_server", "queue/join"):
        answer = post(client, route, body)
        assert (answer.status_code, answer.headers["connection"]) == (413, "close")


@pytest.mark.parametrize(
    ("sizes", "unread"), [([50_000] * 4, 0), ([50_000] + [DISCARDED_BYTES] * 4, 3)]
)
def test_the_rest_of_a_refused_body_is_read_if_it_is_of_moderate_size(page, sizes, unread):
    """Otherwise the connection is reset, and the client may not get the answer."""
    left = [{"type": "http.request", "body": b"x" * n, "more_body": True} for n in sizes]
    left[-1]["more_body"] = False

    async def receive():
        return left.pop(0)

    assert sum(sizes) > MAX_CALL_BYTES
    assert status_of(page.guard, receive) == 413
    assert len(left) == unread


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


def test_passwords_cannot_be_guessed_quickly(private):
    client = client_of(private.guard)
    private.guard.passwords.add("testclient", -MAX_LOGINS)
    assert {login(client, "wrong").status_code for _ in range(MAX_LOGINS)} == {400}
    for password in ("wrong", "right"):
        answer = login(client, password)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    private.guard.passwords.add("testclient", -MAX_LOGINS)
    assert {login(client, "right").status_code for _ in range(MAX_LOGINS + 1)} == {200}


def test_a_file_that_is_too_large_and_too_many_from_one_address_are_refused(
    page, client, monkeypatch
):
    assert uploaded(client, LARGEST).status_code == 200
    assert uploaded(client, LARGEST + FORM_BYTES).status_code == 413
    many = {"files": ("a.mid", b"x" * LARGEST), "more": ("b.mid", b"x" * LARGEST)}
    assert client.post("/gradio_api/upload", files=many).status_code == 413
    monkeypatch.setattr(page.guard.uploads, "most", 2 * LARGEST)
    page.guard.uploads.add("testclient", -9 * LARGEST)
    answers = [uploaded(client, LARGEST, f"{n}.mid") for n in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].text.startswith("found over 40,000 bytes of uploads; try again in")
    page.guard.uploads.add("testclient", -9 * LARGEST)


def test_an_upload_counts_while_it_is_in_progress(page, client, monkeypatch):
    """Otherwise any number could be sent at once."""
    monkeypatch.setattr(page.guard.uploads, "most", 5)
    serve = page.guard.app

    async def app(*call):
        with pytest.raises(RefusedError):
            page.guard.uploads.check("testclient", "found more")
        await serve(*call)

    monkeypatch.setattr(page.guard, "app", app)
    assert uploaded(client, 10).status_code == 200
    page.guard.uploads.add("testclient", -LARGEST)


def test_a_full_disk_refuses_an_upload_in_one_sentence(client, page, monkeypatch, caplog):
    async def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(page.uploads))

    with monkeypatch.context() as full:
        full.setattr("gradio.route_utils.GradioUploadFile.write", write)
        answer = uploaded(client, 10)
    assert answer.status_code == 507
    assert answer.text.startswith("The file cannot be saved (No space left on device); the disk")
    assert caplog.messages == ["an uploaded file was not stored: No space left on device"]
    (cut_off,) = (path for path in page.uploads.iterdir() if path.is_file())
    os.utime(cut_off, (0, 0))
    assert uploaded(client, 10).status_code == 200
    assert not cut_off.exists()
