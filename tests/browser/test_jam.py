"""A band follows a scripted player in a browser.

RELPE_JAM_SECONDS is how long the player plays; RELPE_JAM_MODEL is a released model in place of a
scripted band, of which every tenth bar is late.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from app.compose.jam import Bar
from app.compose.models import Models
from app.web.callbacks import jams as live
from tests.support.bands import model_of
from tests.support.browser import HEARD, LOUD, SILENT, opened
from tests.support.served import served
from tokenization.midi import read_midi
from tokenization.plan_text import parse_chart
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import Score, Track

MODEL = os.environ.get("RELPE_JAM_MODEL")
SECONDS = float(os.environ.get("RELPE_JAM_SECONDS", "60"))
MIDI = """
window.sent = [];
const send = (data, time) => sent.push([time, ...data]);
const port = (name, more) => ({ id: name, name, state: "connected", ...more });
const access = {
  inputs: new Map([["1", port("Fake keyboard", { onmidimessage: null })]]),
  outputs: new Map([["Fake synth", port("Fake synth", { send })]]),
  listeners: [],
  addEventListener: (_, call) => access.listeners.push(call),
};
navigator.requestMIDIAccess = async () => access;
window.unplug = (ports) => {
  for (const one of access[ports].values()) one.state = "disconnected";
  access.onstatechange?.();
  access.listeners.forEach((call) => call());
};
window.strike = (...pitches) => {
  const { onmidimessage } = access.inputs.get("1");
  for (const status of [0x90, 0x80])
    for (const pitch of pitches) onmidimessage({ data: [status, pitch, 80], timeStamp: 0 });
};"""
"""A MIDI keyboard and a synthesizer."""
WATCH = """longest => {
  window.silences = 0;
  let since = performance.now();
  setInterval(() => {
    if (level() > 1e-4) since = performance.now();
    else if (performance.now() > since + longest) [silences, since] = [silences + 1, Infinity];
  }, 25);
}"""
"""Counts silences that are longer than some milliseconds."""
LOADED = "performance.getEntriesByType('resource').some(({ name }) => name.includes('/jam/'))"
NO_MIDI = "Object.defineProperty(navigator, 'requestMIDIAccess', {});"
LATE_PLAYER = """
let early = 3;
addEventListener("lend-player", (event) => early-- > 0 && event.stopPropagation(), true);"""
"""The tab is opened before the player is there."""


class ScriptedJam:
    """A drum and a bass on each beat."""

    def __init__(self, model, style, tempo, metre, names, seed):
        del model, style, names, seed
        self.tempo, self.metre, self.number, self.ended = tempo, metre, 0, False
        drums, bass = Track.of([], is_drum=True), Track.of([], program=33)
        self.tracks = replace(drums, name="Drums"), replace(bass, name="Slap Bass 1")

    def next_bar(self, chords, **_):
        """A bar under some chords."""
        if self.number % 10 == 9:
            time.sleep(4)
        planned = parse_chart(chords or "C")[0]
        chord = planned[0].chord
        root = 36 + chord.root if chord else 36
        pitches = zip(self.tracks, (36, root), strict=True)
        notes = [
            replace(track, notes=Track.of([(12 * n, 11, pitch, 100) for n in range(4)]).notes)
            for track, pitch in pitches
        ]
        self.number += 1
        return Bar(Score(12, tuple(notes), end_ticks=48), self.tempo, self.metre, planned, 0)

    def end(self):
        """The last bar."""
        self.ended = True
        return self.next_bar("C")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if MODEL is None:
            patch.setattr(live, "Jam", ScriptedJam)
        models = Models(MODEL) if MODEL else Models.only(model_of(MultitrackRemi()))
        with served(tmp_path_factory.mktemp("jam"), models=models) as running:
            yield running.address


@contextmanager
def jamming(browser, address, script=HEARD + MIDI, size=(1280, 860)):
    with opened(browser, address, size=size, script=script) as page:
        assert not page.evaluate(LOADED)
        page.get_by_role("tab", name="Jam").click()
        page.wait_for_selector("[data-jam=go]")
        yield page


def jam(page, name):
    return page.locator(f"[data-jam={name}]")


def says(page, text):
    page.shows(text, "[data-jam=say]")


def begin(page, source="played", **fields):
    jam(page, "source").select_option(source)
    for name, value in fields.items():
        jam(page, name).fill(value)
    jam(page, "go").click()


def wait_for_bar(page, number):
    page.wait_for_function(
        "bar => parseInt(document.querySelector('[data-jam=count]').textContent.slice(4)) >= bar",
        arg=number,
    )


def end(page):
    jam(page, "end").click()
    says(page, "What was played is below the player")
    page.phase("done")


def test_a_player_is_followed_without_a_gap_and_what_was_played_is_a_result(browser, address):
    with jamming(browser, address) as page:
        jam(page, "midi").click()
        says(page, "Listening to Fake keyboard.")
        jam(page, "grain").select_option("half")
        begin(page)
        says(page, "Play a chord")
        page.evaluate("strike(57, 60, 64)")
        page.wait_for_function(LOUD)
        page.evaluate(WATCH, 1000)
        wait_for_bar(page, 1)
        faulthandler.cancel_dump_traceback_later()  # a player may play for longer than a test lasts
        began, number = time.monotonic(), 0
        while time.monotonic() < began + SECONDS:
            number += 1
            if number % 4 < 2:
                page.evaluate("root => strike(root, root + 4, root + 7)", 48 + 5 * number % 12)
            else:
                page.keyboard.press("asdfghj"[number % 7], delay=60)
            page.wait_for_timeout(2400)
        count = jam(page, "count").inner_text()
        silences = page.evaluate("silences")
        sys.stderr.write(f"\n{SECONDS:g} s: {count}, {silences} silences\n")
        assert silences == 0
        end(page)
        name, midi = page.downloaded()
        assert name.startswith("jam_")
        score = read_midi(midi)
        assert len(score.tracks) == (6 if MODEL else 2)
        assert score.end_ticks / score.ticks_per_beat / 4 >= SECONDS / 4.8
        page.wait_for_selector("#results li")
        page.part("more").click()
        _, settings = page.downloaded("[data-part=file-replay]")
        recorded = json.loads(settings)
        assert recorded["bars"][0]["chords"] == "Am"
        assert recorded["bars"][-1]["is_last"]


def test_a_chart_is_played_on_a_midi_port_with_clock_until_it_is_unplugged(browser, address):
    with jamming(browser, address) as page:
        page.part("midi-out").click()
        page.wait_for_selector("select.player-output")
        begin(page, "chart", chart="Am | F", tempo="200")
        wait_for_bar(page, 4)
        assert page.evaluate(SILENT)
        sent = page.evaluate("sent")
        assert [message[1] for message in sent].count(0xFA) == 1
        clocks = [message[0] for message in sent if message[1] == 0xF8]
        assert np.median(np.diff(clocks)) == pytest.approx(60_000 / 200 / 24, rel=0.1)
        assert any(message[1] == 0x99 for message in sent)
        page.evaluate("unplug('outputs')")
        page.shows("Fake synth was unplugged", "[data-part=alert]")
        page.wait_for_function(LOUD)
        end(page)


def test_without_web_midi_the_keys_work_and_an_unplugged_keyboard_is_told(browser, address):
    with jamming(browser, address, HEARD + NO_MIDI + LATE_PLAYER, size=(390, 800)) as page:
        says(page, "cannot use MIDI keyboards")
        assert jam(page, "midi").is_hidden()
        assert page.part("midi-out").is_hidden()
        begin(page)
        says(page, "Play a chord")
        page.button("Dm").click()
        wait_for_bar(page, 2)
        page.wait_for_selector("[data-jam=keys] [aria-pressed=true]")
        end(page)
    with jamming(browser, address) as page:
        jam(page, "midi").click()
        says(page, "Listening to Fake keyboard.")
        page.evaluate("unplug('inputs')")
        says(page, "Fake keyboard was unplugged.")


def test_one_more_jam_is_refused_until_a_tab_is_closed(browser, address, monkeypatch):
    monkeypatch.setattr(live, "MOST_JAMS", 1)
    with jamming(browser, address) as other:
        with jamming(browser, address) as page:
            begin(page, "band")
            wait_for_bar(page, 1)
            begin(other, "band")
            says(other, "Found 1 jam being played, expected fewer than")
        other.wait_for_timeout(2500)
        begin(other, "band")
        wait_for_bar(other, 1)
        jam(other, "end").click()
        jam(other, "end").click()
