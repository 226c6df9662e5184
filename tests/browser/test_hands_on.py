"""Loop, metronome, tempo, transposition and edits of notes, on the page with a fake model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served
from tokenization.midi import read_midi, write_midi
from tokenization.midi.change import volume_of
from tokenization.score import Score, Tempo, TimeSignature, Track

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 90_000  # milliseconds: machines are shared

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]

NOTE = (480, 480, 72, 90)
BASS = [(0, 1900, 48, 80), (1920, 1900, 50, 80)]
SONG = write_midi(
    Score(480, (Track.of([NOTE]), Track.of(BASS)), (Tempo(0, 120.0),), (TimeSignature(0, 4, 4),))
)
"""Two bars of two seconds each."""
CLICKS = """
window.clicks = [];
const start = OscillatorNode.prototype.start;
OscillatorNode.prototype.start = function (when) {
  clicks.push([when, this.frequency.value]);
  start.call(this, when);
};
"""
# Where the melody's only note is on the roll, by its bluish colour: left, top, right, bottom.
BOX = """() => {
  const canvas = document.querySelector(".player-roll");
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const box = [width, height, 0, 0];
  for (let y = 80; y < height; y += 1) {
    for (let x = 60; x < width; x += 1) {
      const at = 4 * (y * width + x);
      if (data[at + 2] - data[at] < 25) continue;
      box[0] = Math.min(box[0], x); box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x); box[3] = Math.max(box[3], y);
    }
  }
  return box;
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with served(tmp_path_factory.mktemp("music"), speed=400.0) as running:
        yield running.address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(address, browser):
    """A page with an uploaded song; no script may fail."""
    tab = browser.new_page(viewport={"width": 1280, "height": 860}, device_scale_factor=1)
    tab.set_default_timeout(SLOWLY)
    tab.add_init_script(CLICKS)
    failures = []
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")
    song = {"name": "song.mid", "mimeType": "audio/midi", "buffer": SONG}
    tab.set_input_files("#write-upload input[type=file]", files=[song])
    tab.wait_for_selector(".player[data-phase=prompt]")
    yield tab
    tab.close()
    assert failures == []


def part(page, name):
    return page.locator(f"[data-part={name}]")


def downloaded(page):
    """The tracks and tempo of the piece as it is downloaded."""
    with page.expect_download() as download:
        part(page, "file-midi").click()
    score = read_midi(Path(download.value.path()).read_bytes())
    return [track.notes.tolist() for track in score.tracks], score.tempos[0].bpm


def test_playback_is_looped_over_the_selected_bars(page):
    page.evaluate(
        "() => { window.places = []; setInterval(() => {"
        " const { paused, currentTime, dataset } = document.querySelector('.player audio');"
        " if (!paused) places.push(currentTime + Number(dataset.begin || 0)); }, 10); }"
    )
    part(page, "roll").focus()
    page.keyboard.press("Shift+ArrowRight")  # bar 1
    page.wait_for_selector("[data-part=selection]:not([hidden])")
    page.wait_for_function("/selected bars/.test(document.querySelector('[data-part=loop]').title)")
    part(page, "loop").click()
    assert part(page, "loop").get_attribute("aria-pressed") == "true"
    part(page, "play").click()
    page.wait_for_function("places.filter((one, at) => at && one < places[at - 1] - 1).length >= 3")
    places = page.evaluate("places")
    assert max(places) < 2.3  # seconds: bar 1 ends at 2
    part(page, "loop").click()
    page.wait_for_function("places.at(-1) > 2.5")  # plays on


def test_the_metronome_clicks_on_the_beats(page):
    part(page, "metronome").click()
    part(page, "play").click()
    page.wait_for_function("clicks.length >= 6")
    clicks = page.evaluate("clicks")
    gaps = [after[0] - before[0] for before, after in pairwise(clicks)]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(0.5, abs=0.06)
    high = max(tone for _, tone in clicks)
    firsts = [at for at, (_, tone) in enumerate(clicks) if tone == high]
    assert firsts
    assert {later - before for before, later in pairwise(firsts)} <= {4}
    part(page, "metronome").click()
    page.wait_for_timeout(300)
    count = page.evaluate("clicks.length")
    page.wait_for_timeout(900)
    assert page.evaluate("clicks.length") == count


def test_tempo_and_transposition_change_what_is_played_and_downloaded(page):
    for _ in range(3):
        part(page, "higher").click()
    assert part(page, "semitones").inner_text() == "+3"
    page.wait_for_selector("[data-part=steps]:not([hidden])")
    part(page, "slower").click(modifiers=["Shift"])
    page.wait_for_function("document.querySelector('.facts').innerText.includes('110 bpm')")
    notes, bpm = downloaded(page)
    assert notes == [[[480, 480, 75, 90]], [[0, 1900, 51, 80], [1920, 1900, 53, 80]]]
    assert bpm == pytest.approx(110)
    page.get_by_role("button", name="Continue", exact=True).click()
    page.wait_for_selector(".player[data-phase=done]")
    notes, bpm = downloaded(page)
    assert notes[0][0] == [480, 480, 75, 90]
    assert bpm == pytest.approx(110)


