"""A prompt is played in a browser, and its answer is heard while it is written."""

from __future__ import annotations

import pytest

from tests.support import fakes
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 120_000  # milliseconds: machines are shared

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A page whose model writes 16 notes a second: a bar of 2.5 s takes about one second."""
    with served(tmp_path_factory.mktemp("music"), speed=16.0) as page:
        yield page


@pytest.fixture(scope="module")
def browser(running):
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(running, browser, request):
    yield from opened(browser, running.address)


def opened(browser, address, width=1280, script=""):
    """A tab in which no script may fail."""
    tab = browser.new_page(viewport={"width": width, "height": 860}, has_touch=width < 600)
    tab.set_default_timeout(SLOWLY)
    failures = []
    tab.on("pageerror", lambda error: failures.append(str(error)))
    if script:
        tab.add_init_script(script)
    tab.goto(address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")
    yield tab
    tab.close()
    assert failures == []


def part(page, name):
    return page.locator(f"[data-part={name}]")


def phase(page, name):
    page.wait_for_selector(f".player[data-phase={name}]")


def upload(page, content):
    page.set_input_files(
        "#write-upload input[type=file]",
        files=[{"name": "song.mid", "mimeType": "audio/midi", "buffer": content}],
    )
    phase(page, "prompt")


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


def underruns(page):
    return int(page.locator(".player").get_attribute("data-underruns") or 0)


def second(page):
    return int(part(page, "roll").get_attribute("aria-valuenow"))


def test_music_is_heard_while_it_is_written_without_a_gap(page):
    upload(page, fakes.example_midi(4))
    page.get_by_label("Listen while it is written").check()
    button(page, "Continue").click()
    page.wait_for_selector(".player.playing[data-phase=composing]")
    phase(page, "done")
    assert page.locator(".player.playing").count() == 1
    page.wait_for_selector(".player:not(.playing)")
    assert second(page) >= 0
    assert underruns(page) == 0
