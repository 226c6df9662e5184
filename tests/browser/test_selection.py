"""Bars and tracks are selected in a browser and written by a small model."""

from __future__ import annotations

import io
from itertools import pairwise

import mido
import pytest

from tests.support.bands import band
from tests.support.browser import box_of, opened
from tokenization.midi import read_midi, write_midi

SONG = write_midi(band(bars=6))


def fit(page):
    """Shows the whole piece."""
    page.part("zoom-fit").click()
    page.part("stage").evaluate("node => node.scrollIntoView({ block: 'center' })")  # on a phone
    page.wait_for_timeout(800)


@pytest.fixture(params=[(1280, 860)])
def page(bands, browser, request):
    """A page with a band of six bars."""
    with opened(browser, bands, size=request.param) as tab:
        tab.upload_prompt(SONG, "band.mid")
        fit(tab)
        yield tab


def top(page):
    return box_of(page.part("roll"))["y"]


def line(page, bar):
    """Where a bar begins, in pixels from the left of the page; all six are in view."""
    box = box_of(page.part("roll"))
    keys = 66 if box["width"] >= 560 else 34  # of a band
    return box["x"] + keys + (box["width"] - keys) * (bar - 1) / (6 * 1.02)


def drag_over(page, first, last):
    """Drags over bars with the mouse."""
    y = top(page) + 150
    page.drag((line(page, first) + 12, y), (line(page, last + 1) - 12, y + 20))


def selected(page, text):
    """Waits until the server has answered with these bars."""
    page.wait_for_function(
        """text => !document.querySelector("[data-part=selection]").hidden
        && document.querySelector("[data-part=selection-bars]").innerText === text
        && document.querySelector("#write-facts").innerText.includes(text.replace("–", " to "))""",
        arg=text,
    )


def nothing_selected(page):
    page.part("selection").wait_for(state="hidden")


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
    page.compose()


def midi_of(page):
    return page.downloaded()[1]


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
    drag_over(page, 3, 4)
    selected(page, "bars 3–4")
    assert works(page) == ["Write", "Write", "Write"]
    for number in (1, 2, 3):  # without waiting for the server
        page.locator(f".track:nth-of-type({number + 1}) .work", has_text="Keep").click()
    page.shows("Choose Write for at least one track")
    assert page.go.is_disabled()
    for number in (2, 3):
        work(page, number, "Write")  # all but the piano
    page.locator("#controls .segments label", has_text="2").locator("visible=true").first.click()
    page.wait_for_timeout(1000)
    write(page)
    tracks = "Electric Bass (finger) and Drums, bars 3 to 4"
    assert page.part("subtitle").inner_text() == tracks
    assert page.part("chips").get_by_role("radio").count() == 2
    first = midi_of(page)
    page.keyboard.press("2")
    second = midi_of(page)
    assert first != second
    for written in (first, second):
        assert chunks(written)[1] == chunks(SONG)[1]  # the piano, after the conductor
        for number in (1, 2):
            assert notes_around(written, number) == notes_around(SONG, number)
        mido.MidiFile(file=io.BytesIO(written))
    page.part("play").click()
    page.wait_for_selector(".player.playing")
    page.part("in-bars").click()  # the bars and tracks that were written
    selected(page, "bars 3–4")
    assert works(page) == ["Keep", "Write", "Write"]
    page.part("undo").click()
    page.phase("done")
    page.part("undo").click()
    page.phase("prompt")
    selected(page, "bars 3–4")
    assert works(page) == ["Keep", "Write", "Write"]
    work(page, 3, "Rest")  # the drums
    write(page)
    rested = midi_of(page)
    assert notes(rested, 0) == notes(SONG, 0)
    assert notes(rested, 2) == notes_around(SONG, 2)

    fit(page)
    drag_over(page, 5, 6)  # bars of the result
    page.phase("prompt")
    selected(page, "bars 5–6")
    write(page)
    assert notes_around(midi_of(page), 2) != notes_around(rested, 2)
    page.part("undo").click()
    page.phase("prompt")
    page.part("undo").click()
    page.phase("done")
    assert midi_of(page) == rested
    page.part("undo").click()
    page.phase("prompt")
    page.part("at-end").click()
    nothing_selected(page)
    page.shows("after bar 6", ".go-music")


def test_bars_are_selected_and_written_by_keys_alone(page):
    page.part("roll").focus()
    page.keys("ArrowRight", *["Shift+ArrowRight"] * 3, "Shift+ArrowLeft")
    selected(page, "bars 2–3")
    page.keyboard.press("Control+a")
    page.shows("so nothing remains for the model")
    assert page.part("selection-bars").inner_text() == "bars 1–6"
    page.keyboard.press("Escape")
    nothing_selected(page)
    page.keyboard.press("Shift+ArrowRight")
    selected(page, "bar 2")
    page.part("select-to").focus()
    page.keyboard.press("ArrowRight")
    selected(page, "bars 2–3")
    page.part("roll").focus()
    page.go.press("Enter")
    page.phase("done")
    assert page.part("subtitle").inner_text().startswith("bars 2 to 3")


@pytest.mark.parametrize("page", [(390, 800)], indirect=True)
def test_a_finger_selects_on_the_bar_numbers_and_still_moves_the_view(page):
    def swipe(start, stop, below):
        y = top(page) + below
        page.touch(*([(x, y)] for x in (start, (start + stop) / 2, stop)))

    swipe(line(page, 5), line(page, 3), 200)
    page.wait_for_timeout(300)
    assert page.part("selection").is_hidden()
    fit(page)
    swipe(line(page, 2) + 8, line(page, 4) - 8, 10)
    selected(page, "bars 2–3")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    write(page)


def test_a_new_track_is_written_in_all_bars_or_in_the_selected_ones(page):
    page.part("instrument").select_option("Flute")
    selected(page, "bars 1–6")
    assert works(page) == ["Keep", "Keep", "Keep"]
    write(page)
    written = midi_of(page)
    assert [notes(written, n) for n in range(3)] == [notes(SONG, n) for n in range(3)]
    assert {track.program for track in read_midi(written).tracks[3:]} == {73}
    page.button("Undo").click()
    page.phase("prompt")
    drag_over(page, 1, 2)
    selected(page, "bars 1–2")
    assert page.part("instrument").input_value() == "73"
    page.part("instrument").select_option("")
    page.wait_for_function(
        "document.querySelectorAll('[data-work=write][aria-pressed=true]').length === 3"
    )
    page.part("roll").press("Escape")  # the list of instruments has the focus
    nothing_selected(page)
    page.mouse.click(line(page, 2), top(page) + 45)  # the form of the band is A A
    page.part("selection").wait_for()
    first, last = page.part("selection-bars").inner_text().removeprefix("bars ").split("–")
    assert first == "1"
    assert 2 <= int(last) < 6
