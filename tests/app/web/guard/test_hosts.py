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


def refuse(status, hosts=None, **request):
    with pytest.raises(RefusedError) as refused:
        check(hosts, **request)
    assert refused.value.status == status, request


def test_this_machine_and_addresses_are_served_and_other_names_refused():
    """As after DNS rebinding, when evil.example is the address of this machine."""
    for host in (
        *("localhost", "LOCALHOST:7860", "127.0.0.1:7860", "[::1]:7860", "localhost."),
        *("192.168.1.5:7860", "10.0.0.1", "[fe80::1]"),
    ):
        check(host=host)
    for host in (
        *("evil.example", "evil.example:7860", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("", "localhost:x", "a@localhost", "localhost/", "localhost evil", "[::1"),
    ):
        refuse(421, host=host)


def test_names_that_the_user_allows_are_served():
    hosts = Hosts.of("127.0.0.1", ["Music.example"], "https://proxy.example/music")
    for host in ("music.example", "MUSIC.example:80", "proxy.example"):
        check(hosts, host=host)
    check(Hosts.of("piano.local", (), ""), host="piano.local:7860")
    refuse(421, hosts, host="other.example")


def test_a_page_for_the_network_has_the_name_of_the_machine(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "studio")
    for listening in ("0.0.0.0", "::", "[::]"):
        for host in ("studio:7860", "studio.local:7860"):
            check(Hosts.of(listening, (), ""), host=host)
            refuse(421, Hosts.of("127.0.0.1", (), ""), host=host)


def test_other_origins_are_refused():
    for method in ("GET", "POST", "OPTIONS"):
        for origin in (
            *("https://evil.example", "null", "http://localhost:7860", "http://127.0.0.1:8000"),
            *("http://127.0.0.1", "", "127.0.0.1:7860", "chrome-extension://127.0.0.1:7860"),
            "http://127.0.0.1:7860.evil.example",
        ):
            refuse(403, method=method, origin=origin)


def test_the_origin_is_compared_with_the_name_that_a_proxy_reports_if_it_is_allowed():
    hosts = Hosts.of("127.0.0.1", ["music.example"], "")
    sent = check(hosts, x_forwarded_host="music.example, x", origin="https://music.example")
    assert sent["x-forwarded-host"] == "music.example"
    assert "origin" not in sent
    check(hosts, host="music.example", origin="https://music.example:443")
    check(hosts, host="music.example:80", origin="http://music.example")
    evil = "evil.example"
    refuse(403, hosts, x_forwarded_host=evil, origin=f"https://{evil}")
    assert "x-forwarded-host" not in check(hosts, x_forwarded_host=evil)


def test_another_website_can_only_link_to_the_page():
    """It can neither embed files nor send forms."""
    for site in ("cross-site", "same-site"):
        check(method="GET", path="/", sec_fetch_site=site, sec_fetch_mode="navigate")
        for method, path, mode in (
            ("GET", "/", "no-cors"),
            ("GET", "/gradio_api/file=x.mid", "navigate"),
            ("POST", "/", "navigate"),
        ):
            refuse(403, method=method, path=path, sec_fetch_site=site, sec_fetch_mode=mode)
    for site in ("same-origin", "none"):
        check(sec_fetch_site=site, origin=f"http://{HERE}")