def test_a_note_is_dragged_lengthened_deleted_and_everything_is_undone(page):
    part(page, "edit").click()

    def drag(x, y, right, down):
        canvas = part(page, "roll").bounding_box()  # downloads may have scrolled the page
        page.mouse.move(canvas["x"] + x, canvas["y"] + y)
        page.mouse.down()
        page.mouse.move(canvas["x"] + x + right / 2, canvas["y"] + y + down / 2)
        page.mouse.move(canvas["x"] + x + right, canvas["y"] + y + down)
        page.mouse.up()

    left, top, right, bottom = page.evaluate(BOX)
    beat = right - left + 1  # the note lasts a beat
    drag((left + right) / 2, (top + bottom) / 2, beat, 0)
    shown(page, [[960, 480, 72, 90]])
    left, top, right, bottom = page.evaluate(BOX)
    drag(right - 2, (top + bottom) / 2, beat / 2, 0)
    shown(page, [[960, 720, 72, 90]])
    assert part(page, "note-count").inner_text() == "1 note"  # it stays selected
    part(page, "note-up").click()
    part(page, "note-up").click()
    shown(page, [[960, 720, 74, 90]])
    part(page, "note-delete").click()
    shown(page, None)
    for notes in ([[960, 720, 74, 90]], [[960, 720, 72, 90]], [[960, 480, 72, 90]], [list(NOTE)]):
        part(page, "undo").click()
        shown(page, notes)
    page.keyboard.press("Control+Shift+z")
    shown(page, [[960, 480, 72, 90]])
    page.keyboard.press("Control+y")
    shown(page, [[960, 720, 72, 90]])
    page.keyboard.press("Control+z")
    shown(page, [[960, 480, 72, 90]])
    part(page, "redo").click()
    shown(page, [[960, 720, 72, 90]])


def shown(page, melody):
    """Waits until the downloaded piece has this melody; the bass stays."""
    wanted = [*([melody] if melody else []), [list(note) for note in BASS]]
    for _ in range(40):
        if downloaded(page)[0] == wanted:
            return
        page.wait_for_timeout(250)
    assert downloaded(page)[0] == wanted


def test_notes_are_edited_by_keys_and_a_result_too(page):
    page.get_by_role("button", name="Continue", exact=True).click()
    page.wait_for_selector(".player[data-phase=done]")
    before, _ = downloaded(page)
    part(page, "edit").click()
    part(page, "roll").focus()
    page.keyboard.press("Control+a")
    total = sum(map(len, before))
    assert part(page, "note-count").inner_text() == f"{total} notes"
    page.keyboard.press("Escape")
    page.keyboard.press(".")  # the bass at the start, where the playhead is
    page.keyboard.press(".")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".player[data-phase=prompt]")  # the result is the piece now
    after, _ = downloaded(page)
    assert after[0][0] == [360, 480, 71, 90]
    assert (after[0][1:], after[1:]) == (before[0][1:], before[1:])
    part(page, "roll").focus()
    page.keyboard.press("Control+z")
    page.wait_for_selector(".player[data-phase=done]")
    assert downloaded(page)[0] == before


def test_the_midi_file_can_be_dragged_out(page):
    page.evaluate(
        "() => document.addEventListener('dragstart', (event) => {"
        " window.dragged = event.dataTransfer.getData('DownloadURL'); })"
    )
    part(page, "file-midi").hover()
    page.wait_for_timeout(1500)
    box = part(page, "file-midi").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 40, steps=5)
    page.wait_for_function("window.dragged")
    page.mouse.up()
    kind, name, address = page.evaluate("dragged").split(":", 2)
    assert (kind, name) == ("audio/midi", "song.mid")
    assert page.request.get(address).body() == SONG


def test_instrument_and_volume_of_a_track_change_and_are_undone(page):
    def sounds():
        with page.expect_download() as download:
            part(page, "file-midi").click()
        score = read_midi(Path(download.value.path()).read_bytes())
        assert [track.notes.tolist() for track in score.tracks] == [
            [list(NOTE)],
            [*map(list, BASS)],
        ]
        return [(track.program, volume_of(track)) for track in score.tracks]

    opener = page.locator(".player-tracks .track .sound").nth(1)
    opener.focus()
    page.keyboard.press("Enter")
    program, volume = part(page, "track-program"), part(page, "track-volume")
    assert program.evaluate("node => node === document.activeElement")
    assert (program.input_value(), volume.input_value()) == ("0", "100")
    program.select_option(label="Acoustic Bass")
    page.wait_for_selector("[data-part=steps]:not([hidden])")
    page.wait_for_function("!document.querySelector('[data-part=track-program]').disabled")
    # the window is still open, and its button has been made anew
    assert part(page, "track-sound").is_visible()
    volume.focus()
    for _ in range(3):
        page.keyboard.press("PageDown")
    page.wait_for_function("document.querySelector('[data-part=track-volume-value]').value < 90")
    wanted = int(volume.input_value())
    page.wait_for_timeout(2500)
    page.keyboard.press("Escape")
    assert opener.evaluate("node => node === document.activeElement")
    assert sounds() == [(0, 100), (32, wanted)]
    for _ in range(2):
        part(page, "undo").click()
        page.wait_for_timeout(1500)
    assert sounds() == [(0, 100), (0, 100)]
