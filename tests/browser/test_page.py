"""The page in a browser, with a fake model and real sound."""

from __future__ import annotations

import io
import json
import re
from urllib.parse import urlsplit

import mido
import pytest
import soundfile
from playwright.sync_api import expect

from app.compose.plan.sheet_music import sheet_music
from tests.support import fakes
from tests.support.browser import Tab, box_of, centre, opened
from tests.support.scores import performance
from tests.support.served import served
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Track

NOW = "+document.querySelector('.player-roll').ariaValueNow"


def card(page, fact):
    page.shows(fact, ".facts")


def download_from_menu(page, kind):
    page.part("more").click()
    return page.downloaded(f"[data-part=file-{kind}]")


def results(page):
    return page.locator("#results li")


def seed_field(page):
    """The field of the seed, which is unfolded."""
    if not page.locator("#controls .seed").is_visible():
        page.expert()
    return page.locator("#controls .seed input[type=number]").locator("visible=true")


def test_the_empty_page_plays_an_example_and_another_is_loaded_with_one_click(page):
    assert page.go.is_enabled()
    page.button("Hear this example").click()
    page.wait_for_selector(".player.playing")
    assert page.evaluate(NOW) > 10  # playback starts shortly before the new music
    assert page.part("like-this").is_hidden()
    page.button("Waltz").click()
    card(page, "3/4")
    page.phase("prompt")
    assert page.evaluate(NOW) == 0
    assert page.go.is_enabled()
    page.button("Play").click()  # before anything is generated
    page.wait_for_function(f"{NOW} > 0")


def test_upload_region_continue_play_and_download(page, model):
    model.speed = 40.0
    page.upload(fakes.example_midi(bars=12), "Evening song.mid")
    card(page, "96 bpm")
    card(page, "Reads bars 1 to 12")
    page.button("Last 8 bars").click()
    card(page, "Reads bars 5 to 12")
    assert page.part("region-bars").inner_text() == "bars 5–12"
    start = page.locator(".player-handle.from")
    x, y = centre(start)
    bar = (centre(page.locator(".player-handle.to"))[0] - x) / 8
    page.drag((x, y), (x + 2 * bar, y))
    card(page, "Reads bars 7 to 12")
    start.focus()
    page.keyboard.press("ArrowLeft")
    card(page, "Reads bars 6 to 12")

    page.locator("#controls .segments label", has_text="2").locator("visible=true").first.click()
    page.set_length(2)
    page.compose()
    assert "2 bars after bar 12" in page.part("subtitle").inner_text()
    seed = seed_field(page).input_value()
    assert f"seed {seed}" in page.part("settings").inner_text()
    page.keyboard.press("2")
    assert f"seed {int(seed) + 1}" in page.part("settings").inner_text()
    name, midi = page.downloaded()
    assert re.fullmatch(r"Evening-song_a12_h6_fake_b2_s\d+_T1\.00_p0\.97_v2\.mid", name)
    seconds = mido.MidiFile(file=io.BytesIO(midi)).length
    name, new_part = download_from_menu(page, "new_midi")
    assert name.endswith("_v2_new_part.mid")
    variation = page.part("chips").get_by_role("radio").nth(1).inner_text()
    assert f"{read_midi(new_part).num_notes} notes" in variation
    assert read_midi(midi).num_notes > read_midi(new_part).num_notes
    name, sheet = download_from_menu(page, "score")
    assert name.endswith("_v2.musicxml")
    assert sheet == sheet_music(read_midi(midi))
    name, content = download_from_menu(page, "ogg")
    assert name.endswith(".ogg")
    assert soundfile.info(io.BytesIO(content)).duration == pytest.approx(seconds, abs=3)

    roll = box_of(page.part("roll"))
    before = page.evaluate(NOW)
    page.mouse.click(roll["x"] + 0.7 * roll["width"], roll["y"] + 200)
    page.wait_for_function(f"Math.abs({NOW} - {before}) > 1")
    sought = page.evaluate(NOW)
    page.keyboard.press("Space")
    page.wait_for_selector(".player.playing")
    page.wait_for_function(f"{NOW} > {sought}")


def test_continue_another_try_undo_results_and_discard(page):
    page.upload(fakes.example_midi(bars=2))
    card(page, "96 bpm")
    page.set_length(3)
    page.compose()
    expect(page.go).to_have_text("Continue writes 3 bars after bar 5")
    page.compose()
    assert "after bar 5" in page.part("subtitle").inner_text()
    page.button("Another try").click()
    expect(results(page)).to_have_count(3)
    page.phase("done")
    assert "after bar 5" in page.part("subtitle").inner_text()
    page.button("Discard").click()
    expect(results(page)).to_have_count(2)
    page.button("Undo").click()
    expect(results(page)).to_have_count(3)
    results(page).last.locator("[data-show]").click()
    page.shows("after bar 2", "[data-part=subtitle]")
    page.context.set_offline(True)
    page.part("file-midi").click()
    page.shows("This browser is offline", "[data-part=alert]")


