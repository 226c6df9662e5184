"""Requests from other websites are refused, also if they use another name for this machine."""

from __future__ import annotations

import pytest
from starlette.datastructures import MutableHeaders

from app.web.guard.hosts import Hosts
from app.web.guard.refused import RefusedError

HERE = "127.0.0.1:7860"


def check(hosts=None, *, method="POST", path="/gradio_api/run/stop", **headers):
    sent = MutableHeaders({"host": HERE} | {k.replace("_", "-"): v for k, v in headers.items()})
    (hosts or Hosts()).check(method, path, sent)
    return sent


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:7860", "127.0.0.1:7860", "[::1]:7860", "localhost."),
        *("192.168.1.5:7860", "10.0.0.1", "[fe80::1]"),
    ],
)
def test_this_machine_and_addresses_are_served(host):
    check(host=host)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:7860", "localhost.evil.example", "127.0.0.1.evil.example"),
        *(
            "",
            "localhost:x",
            "a@localhost",
            "localhost/",
            "localhost evil",
            "[::1",
            "music.example",
        ),
    ],
)
def test_other_names_are_refused(host):
    """As after DNS rebinding, when evil.example is the address of this machine."""
    with pytest.raises(RefusedError, match="--allow-host") as refused:
        check(host=host)
    assert refused.value.status == 421


def test_names_that_the_user_allows_are_served():
    hosts = Hosts.of("127.0.0.1", ["Music.example"], "https://proxy.example/music")
    for host in ("music.example", "MUSIC.example:80", "proxy.example"):
        check(hosts, host=host)
    check(Hosts.of("piano.local", (), ""), host="piano.local:7860")
    with pytest.raises(RefusedError):
        check(hosts, host="other.example")


def test_a_page_for_the_network_has_the_name_of_the_machine(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "studio")
    for host in ("studio:7860", "studio.local:7860"):
        check(Hosts.of("0.0.0.0", (), ""), host=host)
        with pytest.raises(RefusedError):
            check(Hosts.of("127.0.0.1", (), ""), host=host)


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "null", "http://localhost:7860", "http://127.0.0.1:8000"),
        *("http://127.0.0.1", "", "127.0.0.1:7860", "chrome-extension://127.0.0.1:7860"),
        "http://127.0.0.1:7860.evil.example",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_other_origins_are_refused(method, origin):
    with pytest.raises(RefusedError, match="another website") as refused:
        check(method=method, origin=origin)
    assert refused.value.status == 403


def test_the_origin_is_compared_with_the_name_that_a_proxy_reports_if_it_is_allowed():
    hosts = Hosts.of("127.0.0.1", ["music.example"], "")
    sent = check(hosts, x_forwarded_host="music.example", origin="https://music.example")
    assert sent["x-forwarded-host"] == "music.example"
    assert "origin" not in sent
    check(hosts, host="music.example", origin="https://music.example:443")
    evil = "evil.example"
    with pytest.raises(RefusedError):
        check(hosts, x_forwarded_host=evil, origin=f"https://{evil}")
    assert "x-forwarded-host" not in check(hosts, x_forwarded_host=evil)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_website_can_only_link_to_the_page(site):
    """It can neither embed files nor send forms."""
    check(method="GET", path="/", sec_fetch_site=site, sec_fetch_mode="navigate")
    for method, path, mode in (
        ("GET", "/", "no-cors"),
        ("GET", "/gradio_api/file=x.mid", "navigate"),
        ("GET", "/logout", "navigate"),
        ("POST", "/", "navigate"),
    ):
        with pytest.raises(RefusedError, match="another website"):
            check(method=method, path=path, sec_fetch_site=site, sec_fetch_mode=mode)


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_page_itself_may_do_everything(site):
    check(sec_fetch_site=site, origin=f"http://{HERE}")
