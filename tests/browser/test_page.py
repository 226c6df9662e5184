"""The page in a browser, with a fake model and real sound."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import threading
import time
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import mido
import pytest
import soundfile

from app.compose.plan.sheet_music import sheet_music
from tests.support import fakes
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.scores import performance
from tests.support.served import MARKS, served
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Track

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 120_000  # milliseconds: machines are shared

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A page whose model generates 40 notes a second."""
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
    """A new tab. Afterwards, checks that no request went to another host and no script failed."""
    tab = browser.new_page(viewport={"width": 1280, "height": 860})
    tab.set_default_timeout(SLOWLY)
    hosts, failures = set(), []
    tab.on("request", lambda request: hosts.add(urlsplit(request.url)))
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")  # the player has started
    yield tab
    tab.close()
    own = urlsplit(address).netloc
    assert {
        url.geturl() for url in hosts if url.scheme.startswith("http") and url.netloc != own
    } == set()
    assert failures == []


def upload(page, content, name="Evening song.mid"):
    page.set_input_files(
        "#write-upload input[type=file]",
        files=[{"name": name, "mimeType": "audio/midi", "buffer": content}],
    )


def phase(page, name):
    page.wait_for_selector(f".player[data-phase={name}]")


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


def downloaded(page, part):
    with page.expect_download() as download:
        page.locator(f"[data-part={part}]").click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def roll_colours(page):
    """Number of different colours on the roll; a blank roll has few."""
    return page.evaluate(
        "(() => { const c = document.querySelector('.player-roll');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " const seen = new Set();"
        " for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
        " return seen.size; })()"
    )


TIME = "document.querySelector('.player audio').currentTime"


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def bars(page, count):
    """Requests `count` bars of new music."""
    field = page.locator("#controls .length input[type=number]").locator("visible=true").first
    field.fill(str(count))
    field.press("Tab")


def card(page, fact):
    page.wait_for_function(
        "fact => [...document.querySelectorAll('.facts')].some(c => c.innerText.includes(fact))",
        arg=fact,
    )


def roll_bars(page, first, last):
    page.wait_for_function(
        "text => document.querySelector('[data-part=region-bars]').innerText === text",
        arg=f"bars {first}–{last}",
    )


def test_the_empty_page_shows_a_finished_example_and_chips_load_with_one_click(page):
    assert page.locator("[data-part=like-this]").is_visible()
    assert roll_colours(page) > 20
    assert button(page, "Generate").is_enabled()
    button(page, "Play").click()  # the example
    page.wait_for_function(f"{TIME} > 10")  # playback starts shortly before the new music
    button(page, "Waltz").click()
    card(page, "3/4")
    phase(page, "prompt")
    assert page.evaluate(TIME) == 0
    assert button(page, "Continue").is_enabled()
    button(page, "Play").click()  # before anything is generated
    page.wait_for_function(f"{TIME} > 0")


