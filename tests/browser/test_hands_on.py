"""Loop, metronome, tempo, transposition and edits of notes, on the page with a fake model."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.browser import HEARD, LOUD, SILENT, box_of, centre, in_focus, opened
from tokenization.midi import read_midi, write_midi
from tokenization.midi.change import volume_of
from tokenization.score import Score, Tempo, TimeSignature, Track

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


@pytest.fixture
def page(browser, running, model):
    """A page with the song as its prompt."""
    with opened(browser, running.address, script=CLICKS + HEARD, device_scale_factor=1) as tab:
        tab.upload_prompt(SONG, "song.mid")
        yield tab


def piece(page):
    """The piece as it is downloaded."""
    return read_midi(page.downloaded()[1])


def notes_of(page):
    return [track.notes.tolist() for track in piece(page).tracks]


def test_playback_is_looped_over_the_selected_bars_with_clicks_on_the_beats(page):
    page.evaluate(
        "() => { window.places = []; setInterval(() => {"
        " if (document.querySelector('.player.playing'))"
        " places.push(+document.querySelector('.player-roll').ariaValueNow); }, 10); }"
    )
    page.part("roll").focus()
    page.keyboard.press("Shift+ArrowRight")  # bar 1
    page.wait_for_selector("[data-part=selection]:not([hidden])")
    page.wait_for_function("/selected bars/.test(document.querySelector('[data-part=loop]').title)")
    page.part("loop").click()
    assert page.part("loop").get_attribute("aria-pressed") == "true"
    page.part("play").click()
    page.wait_for_function("places.filter((one, at) => at && one < places[at - 1] - 1).length >= 3")
    assert max(page.evaluate("places")) <= 2  # seconds: bar 1 ends at 2
    page.part("loop").click()
    page.wait_for_function("places.at(-1) > 2")  # plays on
    page.wait_for_selector(".player:not(.playing)")

    page.part("metronome").click()
    page.part("play").click()
    page.wait_for_function("clicks.length >= 6")
    clicks = page.evaluate("clicks")
    gaps = [after[0] - before[0] for before, after in pairwise(clicks)]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(0.5, abs=0.06)
    high = max(tone for _, tone in clicks)
    firsts = [at for at, (_, tone) in enumerate(clicks) if tone == high]
    assert firsts
    assert {later - before for before, later in pairwise(firsts)} <= {4}


def test_the_piece_is_dragged_out_and_changes_with_tempo_and_transposition(page):
    page.evaluate(
        "() => document.addEventListener('dragstart', (event) => {"
        " window.dragged = event.dataTransfer.getData('DownloadURL'); })"
    )
    file = page.part("file-midi")
    file.hover()
    page.wait_for_timeout(1500)
    x, y = centre(file)
    page.drag((x, y), (x + 60, y + 40), release=False)
    page.wait_for_function("window.dragged")
    page.mouse.up()
    kind, name, address = page.evaluate("dragged").split(":", 2)
    assert (kind, name) == ("audio/midi", "song.mid")
    assert page.request.get(address).body() == SONG

    for _ in range(3):
        page.part("higher").click()
    assert page.part("semitones").inner_text() == "+3"
    page.wait_for_selector("[data-part=steps]:not([hidden])")
    page.part("slower").click(modifiers=["Shift"])
    page.wait_for_function("document.querySelector('.facts').innerText.includes('110 bpm')")
    assert notes_of(page) == [[[480, 480, 75, 90]], [[0, 1900, 51, 80], [1920, 1900, 53, 80]]]
    page.compose()
    continued = piece(page)
    assert continued.tracks[0].notes[0].tolist() == [480, 480, 75, 90]
    assert continued.tempos[0].bpm == pytest.approx(110)


def test_a_note_is_dragged_lengthened_deleted_and_everything_is_undone(page):
    def melody_is(*melody):
        """Wait until the downloaded piece has this melody; the bass stays."""
        expected = [*([[list(note)] for note in melody]), [list(note) for note in BASS]]
        for _ in range(40):
            if notes_of(page) == expected:
                return
            page.wait_for_timeout(250)
        assert notes_of(page) == expected

    def move(x, y, right):
        roll = box_of(page.part("roll"))  # downloads may have scrolled the page
        start = roll["x"] + x, roll["y"] + y
        page.drag(start, (start[0] + right, start[1]))

    page.part("edit").click()
    left, top, right, bottom = page.evaluate(BOX)
    beat = right - left + 1  # the note lasts a beat
    move((left + right) / 2, (top + bottom) / 2, beat)
    melody_is((960, 480, 72, 90))
    left, top, right, bottom = page.evaluate(BOX)
    move(right - 2, (top + bottom) / 2, beat / 2)
    melody_is((960, 720, 72, 90))
    assert page.part("note-count").inner_text() == "1 note"  # it stays selected
    page.part("note-up").click()
    page.part("note-up").click()
    melody_is((960, 720, 74, 90))
    page.part("note-delete").click()
    melody_is()
    for note in ((960, 720, 74, 90), (960, 720, 72, 90), (960, 480, 72, 90), NOTE):
        page.part("undo").click()
        melody_is(note)
    page.keyboard.press("Control+Shift+z")
    melody_is((960, 480, 72, 90))
    page.keyboard.press("Control+y")
    melody_is((960, 720, 72, 90))
    page.keyboard.press("Control+z")
    melody_is((960, 480, 72, 90))
    page.part("redo").click()
    melody_is((960, 720, 72, 90))


def test_a_note_is_drawn_heard_and_made_louder(page):
    def melody_is(*melody):
        for _ in range(40):
            if notes_of(page)[0] == [list(note) for note in melody]:
                return
            page.wait_for_timeout(250)
        assert notes_of(page)[0] == [list(note) for note in melody]

    page.wait_for_function("document.querySelector('[data-part=loading]').hidden")
    page.part("edit").click()
    page.part("pencil").click()
    page.part("note-velocity").fill("50")
    assert page.part("note-velocity-value").inner_text() == "50"
    left, top, right, bottom = page.evaluate(BOX)
    beat, x, y = right - left + 1, left + 1, (top + bottom) / 2
    roll = box_of(page.part("roll"))  # downloads may scroll the page
    x, y = roll["x"] + x, roll["y"] + y
    page.drag((x + 2 * beat + 2, y), (x + 3.4 * beat, y), release=False)
    page.wait_for_function(LOUD)  # before it is let go
    page.mouse.up()
    melody_is(NOTE, (1440, 720, 72, 50))
    page.wait_for_function(SILENT)
    assert page.part("note-count").inner_text() == "1 note"
    page.part("note-velocity").fill("120")
    page.part("note-velocity").blur()
    page.wait_for_function(LOUD)
    melody_is(NOTE, (1440, 720, 72, 120))
    page.part("roll").focus()
    page.keys("Escape", "Home", "n")  # at the playhead, in the middle of the roll
    page.wait_for_function(
        "document.querySelector('[data-part=note-count]').innerText === '1 note'"
    )
    assert len(notes_of(page)[0]) == 3
    for melody in ([NOTE, (1440, 720, 72, 120)], [NOTE, (1440, 720, 72, 50)], [NOTE]):
        page.part("undo").click()
        melody_is(*melody)


def test_notes_are_edited_by_keys_and_a_result_too(page):
    page.compose()
    before = notes_of(page)
    page.part("edit").click()
    page.part("roll").focus()
    page.keyboard.press("Control+a")
    assert page.part("note-count").inner_text() == f"{sum(map(len, before))} notes"
    # the bass is at the start, where the playhead is; the melody follows it
    page.keys("Escape", ".", ".", "ArrowLeft", "ArrowDown")
    page.phase("prompt")  # the result is the piece now
    after = notes_of(page)
    assert after[0][0] == [360, 480, 71, 90]
    assert (after[0][1:], after[1:]) == (before[0][1:], before[1:])
    page.part("roll").focus()
    page.keyboard.press("Control+z")
    page.phase("done")
    assert notes_of(page) == before


def test_instrument_and_volume_of_a_track_change_and_are_undone(page):
    def sounds():
        tracks = piece(page).tracks
        assert [track.notes.tolist() for track in tracks] == [[list(NOTE)], [*map(list, BASS)]]
        return [(track.program, volume_of(track)) for track in tracks]

    opener = page.locator(".player-tracks .track .sound").nth(1)
    opener.focus()
    page.keyboard.press("Enter")
    program, volume = page.part("track-program"), page.part("track-volume")
    assert in_focus(program)
    assert (program.input_value(), volume.input_value()) == ("0", "100")
    program.select_option(label="Acoustic Bass")
    page.wait_for_selector("[data-part=steps]:not([hidden])")
    page.wait_for_function("!document.querySelector('[data-part=track-program]').disabled")
    # the window is still open, and its button has been made anew
    assert page.part("track-sound").is_visible()
    volume.focus()
    page.keys(*["PageDown"] * 3)
    page.wait_for_function("document.querySelector('[data-part=track-volume-value]').value < 90")
    quieter = int(volume.input_value())
    page.wait_for_timeout(2500)
    page.keyboard.press("Escape")
    assert in_focus(opener)
    assert sounds() == [(0, 100), (32, quieter)]
    for _ in range(2):
        page.part("undo").click()
        page.wait_for_timeout(1500)
    assert sounds() == [(0, 100), (0, 100)]
