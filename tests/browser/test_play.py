"""A prompt is played in a browser, and its answer is heard while it is written."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from app.compose.models import Models
from tests.support import fakes
from tests.support.bands import model_of
from tests.support.browser import HEARD, LOUD, SILENT, box_of, opened
from tests.support.served import served
from tokenization.midi import read_midi
from tokenization.remi.remi import PianoRemi

KEYBOARD = """
const input = { name: "Fake keyboard", state: "connected", onmidimessage: null };
navigator.requestMIDIAccess = async () => ({ inputs: new Map([["1", input]]) });
window.send = (...data) => input.onmidimessage({ data, timeStamp: performance.now() });
window.chords = () => {
  clock = performance.now();
  for (const [pitch, velocity] of [[48, 100], [55, 31]]) {
    send(0x90, pitch, velocity);
    send(0x90, pitch + 4, velocity);
    clock += 500;
    send(0x80, pitch, 0);
    send(0x90, pitch + 4, 0);
  }
  send(0xb0, 64, 127);
};"""
"""A MIDI keyboard that plays two thirds."""
CLOCK = """
window.clock = null;
const now = performance.now.bind(performance);
performance.now = () => clock ?? now();
Object.defineProperty(Event.prototype, "timeStamp", { get: () => performance.now() });"""
"""A clock, in milliseconds, that stands still once it is set: machines are slow."""


@contextmanager
def listening(browser, address, width=1280):
    """A page whose sound is watched, with a MIDI keyboard."""
    with opened(browser, address, size=(width, 860), script=HEARD + KEYBOARD + CLOCK) as tab:
        yield tab


@pytest.fixture
def page(browser, running, model):
    """A page whose model writes 16 notes a second: a bar of 2.5 s takes about one second."""
    model.speed = 16.0
    with listening(browser, running.address) as tab:
        yield tab


def play(page, name):
    return page.locator(f"[data-play={name}]")


def listen(page, bars):
    page.expert()
    page.set_length(bars)
    page.get_by_label("Listen while it is written").check()
    page.go.click()


def wait_for_the_end(page):
    page.wait_for_selector(".player:not(.playing)")


def recorded(running):
    """The track and the score of the newest recording."""
    files = running.uploads.glob("**/Recording 1.mid")
    path = max(files, key=lambda file: file.stat().st_mtime)
    score = read_midi(path.read_bytes())
    (track,) = score.tracks
    return track, score


def record(page, *, tempo=40, click="none", timing="grid", answer=False):
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


def move_clock(page, milliseconds):
    """Move the clock from where it stood at first, which is now."""
    page.evaluate("ms => { clock = ms + (window.start ??= performance.now()); }", milliseconds)


# the answer


def test_a_played_prompt_is_answered_at_once(browser, tmp_path):
    with (
        served(tmp_path, models=Models.only(model_of(PianoRemi()))) as running,
        listening(browser, running.address) as page,
    ):
        record(page, tempo=120, answer=True)
        for key in "asdfg":
            page.keyboard.press(key, delay=150)
        play(page, "record").click()
        page.wait_for_selector(".player.playing")
        assert page.part("title").inner_text() == "Recording 1"
        page.phase("done")
        wait_for_the_end(page)


def test_music_is_played_while_it_is_written_if_this_is_ticked(page, model):
    page.upload_prompt(fakes.example_midi(4))
    page.set_length(2)
    page.compose()
    assert page.locator(".player.playing").count() == 0
    page.button("Undo").click()
    page.phase("prompt")
    page.evaluate(
        """() => {
          const player = document.querySelector(".player");
          new MutationObserver((_, observer) => {
            if (!player.matches(".playing")) return;
            observer.disconnect();
            window.began = document.querySelector(".player-roll").ariaValueNow;
          }).observe(player, { attributeFilter: ["class"] });
        }"""
    )
    model.speed = 8.0
    listen(page, bars=64)
    page.wait_for_selector(".player.playing[data-phase=composing]")
    assert page.evaluate("began") == "10"  # seconds, where the new music begins
    page.wait_for_function(LOUD)
    model.speed = 1.0  # slow enough for a slow browser
    page.part("play").click()
    wait_for_the_end(page)
    page.wait_for_timeout(1500)
    assert page.locator(".player.playing").count() == 0
    page.part("play").click()
    page.wait_for_selector(".player.playing[data-phase=composing]")
    page.button("Stop and keep").click()
    page.phase("done")
    assert page.locator(".player.playing").count() == 1
    page.part("roll").focus()
    page.keyboard.press("End")
    wait_for_the_end(page)
    assert page.part("total").inner_text() == f" / {page.part('now').inner_text()}"


# the prompt


def test_keys_of_the_computer_after_a_count_in_become_a_prompt_on_the_grid(page, running):
    page.evaluate(
        """() => {
          window.said = [];
          const note = ([{ target }]) => said.push(target.textContent);
          new MutationObserver(note).observe(
            document.querySelector("[data-play=say]"), { childList: true });
        }"""
    )
    move_clock(page, 0)
    record(page, click="all")
    move_clock(page, 2000)
    says(page, "Count-in: 2")
    assert page.evaluate("said.filter((text) => text.startsWith('Count'))")[0] == "Count-in: 1"
    page.keyboard.press("k")  # not part of the take
    zero = 6200  # a bar, and a little more for the sound device
    move_clock(page, zero)
    says(page, "Recording: bar 1")
    for beat, key, beats in ((0, "a", 0.75), (1, "t", 1), (2.5, "l", 0.5)):
        move_clock(page, zero + 1500 * beat)
        page.keyboard.down(key)
        move_clock(page, zero + 1500 * (beat + beats))
        page.keyboard.up(key)
    play(page, "record").click()
    says(page, "Recorded 3 notes in 1 bar.")
    page.phase("prompt")
    assert page.part("title").inner_text() == "Recording 1"
    assert page.get_by_label("Listen while it is written").is_checked()
    track, score = recorded(running)
    sixteenths = (track.notes[:, :3] / [120, 120, 1]).tolist()
    assert sixteenths == [[0, 3, 60], [4, 4, 66], [10, 2, 74]]
    assert (score.ticks_per_beat, round(score.tempos[0].bpm), score.end_ticks) == (480, 40, 1920)


def test_notes_are_seen_and_heard_while_they_are_recorded_over_a_piece(page):
    def coloured():
        """Pixels of the roll in the colour of new notes."""
        return page.evaluate(
            """() => {
              const { width, height } = document.querySelector(".player-roll");
              const { data } = document.querySelector(".player-roll")
                .getContext("2d").getImageData(0, 0, width, height);
              let count = 0;
              for (let at = 0; at < data.length; at += 4) count += data[at] - data[at + 2] > 80;
              return count;
            }"""
        )

    page.upload_prompt(fakes.example_midi(2))
    page.wait_for_function("document.querySelector('[data-part=loading]').hidden")
    record(page, tempo=120, timing="free")
    assert page.part("title").inner_text() == "Recording"
    page.wait_for_timeout(500)
    before = coloured()  # the line at the present time
    page.keyboard.down("a")
    page.wait_for_function(LOUD)
    page.wait_for_timeout(700)
    page.keyboard.up("a")
    assert coloured() > before + 100
    page.wait_for_function(SILENT)
    play(page, "record").click()
    says(page, "Recorded 1 note")
    page.wait_for_function("document.querySelector('[data-part=title]').innerText == 'Recording 1'")
    record(page)
    play(page, "record").click()
    says(page, "Nothing was played")
    assert page.part("title").inner_text() == "Recording 1"


def test_keys_on_the_screen_with_a_metre_and_an_instrument(page, running):
    play(page, "open").click()
    play(page, "metre").select_option("6/8")
    play(page, "instrument").select_option("Flute")
    play(page, "higher").click()
    record(page)
    for beat, name in enumerate(("C 5", "G sharp 5")):  # 1.5 seconds each
        move_clock(page, 1500 * beat)
        page.button(name).click()
    page.button("C 5").focus()
    page.keyboard.press("ArrowRight")
    move_clock(page, 3000)
    page.keyboard.press("Enter")
    play(page, "record").click()
    says(page, "Recorded 3 notes in 2 bars.")
    page.phase("prompt")
    track, score = recorded(running)
    assert track.program == 73
    assert track.notes[:, [0, 2]].tolist() == [[0, 72], [720, 80], [1440, 73]]
    (metre,) = score.time_signatures
    assert (metre.numerator, metre.denominator, score.end_ticks) == (6, 8, 2880)
    assert round(score.tempos[0].bpm) == 60  # quarter notes: 40 dotted ones


def test_a_finger_plays_on_a_phone_where_the_keys_fit(browser, running):
    with listening(browser, running.address, width=390) as page:
        record(page, timing="free")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for name in ("E 4", "F 5"):
            box = box_of(page.button(name))
            assert 0 <= box["x"] < box["x"] + box["width"] <= 390
            assert box["width"] > 24
            page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] - 12)
        play(page, "record").click()
        says(page, "Recorded 2 notes")
        page.phase("prompt")
    assert recorded(running)[0].notes[:, 2].tolist() == [64, 77]


def test_a_midi_keyboard_is_recorded_freely_with_its_velocities_and_pedal(page, running):
    play(page, "open").click()
    play(page, "midi").click()
    says(page, "Listening to Fake keyboard.")
    record(page, tempo=120, timing="free")
    page.evaluate("chords()")
    play(page, "record").click()
    says(page, "Recorded 4 notes in 1 bar.")
    page.phase("prompt")
    track, _ = recorded(running)
    assert track.notes[:, 2:].tolist() == [[48, 100], [52, 100], [55, 31], [59, 31]]
    assert track.notes[:, 0].tolist() == [0, 0, 480, 480]  # 500 ms at 960 ticks a second
    assert track.controls[:, 1:].tolist() == [[64, 127]]


def test_what_cannot_be_recorded_is_said(page):
    record(page)
    play(page, "record").click()
    says(page, "Nothing was played")
    play(page, "tempo").fill("12")
    play(page, "record").click()
    says(page, "The tempo is not a whole number from 40 to 240.")
    page.evaluate("() => { navigator.requestMIDIAccess = async () => { throw new Error('no'); }; }")
    play(page, "midi").click()
    says(page, "was not allowed to use MIDI keyboards")
    page.phase("empty")