def test_upload_region_continue_play_and_download(page):
    upload(page, fakes.example_midi(bars=12))
    card(page, "96 bpm")
    card(page, "reads bars 1 to 12")
    roll_bars(page, 1, 12)
    button(page, "Last 8 bars").click()
    roll_bars(page, 5, 12)
    card(page, "reads bars 5 to 12")
    button(page, "All").click()
    card(page, "reads bars 1 to 12")
    button(page, "Last 8 bars").click()
    card(page, "reads bars 5 to 12")
    handle = page.locator(".player-handle.from")
    middle = handle.bounding_box()["x"] + 12, handle.bounding_box()["y"] + 8
    bar = (page.locator(".player-handle.to").bounding_box()["x"] + 12 - middle[0]) / 8
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 2 * bar, middle[1], steps=4)
    page.mouse.up()
    card(page, "reads bars 7 to 12")
    handle.focus()
    page.keyboard.press("ArrowLeft")
    card(page, "reads bars 6 to 12")

    page.locator("#controls .segments label", has_text="2").locator("visible=true").first.click()
    bars(page, 2)
    page.evaluate(
        """() => { const line = document.querySelector("[data-part=subtitle]"); window.lines = [];
        const look = new MutationObserver(() => window.lines.push(line.textContent));
        look.observe(line, { childList: true }); }"""
    )
    button(page, "Continue").click()
    phase(page, "done")
    lines = page.evaluate("window.lines")
    assert any(re.match(r"Bar \d of 2 · \d+ notes in 2 variations", line) for line in lines)
    assert "2 bars after bar 12" in page.inner_text("[data-part=subtitle]")
    seed = page.locator("#controls .seed input[type=number]").first.input_value()
    assert f"seed {seed}" in page.inner_text("[data-part=settings]")
    page.keyboard.press("2")
    assert f"seed {int(seed) + 1}" in page.inner_text("[data-part=settings]")
    name, midi = downloaded(page, "file-midi")
    assert re.fullmatch(r"Evening-song_a12_h6_fake_b2_s\d+_T1\.00_p0\.97_v2\.mid", name)
    whole = mido.MidiFile(file=io.BytesIO(midi)).length
    page.locator("[data-part=more]").click()
    name, alone = downloaded(page, "file-new_midi")
    assert name.endswith("_v2_new_part.mid")
    told = page.locator("[data-part=chips] [role=radio]").nth(1).inner_text()
    assert f"{read_midi(alone).num_notes} notes" in told
    assert read_midi(midi).num_notes > read_midi(alone).num_notes
    page.locator("[data-part=more]").click()
    name, sheet = downloaded(page, "file-score")
    assert name.endswith("_v2.musicxml")
    assert sheet == sheet_music(read_midi(midi))
    for kind, magic in (("flac", "FLAC"), ("wav", "WAV"), ("ogg", "OGG")):
        page.locator("[data-part=more]").click()
        name, content = downloaded(page, f"file-{kind}")
        sound = soundfile.info(io.BytesIO(content))
        assert name.endswith(f".{kind}")
        assert sound.format == magic
        assert sound.duration == pytest.approx(whole, abs=3)
    page.locator("[data-part=more]").click()
    name, stems = downloaded(page, "file-stems")
    with zipfile.ZipFile(io.BytesIO(stems)) as archive:
        sounds = [soundfile.info(io.BytesIO(archive.read(n))) for n in archive.namelist()]
    assert sounds
    assert all(sound.duration == pytest.approx(whole, abs=3) for sound in sounds)

    roll = page.locator(".player-roll").bounding_box()
    before = page.evaluate(TIME)
    page.mouse.click(roll["x"] + 0.7 * roll["width"], roll["y"] + 200)
    page.wait_for_function(f"Math.abs({TIME} - {before}) > 1")
    sought = page.evaluate(TIME)
    page.keyboard.press("Space")
    page.wait_for_selector(".player.playing")
    page.wait_for_function(f"{TIME} > {sought}")


def test_continue_this_undo_results_and_discard(page):
    upload(page, fakes.example_midi(bars=2))
    card(page, "96 bpm")
    bars(page, 3)
    button(page, "Continue").click()
    phase(page, "done")
    button(page, "Continue this").click()
    phase(page, "prompt")
    card(page, "new music begins in bar 6")
    button(page, "Continue").click()
    phase(page, "done")
    assert "after bar 5" in page.inner_text("[data-part=subtitle]")
    results = page.locator("#results button")
    playwright.expect(results).to_have_count(2, timeout=SLOWLY)
    button(page, "Undo").click()
    phase(page, "prompt")
    button(page, "Undo").click()
    phase(page, "done")
    assert "after bar 2" in page.inner_text("[data-part=subtitle]")
    results.first.click()
    page.wait_for_function("/after bar 5/.test(document.body.innerText)")
    button(page, "Discard").click()
    playwright.expect(results).to_have_count(1, timeout=SLOWLY)
    button(page, "Undo").click()
    playwright.expect(results).to_have_count(2, timeout=SLOWLY)
    assert "after bar 5" in page.inner_text("[data-part=subtitle]")


DROP = """([bytes, name, place]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name));
  return ["dragover", "drop"].map((kind) => {
    const event = new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: data });
    document.querySelector(place).dispatchEvent(event);
    return event.defaultPrevented; // otherwise the browser leaves the page
  });
}"""


