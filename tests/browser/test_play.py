"""A prompt is played in a browser, and its answer is heard while it is written."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from app.compose.models import Models
from tests.support import fakes
from tests.support.bands import model_of
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served
from tokenization.midi import read_midi
from tokenization.remi.remi import PianoRemi

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 90_000  # milliseconds: machines are shared
GROOVE = Path(__file__).parents[2] / "examples" / "groove.mid"
STARTS = """
window.starts = [];
const { start } = AudioBufferSourceNode.prototype;
AudioBufferSourceNode.prototype.start = function (at, offset) {
  const { phase } = document.querySelector(".player").dataset;
  starts.push({ at, offset, phase, seconds: this.buffer.duration, now: this.context.currentTime });
  start.call(this, at, offset);
};"""
"""Records when the parts of the music are scheduled, and in which phase of the job."""
KEYBOARD = """
const input = { name: "Fake keyboard", state: "connected", onmidimessage: null };
navigator.requestMIDIAccess = async () => ({ inputs: new Map([["1", input]]) });
window.send = (...data) => input.onmidimessage({ data, timeStamp: performance.now() });
window.chords = async () => {
  for (const [pitch, velocity] of [[48, 100], [55, 31]]) {
    send(0x90, pitch, velocity);
    send(0x90, pitch + 4, velocity);
    await new Promise((resolve) => setTimeout(resolve, 500));
    send(0x80, pitch, 0);
    send(0x90, pitch + 4, 0);
  }
  send(0xb0, 64, 127);
};"""
"""A MIDI keyboard that plays two thirds."""

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A page whose model writes 16 notes a second: a bar of 2.5 s takes about one second."""
    with served(tmp_path_factory.mktemp("music"), speed=16.0) as page:
        yield page


