"""The player in a browser, on a separate page: mouse, keyboard and touch."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from app.compose.models import Models
from app.compose.options import MusicOptions
from app.server.studio import Sharing, Studio
from tests.support import fakes, harness

if TYPE_CHECKING:
    from app.compose.models import MusicModel

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
PATIENCE = 60_000  # milliseconds: machines are shared

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        harness.CHROMIUM is None, reason="chromium is not installed: apt install chromium"
    ),
]


@pytest.fixture(scope="module")
def address():
    with harness.harness() as where:
        yield where


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=harness.CHROMIUM, args=harness.FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(address, browser):
    """A new page, 1060 pixels wide, in which no script may fail."""
    tab = browser.new_page(viewport={"width": 1060, "height": 900})
    yield from opened(tab, address)


@pytest.fixture
def phone(address, browser):
    tab = browser.new_page(viewport={"width": 390, "height": 800}, has_touch=True)
    yield from opened(tab, address)


def opened(tab, address):
    failures = []
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.set_default_timeout(PATIENCE)
    tab.goto(address)
    tab.evaluate("harness.ready")
    yield tab
    tab.close()
    assert failures == []


def show(page, frame):
    page.evaluate("frame => harness.show(frame)", frame)
    page.wait_for_timeout(150)


def show_done(page, **others):
    """Show a finished job and wait for its sound."""
    show(page, harness.done_frame(**others))
    page.wait_for_function("document.querySelector('.player audio').readyState > 2")
    page.wait_for_function("!document.querySelector('.player').classList.contains('making')")


def part(page, name):
    return page.locator(f"[data-part={name}]")


def events(page):
    return [tuple(event) for event in page.evaluate("harness.events")]


def asked(page, name="mix"):
    return [what for kind, what in page.evaluate("harness.asked") if kind == name]


def now(page):
    return page.evaluate("document.querySelector('.player audio').currentTime")


def wait_for_sound(page, text):
    page.wait_for_function(f"document.querySelector('.player audio').src.includes('{text}')")


def plays(page, playing=True):
    page.wait_for_selector(".player.playing" if playing else ".player:not(.playing)")


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


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


def test_a_handle_is_dragged_from_bar_to_bar_and_tells_the_page_once_it_is_let_go(page):
    show(page, harness.prompt_frame())
    start, end = page.locator(".player-handle.from"), page.locator(".player-handle.to")
    assert part(page, "region-bars").inner_text() == "bars 5–12"
    bar = (centre(end)[0] - centre(start)[0]) / 8
    x, y = centre(start)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 1.7 * bar, y, steps=5)
    assert part(page, "region-bars").inner_text() == "bars 7–12"
    assert events(page) == []
    assert centre(start)[0] == pytest.approx(x + 2 * bar, abs=1.5)
    page.mouse.up()
    assert events(page) == [("region", {"first": 7, "last": 12})]

    x, y = centre(end)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 20 * bar, y, steps=8)
    page.mouse.up()
    assert events(page)[-1] == ("region", {"first": 7, "last": 7})  # at least one bar remains


def test_a_finger_drags_a_handle(phone):
    show(phone, harness.prompt_frame(bars=4, first=0))
    phone.locator("[data-part=zoom-fit]").click()
    phone.wait_for_timeout(800)
    start, end = phone.locator(".player-handle.from"), phone.locator(".player-handle.to")
    bar = (centre(end)[0] - centre(start)[0]) / 4
    x, y = centre(end)
    tools = phone.context.new_cdp_session(phone)
    for kind, at in (
        ("touchStart", x),
        ("touchMove", x - 0.6 * bar),
        ("touchMove", x - bar),
        ("touchEnd", None),
    ):
        points = [] if at is None else [{"x": at, "y": y}]
        tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    phone.wait_for_timeout(200)
    assert events(phone) == [("region", {"first": 1, "last": 3})]


def test_arrow_keys_move_a_handle_and_chips_choose_common_regions(page):
    show(page, harness.prompt_frame())
    start = page.locator(".player-handle.from")
    start.focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight"):
        page.keyboard.press(key)
    assert start.get_attribute("aria-valuetext") == "Bar 4"
    page.wait_for_function("harness.events.length === 1")
    assert events(page) == [("region", {"first": 4, "last": 12})]
    assert part(page, "last-bars").get_attribute("aria-pressed") == "false"
    part(page, "all-bars").click()
    part(page, "last-bars").click()
    assert [data for _, data in events(page)[1:]] == [
        {"first": 1, "last": 12},
        {"first": 5, "last": 12},
    ]
    assert part(page, "last-bars").get_attribute("aria-pressed") == "true"


def test_another_region_of_the_same_file_leaves_the_view_alone(page):
    show(page, harness.prompt_frame(bars=40))
    page.mouse.move(*centre(part(page, "roll")))
    page.mouse.wheel(-400, 0)
    page.wait_for_timeout(800)
    before = centre(page.locator(".player-handle.to"))
    show(page, harness.prompt_frame(bars=40, first=8, job="j0b"))
    page.wait_for_timeout(500)
    assert centre(page.locator(".player-handle.to")) == pytest.approx(before, abs=1)


def test_changed_bar_lines_bring_the_region_into_view(page):
    frame: Any = harness.prompt_frame(bars=40, first=32)
    show(page, frame)
    part(page, "zoom-in").click()
    page.mouse.move(*centre(part(page, "roll")))
    page.mouse.wheel(-4000, 0)
    page.wait_for_timeout(800)
    assert "away" in page.locator(".player-handle.to").get_attribute("class")
    bars = "".join(f"{3 * 96 * bar};" for bar in range(54))
    anew = {"timeline": frame["timeline"] | {"bars": bars}}
    prompt = {"prompt": frame["prompt"] | {"first": 129.0, "splice": 153.0}}
    show(page, frame | anew | prompt)
    page.wait_for_timeout(800)
    for side in ("from", "to"):
        assert "away" not in page.locator(f".player-handle.{side}").get_attribute("class")


def test_a_handle_outside_the_view_is_invisible_and_comes_into_view_when_it_is_focused(page):
    show(page, harness.prompt_frame(bars=80, first=0))  # the view shows the end of the region
    start = page.locator(".player-handle.from")
    seen = "handle => [getComputedStyle(handle).opacity, handle.classList.contains('away')]"
    assert start.evaluate(seen) == ["0", True]
    start.focus()
    page.wait_for_function("!document.querySelector('.player-handle.from.away')")
    assert start.evaluate(seen) == ["1", False]
    page.keyboard.press("ArrowRight")
    page.wait_for_function("harness.events.length === 1")
    assert events(page) == [("region", {"first": 2, "last": 80})]


def test_the_region_cannot_be_changed_while_a_job_runs(page):
    show(page, harness.prompt_frame() | {"busy": True})
    assert not page.locator(".player-handle.from").is_visible()
    show(page, harness.done_frame())
    part(page, "other-prompt").click()
    assert events(page) == [("region", {"first": 1, "last": 8})]


# tracks


def test_muting_asks_for_another_mix_at_the_same_place(page):
    show_done(page)
    page.evaluate("harness.asked.length = 0")
    part(page, "play").click()
    plays(page)
    before = now(page)
    page.locator(".mute").nth(1).click()
    wait_for_sound(page, "sound_v0_1.wav")
    assert asked(page) == [{"job": "j1", "variation": 0, "without": [1], "second": 0}]
    assert page.locator(".track").nth(1).get_attribute("class").split() == ["track", "quiet"]
    page.wait_for_timeout(500)
    assert not page.evaluate("document.querySelector('.player audio').paused")
    assert before < now(page) < before + 30
    playing = page.evaluate("[...document.querySelectorAll('audio')].filter(a => !a.paused).length")
    assert playing == 1
    page.locator(".solo").nth(0).click()
    wait_for_sound(page, "sound_v0_1-2.wav")
    plays(page)


def test_the_new_mix_continues_without_a_gap(page):
    show_done(page)
    part(page, "play").click()
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
    assert min(count for _, count, _ in seen) >= 1
    assert max(count for _, count, _ in seen) == 2
    for (then, _, one), (at, _, other) in pairwise(seen):
        assert abs((other - one) - (at - then) / 1000) < 0.25  # roughly in step with the clock


def test_m_and_s_mute_and_solo_the_track_in_focus(page):
    show_done(page)
    page.evaluate("harness.asked.length = 0")
    page.locator(".mute").nth(0).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("m")
    wait_for_sound(page, "sound_v0_1.wav")
    page.keyboard.press("m")
    page.keyboard.press("s")
    wait_for_sound(page, "sound_v0_0-2.wav")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Mute Part 1"
    assert page.locator(".solo").nth(1).get_attribute("aria-pressed") == "true"


def test_a_failed_mix_is_reported_and_taken_back(page):
    show_done(page)
    page.evaluate("harness.refuse = 'Nobody can mix this.'")
    page.locator(".mute").nth(1).click()
    page.wait_for_function("/Nobody can mix/.test(document.body.innerText)")
    assert page.locator(".mute").nth(1).get_attribute("aria-pressed") == "false"
    assert "sound_v0_.wav" in page.evaluate("document.querySelector('.player audio').src")
    page.evaluate("harness.refuse = null")
    page.locator(".mute").nth(1).click()  # the same request again
    wait_for_sound(page, "sound_v0_1.wav")
    assert page.locator(".mute").nth(1).get_attribute("aria-pressed") == "true"


def test_a_variation_whose_sound_has_failed_can_be_tried_again(page):
    show_done(page, variations=2)
    page.evaluate("harness.refuse = 'Not now.'")
    page.keyboard.press("2")
    page.wait_for_function("/Not now/.test(document.body.innerText)")
    page.keyboard.press("1")
    page.evaluate("harness.refuse = null")
    page.keyboard.press("2")
    wait_for_sound(page, "sound_v1_")


def test_a_muted_track_is_pale_in_the_roll(page):
    show_done(page)
    colours = """(() => { const c = document.querySelector('.player-roll');
        const d = c.getContext('2d').getImageData(0, 40, c.width, c.height - 40).data; let n = 0;
        for (let i = 0; i < d.length; i += 4)
          if (d[i] > 200 && d[i + 1] < 130 && d[i + 2] < 110) n += 1;
        return n; })()"""
    assert page.evaluate(colours) > 500
    page.locator(".mute").nth(1).click()
    page.wait_for_timeout(500)
    assert page.evaluate(colours) == 0


def test_more_tracks_than_hues_have_looks_of_their_own(page):
    show_done(page, tracks=9)
    looks = page.evaluate(
        "[...document.querySelectorAll('.track .swatch')].map(s => s.className + s.style.cssText)"
    )
    assert len(set(looks)) == 9


def test_boxes_choose_what_is_heard_and_what_may_play(page):
    frame: Any = harness.prompt_frame()
    for track in frame["prompt"]["tracks"]:
        track |= {"heard": True, "played": True}
    show(page, frame)
    assert not page.locator("input.heard").first.is_visible()
    part(page, "open-tracks").click()
    page.locator("input.heard").nth(1).uncheck()
    page.locator("input.played").nth(0).uncheck()
    assert events(page) == [
        ("tracks", {"heard": [0, 2], "played": [0, 1, 2]}),
        ("tracks", {"heard": [0, 2], "played": [1, 2]}),
    ]
    assert "May play" in part(page, "hint").inner_text()
    show(page, frame | {"table": True, "busy": True})
    assert page.locator("input.heard").first.is_disabled()
    show_done(page)
    assert not part(page, "hint").is_visible()


def test_on_a_phone_names_wrap_and_a_long_table_leaves_what_follows_near(phone):
    frame: Any = harness.prompt_frame(tracks=20)
    for track in frame["prompt"]["tracks"]:
        track |= {"heard": True, "played": True, "instrument": "Acoustic Guitar (nylon)"}
        track["name"] = "A part with a long name of its own"
    title = "A title of several words that is longer than the line of a phone"
    show(phone, frame | {"title": title})
    part(phone, "open-tracks").click()
    shown = "([...all]) => all.every((one) => one.scrollWidth <= one.clientWidth)"
    assert phone.eval_on_selector_all(".track .name, [data-part=title]", shown)
    assert phone.locator(".track small").first.is_visible()
    box = part(phone, "tracks").bounding_box()
    assert box is not None
    assert box["height"] < 400


def test_on_a_phone_the_chip_of_a_single_track_has_room_around_its_name(phone):
    frame: Any = harness.prompt_frame(tracks=2)
    show(phone, frame | {"prompt": frame["prompt"] | {"tracks": frame["prompt"]["tracks"][:1]}})
    chip = phone.locator(".track").bounding_box()
    name = phone.locator(".track .name").bounding_box()
    assert chip is not None
    assert name is not None
    assert chip["x"] + chip["width"] - name["x"] - name["width"] > 6


# sound


def test_the_playhead_is_where_the_sound_is(page):
    show_done(page)
    roll = part(page, "roll").bounding_box()
    for share in (0.3, 0.8, 0.5):
        page.mouse.click(roll["x"] + share * roll["width"], roll["y"] + 200)
        page.wait_for_timeout(300)
        assert playhead(page) == pytest.approx(share * roll["width"], abs=1.5)
    # 120 beats a minute: a bar line is at a whole number of two seconds
    part(page, "roll").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert (now(page) + 1) % 2 == pytest.approx(1, abs=0.02)
    first = playhead(page), now(page)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(300)
    second = playhead(page), now(page)
    per_second = (first[0] - second[0]) / (first[1] - second[1])
    assert per_second == pytest.approx(40, abs=1)  # 20 pixels a beat
    part(page, "play").click()
    page.wait_for_timeout(700)
    part(page, "play").click()
    page.wait_for_timeout(300)
    assert playhead(page) - second[0] == pytest.approx((now(page) - second[1]) * per_second, abs=2)


def test_the_upload_is_rendered_only_when_it_is_played(page):
    page.evaluate("harness.delay = 4000")
    show(page, harness.prompt_frame())
    assert asked(page) == []
    part(page, "play").click()
    page.wait_for_selector(".player.making [data-part=play][aria-label='Rendering the sound']")
    plays(page)
    assert asked(page) == [{"job": "j0", "variation": -1, "without": [], "second": 0}]
    frame: Any = harness.prompt_frame()
    frame["prompt"]["sound"] = "none"
    show(page, frame | {"job": "other"})
    assert part(page, "play").is_disabled()


def test_space_plays_after_any_click_and_writes_in_texts(page):
    show_done(page)
    for target in ("before", "zoom-in", "volume", "from-start"):
        if target == "before":
            page.locator("#before").click()
        else:
            part(page, target).click()
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
    part(page, "from-splice").focus()
    page.keyboard.press("Space")  # it has keyboard focus, so Space presses it
    plays(page, playing=False)
    assert now(page) == pytest.approx(16, abs=0.1)


def test_a_given_sound_file_is_played_without_a_request(page):
    frame: Any = harness.done_frame()
    frame["variations"][0]["audio"] = "/music/whole.flac"
    show(page, frame)
    wait_for_sound(page, "whole.flac")
    assert asked(page) == []
    page.locator(".mute").nth(1).click()
    wait_for_sound(page, "sound_v0_1.wav")
    show(page, {"job": "", "phase": "empty", "variations": []})
    assert part(page, "play").is_disabled()


def test_sound_before_the_rendered_part_is_requested_when_it_is_played(page):
    frame: Any = harness.done_frame(bars=40)  # 80 s
    frame["variations"][0] |= {"audio": "/music/part.wav", "audio_from": 65}
    show(page, frame)
    wait_for_sound(page, "part.wav")
    assert part(page, "now").inner_text() == "1:16"  # shortly before the new music
    assert now(page) == pytest.approx(11, abs=0.1)
    part(page, "play").click()
    plays(page)
    part(page, "from-splice").click()
    assert now(page) == pytest.approx(15, abs=0.5)
    assert asked(page) == []
    page.evaluate("harness.delay = 500")
    part(page, "from-start").click()
    assert part(page, "now").inner_text() == "0:00"
    wait_for_sound(page, "sound_v0_.wav")
    plays(page)  # it was playing before
    assert asked(page)[-1] == {"job": "j1", "variation": 0, "without": [], "second": 0}
    part(page, "play").click()
    page.evaluate("harness.asked.length = 0")
    part(page, "from-splice").click()  # the sound from the start contains it
    assert now(page) == pytest.approx(39.9, abs=1)  # the end of this sound file
    assert asked(page) == []


def test_an_upload_is_rendered_from_the_position_on(page):
    show(page, harness.prompt_frame(bars=60))  # 120 s
    roll = part(page, "roll").bounding_box()
    page.mouse.click(roll["x"] + roll["width"] - 60, roll["y"] + 200)
    page.wait_for_function("/^1:[2-5]/.test(document.querySelector('[data-part=now]').innerText)")
    minutes, seconds = part(page, "now").inner_text().split(":")
    at = 60 * int(minutes) + int(seconds)
    assert asked(page) == []
    part(page, "play").click()
    plays(page)
    (request,) = asked(page)
    assert request == {"job": "j0", "variation": -1, "without": [], "second": (at - 10) // 30 * 30}
    assert at - request["second"] <= now(page) < at - request["second"] + 5


# variations, files and other actions


def test_variations_are_side_by_side_and_chosen_by_click_and_key(page):
    show_done(page, variations=4)
    cards = part(page, "chips").get_by_role("radio")
    assert cards.count() == 4
    assert "notes · 0:16" in cards.nth(2).inner_text()
    page.mouse.click(*centre(part(page, "roll")))
    at = now(page)
    page.evaluate("harness.asked.length = 0")
    page.keyboard.press("3")
    wait_for_sound(page, "sound_v2_")
    assert asked(page) == [{"job": "j1", "variation": 2, "without": [], "second": 0}]
    assert now(page) == pytest.approx(at, abs=0.05)
    assert cards.nth(2).get_attribute("aria-checked") == "true"
    assert "seed 9" in part(page, "settings").inner_text()
    cards.nth(0).click()
    page.keyboard.press("ArrowRight")
    assert cards.nth(1).get_attribute("aria-checked") == "true"
    maps = page.evaluate(
        "[...document.querySelectorAll('.player-chips canvas')].map(c => c.toDataURL())"
    )
    assert len(set(maps)) == 4


def test_the_menu_of_files_works_with_keys_and_requests_by_kind(page):
    show_done(page)
    more = part(page, "more")
    more.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.part") == "file-new_midi"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.part") == "file-replay"
    page.keyboard.press("Escape")
    assert not part(page, "menu").is_visible()
    more.click()
    with page.expect_download() as download:
        part(page, "file-stems").click()
    assert download.value.suggested_filename == "stems_v0.bin"
    assert asked(page, "file") == [{"job": "j1", "variation": 0, "kind": "stems"}]
    page.evaluate("harness.refuse = 'It was removed.'")
    part(page, "file-midi").click()
    page.wait_for_function("/It was removed/.test(document.body.innerText)")


def test_only_possible_actions_are_offered(page):
    offered = {"discard": "discard", "undo": "undo", "continue-this": "continue_this"}
    show(page, harness.prompt_frame())
    assert not any(part(page, name).is_visible() for name in offered)
    show_done(page, variations=2)
    page.keyboard.press("2")
    show(page, harness.done_frame(variations=2) | {"can_undo": True, "can_discard": True})
    for name in offered:
        part(page, name).click()
    part(page, "replay").click()
    assert events(page) == [
        ("discard", None),
        ("undo", None),
        ("continue_this", {"variation": 1}),
        ("replay", {"variation": 1}),
    ]
    show(page, harness.done_frame() | {"phase": "waiting", "line": "Waiting"})
    assert part(page, "subtitle").inner_text() == "Waiting"
    assert not part(page, "continue-this").is_visible()


def test_undo_and_redo_stand_side_by_side_and_a_grey_one_says_why(page):
    show(page, harness.done_frame())
    assert not part(page, "redo").is_visible()
    keys = {"undo": "Control+z", "redo": "Control+Shift+z"}
    for able, other in (("undo", "redo"), ("redo", "undo")):
        show(page, harness.done_frame() | {f"can_{able}": True, f"can_{other}": False})
        assert part(page, other).is_disabled()
        assert part(page, other).get_attribute("title") == f"There is nothing to {other}."
        for key in (keys[able], keys[other]):
            page.keyboard.press(key)
    part(page, "redo").click()
    assert [name for name, _ in events(page)] == ["undo", "redo", "redo"]


def test_a_waiting_user_reads_place_and_time_once(page, monkeypatch, tmp_path):
    model = fakes.install(monkeypatch, speed=200.0)
    sharing = Sharing(max_rows=1)
    studio = Studio(Models.only(cast("MusicModel", model)), tmp_path, sharing=sharing)
    options = MusicOptions(bars=2, seed=1)
    frames: Any = studio.compose("a", None, options)
    assert list(frames)[-1]["phase"] == "done"  # measures the duration
    frames = studio.compose("a", None, options)
    assert any(frame["variations"][0]["tracks"] for frame in frames)  # it is generating
    others: Any = studio.compose("b", None, options)
    frame = next(frame for frame in others if frame["phase"] in ("waiting", "done"))
    assert {"Waiting", "next", "about"} <= set(re.findall(r"\w+", frame["line"]))
    show(page, frame | {"place": 1, "seconds_left": 9.0})  # does not change the line
    assert part(page, "subtitle").inner_text() == frame["line"]


def test_the_progress_bar_shows_a_known_fraction(page):
    bar = part(page, "bar")
    frame: Any = harness.done_frame() | {"phase": "rendering", "line": "Rendering the sound"}
    for phase, progress, shown in (
        ("composing", 0.25, "25"),
        ("rendering", 0.0, None),  # it waits for other renderings
        ("rendering", 0.5, "50"),
        ("waiting", 0.0, None),
    ):
        show(page, frame | {"phase": phase, "progress": progress})
        assert bar.get_attribute("aria-valuenow") == shown
        assert ("unknown" in bar.get_attribute("class")) is (shown is None)


def test_keys_are_ignored_while_another_tab_covers_the_player(page):
    show_done(page, variations=2)
    page.evaluate("document.querySelector('#player').style.display = 'none'")
    page.evaluate("document.body.style.minHeight = '5000px'")
    page.locator("#before").focus()
    page.keyboard.press("2")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    page.wait_for_function("scrollY > 100")
    assert page.evaluate("[...document.querySelectorAll('audio')].every((one) => one.paused)")
    page.evaluate("document.querySelector('#player').style.display = ''")
    first = part(page, "chips").get_by_role("radio").first
    assert first.get_attribute("aria-checked") == "true"


def test_an_example_is_a_little_pale_and_has_a_caption(page):
    show(page, harness.done_frame() | {"phase": "empty", "example": True})
    assert "Hear this example" in page.inner_text(".player-stage")
    opacity = float(part(page, "roll").evaluate("roll => getComputedStyle(roll).opacity"))
    assert 0.7 < opacity < 0.9  # paler ones look disabled
    assert not part(page, "actions").is_visible()
    assert part(page, "play").is_enabled()


def test_the_tab_key_goes_through_the_player_from_top_to_bottom(page):
    show_done(page, variations=2)
    page.locator("#before").focus()
    order = []
    for _ in range(26):
        page.keyboard.press("Tab")
        order.append(
            page.evaluate(
                "(e => e.dataset.part ?? e.className ?? e.tagName)(document.activeElement)"
            )
        )
    tops = [
        *("zoom-out", "zoom-fit", "zoom-in", "", "roll", "play", "from-start", "from-splice"),
        *("volume", "mute", "loop", "metronome", "slower", "faster", "lower", "higher", "edit"),
        *("file-midi", "more", "favourite"),
        *("blind-start", "continue-this", "rewrite", "other-prompt", "replay"),
    ]
    assert order[: len(tops)] == tops


def test_two_fingers_zoom(phone):
    show_done(phone)
    phone.locator("[data-part=zoom-fit]").click()
    phone.wait_for_timeout(1000)
    x, y = centre(part(phone, "roll"))
    phone.touchscreen.tap(x, y)
    phone.wait_for_timeout(300)
    before = playhead(phone)
    tools = phone.context.new_cdp_session(phone)
    for kind, apart in (
        ("touchStart", 30),
        ("touchMove", 45),
        ("touchMove", 60),
        ("touchEnd", None),
    ):
        points = [] if apart is None else [{"x": x - apart, "y": y}, {"x": x + 60 + apart, "y": y}]
        tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    phone.wait_for_timeout(800)
    roll = part(phone, "roll").bounding_box()
    middle = x + 30 - roll["x"]
    # a point 30 pixels left of the fingers' centre moves to 30 * 180 / 120 pixels left of it
    assert before == pytest.approx(middle - 30, abs=2)
    assert playhead(phone) == pytest.approx(middle - 45, abs=3)


def test_nothing_is_wider_than_a_phone(phone):
    frame: Any = harness.done_frame(variations=4, tracks=9) | {"can_undo": True}
    for track in frame["prompt"]["tracks"]:
        track |= {"heard": True, "played": True}
    for one in (frame, frame | {"table": True}, harness.prompt_frame()):
        show(phone, one)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_ten_thousand_notes_move_smoothly(page):
    show(page, harness.many_notes())
    page.wait_for_function("document.querySelector('.player audio').readyState > 2")
    panning = harness.smoothness(page, 2, 12)
    part(page, "play").click()
    part(page, "zoom-fit").click()
    page.wait_for_timeout(1000)
    playing = harness.smoothness(page, 2)
    assert max(panning.work, playing.work) < 16  # milliseconds: 60 frames a second
    assert min(panning.rate, playing.rate) > 1  # even on a busy machine