def test_a_file_can_be_dropped_anywhere(page):
    song = list(fakes.example_midi(bars=3))
    assert page.evaluate(DROP, [song, "On the roll.mid", ".player-roll"]) == [True, True]
    page.wait_for_selector("#write-facts h2:has-text('On the roll')")
    tab(page, "About")
    assert page.evaluate(DROP, [song, "Of a piano.mid", "#masthead"]) == [True, True]
    page.wait_for_selector("#write-facts h2:has-text('Of a piano')")
    assert page.get_by_role("tab", name="Write").get_attribute("aria-selected") == "true"


def test_the_estimate_of_beats_is_visible_on_a_small_screen_with_the_way_back(page):
    page.set_viewport_size({"width": 1280, "height": 720})
    upload(page, write_midi(performance()))
    card(page, "83 bpm")
    assert page.inner_text("[data-part=tempo]") == "83 bpm"
    notice = page.get_by_text("as in a recording").locator("visible=true")
    action = page.locator("#write-tab .action").bounding_box()["y"]
    for one in (notice, page.get_by_text("As in the file").locator("visible=true")):
        box = one.bounding_box()
        assert 0 < box["y"] < box["y"] + box["height"] <= action
    page.get_by_text("As in the file").locator("visible=true").click()
    card(page, "120 bpm")
    assert page.inner_text("[data-part=tempo]") == "120 bpm"


def test_the_reason_why_a_file_is_refused_comes_into_view(page):
    upload(page, fakes.example_midi(bars=2))
    card(page, "96 bpm")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    upload(page, b"no music", "notes.txt")
    page.wait_for_function("""() => {
      const box = document.querySelector("#write-facts .refused")?.getBoundingClientRect();
      return box && box.top >= 0 && box.bottom <= innerHeight;
    }""")


def test_an_empty_length_is_no_bare_error(page):
    upload(page, fakes.example_midi(bars=2))
    card(page, "96 bpm")
    page.locator("#controls .length input[type=number]").locator("visible=true").first.fill("")
    page.wait_for_timeout(1500)
    assert page.locator(".toast-wrap .error").count() == 0


def test_settings_make_the_same_piece_again(page):
    song = fakes.example_midi(bars=2)
    upload(page, song)
    card(page, "96 bpm")
    bars(page, 2)
    button(page, "Continue").click()
    phase(page, "done")
    _, first = downloaded(page, "file-midi")
    page.locator("[data-part=more]").click()
    _, told = downloaded(page, "file-replay")
    seed = json.loads(told)["seed"]
    page.evaluate("addEventListener('pagehide', () => sessionStorage.clear())")
    page.reload()  # as if in a new tab
    phase(page, "empty")
    upload(page, told, "settings.json")
    card(page, "upload its MIDI file")
    upload(page, song)
    card(page, "All settings are restored")
    field = page.locator("#controls .seed input[type=number]").locator("visible=true")
    playwright.expect(field).to_have_value(str(seed), timeout=SLOWLY)
    button(page, "Continue").click()
    phase(page, "done")
    _, again = downloaded(page, "file-midi")
    assert again == first


def test_a_page_that_is_opened_anew_keeps_all_results(page, model, monkeypatch, address, browser):
    upload(page, fakes.example_midi(bars=2))
    card(page, "96 bpm")
    bars(page, 2)
    button(page, "Continue").click()
    phase(page, "done")
    results = page.locator("#results button")
    playwright.expect(results).to_have_count(1, timeout=SLOWLY)
    _, first = downloaded(page, "file-midi")
    monkeypatch.setattr(model, "speed", 5.0)
    bars(page, 32)
    button(page, "Continue").click()
    page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
    count = len(model.ended)

    stored = page.evaluate("Object.entries(sessionStorage)")
    twin = browser.new_page()  # with the session storage of a duplicated tab
    twin.set_default_timeout(SLOWLY)
    twin.add_init_script(
        f"for (const [name, text] of {json.dumps(stored)})"
        " if (!sessionStorage.getItem(name)) sessionStorage.setItem(name, text);"
    )
    twin.goto(address)
    twin.wait_for_selector(".player-roll")
    twin.wait_for_timeout(1500)
    assert twin.locator("#results button").count() == 0
    phase(twin, "empty")
    twin.close()
    assert len(model.ended) == count  # its music is still being generated

    page.reload()
    page.wait_for_function("/music that was being generated/.test(document.body.innerText)")
    playwright.expect(results).to_have_count(1, timeout=SLOWLY)
    assert button(page, "Continue").is_enabled()
    phase(page, "done")
    assert downloaded(page, "file-midi")[1] == first
    card(page, "96 bpm")
    button(page, "Undo").click()
    phase(page, "prompt")
    assert len(model.ended) > count


