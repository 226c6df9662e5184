"""Bars and tracks are selected in a browser and written by a small model of version 2."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import mido
import pytest

from app.compose.models import Models
from tests.support.bands import band, model_of
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 120_000  # milliseconds: machines are shared

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with a model of version 1, which only continues, and one of version 2."""
    models = Models.only(model_of(MultitrackRemi()))
    models.names = ("first", "second")
    models._loaded["first"] = replace(model_of(MultitrackRemi()), name="first")
    with served(tmp_path_factory.mktemp("music"), models=models) as page:
        yield page.address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(params=[(1280, 860)])
def page(address, browser, request):
    """A page with a band of six bars; no script may fail."""
    width, height = request.param
    view = {"width": width, "height": height}
    tab = browser.new_page(viewport=view, has_touch=width < 600)
    tab.set_default_timeout(SLOWLY)
    failures = []
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")
    tab.set_input_files(
        "#write-upload input[type=file]",
        files=[{"name": "band.mid", "mimeType": "audio/midi", "buffer": SONG}],
    )
    phase(tab, "prompt")
    fit(tab)
    yield tab
    tab.close()
    assert failures == []


SONG = write_midi(band(bars=6))
phone = pytest.mark.parametrize("page", [(390, 800)], indirect=True)


def part(page, name):
    return page.locator(f"[data-part={name}]")


def phase(page, name):
    page.wait_for_selector(f".player[data-phase={name}]")


def fit(page):
    """Shows the whole piece."""
    part(page, "zoom-fit").click()
    page.wait_for_timeout(800)


def line(page, bar):
    """Where a bar begins, in pixels from the left of the page; all six are in view."""
    box = part(page, "roll").bounding_box()
    keys = 66 if box["width"] >= 560 else 34  # of a band
    return box["x"] + keys + (box["width"] - keys) * (bar - 1) / (6 * 1.02)


def drag(page, first, last, below=150):
    """Drags over two bars with the mouse, `below` the top of the roll."""
    top = part(page, "roll").bounding_box()["y"]
    page.mouse.move(line(page, first) + 12, top + below)
    page.mouse.down()
    page.mouse.move(line(page, last + 1) - 12, top + below + 20, steps=5)
    page.mouse.up()


def selected(page, text):
    """Waits until the server has answered with these bars."""
    page.wait_for_function(
        """text => !document.querySelector("[data-part=selection]").hidden
        && document.querySelector("[data-part=selection-bars]").innerText === text
        && document.querySelector("#write-facts").innerText.includes(text.replace("–", " to "))""",
        arg=text,
    )


def works(page):
    """What happens to each track in the selected bars."""
    return page.locator("[data-part=tracks] .work[aria-pressed=true]").all_inner_texts()


def work(page, number, word):
    """Chooses what happens to a track, and waits until the server has answered."""
    page.locator(f".track:nth-of-type({number + 1}) .work", has_text=word).click()
    page.wait_for_function(
        """([number, word]) => document.querySelectorAll(".track")[number - 1]
        .querySelector(".work[aria-pressed=true]").innerText === word""",
        arg=[number, word],
    )


def write(page):
    part(page, "write").click()
    phase(page, "done")


def downloaded(page, name="file-midi"):
    with page.expect_download() as download:
        part(page, name).click()
    return Path(download.value.path()).read_bytes()


def chunks(data):
    """The tracks of a file, byte for byte."""
    starts = [at for at in range(len(data)) if data[at : at + 4] == b"MTrk"]
    return [data[start:end] for start, end in pairwise([*starts, len(data)])]


def notes(data, number):
    return sorted(map(tuple, read_midi(data).tracks[number].notes.tolist()))


def test_dragged_bars_of_ticked_tracks_are_written_compared_undone_and_downloaded(page):
    drag(page, 3, 4)
    selected(page, "bars 3–4")
    assert works(page) == ["Write", "Write", "Write"]
    work(page, 1, "Keep")  # the piano
    page.locator("#controls .segments label", has_text="2").locator("visible=true").first.click()
    page.wait_for_timeout(1000)
    write(page)
    which = "Electric Bass (finger) and Drums, bars 3 to 4"
    assert part(page, "subtitle").inner_text() == f"{which} · second model"
    assert page.locator("[data-part=chips] [role=radio]").count() == 2
    first = downloaded(page)
    page.keyboard.press("2")
    second = downloaded(page)
    assert first != second
    for made in (first, second):
        assert chunks(made)[1] == chunks(SONG)[1]  # the piano, after the conductor
        for number in (1, 2):
            kept = [n for n in notes(SONG, number) if not 3819 <= n[0] < 7659]
            assert [n for n in notes(made, number) if not 3819 <= n[0] < 7659] == kept
        mido.MidiFile(file=io.BytesIO(made))
    part(page, "play").click()
    page.wait_for_selector(".player.playing")
    part(page, "undo").click()
    phase(page, "prompt")
    selected(page, "bars 3–4")
    assert works(page) == ["Keep", "Write", "Write"]
    part(page, "at-end").click()
    page.wait_for_function("document.querySelector('[data-part=selection]').hidden")
    page.get_by_role("button", name="Continue", exact=True).wait_for()


