"""Favourites, blind comparisons and studies in a browser, with a fake model and real sound."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 60_000  # milliseconds: machines are shared

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served(tmp_path_factory.mktemp("music"), speed=4000.0) as page:
        yield page.address


@pytest.fixture
def page(address):
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = chromium.new_page(viewport={"width": 1280, "height": 860})
        tab.set_default_timeout(SLOWLY)
        failures = []
        tab.on("pageerror", lambda error: failures.append(str(error)))
        tab.goto(address)
        tab.wait_for_selector(".player-roll[aria-valuetext]")
        yield tab
        chromium.close()
        assert failures == []


def part(page, name):
    return page.locator(f"[data-part={name}]")


def downloaded(page, selector):
    with page.expect_download() as download:
        page.locator(selector).click()
    return zipfile.ZipFile(io.BytesIO(Path(download.value.path()).read_bytes()))


def test_favourites_and_a_blind_comparison(page):
    page.set_input_files(
        "#write-upload input[type=file]",
        files=[
            {
                "name": "Song.mid",
                "mimeType": "audio/midi",
                "buffer": fakes.example_midi(bars=4),
            }
        ],
    )
    page.wait_for_selector(".player[data-phase=prompt]")
    tab = page.locator("#write-tab")
    tab.get_by_role("radio", name="3", exact=True).check(force=True)
    tab.get_by_role("button", name="Continue", exact=True).click()
    page.wait_for_selector(".player[data-phase=done]")

    part(page, "favourite").click()
    page.wait_for_selector("[data-part=favourite][aria-pressed=true]")
    page.locator(".player-chips button").nth(2).click()
    assert part(page, "favourite").get_attribute("aria-pressed") == "false"
    part(page, "favourite").click()
    page.wait_for_selector("#results li:has-text('variation 3')")
    names = downloaded(page, "#results [data-zip]").namelist()
    assert [Path(name).suffix for name in names] == [".mid", ".json"] * 2
    part(page, "favourite").click()
    page.wait_for_selector("#results li:has-text('variation 3')", state="detached")

    part(page, "blind-start").click()
    assert not page.locator(".player-chips").is_visible()
    assert not part(page, "settings").is_visible()
    page.keyboard.press("2")
    for name in ("a", "b"):
        assert part(page, "prefer-a").is_disabled()
        part(page, f"blind-{name}").click()
        page.wait_for_selector(f"[data-part=blind-{name}][aria-pressed=true]")
    page.wait_for_selector("[data-part=prefer-b]:not([disabled])")
    part(page, "prefer-b").click()
    said = part(page, "blind-say").inner_text()
    found = re.fullmatch(
        r"A was variation (\d), B was variation (\d)\. You preferred variation (\d)\.", said
    )
    assert found
    assert found[1] != found[2] == found[3]
    assert f"variation {found[3]}: 1 of 1" in part(page, "blind-counts").inner_text()
    part(page, "blind-again").click()
    assert part(page, "blind-counts").inner_text() == ""
    part(page, "blind-end").click()
    assert page.locator(".player-chips").is_visible()


def test_a_study_by_form(page):
    page.get_by_role("tab", name="Study").click()
    page.set_input_files(
        "#study-upload input[type=file]",
        files=[
            {
                "name": "Song.mid",
                "mimeType": "audio/midi",
                "buffer": fakes.example_midi(bars=4),
            }
        ],
    )
    page.wait_for_selector("#study-upload .file")
    tab = page.locator("#study-tab")
    for name in ("Real continuation", "Shuffled notes"):
        tab.get_by_label(name).check()
    page.wait_for_selector("#study-tab .estimate:has-text('clips')", state="detached")
    make = tab.get_by_role("button", name="Make the study")
    make.click()
    refused = page.locator("#study-result .refused")
    refused.wait_for()
    assert refused.inner_text().startswith("Enter the last bar of the prompts: 'Real continuation'")
    tab.get_by_label("Last bar of the prompts").fill("2")
    tab.get_by_label("Length").first.fill("2")
    tab.get_by_label("MIDI only").check(force=True)
    page.wait_for_selector("#study-tab .estimate:has-text('2 clips')")
    make.click()
    page.wait_for_selector(".study-zip")
    # the extracted ZIP file contains the folder `study`, which a batch would refuse
    assert "relpe batch config.yaml --output again" in page.locator("#study-result").inner_text()
    names = downloaded(page, ".study-zip").namelist()
    assert {"config.yaml", "prompts/Song.mid", "study/key.csv", "study/manifest.csv"} < set(names)
    assert sum(name.startswith("study/midi/") for name in names) == 2