def test_a_short_loss_of_the_connection_loses_no_result(running, browser):
    with interrupted(urlsplit(running.address).port) as (port, cut):
        page = browser.new_page()
        page.set_default_timeout(SLOWLY)
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector(".player-roll")
        button(page, "Waltz").click()
        card(page, "3/4")
        bars(page, 32)
        button(page, "Continue").click()
        page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
        cut(1.0)
        page.wait_for_function("/music that was being generated/.test(document.body.innerText)")
        phase(page, "prompt")
        assert button(page, "Continue").is_enabled()
        page.close()


@contextmanager
def interrupted(target):
    """A port that forwards to `target`, and a function that interrupts it for some seconds."""
    ends, is_down = set(), threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def hand_on(source, sink):
        with suppress(OSError):
            while part := source.recv(65536):
                sink.sendall(part)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            ends.discard(end)

    def serve():
        with suppress(OSError):
            while True:
                inside, _ = server.accept()
                if is_down.is_set():
                    inside.close()
                    continue
                outside = socket.create_connection(("127.0.0.1", target))
                ends.update((inside, outside))
                for way in ((inside, outside), (outside, inside)):
                    threading.Thread(target=hand_on, args=way, daemon=True).start()

    def cut(seconds):
        is_down.set()
        for end in list(ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        is_down.clear()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1], cut
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def test_every_button_has_a_tooltip_and_times_are_local(address, browser):
    page = browser.new_page(timezone_id="Asia/Kathmandu")  # its offset from UTC is 5:45 hours
    page.set_default_timeout(SLOWLY)
    page.goto(address)
    page.wait_for_selector(".player-roll")
    titles = """() => [...document.querySelectorAll("#controls .tabitem button, .fresh")]
        .filter((one) => one.checkVisibility() && !one.closest(".upload, .advanced"))
        .map((one) => [one.textContent.trim(), one.title || one.closest("[title]")?.title || ""])"""
    page.wait_for_timeout(300)
    told = page.evaluate(titles)
    assert len(told) >= 3
    assert [text for text, title in told if not title] == []
    bars(page, 1)
    button(page, "Generate").click()
    page.wait_for_selector(".stop-keep[title]", state="attached")  # it appears after a while
    phase(page, "done")
    playwright.expect(page.locator("#results time")).to_have_count(1, timeout=SLOWLY)
    shown = page.locator("#results time").inner_text()
    now = page.evaluate("Date.now()") / 1000 + (5 * 60 + 45) * 60
    known = {time.strftime("%H:%M", time.gmtime(now - 60 * late)) for late in range(3)}
    assert shown in known
    page.close()


def test_the_tracks_of_prompt_and_new_music_are_chosen_in_a_table(page):
    drums = Track.of([(12 * at, 3, 38 if at % 2 else 36, 99) for at in range(8)], is_drum=True)
    bass = Track.of([(24 * at, 20, 40 + at, 80) for at in range(4)], program=35)
    keys = Track.of([(24 * at, 20, 60 + at, 80) for at in range(4)], program=4)
    page.set_input_files(
        "#write-upload input[type=file]",
        files=[
            {
                "name": "band.mid",
                "mimeType": "audio/midi",
                "buffer": write_midi(Score(12, (drums, bass, keys))),
            }
        ],
    )
    card(page, "the piano model ignores drums")
    page.locator("[data-part=open-tracks]").click()
    checks = page.locator("[data-part=tracks] input[type=checkbox]")
    assert checks.count() >= 4
    last = checks.nth(checks.count() - 2)  # electric piano as a prompt
    last.uncheck()
    card(page, "not part of the prompt")
    checks.nth(checks.count() - 1).uncheck()  # exclude it from the new music as well
    phase(page, "prompt")
    page.locator(".mute").last.click()  # and mute it
    assert page.locator(".track.quiet").count() == 1
    page.locator(".solo").first.click()
    assert page.locator(".track.quiet").count() == page.locator(".track").count() - 1