def test_bars_are_selected_and_written_by_keys_alone(page):
    part(page, "roll").focus()
    for key in ("ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    page.keyboard.press("Shift+ArrowLeft")
    selected(page, "bars 2–3")
    page.keyboard.press("Control+a")
    page.wait_for_function("/so nothing remains for the model/.test(document.body.innerText)")
    assert part(page, "selection-bars").inner_text() == "bars 1–6"
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelector('[data-part=selection]').hidden")
    page.keyboard.press("Shift+ArrowRight")
    selected(page, "bar 2")
    part(page, "select-to").focus()
    page.keyboard.press("ArrowRight")
    selected(page, "bars 2–3")
    part(page, "roll").focus()
    page.keyboard.press("Enter")
    phase(page, "done")
    assert part(page, "subtitle").inner_text().startswith("bars 2 to 3")


@phone
def test_a_finger_selects_on_the_bar_numbers_and_still_moves_the_view(page):
    top = part(page, "roll").bounding_box()["y"]
    tools = page.context.new_cdp_session(page)

    def swipe(start, stop, below):
        for kind, at in (
            *(("touchStart", start), ("touchMove", (start + stop) / 2)),
            *(("touchMove", stop), ("touchEnd", None)),
        ):
            points = [] if at is None else [{"x": at, "y": top + below}]
            tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    swipe(line(page, 5), line(page, 3), 200)
    page.wait_for_timeout(300)
    assert part(page, "selection").is_hidden()
    fit(page)
    swipe(line(page, 2) + 8, line(page, 4) - 8, 10)
    selected(page, "bars 2–3")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    write(page)


def test_tracks_hold_one_row_and_their_choices_that_of_the_transport(page):
    tops = {chip.bounding_box()["y"] for chip in part(page, "tracks").locator("li").all()}
    assert len(tops) == 1
    play = part(page, "play").bounding_box()
    for name in ("new-track", "open-tracks"):
        assert play["y"] < part(page, name).bounding_box()["y"] < play["y"] + play["height"]


def test_a_new_track_is_written_in_all_bars_or_in_the_selected_ones(page):
    part(page, "instrument").select_option("Flute")
    selected(page, "bars 1–6")
    assert works(page) == ["Keep", "Keep", "Keep"]
    write(page)
    made = downloaded(page)
    assert [notes(made, n) for n in range(3)] == [notes(SONG, n) for n in range(3)]
    assert {track.program for track in read_midi(made).tracks[3:]} == {73}
    part(page, "other-prompt").click()
    phase(page, "prompt")
    drag(page, 1, 2)
    selected(page, "bars 1–2")
    assert part(page, "instrument").input_value() == "73"
    part(page, "instrument").select_option("")
    page.wait_for_function(
        "document.querySelectorAll('[data-work=write][aria-pressed=true]').length === 3"
    )


def test_a_click_on_a_section_selects_its_bars(page):
    top = part(page, "roll").bounding_box()["y"]
    page.mouse.click(line(page, 2), top + 45)  # the form of the band is A A
    page.wait_for_function("!document.querySelector('[data-part=selection]').hidden")
    chart = page.locator("#write-facts .form").inner_text()
    assert "Form A A" in chart
    first, last = part(page, "selection-bars").inner_text().removeprefix("bars ").split("–")
    assert (first, 2 <= int(last) < 6) == ("1", True)


def test_what_a_model_cannot_do_is_grey_and_says_why(page):
    page.locator("#controls .model label", has_text="first").click()
    drag(page, 2, 3)
    page.wait_for_function(
        "/can only continue a piece/.test(document.querySelector('[data-part=problem]').innerText)"
    )
    assert part(page, "write").is_disabled()
    assert page.locator("#controls button.go-music").is_disabled()
    page.locator("#controls .model label", has_text="second").click()
    selected(page, "bars 2–3")
    page.wait_for_function("!document.querySelector('[data-part=write]').disabled")
    assert part(page, "problem").is_hidden()
    for number in (1, 2, 3):
        work(page, number, "Keep")
    page.wait_for_function("/Choose Write for at least one track/.test(document.body.innerText)")
    assert part(page, "write").is_disabled()


def test_a_track_that_rests_loses_its_notes_in_the_selected_bars_only(page):
    drag(page, 3, 4)
    selected(page, "bars 3–4")
    work(page, 1, "Keep")
    work(page, 3, "Rest")  # the drums
    write(page)
    made = downloaded(page)
    assert notes(made, 0) == notes(SONG, 0)
    assert notes(made, 2) == [n for n in notes(SONG, 2) if not 3819 <= n[0] < 7659]


def test_bars_of_a_result_are_written_again(page):
    drag(page, 2, 2)
    selected(page, "bar 2")
    write(page)
    first = downloaded(page)
    fit(page)
    drag(page, 4, 5)
    phase(page, "prompt")
    selected(page, "bars 4–5")
    write(page)
    second = downloaded(page)
    for number in range(3):
        early = [
            [n for n in notes(made, number) if n[0] < 3 * 1920 - 21] for made in (first, second)
        ]
        assert early[0] == early[1]
    for _ in range(2):
        part(page, "undo").click()
        page.wait_for_timeout(500)
    phase(page, "done")
    assert downloaded(page) == first
