"""The player in a browser, on a separate page: mouse, keyboard and touch."""

from __future__ import annotations

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
    """Show a finished job."""
    show(page, harness.done_frame(**others))


def handle(page, side):
    """The start ("from") or the end ("to") of the region."""
    return page.locator(f".player-handle.{side}")


def bar_width(page, bars):
    return (centre(handle(page, "to"))[0] - centre(handle(page, "from"))[0]) / bars


def events(page):
    return [tuple(event) for event in page.evaluate("harness.events")]


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
    request = {"job": "j1", "variation": 0, "kind": "stems"}
    assert page.evaluate("harness.asked") == [["file", request]]
    page.evaluate("harness.refuse = 'It was removed.'")
    page.part("file-midi").click()
    page.shows("It was removed")


def test_only_possible_actions_are_offered_and_a_grey_one_says_why(page):
    offered = ("discard", "undo")
    show(page, harness.prompt_frame())
    assert not any(page.part(name).is_visible() for name in offered)
    show_done(page, variations=2)
    page.keyboard.press("2")
    show(page, harness.done_frame(variations=2) | {"can_undo": True})
    for name in offered:
        page.part(name).click()
    assert events(page) == [
        ("discard", None),
        ("undo", None),
    ]
    for possible, other in (("undo", "redo"), ("redo", "undo")):
        show(page, harness.done_frame() | {f"can_{possible}": True, f"can_{other}": False})
        assert page.part(other).is_disabled()
        assert page.part(other).get_attribute("title") == f"There is nothing to {other}."
        page.keys("Control+z", "Control+Shift+z")
    assert [name for name, _ in events(page)[2:]] == ["undo", "redo"]


def test_a_waiting_user_reads_one_line_and_the_bar_shows_a_known_fraction(page):
    bar = page.part("bar")
    frame: Any = harness.done_frame() | {"phase": "waiting", "line": "Waiting: next, about 9 s"}
    show(page, frame | {"place": 1, "seconds_left": 9.0})  # does not change the line
    assert page.part("subtitle").inner_text() == frame["line"]
    for phase, progress, percent in (
        ("composing", 0.25, "25"),
        ("waiting", 0.0, None),
    ):
        show(page, frame | {"phase": phase, "progress": progress})
        assert bar.get_attribute("aria-valuenow") == percent
        assert ("unknown" in bar.get_attribute("class")) is (percent is None)