def test_a_piece_from_nothing_stops_and_keeps(page, model, monkeypatch):
    monkeypatch.setattr(model, "speed", 5.0)  # slow enough for a slow browser
    bars(page, 32)
    button(page, "Generate").click()
    page.wait_for_function("/Bar [3-9] of 32/.test(document.body.innerText)")
    button(page, "Stop and keep").click()
    phase(page, "done")
    _, midi = downloaded(page, "file-midi")
    score = read_midi(midi)
    assert score.num_notes > 5
    assert score.end_ticks < 31 * 4 * score.ticks_per_beat  # of 32 bars
    page.wait_for_function("/about .*, sound included/.test(document.body.innerText)")
    button(page, "Generate").click()
    phase(page, "composing")
    button(page, "Stop and discard").click()
    phase(page, "done")
    _, same = downloaded(page, "file-midi")
    assert same == midi


def test_a_refused_upload_says_why_and_the_box_takes_the_next(page):
    upload(page, b"MThd and nothing", "broken.mid")
    page.wait_for_selector(".facts .refused")
    assert "broken.mid" in page.inner_text(".facts .refused")
    assert button(page, "Generate").is_enabled()
    upload(page, b"text", "notes.txt")
    page.wait_for_function("/notes.txt:/.test(document.querySelector('.refused')?.innerText)")
    upload(page, bytes(30_000), "large.mid")
    page.wait_for_function("/large.mid: found 30,000 bytes/.test(document.body.innerText)")
    upload(page, bytes(60_000), "huge.mid")  # refused before it is sent
    page.wait_for_function("/huge.mid: found 60,000 bytes/.test(document.body.innerText)")
    assert "large.mid" not in page.inner_text("#controls")
    assert page.locator(".toast-body").count() == 0
    upload(page, fakes.example_midi(bars=2))
    card(page, "96 bpm")
    assert page.locator(".facts .refused").count() == 0
    drop = """size => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(size)], "dropped.mid"));
        const box = document.querySelector("#write-upload .upload-container");
        box.dispatchEvent(new DragEvent("drop", {
            dataTransfer: data, bubbles: true, cancelable: true
        }));
    }"""
    page.wait_for_selector("#write-upload .upload-container")
    page.evaluate(drop, 60_000)
    card(page, "dropped.mid: found 60,000 bytes, expected at most 20,000")


def test_a_length_out_of_range_is_told(page):
    length = page.locator(".length input[type=number]").locator("visible=true")
    for typed, now in (("1000", "64"), ("0", "1")):
        length.fill(typed)
        length.press("Tab")
        playwright.expect(length).to_have_value(now, timeout=SLOWLY)
        said = f"Length was {typed}, expected 1 to 64; it is now {now}."
        playwright.expect(page.get_by_text(said)).to_be_visible(timeout=SLOWLY)
    length.fill("8")
    length.press("Tab")
    playwright.expect(page.get_by_text("Length was")).to_have_count(0, timeout=SLOWLY)


