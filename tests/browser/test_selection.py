"""Bars and tracks are selected in a browser and written by a small model."""

from __future__ import annotations

import io
from itertools import pairwise

import mido
import pytest

from tests.support.bands import band
from tests.support.browser import (
    box_of,
    downloaded,
    drag,
    opened,
    part,
    phase,
    press,
    touch,
    upload_prompt,
    wait_for_text,
)
from tokenization.midi import read_midi, write_midi

SONG = write_midi(band(bars=6))


def fit(page):
    """Shows the whole piece."""
    part(page, "zoom-fit").click()
    page.wait_for_timeout(800)


@pytest.fixture(params=[(1280, 860)])
def page(bands, browser, request):
    """A page with a band of six bars."""
    with opened(browser, bands, size=request.param) as tab:
        upload_prompt(tab, SONG, "band.mid")
        fit(tab)
        yield tab


def top(page):
    return box_of(part(page, "roll"))["y"]


def line(page, bar):
    """Where a bar begins, in pixels from the left of the page; all six are in view."""
    box = box_of(part(page, "roll"))
    keys = 66 if box["width"] >= 560 else 34  # of a band
    return box["x"] + keys + (box["width"] - keys) * (bar - 1) / (6 * 1.02)


def drag_over(page, first, last):
    """Drags over bars with the mouse."""
    y = top(page) + 150
    drag(page, (line(page, first) + 12, y), (line(page, last + 1) - 12, y + 20))


def selected(page, text):
    """Waits until the server has answered with these bars."""
    page.wait_for_function(
        """text => !document.querySelector("[data-part=selection]").hidden
        && document.querySelector("[data-part=selection-bars]").innerText === text
        && document.querySelector("#write-facts").innerText.includes(text.replace("–", " to "))""",
        arg=text,
    )


def nothing_selected(page):
    part(page, "selection").wait_for(state="hidden")


def works(page):
    """What happens to each track in the selected bars."""
    return page.locator("[data-part=tracks] .work[aria-pressed=true]").all_inner_texts()


def work(page, number, word):
    """Chooses what happens to a track, and waits until the server has answered."""
    page.locator(f".track:nth-of-type({number + 1}) .work", has_text=word).click()
    page.wait_for_function(
        """([number, word]) => document.querySelectorAll(".track")[number - 1]
        .querySelector(".work[aria-pressed=true]").innerText === word""",
        arg=[number, word],
    )


def write(page):
    part(page, "write").click()
    phase(page, "done")


def midi_of(page):
    return downloaded(page)[1]


def chunks(data):
    """The tracks of a file, byte for byte."""
    starts = [at for at in range(len(data)) if data[at : at + 4] == b"MTrk"]
    return [data[start:end] for start, end in pairwise([*starts, len(data)])]


def notes(data, number):
    return sorted(map(tuple, read_midi(data).tracks[number].notes.tolist()))


def notes_around(data, number):
    """Notes outside bars 3 and 4, whose first notes may be a little early."""
    return [note for note in notes(data, number) if not 3819 <= note[0] < 7659]


def test_dragged_bars_of_ticked_tracks_are_written_compared_undone_and_downloaded(page):
    tops = {box_of(chip)["y"] for chip in part(page, "tracks").locator("li").all()}
    assert len(tops) == 1  # tracks hold one row
    play = box_of(part(page, "play"))
    for name in ("new-track", "open-tracks"):
        assert play["y"] < box_of(part(page, name))["y"] < play["y"] + play["height"]
    drag_over(page, 3, 4)
    selected(page, "bars 3–4")
    assert works(page) == ["Write", "Write", "Write"]
    for number in (1, 2, 3):
        work(page, number, "Keep")
    wait_for_text(page, "body", "Choose Write for at least one track")
    assert part(page, "write").is_disabled()
    for number in (2, 3):
        work(page, number, "Write")  # all but the piano
    page.locator("#controls .segments label", has_text="2").locator("visible=true").first.click()
    page.wait_for_timeout(1000)
    write(page)
    tracks = "Electric Bass (finger) and Drums, bars 3 to 4"
    assert part(page, "subtitle").inner_text() == f"{tracks} · second model"
    assert part(page, "chips").get_by_role("radio").count() == 2
    first = midi_of(page)
    page.keyboard.press("2")
    second = midi_of(page)
    assert first != second
    for written in (first, second):
        assert chunks(written)[1] == chunks(SONG)[1]  # the piano, after the conductor
        for number in (1, 2):
            assert notes_around(written, number) == notes_around(SONG, number)
        mido.MidiFile(file=io.BytesIO(written))
    part(page, "play").click()
    page.wait_for_selector(".player.playing")
    part(page, "undo").click()
    phase(page, "prompt")
    selected(page, "bars 3–4")
    assert works(page) == ["Keep", "Write", "Write"]
    work(page, 3, "Rest")  # the drums
    write(page)
    assert notes(midi_of(page), 0) == notes(SONG, 0)
    assert notes(midi_of(page), 2) == notes_around(SONG, 2)
    part(page, "undo").click()
    phase(page, "prompt")
    part(page, "at-end").click()
    nothing_selected(page)
    page.get_by_role("button", name="Continue", exact=True).wait_for()


