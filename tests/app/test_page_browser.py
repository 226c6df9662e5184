"""The page in a real browser, with a fake model and the real sound: what a user does, once."""

from __future__ import annotations

import io
import re
import shutil
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import mido
import pytest
import soundfile

from app.serving import MAX_WAITING
from tests.app import fakes
from tests.app.served import MARKS, PATIENT, served
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Track

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--autoplay-policy=no-user-gesture-required",
]
SLOWLY = 60_000  # milliseconds: machines are shared

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A page whose model writes 40 notes a second."""
    with served(tmp_path_factory.mktemp("music"), speed=40.0) as page:
        yield page


@pytest.fixture(scope="module")
def model(running):
    return running.model


@pytest.fixture(scope="module")
def address(running):
    return running.address


@pytest.fixture(scope="module")
def browser(address):
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(address, browser):
    """A fresh tab; afterwards: nothing was asked of another host, and no script failed."""
    tab = browser.new_page(viewport={"width": 1280, "height": 860})
    tab.set_default_timeout(SLOWLY)
    hosts, failures = set(), []
    tab.on("request", lambda request: hosts.add(urlsplit(request.url)))
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector(".player-roll")
    yield tab
    tab.close()
    own = urlsplit(address).netloc
    assert {
        url.geturl() for url in hosts if url.scheme.startswith("http") and url.netloc != own
    } == set()
    assert failures == []


def upload(page, content, name="Evening song.mid"):
    page.set_input_files(
        "#upload input[type=file]",
        files=[{"name": name, "mimeType": "audio/midi", "buffer": content}],
    )


def phase(page, name):
    page.wait_for_selector(f".player[data-phase={name}]")


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


def now(page):
    return page.evaluate("document.querySelector('.player audio').currentTime")


def downloaded(page, part):
    with page.expect_download() as download:
        page.locator(f"[data-part={part}]").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def roll_colours(page):
    """How many different colours the roll shows: a blank one has few."""
    return page.evaluate(
        "(() => { const c = document.querySelector('.player-roll');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " const seen = new Set();"
        " for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
        " return seen.size; })()"
    )


def roll_colour(page, x, y):
    """Colour of a point of the roll; what is negative counts from the other end."""
    red, green, blue, _ = page.evaluate(
        "([x, y]) => { const c = document.querySelector('.player-roll');"
        " const at = (place, size) => (place < 0 ? size + place : place);"
        " const pen = c.getContext('2d');"
        " return [...pen.getImageData(at(x, c.width), at(y, c.height), 1, 1).data]; }",
        [x, y],
    )
    return f"#{red:02x}{green:02x}{blue:02x}"


def test_upload_continue_play_seek_and_download(page):
    upload(page, fakes.example_midi(bars=6))
    page.wait_for_selector("#facts dl")
    facts = page.inner_text("#facts")
    assert "96 bpm" in facts
    assert "4/4" in facts
    assert "continued by the fake model" in facts
    blank = roll_colours(page)

    page.locator("#controls .segments label", has_text="2").first.click()
    button(page, "Continue").click()
    phase(page, "composing")
    page.wait_for_function("/Bar \\d+ of 16 · \\d+ notes/.test(document.body.innerText)")
    phase(page, "done")
    assert roll_colours(page) > blank
    assert "16 bars after bar 6" in page.inner_text("[data-part=subtitle]")
    seed = page.locator("#controls .seed input[type=number]").first.input_value()
    assert f"seed {seed}" in page.inner_text("[data-part=settings]")
    assert button(page, "Continue").is_enabled()

    page.get_by_role("radio", name="2", exact=True).last.click()
    assert f"seed {int(seed) + 1}" in page.inner_text("[data-part=settings]")

    page.wait_for_function("document.querySelector('.player audio').readyState > 2")
    start = now(page)
    assert start > 1  # two bars before the new music
    button(page, "Play").click()
    page.wait_for_function(f"document.querySelector('.player audio').currentTime > {start} + 0.5")
    page.keyboard.press("Escape")
    page.locator("h1").click()
    page.keyboard.press("Space")
    page.wait_for_function("document.querySelector('.player audio').paused")

    box = page.locator(".player-roll").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    page.wait_for_timeout(200)
    late = now(page)
    page.mouse.click(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    page.wait_for_timeout(200)
    assert now(page) < late - 3
    total = page.inner_text("[data-part=total]").strip(" /")
    assert page.locator(".player-roll").get_attribute("aria-valuetext").endswith(f"of {total}")

    name, midi = downloaded(page, "midi")
    assert re.fullmatch(r"Evening-?_?song_a6_fake_b16_s\d+_T1\.00_p0\.95_v2\.mid", name)
    whole = mido.MidiFile(file=io.BytesIO(midi)).length
    _, new_midi = downloaded(page, "new_midi")
    assert whole == pytest.approx(mido.MidiFile(file=io.BytesIO(new_midi)).length + 15, abs=1.5)
    for part, kind in (("audio", "FLAC"), ("wav", "WAV")):
        name, content = downloaded(page, part)
        sound = soundfile.info(io.BytesIO(content))
        assert name.endswith(f".{kind.lower()}")
        assert sound.format == kind
        assert sound.duration == pytest.approx(whole, abs=3)


def test_a_band_has_a_lane_of_drums_and_each_instrument_once_in_the_legend(page):
    drums = Track.of([(12 * at, 3, 38 if at % 2 else 36, 99) for at in range(8)], is_drum=True)
    bass = Track.of([(24 * at, 20, 40 + at, 80) for at in range(4)], program=35)
    upload(page, write_midi(Score(12, (drums, bass))))
    phase(page, "prompt")
    legend = page.locator("[data-part=legend] li")
    assert legend.all_inner_texts() == ["Drums", "Fretless Bass", "Your file"]
    assert roll_colour(page, 2, -3) == "#fffdf9"  # paper, where the keyboard was

    page.locator("#controls input[type=number]").nth(1).fill("4")
    button(page, "Continue").click()
    phase(page, "done")
    assert legend.all_inner_texts()[:2] == ["Drums", "Fretless Bass"]
    assert legend.all_inner_texts()[-1] == "Your file"
    page.wait_for_function("document.querySelector('.player audio').readyState > 2")
    box = page.locator(".player-roll").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] - 8)
    page.wait_for_function("document.querySelector('.player audio').currentTime > 5")


def test_stop_keeps_what_is_there(page):
    page.get_by_role("tab", name="New piece").click()
    button(page, "Generate").click()
    page.wait_for_function("/Bar [3-9] of 32/.test(document.body.innerText)")
    button(page, "Stop").click()
    phase(page, "done")
    _, midi = downloaded(page, "midi")
    score = read_midi(midi)
    assert score.num_notes > 5
    assert score.end_ticks < 31 * 4 * score.ticks_per_beat  # of 32 bars
    button(page, "Play").click()
    page.wait_for_function("document.querySelector('.player audio').currentTime > 0.3")


def test_a_refused_upload_says_why(page):
    upload(page, b"MThd and nothing", "broken.mid")
    page.wait_for_selector("#facts .refused")
    assert "broken.mid" in page.inner_text("#facts .refused")
    assert button(page, "Continue").is_disabled()

    page.locator("#upload button[aria-label=Clear]").click()
    upload(page, bytes(30_000), "large.mid")
    page.wait_for_function("/large.mid: found 30,000 bytes/.test(document.body.innerText)")


def test_a_seed_out_of_range_is_said_and_begins_nothing(page):
    page.get_by_role("tab", name="New piece").click()
    seed = page.locator("#controls .seed input[type=number]").locator("visible=true")
    playwright.expect(seed).not_to_have_value("", timeout=SLOWLY)  # one is drawn at first
    page.wait_for_timeout(1000)  # and would overwrite another
    seed.fill("99999999999")
    fresh = page.get_by_label("new each time").locator("visible=true")
    playwright.expect(fresh).not_to_be_checked(timeout=SLOWLY)
    page.wait_for_timeout(1000)
    button(page, "Generate").click()
    alert = page.locator("[data-part=alert]")
    page.wait_for_function("/expected a whole number/.test(document.body.innerText)")
    assert "The seed is 99,999,999,999" in alert.inner_text()
    phase(page, "empty")
    seed.fill("5")
    button(page, "Generate").click()
    phase(page, "composing")
    assert not alert.is_visible()
    button(page, "Stop").click()
    page.wait_for_selector(".player[data-phase=done], .player[data-phase=empty]")


def test_music_stays_in_reach_when_the_joint_moves_and_lost_files_are_said(page, running):
    upload(page, fakes.example_midi(bars=3))
    page.wait_for_selector("#facts dl")
    numbers = page.locator("#controls input[type=number]").locator("visible=true")
    numbers.nth(1).fill("2")
    page.locator("#controls .segments label:visible", has_text="2").first.click()
    button(page, "Continue").click()
    phase(page, "done")
    page.wait_for_function("document.querySelector('.player audio').readyState > 2")

    numbers.nth(0).fill("2")
    page.keyboard.press("Tab")
    phase(page, "prompt")
    assert "after bar 2" in page.inner_text("[data-part=subtitle]")
    assert not page.locator("[data-part=foot]").is_visible()
    button(page, "Back to the result").click()
    phase(page, "done")
    assert "asked for 2 bars after bar 3" in page.inner_text("[data-part=settings]")
    assert not page.locator("[data-part=back]").is_visible()
    page.wait_for_function("document.querySelector('.player audio').readyState > 2")
    assert button(page, "Play").is_enabled()

    for file in running.folder.rglob("*.flac"):
        file.unlink()
    alert = page.locator("[data-part=alert]")
    for part in ("audio", "wav"):
        page.evaluate("document.querySelector('[data-part=alert]').textContent = ''")
        page.locator(f"[data-part={part}]").click()
        page.wait_for_function(
            "/cannot be had/.test(document.querySelector('[data-part=alert]').innerText)"
        )
    page.get_by_role("radio", name="2", exact=True).last.click()
    page.wait_for_function("/sound cannot be played/.test(document.body.innerText)")
    assert alert.is_visible()


def test_closing_the_tab_ends_the_work(model, page):
    page.get_by_role("tab", name="New piece").click()
    button(page, "Generate").click()
    page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
    before = len(model.ended)
    page.goto("about:blank")
    until = time.monotonic() + 30
    while len(model.ended) == before and time.monotonic() < until:
        page.wait_for_timeout(100)
    assert model.ended[before] < 300  # all would be over 350


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "dark")])
def test_nothing_is_wider_than_the_screen(address, browser, width, scheme):
    tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab.set_default_timeout(SLOWLY)
    tab.goto(address)
    tab.wait_for_selector(".player-roll")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    paper = tab.evaluate("getComputedStyle(document.body).getPropertyValue('--paper').trim()")
    assert paper == {"light": "#f5f2ec", "dark": "#14161b"}[scheme]
    tab.close()


def test_a_full_queue_gives_the_player_back_with_a_sentence(address, page):
    client_package = pytest.importorskip("gradio_client")
    client = client_package.Client(address, verbose=False, httpx_kwargs=PATIENT)
    jobs = [client.submit(bars=256, api_name="/generate") for _ in range(MAX_WAITING + 1)]
    upload(page, fakes.example_midi(bars=3))
    page.wait_for_selector("#facts dl")
    until = time.monotonic() + 60
    while sum(job.status().code.name == "IN_QUEUE" for job in jobs) < MAX_WAITING:
        assert time.monotonic() < until
        page.wait_for_timeout(100)
    button(page, "Continue").click()
    page.wait_for_function("/has not taken this job/.test(document.body.innerText)")
    phase(page, "prompt")
    assert button(page, "Continue").is_enabled()
    # the client would send /stop through the queue, which has no room for it
    asked = {"data": [], "session_hash": client.session_hash}
    answer = httpx.post(f"{client.src}gradio_api/run/stop", json=asked, timeout=60)
    assert answer.json()["data"] == [True]
    while not all(job.done() for job in jobs):
        assert time.monotonic() < until
        page.wait_for_timeout(100)
    button(page, "Continue").click()
    phase(page, "composing")
    button(page, "Stop").click()
    phase(page, "done")
