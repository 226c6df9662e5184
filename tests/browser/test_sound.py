"""The sound of the player in a browser: its synthesizer, and what the server renders instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import harness
from tests.support.browser import HEARD, LOUD, SILENT, box_of, opened

WITHOUT_WORKLETS = "delete BaseAudioContext.prototype.audioWorklet;"
"""As at addresses that are neither https nor localhost."""
READY = "document.querySelector('[data-part=loading]').hidden"


@pytest.fixture(scope="module")
def address():
    with harness.harness() as where:
        yield where


@pytest.fixture
def page(address, browser):
    with opened(browser, address, size=(1060, 900), ready=".player-roll", script=HEARD) as tab:
        tab.evaluate("harness.ready")
        yield tab


@pytest.fixture
def rendered(address, browser):
    """A page whose browser has no synthesizer."""
    ready = ".player-roll"
    with opened(browser, address, size=(1060, 900), ready=ready, script=WITHOUT_WORKLETS) as tab:
        tab.evaluate("harness.ready")
        yield tab


def show(page, frame):
    page.evaluate("frame => harness.show(frame)", frame)


def show_done(page, **others):
    show(page, harness.done_frame(**others))
    page.wait_for_function(READY)


def mixes(page):
    return [request for _, request in page.evaluate("harness.asked") if "without" in request]


def mix(variation=0, *, without=(), job="j1"):
    """A request for sound."""
    return {"job": job, "variation": variation, "kind": "flac", "without": list(without)}


def seconds(page):
    return int(page.part("roll").get_attribute("aria-valuenow"))


def plays(page, playing=True):
    page.wait_for_selector(".player.playing" if playing else ".player:not(.playing)")


def click_roll(page, share):
    """Click on the roll, at a share of its width."""
    roll = box_of(page.part("roll"))
    page.mouse.click(roll["x"] + share * roll["width"], roll["y"] + 200)


# the synthesizer


def test_it_is_loaded_with_the_first_music_and_plays_when_it_is_there(page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    held: list[Any] = []
    page.route("**/bank.sf2", lambda route: held.append(route))
    page.wait_for_timeout(300)
    assert asked == []
    show(page, harness.done_frame())
    page.shows("Loading the instruments", "[data-part=loading]")
    page.part("play").click()
    page.wait_for_selector(".player.making [data-part=play][aria-label='Preparing the sound']")
    held[0].continue_()
    page.wait_for_function(LOUD)
    plays(page)
    assert page.part("loading").is_hidden()
    show(page, harness.done_frame(job="j2"))
    page.wait_for_timeout(300)
    assert asked == ["bank.sf2"]  # Chromium does not report the modules of worklets
    assert mixes(page) == []


def test_muting_is_heard_at_once_and_asks_for_no_files(page):
    show_done(page)
    page.part("play").click()
    page.wait_for_function(LOUD)
    for button in page.locator(".mute").all():
        button.click()
    page.wait_for_function(SILENT)
    plays(page)
    page.locator(".solo").nth(0).click()
    page.wait_for_function(LOUD)
    page.part("volume").fill("0")
    page.wait_for_function(SILENT)
    assert mixes(page) == []


def test_seek_pause_end_and_again(page):
    show_done(page)
    assert seconds(page) == 12  # four seconds before the new music
    page.part("play").click()
    page.wait_for_function("+document.querySelector('[data-part=roll]').ariaValueNow >= 13")
    page.part("from-splice").click()
    assert 16 <= seconds(page) <= 17
    page.part("play").click()
    plays(page, playing=False)
    page.wait_for_function(SILENT)
    end = int(page.part("roll").get_attribute("aria-valuemax"))
    page.part("roll").focus()
    page.keyboard.press("End")
    assert seconds(page) == end
    page.part("play").click()  # from the start
    page.wait_for_function("+document.querySelector('[data-part=roll]').ariaValueNow == 1")
    page.part("roll").focus()
    page.keys("End", "ArrowLeft")
    plays(page, playing=False)
    assert seconds(page) == end


def test_music_plays_while_it_is_written_and_waits_for_what_is_not(page):
    show_done(page, job="j0")
    frame: Any = harness.done_frame() | {"phase": "composing"}
    tracks = frame["variations"][0]["tracks"]

    def written(bars):
        """The tracks, up to a bar line after the bars of the prompt."""
        return [
            track
            | {
                "notes": "".join(
                    f"{note};"
                    for note in track["notes"].split(";")
                    if note and int(note.split(",")[0]) <= 96 * 4 * (8 + bars)
                )
            }
            for track in tracks
        ]

    def compose(bars):
        show(page, frame | {"variations": [frame["variations"][0] | {"tracks": written(bars)}]})

    compose(0)
    plays(page, playing=False)
    page.part("play").click()
    page.wait_for_function(LOUD)
    page.part("from-splice").click()  # nothing is written there
    page.wait_for_timeout(1000)
    assert seconds(page) == 16
    plays(page)
    compose(1)
    page.wait_for_function("+document.querySelector('[data-part=roll]').ariaValueNow >= 18")
    page.wait_for_timeout(700)
    assert seconds(page) == 18  # one bar of two seconds
    show(page, harness.done_frame())
    page.wait_for_function("+document.querySelector('[data-part=roll]').ariaValueNow >= 20")


# the sound of the server


def test_without_worklets_or_soundfont_the_server_renders_which_is_said(rendered, browser, address):
    show(rendered, harness.prompt_frame(bars=16))  # 32 s
    rendered.shows("at https and localhost): the server renders the sound", "[data-part=loading]")
    rendered.evaluate("harness.delay = 500")
    click_roll(rendered, 0.93)
    rendered.wait_for_function("+document.querySelector('[data-part=roll]').ariaValueNow > 16")
    at = seconds(rendered)
    assert mixes(rendered) == []
    rendered.part("play").click()
    rendered.wait_for_selector(".player.making")
    plays(rendered)
    (request,) = mixes(rendered)
    assert request == mix(-1, job="j0")
    time_of = "document.querySelector('.player audio').currentTime"
    assert at - 1 <= rendered.evaluate(time_of) < at + 5
    rendered.part("from-start").click()
    plays(rendered)
    assert len(mixes(rendered)) == 1

    with opened(browser, address, ready=".player-roll") as other:
        other.route("**/bank.sf2", lambda route: route.abort())
        show(other, harness.done_frame())
        other.shows("could not be loaded: the server renders the sound", "[data-part=loading]")
        other.part("play").click()
        plays(other)
        assert mixes(other) == [mix()]


def test_a_failed_mix_of_the_server_is_reported_and_can_be_tried_again(rendered):
    sound = "document.querySelector('.player audio').src.includes('{}')".format
    show(rendered, harness.done_frame(variations=2))
    rendered.part("play").click()
    plays(rendered)
    rendered.evaluate("harness.refuse = 'This sound cannot be mixed.'")
    mute = rendered.locator(".mute").nth(1)
    mute.click()
    rendered.shows("This sound cannot be mixed")
    plays(rendered, playing=False)
    rendered.evaluate("harness.refuse = null")
    rendered.part("play").click()
    rendered.wait_for_function(sound("sound_v0_1.wav"))
    assert mute.get_attribute("aria-pressed") == "true"
    plays(rendered)
    show(rendered, harness.prompt_frame(job=""))
    assert rendered.part("play").is_disabled()


def test_a_blind_comparison_is_silent_until_the_right_rendering_is_ready(page):
    show_done(page, variations=2)
    page.part("play").click()
    page.wait_for_function(LOUD)
    page.part("blind-start").click()
    page.wait_for_function(SILENT)
    page.part("blind-a").click()
    page.wait_for_selector("[data-part=blind-a][aria-pressed=true]")
    page.evaluate("harness.delay = 800")
    page.part("blind-b").click()
    page.wait_for_timeout(400)
    assert page.evaluate("document.querySelector('.player audio').paused")
    page.wait_for_selector("[data-part=blind-b][aria-pressed=true]")
    (one, other) = (request["variation"] for request in mixes(page))
    assert {one, other} == {0, 1}
    assert page.evaluate("document.querySelector('.player audio').dataset.name") == f"j1/{other}"
    page.part("blind-end").click()
    assert page.evaluate("document.querySelector('.player audio').paused")
    page.part("play").click()
    page.wait_for_function(LOUD)