def test_errors_of_seed_and_key_are_shown_in_place(page):
    controls = page.locator("#controls").locator("visible=true").first
    page.get_by_role("button", name="Advanced").click()
    key = page.get_by_label("Key").locator("visible=true")
    key.fill("H")
    key.press("Tab")
    page.wait_for_function("/is not a known key or scale/.test(document.body.innerText)")
    key.fill("D dorian")
    key.press("Tab")
    page.wait_for_function("!/is not a known key or scale/.test(document.body.innerText)")
    seed = controls.locator(".seed input[type=number]").locator("visible=true")
    seed.fill("99999999999")
    fresh = page.get_by_label("new each time").locator("visible=true")
    playwright.expect(fresh).not_to_be_checked(timeout=SLOWLY)
    button(page, "Generate").click()
    page.wait_for_function("/Seed is 99,999,999,999, expected/.test(document.body.innerText)")
    seed.fill("5")
    button(page, "Generate").click()
    phase(page, "composing")
    assert not page.locator("[data-part=alert]").is_visible()
    button(page, "Stop and keep").click()
    page.wait_for_selector(".player[data-phase=done], .player[data-phase=empty]")


def test_about_has_the_whole_page_and_no_player(page):
    tab(page, "About")
    page.wait_for_selector(".about")
    assert "How it works" in page.inner_text(".about")
    own = page.evaluate("location.origin")
    assert f'client = Client("{own}")' in page.inner_text(".about pre")
    assert not page.locator(".player-roll").is_visible()
    assert page.locator(".about").bounding_box()["width"] > 1000
    page.keyboard.press("Space")
    assert not page.evaluate("[...document.querySelectorAll('audio')].some((one) => !one.paused)")
    tab(page, "Write")
    assert page.locator(".player-roll").is_visible()


def test_the_login_is_seen_and_scripts_are_told_of_it(browser, tmp_path):
    with served(tmp_path, speed=40.0, accounts=(("ana", "secret"),)) as guarded:
        page = browser.new_page()
        page.set_default_timeout(SLOWLY)
        page.goto(guarded.address)
        page.wait_for_selector("input[type=password]")
        page.wait_for_timeout(500)
        look = """selector => {
            const look = getComputedStyle(document.querySelector(selector));
            return [look.borderTopWidth, look.backgroundColor];
        }"""
        for box in ("input[type=text]", "input[type=password]"):
            width, ground = page.evaluate(look, box)
            assert width == "1px"
            assert ground != "rgba(0, 0, 0, 0)"
        assert page.evaluate(look, ".wrap button.lg")[1] == "rgb(180, 73, 42)"
        page.fill("input[type=text]", "ana")
        page.fill("input[type=password]", "secret")
        page.locator(".wrap button.lg").click()
        page.wait_for_selector(".player-roll")
        tab(page, "About")
        told = f'Client("{page.evaluate("location.origin")}", auth=("ana", "PASSWORD"))'
        page.wait_for_function(
            "told => document.querySelector('.about pre')?.innerText.includes(told)", arg=told
        )
        page.close()


def test_lost_files_are_an_error_in_the_player(page, running):
    upload(page, fakes.example_midi(bars=2))
    card(page, "96 bpm")
    bars(page, 1)
    button(page, "Continue").click()
    phase(page, "done")
    for path in running.folder.glob("*/*"):
        if path.is_dir():
            shutil.rmtree(path)
    page.locator("[data-part=file-midi]").click()
    page.wait_for_function("/is not available/.test(document.body.innerText)")


def test_closing_the_tab_ends_the_job(model, page):
    bars(page, 32)
    button(page, "Generate").click()
    page.wait_for_function("/Bar [2-9] of 32/.test(document.body.innerText)")
    before = len(model.ended)
    page.goto("about:blank")
    until = time.monotonic() + 30
    while len(model.ended) == before and time.monotonic() < until:
        page.wait_for_timeout(100)
    assert model.ended[before] < 300  # the whole piece has more than 350


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "dark")])
def test_nothing_is_wider_than_the_screen(address, browser, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(SLOWLY)
    page.goto(address)
    page.wait_for_selector(".player-roll")
    clipped = """() => [...document.querySelectorAll("#controls [role=tab]")]
        .filter((label) => label.offsetParent && label.scrollWidth > label.clientWidth)
        .map((label) => label.textContent.trim())"""
    for name in ("Write", "Study", "About"):
        tab(page, name)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(clipped) == [], name
    paper = page.evaluate("getComputedStyle(document.body).getPropertyValue('--paper').trim()")
    assert paper == {"light": "#f5f2ec", "dark": "#14161b"}[scheme]
    page.close()
