"""The first minute on the page: dropping, playing, keys, reasons, accessibility and size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import fakes
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.base", reason="axe is not installed")
SLOWLY = 30_000  # milliseconds: machines are shared
MOST_PAGE_BYTES = 400_000
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served(tmp_path_factory.mktemp("music"), speed=60.0) as running:
        yield running.address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(address, browser):
    tab = browser.new_page(viewport={"width": 1280, "height": 860})
    failures = []
    tab.on("pageerror", lambda error: failures.append(str(error)))
    opened(tab, address)
    yield tab
    tab.close()
    assert failures == []


def opened(tab, address):
    tab.set_default_timeout(SLOWLY)
    tab.goto(address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")
    return tab


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


def finish(page):
    """Stops the job, unless it has ended."""
    page.wait_for_selector("button.stop-keep, .player[data-phase=done]")
    page.evaluate("document.querySelector('button.stop-keep')?.click()")
    page.wait_for_selector(".player[data-phase=done]")


DROP = """([songs, place]) => {
  const data = new DataTransfer();
  for (const [bytes, name] of songs) data.items.add(new File([new Uint8Array(bytes)], name));
  const event = new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data });
  document.querySelector(place).dispatchEvent(event);
  return event.defaultPrevented; // otherwise the browser leaves the page
}"""


def song(name, bars=2):
    return [list(fakes.example_midi(bars=bars)), name]


def test_one_click_plays_the_example(page):
    assert page.locator("#write-tab .lead").inner_text().count(".") == 1  # one sentence
    button(page, "Hear this example").click()
    page.wait_for_function("!document.querySelector('.player audio').paused")
    page.wait_for_function("document.querySelector('.player audio').currentTime > 0.3")
    assert not page.locator("[data-part=like-this]").is_visible()


@pytest.mark.parametrize(
    "places", [("body", "body"), ("#write-upload button", "#results"), ("h1", "#write-upload")]
)
def test_files_dropped_while_one_is_read_are_read_in_turn(page, places):
    for name, place in zip(("First.mid", "Second.mid"), places, strict=True):
        assert page.evaluate(DROP, [[song(name)], place])
    page.wait_for_selector("#write-facts h2:has-text('Second')")
    button(page, "Undo").click()
    page.wait_for_selector("#write-facts h2:has-text('First')")


def test_a_drop_of_several_files_reads_all_and_a_large_one_does_not_stop_them(page):
    large = [[0] * 60_000, "Large.mid"]
    assert page.evaluate(DROP, [[song("One.mid"), large, song("Two.mid")], ".player-roll"])
    page.wait_for_selector("#write-facts h2:has-text('Two')")
    button(page, "Undo").click()
    page.wait_for_selector("#write-facts h2:has-text('One')")


def test_a_file_that_is_dropped_while_a_chosen_one_is_read_follows_it(page):
    first = {"name": "Chosen.mid", "mimeType": "audio/midi", "buffer": fakes.example_midi(bars=2)}
    page.set_input_files("#write-upload input[type=file]", files=[first])
    assert page.evaluate(DROP, [[song("Dropped.mid")], "body"])
    page.wait_for_selector("#write-facts h2:has-text('Dropped')")
    button(page, "Undo").click()
    page.wait_for_selector("#write-facts h2:has-text('Chosen')")


GREY = """() => [...document.querySelectorAll("#desk :is(button, input):disabled")]
    .filter((one) => one.checkVisibility())
    .map((one) => [one.outerHTML.slice(0, 120), one.title, one.ariaDescription])
    .filter(([, title, why]) => !why || title !== why)"""


def test_every_grey_button_says_why(page):
    button(page, "Ballad").click()
    page.wait_for_selector(".player[data-phase=prompt]")
    last = page.locator("[data-part=last-bars]")
    assert last.is_disabled()
    assert "8 bars" in last.get_attribute("title")
    assert page.evaluate(GREY) == []
    button(page, "Continue").click()
    page.wait_for_selector(".player[data-phase=composing]")
    assert page.locator("[data-part=undo]").is_disabled()
    assert page.evaluate(GREY) == []
    finish(page)
    assert page.evaluate(GREY) == []
    button(page, "Edit notes").click()
    assert page.locator("[data-part=note-delete]").is_disabled()
    assert page.evaluate(GREY) == []


STOPS = """() => {
  const node = document.activeElement;
  if (node === document.body) return null;
  const style = getComputedStyle(node.matches("[type=radio]") ? node.closest("label") : node);
  const mark = getComputedStyle(node, "::after");
  return {
    name: node.ariaLabel || node.innerText || node.closest("label")?.innerText || node.title,
    group: [...document.querySelectorAll(
      "[role=toolbar], [role=group], [role=tablist], .examples, fieldset"
    )].findIndex((group) => group.contains(node)),
    seen: [style, mark].some((one) => one.outlineStyle !== "none" && one.outlineWidth !== "0px"),
  };
}"""


def tab_stops(page):
    """The elements that Tab reaches, in order."""
    page.evaluate("document.activeElement.blur()")
    stops = []
    for _ in range(80):
        page.keyboard.press("Tab")
        found = page.evaluate(STOPS)
        if found is None:
            return stops
        stops.append(found)
    raise AssertionError(f"found more than 80 Tab stops: {stops}")


def check_stops(page):
    stops = tab_stops(page)
    groups = [stop["group"] for stop in stops if stop["group"] >= 0]
    assert len(groups) == len(set(groups)), stops
    assert [stop["name"] for stop in stops if not stop["seen"]] == []
    return stops


def test_tab_stops_once_in_each_group_and_the_focus_is_seen(page):
    assert len(check_stops(page)) < 30
    page.locator("[data-play=open]").click()
    names = [stop["name"] for stop in check_stops(page)]
    assert {"Record", "Tempo in beats per minute", "MIDI keyboard"} <= set(names)
    page.locator("[data-play=open]").click()
    button(page, "Funk").click()
    page.wait_for_selector(".player[data-phase=prompt]")
    check_stops(page)
    button(page, "Continue").click()
    finish(page)
    check_stops(page)


def test_arrow_keys_reach_every_button_of_a_group(page):
    ballad, waltz = button(page, "Ballad"), button(page, "Waltz")
    ballad.focus()
    names = []
    for _ in range(5):
        names.append(page.evaluate("document.activeElement.innerText"))
        page.keyboard.press("ArrowRight")
    assert names == ["Ballad", "Waltz", "Pop", "Funk", "Barcarole"]
    assert page.evaluate("document.activeElement.innerText") == "Ballad"
    page.keyboard.press("End")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert waltz.evaluate("one => one === document.activeElement && one.tabIndex === 0")
    assert ballad.evaluate("one => one.tabIndex") == -1
    page.keyboard.press("Enter")
    page.wait_for_selector("#write-facts h2:has-text('Waltz')")
    seconds = page.get_by_label("seconds", exact=True).first
    page.get_by_label("bars", exact=True).first.focus()
    page.keyboard.press("ArrowRight")
    assert seconds.is_checked()
    page.wait_for_function("document.querySelector('.length input[type=range]').max === '240'")


def test_the_upload_comes_first_on_a_phone_until_there_is_a_file(address, browser):
    tab = opened(browser.new_page(viewport={"width": 390, "height": 844}), address)
    top = "where => document.querySelector(where).getBoundingClientRect().top"
    upload, roll = (tab.evaluate(top, where) for where in ("#write-upload", ".player-roll"))
    assert 0 < upload < roll
    assert upload < 300
    button(tab, "Ballad").click()
    tab.wait_for_selector(".player[data-phase=prompt]")
    upload, roll = (tab.evaluate(top, where) for where in ("#write-upload", ".player-roll"))
    assert roll < upload
    tab.close()


def violations(page, where):
    """What axe finds against WCAG 2.2 at level AA, one line for each element."""
    page.evaluate(Path(axe.AXE_FILE_PATH).read_text("utf-8"))
    found = page.evaluate("tags => axe.run(document, { runOnly: tags })", WCAG)["violations"]
    return [
        f"{where}: {rule['id']} {node['html'][:140]} {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_all_states_meet_wcag_at_level_aa(address, browser, width, scheme):
    # high enough that the button that sticks to the lower edge covers nothing
    size = {"width": width, "height": 3600}
    tab = opened(browser.new_page(viewport=size, color_scheme=scheme), address)
    found = violations(tab, "empty")
    tab.locator("[data-play=open]").click()
    found += violations(tab, "recorder")
    tab.locator("[data-play=open]").click()
    button(tab, "Ballad").click()
    tab.wait_for_selector(".player[data-phase=prompt]")
    found += violations(tab, "prompt")
    tab.locator("[data-part=asked-chords] button").first.click()
    found += violations(tab, "chords of a bar")
    tab.keyboard.press("Escape")
    button(tab, "Continue").click()
    tab.wait_for_selector(".player[data-phase=composing]")
    found += violations(tab, "composing")
    finish(tab)
    tab.wait_for_selector("#results h2")
    found += violations(tab, "done")
    button(tab, "Edit notes").click()
    found += violations(tab, "editing")
    button(tab, "Edit notes").click()
    tab.locator("[data-part=rewrite]").click()
    tab.wait_for_selector("[data-part=selection]:not([hidden])")
    found += violations(tab, "selected bars")
    for name in ("Study", "About"):
        tab.get_by_role("tab", name=name).click()
        tab.wait_for_timeout(300)
        found += violations(tab, name)
    tab.close()
    assert not found, "\n".join(found)


def test_the_page_without_gradio_is_smaller_than_400_kb(page):
    loaded = page.evaluate(
        "['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind))"
        ".map(({ name, transferSize }) => [new URL(name).pathname, transferSize])"
    )
    own = {path: size for path, size in loaded if not re.match("/(assets|static)/", path)}
    assert any("player-modules" in path for path in own)
    assert own["/"] > 0
    # all kinds of data included: the document has the settings of Gradio's widgets
    assert sum(own.values()) < MOST_PAGE_BYTES, own