DROP = """([songs, place]) => {
  const data = new DataTransfer();
  for (const [bytes, name] of songs) data.items.add(new File([new Uint8Array(bytes)], name));
  return ["dragover", "drop"].map((kind) => {
    const event = new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: data });
    document.querySelector(place).dispatchEvent(event);
    return event.defaultPrevented; // otherwise the browser leaves the page
  });
}"""


def test_files_are_dropped_anywhere_and_read_in_turn(page):
    song = list(fakes.example_midi(bars=2))

    def drop(place, *names):
        songs = [[[0] * 60_000 if name == "Large" else song, f"{name}.mid"] for name in names]
        assert page.evaluate(DROP, [songs, place]) == [True, True]

    def shows(name):
        page.wait_for_selector(f"#write-facts h2:has-text('{name}')")

    page.upload(bytes(song), "Chosen.mid")
    drop("#write-upload", "Second")  # while the first is read
    drop(".player-roll", "Third")
    shows("Third")
    for name in ("Second", "Chosen"):
        page.button("Undo").click()
        shows(name)
    drop("#results", "One", "Large", "Two")  # a file that is too large does not stop the others
    shows("Two")
    page.button("Undo").click()
    shows("One")
    page.get_by_role("tab", name="About").click()
    assert page.part("roll").is_hidden()
    page.keyboard.press("Space")
    assert page.locator(".player.playing").count() == 0
    drop("#masthead", "Of a piano")
    shows("Of a piano")
    assert page.get_by_role("tab", name="Write").get_attribute("aria-selected") == "true"


def test_the_estimate_of_beats_is_visible_on_a_small_screen_with_the_way_back(page):
    page.set_viewport_size({"width": 1280, "height": 720})
    page.upload(write_midi(performance()))
    card(page, "83 bpm")
    action = box_of(page.locator("#write-tab .action"))["y"]
    back = page.get_by_text("As in the file").locator("visible=true")
    assert 0 < box_of(back)["y"] < action
    back.click()
    card(page, "120 bpm")
    assert page.part("tempo").inner_text() == "120 bpm"


def test_a_page_that_is_opened_anew_keeps_all_results(page, running, model, browser):
    page.upload(fakes.example_midi(bars=2))
    card(page, "96 bpm")
    page.set_length(2)
    page.compose()
    expect(results(page)).to_have_count(1)
    _, first = page.downloaded()
    model.speed = 5.0
    page.set_length(32)
    page.go.click()
    page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
    count = len(model.ended)

    stored = page.evaluate("Object.entries(sessionStorage)")
    of_duplicated_tab = (
        f"for (const [name, text] of {json.dumps(stored)})"
        " if (!sessionStorage.getItem(name)) sessionStorage.setItem(name, text);"
    )
    with opened(browser, running.address, script=of_duplicated_tab) as twin:
        twin.wait_for_timeout(1500)
        assert results(twin).count() == 0
        twin.phase("empty")
    assert len(model.ended) == count  # its music is still being generated

    page.reload()
    page.shows("music that was being generated")
    expect(results(page)).to_have_count(1)
    assert page.go.is_enabled()
    page.phase("done")
    assert page.downloaded()[1] == first
    card(page, "96 bpm")
    page.button("Undo").click()
    page.phase("prompt")
    assert len(model.ended) > count


def test_the_tracks_of_prompt_and_new_music_are_chosen_in_a_table(page):
    drums = Track.of([(12 * at, 3, 38 if at % 2 else 36, 99) for at in range(8)], is_drum=True)
    bass = Track.of([(24 * at, 20, 40 + at, 80) for at in range(4)], program=35)
    keys = Track.of([(24 * at, 20, 60 + at, 80) for at in range(4)], program=4)
    page.upload(write_midi(Score(12, (drums, bass, keys))))
    page.locator("#write-facts summary").click()
    card(page, "the piano model ignores drums")
    page.part("open-tracks").click()
    boxes = page.part("tracks").locator("input[type=checkbox]")
    assert boxes.count() >= 4
    boxes.nth(boxes.count() - 2).uncheck()  # the electric piano, as a prompt
    card(page, "not part of the prompt")
    boxes.nth(boxes.count() - 1).uncheck()  # and in the new music
    page.phase("prompt")
    page.locator(".mute").last.click()
    assert page.locator(".track.quiet").count() == 1
    page.locator(".solo").first.click()
    assert page.locator(".track.quiet").count() == page.locator(".track").count() - 1
    bass = page.locator("#controls [data-drums]").nth(1)
    bass.click()
    expect(bass).to_have_attribute("aria-pressed", "true")
    page.button("Undo").click()
    expect(bass).to_have_attribute("aria-pressed", "false")


