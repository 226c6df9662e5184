"""The page for keyboards, screen readers and phones."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_FILE_PATH

from tests.support.browser import box_of, centre, in_focus, opened

WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
GREY = """() => [...document.querySelectorAll("#desk :is(button, input):disabled")]
    .filter((one) => one.checkVisibility())
    .filter((one) => !one.ariaDescription || one.title !== one.ariaDescription)
    .map((one) => `no reason: ${one.outerHTML.slice(0, 120)}`)"""
"""Grey buttons that do not say why."""
STOP = """() => {
  const node = document.activeElement;
  if (node === document.body) return null;
  const style = getComputedStyle(node.matches("[type=radio]") ? node.closest("label") : node);
  const mark = getComputedStyle(node, "::after");
  return {
    name: node.ariaLabel || node.innerText || node.closest("label")?.innerText || node.title,
    part: node.dataset.part,
    group: [...document.querySelectorAll(
      "[role=toolbar], [role=group], [role=tablist], .examples, fieldset"
    )].findIndex((group) => group.contains(node)),
    seen: [style, mark].some((one) => one.outlineStyle !== "none" && one.outlineWidth !== "0px"),
  };
}"""
"""The element in focus."""


UNSEEN = """() => [
    [".player-play"], [".player-handle.from", "::after"], [".swatch"],
    ["#controls [role=tab].selected"], ["#controls label.selected"],
  ].filter(([where, mark]) => {
    const style = getComputedStyle(document.querySelector(where), mark);
    const papers = ["rgba(0, 0, 0, 0)", getComputedStyle(document.body).backgroundColor];
    return style.backgroundImage === "none" && papers.includes(style.backgroundColor);
  })"""
"""Marks whose colour is that of the page."""


def finish(page):
    """Stop the job, unless it has ended."""
    page.wait_for_selector("button.stop-keep, .player[data-phase=done]")
    page.evaluate("document.querySelector('button.stop-keep')?.click()")
    page.phase("done")


def violations(page, state):
    """What axe finds against WCAG 2.2 at level AA, one line for each element."""
    page.evaluate(Path(AXE_FILE_PATH).read_text("utf-8"))
    found = page.evaluate("tags => axe.run(document, { runOnly: tags })", WCAG)["violations"]
    return [
        f"{state}: {rule['id']} {node['html'][:140]} {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_all_states_meet_wcag_fit_the_screen_and_give_reasons(
    running, model, browser, width, scheme
):
    # high enough that the button that sticks to the lower edge covers nothing
    size = (width, 3600)
    model.speed = 60.0
    with opened(browser, running.address, size=size, color_scheme=scheme) as page:
        upload, roll = page.locator("#write-upload"), page.part("roll")
        if width == 390:  # the upload comes first until there is a file
            assert 0 < box_of(upload)["y"] < min(box_of(roll)["y"], 300)
        found = violations(page, "empty") + page.evaluate(GREY)
        page.locator("[data-play=open]").click()
        found += violations(page, "recorder")
        page.locator("[data-play=open]").click()
        page.button("Ballad").click()
        page.phase("prompt")
        assert width > 390 or box_of(roll)["y"] < box_of(upload)["y"]
        found += violations(page, "prompt") + page.evaluate(GREY)
        page.part("asked-chords").locator("button").first.click()
        found += violations(page, "chords of a bar")
        page.keyboard.press("Escape")
        page.go.click()
        page.phase("composing")
        found += violations(page, "composing") + page.evaluate(GREY)
        finish(page)
        page.wait_for_selector("#results h2")
        found += violations(page, "done") + page.evaluate(GREY)
        page.button("Edit notes").click()
        assert page.part("note-delete").is_disabled()
        found += violations(page, "editing") + page.evaluate(GREY)
        page.button("Edit notes").click()
        page.part("in-bars").click()
        page.wait_for_selector("[data-part=selection]:not([hidden])")
        found += violations(page, "selected bars")
        for name in ("Jam", "Write", "Study", "About"):
            page.get_by_role("tab", name=name).click()
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            found += violations(page, name)
    assert not found, "\n".join(found)


def test_forced_colours_and_a_zoom_of_200_percent_hide_nothing(browser, running):
    half = (640, 360)  # a window of 1280 by 720 pixels
    with opened(browser, running.address, size=half, forced_colors="active") as page:
        page.button("Ballad").click()
        page.phase("prompt")
        assert page.evaluate(UNSEEN) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= half[0]
        page.part("stage").evaluate("node => node.scrollIntoView({ block: 'center' })")
        x, y = centre(page.part("roll"))
        heights = (y - 100, y, y + 100)
        names = "([x, ys]) => ys.map((y) => document.elementFromPoint(x, y).dataset.part)"
        assert page.evaluate(names, [x, heights]) == ["roll"] * 3


def tab_stops(page):
    """The elements that Tab reaches, in order; one of each group, and each visibly in focus."""
    page.evaluate("document.activeElement.blur()")
    stops = []
    while len(stops) < 80:
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None and stops:  # Gradio's lists let go of the focus before it moves on
            page.keyboard.press("Tab")
            stop = page.evaluate(STOP)
        if stop is None or stop == next(iter(stops), None):
            break
        stops.append(stop)
    assert len(stops) < 80
    groups = [stop["group"] for stop in stops if stop["group"] >= 0]
    assert len(groups) == len(set(groups)), stops
    assert [stop["name"] for stop in stops if not stop["seen"]] == []
    return stops


def test_tab_stops_once_in_each_group_from_top_to_bottom(page, model):
    model.speed = 60.0
    assert len(tab_stops(page)) < 30
    page.locator("[data-play=open]").click()
    names = [stop["name"] for stop in tab_stops(page)]
    assert {"Record", "Tempo in beats per minute", "MIDI keyboard"} <= set(names)
    page.locator("[data-play=open]").click()
    page.button("Funk").click()
    page.phase("prompt")
    tab_stops(page)
    page.go.click()
    finish(page)
    parts = [stop["part"] for stop in tab_stops(page)]
    order = ["zoom-out", "roll", "play", "loop", "file-midi"]
    assert [name for name in parts if name in order] == order


def test_arrow_keys_reach_every_button_of_a_group(page):
    first, waltz = page.button("New piece"), page.button("Waltz")
    first.focus()
    names = []
    for _ in range(6):
        names.append(page.evaluate("document.activeElement.innerText"))
        page.keyboard.press("ArrowRight")
    assert names == ["New piece", "Ballad", "Waltz", "Pop", "Funk", "Barcarole"]
    assert in_focus(first)
    page.keys("End", "Home", "ArrowRight", "ArrowRight")
    assert in_focus(waltz)
    assert [node.evaluate("node => node.tabIndex") for node in (first, waltz)] == [-1, 0]
    page.keyboard.press("Enter")
    page.wait_for_selector("#write-facts h2:has-text('Waltz')")
    page.get_by_label("bars", exact=True).first.focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_label("seconds", exact=True).first.is_checked()
    page.wait_for_function("document.querySelector('.length input[type=range]').max === '240'")