def opened(browser, running, width=1280):
    tab = browser.new_page(viewport={"width": width, "height": 860}, has_touch=width < 600)
    tab.set_default_timeout(SLOWLY)
    tab.failures = []
    tab.on("pageerror", lambda error: tab.failures.append(str(error)))
    tab.add_init_script(STARTS + KEYBOARD)
    tab.goto(running.address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")
    return tab


def closed(page):
    """Closes a page in which no script may have failed."""
    page.close()
    assert page.failures == []


@pytest.fixture
def page(browser, running):
    tab = opened(browser, running)
    yield tab
    closed(tab)


def part(page, name):
    return page.locator(f"[data-part={name}]")


def play(page, name):
    return page.locator(f"[data-play={name}]")


def phase(page, name):
    page.wait_for_selector(f".player[data-phase={name}]")


def upload(page, content):
    page.set_input_files(
        "#write-upload input[type=file]",
        files=[{"name": "song.mid", "mimeType": "audio/midi", "buffer": content}],
    )
    phase(page, "prompt")


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


def listen(page, bars=8):
    length = page.locator("#controls .length input[type=number]").locator("visible=true").first
    length.fill(str(bars))
    page.get_by_label("Listen while it is written").check()
    button(page, "Continue").click()


def underruns(page):
    return int(page.locator(".player").get_attribute("data-underruns") or 0)


def assert_without_gaps(page):
    """All parts were scheduled before their time, each from the end of the one before."""
    starts = page.evaluate("starts")
    assert underruns(page) == 0
    assert len(starts) > 0
    assert all(one["at"] > one["now"] for one in starts)
    for one, after in pairwise(starts):
        assert after["at"] == pytest.approx(one["at"] + one["seconds"] - one["offset"], abs=1e-6)


def uploaded(running, name):
    """The track and the score of the newest file that was uploaded under a name."""
    files = running.folder.glob(f"uploads/**/{name}.mid")
    path = max(files, key=lambda file: file.stat().st_mtime)
    score = read_midi(path.read_bytes())
    (track,) = score.tracks
    return track, score


def record(page, *, tempo=40, click="all", timing="grid", answer=False):
    if play(page, "panel").is_hidden():
        play(page, "open").click()
    play(page, "tempo").fill(str(tempo))
    play(page, "click").select_option(click)
    play(page, "timing").select_option(timing)
    play(page, "answer").set_checked(answer)
    play(page, "record").click()


def says(page, text):
    page.wait_for_function(
        "text => document.querySelector('[data-play=say]').textContent.includes(text)",
        arg=text,
        polling=10,
    )


def at(began, beats, tempo=40):
    """Waits until a beat."""
    time.sleep(max(0.0, began + 60 / tempo * beats - time.monotonic()))


# the answer


# with released models: before `running`, whose model takes the place of all others


@pytest.mark.parametrize("bars", [8])
def test_a_band_of_the_released_model_is_heard_without_a_gap(browser, tmp_path, bars):
    models = Models("groove")
    for _ in models.load("groove").preparing():
        pass
    with served(tmp_path, models=models) as running:
        page = opened(browser, running)
        upload(page, GROOVE.read_bytes())
        listen(page, bars)
        phase(page, "done")
        page.wait_for_selector(".player:not(.playing)")
        assert_without_gaps(page)
        assert page.evaluate("starts[0].phase") != "done"  # it began before the job ended
        closed(page)


def test_a_played_prompt_is_answered_at_once(browser, tmp_path):
    with served(tmp_path, models=Models.only(model_of(PianoRemi()))) as running:
        page = opened(browser, running)
        record(page, tempo=120, click="none", answer=True)
        for key in "asdfg":
            page.keyboard.press(key, delay=150)
        play(page, "record").click()
        page.wait_for_selector(".player.playing")
        assert part(page, "title").inner_text() == "Recording 1"
        phase(page, "done")
        page.wait_for_selector(".player:not(.playing)")
        assert_without_gaps(page)
        closed(page)


def test_music_is_heard_while_it_is_written_without_a_gap(page):
    upload(page, fakes.example_midi(4))
    listen(page)
    page.wait_for_selector(".player.playing[data-phase=composing]")
    assert len(page.evaluate("starts")) < 8
    phase(page, "done")
    assert page.locator(".player.playing").count() == 1
    page.wait_for_selector(".player:not(.playing)")
    assert_without_gaps(page)
    starts = page.evaluate("starts")
    played = starts[-1]["at"] + starts[-1]["seconds"] - starts[0]["at"]
    assert 8 * 2.5 <= played <= 8 * 2.5 + 2.1  # at 96 bpm, and the tail


def test_without_the_tick_nothing_is_played_by_itself(page):
    upload(page, fakes.example_midi(2))
    button(page, "Continue").click()
    phase(page, "done")
    assert page.evaluate("starts") == []
    assert page.locator(".player.playing").count() == 0


def test_a_part_that_comes_too_late_is_counted_and_the_music_goes_on(page):
    page.route("**/0002.flac", lambda route: (time.sleep(9), route.continue_()))
    upload(page, fakes.example_midi(2))
    listen(page, bars=6)
    page.wait_for_selector(".player[data-underruns='1'].playing")
    page.wait_for_selector(".player:not(.playing)")
    assert underruns(page) == 1


def test_pause_and_play_while_it_is_written_and_the_whole_sound_takes_over(page):
    upload(page, fakes.example_midi(4))
    listen(page)
    page.wait_for_selector(".player.playing[data-phase=composing]")
    page.wait_for_timeout(1500)
    part(page, "play").click()
    page.wait_for_selector(".player:not(.playing)")
    paused = int(part(page, "roll").get_attribute("aria-valuenow"))
    assert 10 <= paused <= 14  # the new music begins at 10 s
    part(page, "play").click()
    page.wait_for_selector(".player.playing[data-phase=composing]")
    page.wait_for_timeout(500)
    part(page, "play").click()
    phase(page, "done")
    page.wait_for_function("!document.querySelector('[data-part=play]').disabled")
    page.wait_for_selector(".player:not(.making)")
    part(page, "play").click()
    page.wait_for_selector(".player.playing")
    assert page.evaluate("!document.querySelector('.player audio').paused")
    now = page.evaluate("document.querySelector('.player audio').currentTime")
    begin = page.evaluate("Number(document.querySelector('.player audio').dataset.begin)")
    assert paused <= begin + now <= paused + 8


# the prompt


def test_keys_of_the_computer_after_a_count_in_become_a_prompt_on_the_grid(page, running):
    record(page)
    says(page, "Count-in: 2")
    page.keyboard.press("k")  # not part of the take
    says(page, "Recording: bar 1")
    began = time.monotonic()
    for beat, key, beats in ((0, "a", 0.75), (1, "t", 1), (2.5, "l", 0.5)):
        at(began, beat)
        page.keyboard.down(key)
        at(began, beat + beats)
        page.keyboard.up(key)
    play(page, "record").click()
    says(page, "Recorded 3 notes in 1 bar.")
    phase(page, "prompt")
    assert part(page, "title").inner_text() == "Recording 1"
    assert page.get_by_label("Listen while it is written").is_checked()
    track, score = uploaded(running, "Recording 1")
    sixteenths = (track.notes[:, :3] / [120, 120, 1]).tolist()
    assert sixteenths == [[0, 3, 60], [4, 4, 66], [10, 2, 74]]
    assert (score.ticks_per_beat, round(score.tempos[0].bpm), score.end_ticks) == (480, 40, 1920)


def test_keys_on_the_screen_by_mouse_and_by_focus(page, running):
    record(page, click="none")
    for name in ("C 4", "G sharp 4"):
        page.get_by_role("button", name=name, exact=True).click(delay=100)
    play(page, "higher").click()
    page.get_by_role("button", name="C 5", exact=True).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter", delay=100)
    play(page, "record").click()
    says(page, "Recorded 3 notes")
    phase(page, "prompt")
    assert uploaded(running, "Recording 1")[0].notes[:, 2].tolist() == [60, 68, 73]


def test_metre_and_instrument_of_a_recording(page, running):
    play(page, "open").click()
    play(page, "metre").select_option("6/8")
    play(page, "instrument").select_option("Flute")
    record(page, click="none")
    began = time.monotonic()
    for beat, name in enumerate(("C 4", "D 4", "E 4")):  # 1.5 seconds each
        at(began, beat)
        page.get_by_role("button", name=name, exact=True).click(delay=100)
    play(page, "record").click()
    says(page, "Recorded 3 notes in 2 bars.")
    phase(page, "prompt")
    track, score = uploaded(running, "Recording 1")
    assert track.program == 73
    assert track.notes[:, 0].tolist() == [0, 720, 1440]
    (metre,) = score.time_signatures
    assert (metre.numerator, metre.denominator, score.end_ticks) == (6, 8, 2880)
    assert round(score.tempos[0].bpm) == 60  # quarter notes: 40 dotted ones


def test_a_finger_plays_on_a_phone_where_the_keys_fit(browser, running):
    page = opened(browser, running, width=390)
    record(page, click="none", timing="free")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("E 4", "F 5"):
        key = page.get_by_role("button", name=name, exact=True)
        box = key.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["width"] > 24
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] - 12)
    play(page, "record").click()
    says(page, "Recorded 2 notes")
    assert uploaded(running, "Recording 1")[0].notes[:, 2].tolist() == [64, 77]
    closed(page)