def test_a_piece_from_nothing_is_kept_discarded_or_ended_with_its_tab(page, model):
    model.speed = 5.0
    page.set_length(32)
    page.go.click()
    page.wait_for_function("/Bar [3-9] of 32/.test(document.body.innerText)")
    model.speed = 0.5  # slow enough for a slow browser
    page.button("Stop and keep").click()
    page.phase("done")
    _, midi = page.downloaded()
    score = read_midi(midi)
    assert score.num_notes > 5
    assert score.end_ticks < 31 * 4 * score.ticks_per_beat  # of 32 bars
    page.wait_for_function(r"/about \d+ (s|min)/.test(document.body.innerText)")
    page.go.click()
    page.phase("composing")
    page.button("Stop and discard").click()
    page.phase("done")
    assert page.downloaded()[1] == midi
    model.speed = 5.0
    page.go.click()
    page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
    model.speed = 0.5
    before = len(model.ended)
    page.goto("about:blank")
    for _ in range(600):
        if len(model.ended) > before:
            break
        page.wait_for_timeout(100)
    assert model.ended[before] < 300  # the whole piece has more than 350


def test_a_refused_upload_says_why_in_view_and_the_box_takes_the_next(page):
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.upload(b"text", "notes.txt")
    page.shows("notes.txt:", ".refused")
    page.wait_for_function("""() => {
      const box = document.querySelector("#write-facts .refused").getBoundingClientRect();
      return box.top >= 0 && box.bottom <= innerHeight;
    }""")
    page.upload(bytes(30_000), "large.mid")
    page.shows("large.mid: found 30,000 bytes")
    page.upload(bytes(60_000), "huge.mid")  # refused before it is sent
    page.shows("huge.mid: found 60,000 bytes")
    assert "large.mid" not in page.inner_text("#controls")
    page.upload(fakes.example_midi(bars=2))
    card(page, "96 bpm")
    assert page.locator(".facts .refused").count() == 0


def test_a_refused_setting_is_told_in_its_place(page):
    length = page.set_length("1000")
    expect(length).to_have_value("64")
    refusal = page.get_by_text("Length was 1000, expected 1 to 64; it is now 64.")
    expect(refusal).to_be_visible()
    page.set_length(8)
    expect(refusal).to_have_count(0)
    key = page.get_by_label("Key").locator("visible=true")
    unknown = page.get_by_text("is not a known key or scale")
    for typed, count in (("H", 1), ("D dorian", 0)):
        key.fill(typed)
        key.press("Tab")
        expect(unknown.locator("visible=true")).to_have_count(count)
    seed_field(page).fill("99999999999")
    page.go.click()
    page.shows("Seed is 99,999,999,999, expected")
    seed_field(page).fill("5")
    page.compose()
    assert page.part("alert").is_hidden()


def test_results_last_in_the_browser_are_named_starred_played_and_deleted(
    browser, tmp_path_factory
):
    """Also after the server was restarted."""
    context = browser.new_context()
    tab = context.new_page()
    with served(tmp_path_factory.mktemp("first"), speed=400.0) as running:
        port = urlsplit(running.address).port
        tab.goto(running.address)
        page = Tab(tab)
        page.wait_for_selector(".player-roll[aria-valuetext]")
        page.upload_prompt(fakes.example_midi(bars=2), "Song.mid")
        page.set_length(2)
        page.compose()
        expect(results(page)).to_have_count(1)
        name = page.get_by_label("Name of the result")
        name.fill("Morning & evening")
        name.press("Enter")
        page.get_by_role("button", name="Star Morning & evening").click()
        page.get_by_role("button", name="Play Morning & evening").click()
        page.wait_for_selector(".player.playing")
        with page.expect_download() as download:
            results(page).locator("a").click()
        assert download.value.suggested_filename == "Morning-evening.mid"
    with served(tmp_path_factory.mktemp("second"), speed=400.0, port=port):
        page.goto(running.address)
        page.shows("The server was restarted", "[data-part=alert]")
        expect(results(page)).to_have_count(1)
        assert page.get_by_label("Name of the result").input_value() == "Morning & evening"
        results(page).locator("[data-show]").click()
        page.phase("prompt")
        card(page, "4 bars")
        page.get_by_role("button", name="Delete all").click()
        expect(results(page)).to_have_count(0)
        page.reload()
        page.wait_for_selector(".player-roll[aria-valuetext]")
        expect(results(page)).to_have_count(0)
    context.close()
