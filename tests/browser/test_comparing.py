"""Favourites, blind comparisons and studies in a browser, with a fake model and real sound."""

from __future__ import annotations

import io
import re
import zipfile

from tests.support import fakes


def names_in_zip(page, where):
    return zipfile.ZipFile(io.BytesIO(page.downloaded(where)[1])).namelist()


def test_favourites_and_a_blind_comparison(page):
    page.upload_prompt(fakes.example_midi(bars=4))
    page.locator("#write-tab").get_by_role("radio", name="3", exact=True).check(force=True)
    page.compose()

    assert page.locator("#results li b").locator("visible=true").count() == 0  # a single take
    page.locator("#results [data-star]").first.click()
    page.locator("#results [data-star][aria-pressed=true]").wait_for()

    page.part("blind-start").click()
    assert not page.locator(".player-chips").is_visible()
    assert not page.part("settings").is_visible()
    page.keyboard.press("2")
    for name in ("a", "b"):
        assert page.part("prefer-a").is_disabled()
        page.part(f"blind-{name}").click()
        page.wait_for_selector(f"[data-part=blind-{name}][aria-pressed=true]")
    page.wait_for_selector("[data-part=prefer-b]:not([disabled])")
    page.part("prefer-b").click()
    sentence = r"A was variation (\d), B was variation (\d)\. You preferred variation (\d)\."
    match = re.fullmatch(sentence, page.part("blind-say").inner_text())
    assert match
    assert match[1] != match[2] == match[3]
    assert f"variation {match[3]}: 1 of 1" in page.part("blind-counts").inner_text()
    page.part("blind-again").click()
    assert page.part("blind-counts").inner_text() == ""
    page.part("blind-end").click()
    assert page.locator(".player-chips").is_visible()


def test_a_study_by_form(page):
    page.get_by_role("tab", name="Study").click()
    page.upload(fakes.example_midi(bars=4), place="#study-upload")
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
    names = names_in_zip(page, ".study-zip")
    assert {"config.yaml", "prompts/Song.mid", "study/key.csv", "study/manifest.csv"} < set(names)
    assert sum(name.startswith("study/midi/") for name in names) == 2