def test_a_midi_keyboard_is_recorded_freely_with_its_velocities_and_pedal(page, running):
    play(page, "open").click()
    play(page, "midi").click()
    says(page, "Listening to Fake keyboard.")
    record(page, tempo=120, click="none", timing="free")
    page.evaluate("chords()")
    play(page, "record").click()
    says(page, "Recorded 4 notes in 1 bar.")
    phase(page, "prompt")
    track, _ = uploaded(running, "Recording 1")
    assert track.notes[:, 2:].tolist() == [[48, 100], [52, 100], [55, 31], [59, 31]]
    onsets = track.notes[:, 0]
    assert onsets[0] == 0
    assert 460 <= onsets[2] <= 620  # 500 ms at 960 ticks a second
    assert track.controls[:, 1:].tolist() == [[64, 127]]


def test_what_cannot_be_recorded_is_said(page):
    record(page, click="none")
    play(page, "record").click()
    says(page, "Nothing was played")
    play(page, "tempo").fill("12")
    play(page, "record").click()
    says(page, "The tempo is not a whole number from 40 to 240.")
    page.evaluate("() => { navigator.requestMIDIAccess = async () => { throw new Error('no'); }; }")
    play(page, "midi").click()
    says(page, "was not allowed to use MIDI keyboards")
    assert page.locator(".player[data-phase=empty]").count() == 1
