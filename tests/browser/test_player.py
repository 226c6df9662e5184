"""The player in a browser, on a separate page: mouse, keyboard and touch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.support import harness
from tests.support.browser import box_of, centre, in_focus, opened

PHONE = pytest.mark.parametrize("page", [(390, 800)], indirect=True)


@pytest.fixture(scope="module")
def address():
    with harness.harness() as where:
        yield where


@pytest.fixture(params=[(1060, 900)])
def page(address, browser, request):
    with opened(browser, address, size=request.param, ready=".player-roll") as tab:
        tab.evaluate("harness.ready")
        yield tab


def show(page, frame):
    page.evaluate("frame => harness.show(frame)", frame)
    page.wait_for_timeout(150)


def show_done(page, **others):
    """Show a finished job and wait for its sound."""
    show(page, harness.done_frame(**others))
    page.wait_for_function("document.querySelector('.player audio').readyState > 2")
    page.wait_for_function("!document.querySelector('.player').classList.contains('making')")


def handle(page, side):
    """The start ("from") or the end ("to") of the region."""
    return page.locator(f".player-handle.{side}")


def bar_width(page, bars):
    return (centre(handle(page, "to"))[0] - centre(handle(page, "from"))[0]) / bars


def events(page):
    return [tuple(event) for event in page.evaluate("harness.events")]


def asked(page, name="mix"):
    return [request for kind, request in page.evaluate("harness.asked") if kind == name]


def mix(variation=0, *, without=(), second=0, job="j1"):
    """A request for sound."""
    return {"job": job, "variation": variation, "without": list(without), "second": second}


def now(page):
    return page.evaluate("document.querySelector('.player audio').currentTime")


def wait_for_sound(page, text):
    page.wait_for_function(f"document.querySelector('.player audio').src.includes('{text}')")


def plays(page, playing=True):
    page.wait_for_selector(".player.playing" if playing else ".player:not(.playing)")


def click_roll(page, x):
    """Click on the roll, `x` pixels from its left."""
    roll = box_of(page.part("roll"))
    page.mouse.click(roll["x"] + x, roll["y"] + 200)


def playhead(page):
    """Position of the playhead in CSS pixels from the left of the roll."""
    return page.evaluate(
        """(() => { const c = document.querySelector('.player-roll');
        const row = c.getContext('2d').getImageData(0, 22, c.width, 1).data;
        const at = [];
        for (let x = 0; x < c.width; x += 1)
          if (row[4 * x] < 60 && row[4 * x + 1] < 60 && row[4 * x + 2] < 70) at.push(x);
        return at.length ? (at[0] + at.at(-1) + 1) / 2 * c.clientWidth / c.width : null; })()"""
    )


# the region of the prompt


def test_a_region_is_chosen_by_handles_keys_and_chips_unless_a_job_runs(page):
    show(page, harness.prompt_frame())
    start, end = handle(page, "from"), handle(page, "to")
    assert page.part("region-bars").inner_text() == "bars 5–12"
    bar = bar_width(page, 8)
    x, y = centre(start)
    page.drag((x, y), (x + 1.7 * bar, y), release=False)
    assert page.part("region-bars").inner_text() == "bars 7–12"
    assert events(page) == []  # until it is let go
    assert centre(start)[0] == pytest.approx(x + 2 * bar, abs=1.5)
    page.mouse.up()
    x, y = centre(end)
    page.drag((x, y), (x - 20 * bar, y))  # at least one bar remains
    assert [data for _, data in events(page)] == [{"first": 7, "last": 12}, {"first": 7, "last": 7}]

    show(page, harness.prompt_frame(job="j0b"))
    start.focus()
    page.keys("ArrowLeft", "ArrowLeft", "ArrowRight")
    assert start.get_attribute("aria-valuetext") == "Bar 4"
    page.wait_for_function("harness.events.length === 3")
    assert page.part("last-bars").get_attribute("aria-pressed") == "false"
    page.part("all-bars").click()
    page.part("last-bars").click()
    assert [data["first"] for _, data in events(page)[2:]] == [4, 1, 5]
    assert page.part("last-bars").get_attribute("aria-pressed") == "true"

    show(page, harness.prompt_frame() | {"busy": True})
    assert not start.is_visible()
    show(page, harness.done_frame())
    page.part("at-end").click()  # the result becomes the piece
    assert events(page)[-1] == ("select", {"variation": 0})


def test_the_view_stays_with_a_region_and_moves_to_one_outside(page):
    show(page, harness.prompt_frame(bars=40, first=32))
    page.part("zoom-in").click()
    page.wait_for_timeout(800)
    before = centre(handle(page, "to"))
    show(page, harness.prompt_frame(bars=40, first=8, job="j0b"))  # of the same file
    page.wait_for_timeout(500)
    assert centre(handle(page, "to")) == pytest.approx(before, abs=1)
    show(page, harness.prompt_frame(bars=80, first=0, job="j2"))  # shows the end of the region
    page.wait_for_timeout(800)
    start = handle(page, "from")
    look = "node => [getComputedStyle(node).opacity, node.classList.contains('away')]"
    assert start.evaluate(look) == ["0", True]
    start.focus()
    page.wait_for_function("!document.querySelector('.player-handle.from.away')")
    assert start.evaluate(look) == ["1", False]


@PHONE
def test_one_finger_drags_a_handle_and_two_zoom(page):
    show(page, harness.prompt_frame(bars=4, first=0))
    page.part("zoom-fit").click()
    page.wait_for_timeout(800)
    bar = bar_width(page, 4)
    x, y = centre(handle(page, "to"))
    page.touch([(x, y)], [(x - 0.6 * bar, y)], [(x - bar, y)])
    page.wait_for_timeout(200)
    assert events(page) == [("region", {"first": 1, "last": 3})]

    show_done(page)
    page.part("zoom-fit").click()
    page.wait_for_timeout(1000)
    x, y = centre(page.part("roll"))
    page.touchscreen.tap(x, y)
    page.wait_for_timeout(300)
    before = playhead(page)
    page.touch(*([(x - apart, y), (x + 60 + apart, y)] for apart in (30, 45, 60)))
    page.wait_for_timeout(800)
    middle = x + 30 - box_of(page.part("roll"))["x"]
    # a point 30 pixels left of the fingers' centre moves to 30 * 180 / 120 pixels left of it
    assert before == pytest.approx(middle - 30, abs=2)
    assert playhead(page) == pytest.approx(middle - 45, abs=3)


# tracks


def test_muting_and_soloing_ask_for_another_mix_that_goes_on_without_a_gap(page):
    show_done(page)
    page.evaluate("harness.asked.length = 0")
    page.part("play").click()
    plays(page)
    page.evaluate(
        """() => { const seen = window.seen = [];
        const look = () => {
          const all = [...document.querySelectorAll('audio')];
          const loud = all.filter((one) => !one.paused && one.readyState > 2);
          seen.push([performance.now(), loud.length, all[0].currentTime]);
          if (seen.length < 4000) setTimeout(look, 4);
        };
        look(); }"""
    )
    page.wait_for_timeout(400)
    page.locator(".mute").nth(1).click()
    wait_for_sound(page, "sound_v0_1.wav")
    page.wait_for_timeout(600)
    seen = page.evaluate("window.seen")
    assert {count for _, count, _ in seen} == {1, 2}
    for (then, _, before), (at, _, after) in pairwise(seen):
        assert abs((after - before) - (at - then) / 1000) < 0.25  # in step with the clock
    assert asked(page) == [mix(without=[1])]
    assert page.locator(".track").nth(1).get_attribute("class").split() == ["track", "quiet"]
    page.locator(".solo").nth(0).click()
    wait_for_sound(page, "sound_v0_1-2.wav")
    plays(page)
    page.locator(".solo").nth(0).click()
    page.locator(".mute").nth(0).focus()
    page.keys("ArrowDown", "m", "s")  # of the track in focus
    wait_for_sound(page, "sound_v0_0-2.wav")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Mute Part 1"
    assert page.locator(".solo").nth(1).get_attribute("aria-pressed") == "true"


def test_a_failed_sound_is_reported_and_can_be_tried_again(page):
    show_done(page, variations=2)
    page.evaluate("harness.refuse = 'Nobody can mix this.'")
    mute = page.locator(".mute").nth(1)
    mute.click()
    page.shows("Nobody can mix")
    assert mute.get_attribute("aria-pressed") == "false"
    assert "sound_v0_.wav" in page.evaluate("document.querySelector('.player audio').src")
    page.evaluate("harness.refuse = null")
    mute.click()  # the same request again
    wait_for_sound(page, "sound_v0_1.wav")
    assert mute.get_attribute("aria-pressed") == "true"
    page.evaluate("harness.refuse = 'Not now.'")
    page.keyboard.press("2")
    page.shows("Not now")
    page.keyboard.press("1")
    page.evaluate("harness.refuse = null")
    page.keyboard.press("2")
    wait_for_sound(page, "sound_v1_")


# sound


def test_the_playhead_is_where_the_sound_is(page):
    show_done(page)
    width = box_of(page.part("roll"))["width"]
    for share in (0.3, 0.8, 0.5):
        click_roll(page, share * width)
        page.wait_for_timeout(300)
        assert playhead(page) == pytest.approx(share * width, abs=1.5)
    # 120 beats a minute: a bar line is at a whole number of two seconds
    page.part("roll").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert (now(page) + 1) % 2 == pytest.approx(1, abs=0.02)
    first = playhead(page), now(page)
    page.keys("ArrowLeft", "ArrowLeft")
    page.wait_for_timeout(300)
    second = playhead(page), now(page)
    per_second = (first[0] - second[0]) / (first[1] - second[1])
    assert per_second == pytest.approx(40, abs=1)  # 20 pixels a beat
    page.part("play").click()
    page.wait_for_timeout(700)
    page.part("play").click()
    page.wait_for_timeout(300)
    assert playhead(page) - second[0] == pytest.approx((now(page) - second[1]) * per_second, abs=2)


def test_an_upload_is_rendered_when_it_is_played_and_from_the_position_on(page):
    page.evaluate("harness.delay = 2000")
    show(page, harness.prompt_frame(bars=60))  # 120 s
    click_roll(page, box_of(page.part("roll"))["width"] - 60)
    page.wait_for_function("/^1:[2-5]/.test(document.querySelector('[data-part=now]').innerText)")
    minutes, seconds = page.part("now").inner_text().split(":")
    at = 60 * int(minutes) + int(seconds)
    assert asked(page) == []
    page.part("play").click()
    page.wait_for_selector(".player.making [data-part=play][aria-label='Rendering the sound']")
    plays(page)
    (request,) = asked(page)
    assert request == mix(-1, job="j0", second=(at - 10) // 30 * 30)
    assert at - request["second"] <= now(page) < at - request["second"] + 5
    frame: Any = harness.prompt_frame(job="other")
    frame["prompt"]["sound"] = "none"
    show(page, frame)
    assert page.part("play").is_disabled()


def test_space_plays_after_any_click_and_writes_in_texts(page):
    show_done(page)
    for target in (page.locator("#before"), page.part("zoom-in"), page.part("volume")):
        target.click()
        page.keyboard.press("Space")
        plays(page)
        page.keyboard.press("Space")
        plays(page, playing=False)
    page.locator("#text").click()
    page.keyboard.press("Space")
    page.wait_for_timeout(200)
    assert page.locator("#text").input_value() == " "
    plays(page, playing=False)
    page.keyboard.press("Tab")
    page.part("from-splice").focus()
    page.keyboard.press("Space")  # it has keyboard focus, so Space presses it
    plays(page, playing=False)
    assert now(page) == pytest.approx(16, abs=0.1)


def test_sound_before_the_rendered_part_is_requested_when_it_is_played(page):
    frame: Any = harness.done_frame(bars=40)  # 80 s
    frame["variations"][0] |= {"audio": "/music/part.wav", "audio_from": 65}
    show(page, frame)
    wait_for_sound(page, "part.wav")
    assert page.part("now").inner_text() == "1:16"  # shortly before the new music
    assert now(page) == pytest.approx(11, abs=0.1)
    page.part("play").click()
    plays(page)
    page.part("from-splice").click()
    assert now(page) == pytest.approx(15, abs=0.5)
    assert asked(page) == []
    page.evaluate("harness.delay = 500")
    page.part("from-start").click()
    assert page.part("now").inner_text() == "0:00"
    wait_for_sound(page, "sound_v0_.wav")
    plays(page)  # it was playing before
    requests = asked(page)
    assert requests[-1] == mix()
    page.part("play").click()
    page.part("from-splice").click()  # the sound from the start contains it
    assert asked(page) == requests


# variations, files and other actions


def test_the_menu_of_files_works_with_keys_and_requests_by_kind(page):
    show_done(page)
    more = page.part("more")
    more.focus()
    page.keyboard.press("ArrowDown")
    assert in_focus(page.part("file-new_midi"))
    page.keyboard.press("End")
    assert in_focus(page.part("file-replay"))
    page.keyboard.press("Escape")
    assert not page.part("menu").is_visible()
    more.click()
    with page.expect_download() as download:
        page.part("file-stems").click()
    assert download.value.suggested_filename == "stems_v0.bin"
    assert asked(page, "file") == [{"job": "j1", "variation": 0, "kind": "stems"}]
    page.evaluate("harness.refuse = 'It was removed.'")
    page.part("file-midi").click()
    page.shows("It was removed")


def test_only_possible_actions_are_offered_and_a_grey_one_says_why(page):
    offered = ("discard", "undo")
    show(page, harness.prompt_frame())
    assert not any(page.part(name).is_visible() for name in offered)
    show_done(page, variations=2)
    page.keyboard.press("2")
    show(page, harness.done_frame(variations=2) | {"can_undo": True, "can_discard": True})
    for name in (*offered, "replay"):
        page.part(name).click()
    assert events(page) == [
        ("discard", None),
        ("undo", None),
        ("replay", {"variation": 1}),
    ]
    for possible, other in (("undo", "redo"), ("redo", "undo")):
        show(page, harness.done_frame() | {f"can_{possible}": True, f"can_{other}": False})
        assert page.part(other).is_disabled()
        assert page.part(other).get_attribute("title") == f"There is nothing to {other}."
        page.keys("Control+z", "Control+Shift+z")
    assert [name for name, _ in events(page)[3:]] == ["undo", "redo"]


def test_a_waiting_user_reads_one_line_and_the_bar_shows_a_known_fraction(page):
    bar = page.part("bar")
    frame: Any = harness.done_frame() | {"phase": "waiting", "line": "Waiting: next, about 9 s"}
    show(page, frame | {"place": 1, "seconds_left": 9.0})  # does not change the line
    assert page.part("subtitle").inner_text() == frame["line"]
    for phase, progress, percent in (
        ("composing", 0.25, "25"),
        ("rendering", 0.0, None),  # it waits for other renderings
        ("rendering", 0.5, "50"),
        ("waiting", 0.0, None),
    ):
        show(page, frame | {"phase": phase, "progress": progress})
        assert bar.get_attribute("aria-valuenow") == percent
        assert ("unknown" in bar.get_attribute("class")) is (percent is None)