def test_bars_are_selected_and_written_by_keys_alone(page):
    part(page, "roll").focus()
    press(page, "ArrowRight", *["Shift+ArrowRight"] * 3, "Shift+ArrowLeft")
    selected(page, "bars 2–3")
    page.keyboard.press("Control+a")
    wait_for_text(page, "body", "so nothing remains for the model")
    assert part(page, "selection-bars").inner_text() == "bars 1–6"
    page.keyboard.press("Escape")
    nothing_selected(page)
    page.keyboard.press("Shift+ArrowRight")
    selected(page, "bar 2")
    part(page, "select-to").focus()
    page.keyboard.press("ArrowRight")
    selected(page, "bars 2–3")
    part(page, "roll").focus()
    page.keyboard.press("Enter")
    phase(page, "done")
    assert part(page, "subtitle").inner_text().startswith("bars 2 to 3")


@pytest.mark.parametrize("page", [(390, 800)], indirect=True)
def test_a_finger_selects_on_the_bar_numbers_and_still_moves_the_view(page):
    def swipe(start, stop, below):
        y = top(page) + below
        touch(page, *([(x, y)] for x in (start, (start + stop) / 2, stop)))

    swipe(line(page, 5), line(page, 3), 200)
    page.wait_for_timeout(300)
    assert part(page, "selection").is_hidden()
    fit(page)
    swipe(line(page, 2) + 8, line(page, 4) - 8, 10)
    selected(page, "bars 2–3")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    write(page)


def test_a_new_track_is_written_in_all_bars_or_in_the_selected_ones(page):
    part(page, "instrument").select_option("Flute")
    selected(page, "bars 1–6")
    assert works(page) == ["Keep", "Keep", "Keep"]
    write(page)
    written = midi_of(page)
    assert [notes(written, n) for n in range(3)] == [notes(SONG, n) for n in range(3)]
    assert {track.program for track in read_midi(written).tracks[3:]} == {73}
    part(page, "other-prompt").click()
    phase(page, "prompt")
    drag_over(page, 1, 2)
    selected(page, "bars 1–2")
    assert part(page, "instrument").input_value() == "73"
    part(page, "instrument").select_option("")
    page.wait_for_function(
        "document.querySelectorAll('[data-work=write][aria-pressed=true]').length === 3"
    )
    page.keyboard.press("Escape")
    nothing_selected(page)
    page.mouse.click(line(page, 2), top(page) + 45)  # the form of the band is A A
    part(page, "selection").wait_for()
    assert "Form A A" in page.locator("#write-facts .form").inner_text()
    first, last = part(page, "selection-bars").inner_text().removeprefix("bars ").split("–")
    assert first == "1"
    assert 2 <= int(last) < 6


def test_bars_of_a_result_are_written_again(page):
    drag_over(page, 2, 2)
    selected(page, "bar 2")
    write(page)
    first = midi_of(page)
    fit(page)
    drag_over(page, 4, 5)
    phase(page, "prompt")
    selected(page, "bars 4–5")
    write(page)
    second = midi_of(page)
    for number in range(3):
        before = [
            [note for note in notes(data, number) if note[0] < 3 * 1920 - 21]
            for data in (first, second)
        ]
        assert before[0] == before[1]
    for _ in range(2):
        part(page, "undo").click()
        page.wait_for_timeout(500)
    phase(page, "done")
    assert midi_of(page) == first
