"""Form and chords of new bars are chosen in the rows over the roll, and loops grow."""

from __future__ import annotations

import json

import pytest

from app.compose.options import MusicOptions
from tests.support.bands import band
from tests.support.browser import box_of, opened
from tokenization.midi import write_midi

BARS = 4


@pytest.fixture(params=[(1280, 900)])
def empty(bands, browser, request):
    """A page without a piece, which is new."""
    with opened(browser, bands, size=request.param) as tab:
        yield tab


@pytest.fixture
def page(empty):
    """A page with a band of four bars."""
    empty.upload_prompt(write_midi(band(bars=BARS)), "band.mid")
    return empty


@pytest.fixture
def planned(empty):
    """The bars of a piece from nothing."""
    empty.button("New piece").click()
    empty.phase("prompt")
    empty.wait_for_selector("[data-part=asked-sections] button:enabled")
    return empty


def field(page, name):
    return page.locator(f".option-{name} :is(input, textarea)")


def length(page):
    return page.locator(".length input[type=number]")


def row(page, name, *texts):
    """Waits until a row shows these texts, as answered by the server."""
    page.wait_for_function(
        """([name, texts]) => JSON.stringify([...document.querySelectorAll(
        `[data-part=asked-${name}] button`)].map(cell => cell.textContent)) === texts""",
        arg=[name, json.dumps(texts, ensure_ascii=False, separators=(",", ":"))],
    )


def holds(page, name, text):
    """Waits until a field has this text."""
    page.wait_for_function(
        """([name, text]) =>
        document.querySelector(`.option-${name} :is(input, textarea)`)?.value === text""",
        arg=[name, text],
    )


def asked(page, text):
    page.wait_for_function(
        "text => document.querySelector('[data-part=asked-text]').innerText === text", arg=text
    )


def sections(page):
    return page.part("asked-sections").locator("button")


def chord(page, number):
    """The cell of a new bar, from 1."""
    return page.part("asked-chords").locator("button").nth(number - 1)


def type_chord(page, number, text):
    chord(page, number).click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def pick(page, text):
    page.part("pick").get_by_role("button", name=text, exact=True).click()


def new_bars(page, number):
    length(page).fill(str(number))
    length(page).press("Enter")
    page.wait_for_function(
        "n => document.querySelectorAll('[data-part=asked-chords] button').length === n",
        arg=number,
    )


def left_of(page, bar):
    """Where a bar begins, in pixels from the left of the page; counted from 1."""
    cell = box_of(chord(page, 1))
    return cell["x"] - 1 + (bar - BARS - 1) * (cell["width"] + 2)


def write(page):
    page.compose()
    return page.part("settings").inner_text()


def go_back(page):
    """Shows the prompt of a result again."""
    page.button("Undo").click()
    page.phase("prompt")


def test_chords_are_left_to_the_model_typed_clicked_removed_and_written(page):
    new_bars(page, 3)
    row(page, "chords", "·", "·", "·")
    row(page, "sections", "+ section")
    asked(page, "The model chooses form and chords")
    settings = write(page)
    assert "chords" not in settings
    assert "form" not in settings
    assert page.part("asked").is_hidden()
    go_back(page)

    new_bars(page, 4)
    type_chord(page, 2, "Am7")
    holds(page, "chords", "? | Am7 | ? | ?")
    row(page, "chords", "·", "Am7", "·", "·")
    asked(page, "Asked: chords in 1 of 4 bars")
    chord(page, 4).click()
    heard_chord = page.part("pick").get_by_role("button").first.inner_text()
    pick(page, heard_chord)
    row(page, "chords", "·", "Am7", "·", heard_chord)
    chord(page, 2).focus()
    page.keyboard.press("Delete")
    row(page, "chords", "·", "·", "·", heard_chord)
    chord(page, 4).click()
    pick(page, "Model chooses")
    holds(page, "chords", "")
    row(page, "chords", "·", "·", "·", "·")
    field(page, "chords").fill("Dm | G7 C")
    row(page, "chords", "Dm", "G7 C", "Dm", "G7 C")
    field(page, "chords").fill("Dm | X")
    page.wait_for_selector("[data-part=asked-text].wrong")
    row(page, "chords", "Dm", "X", "Dm", "X")
    assert page.part("asked-chords").locator("button.wrong").count() == 2
    assert "X" in page.part("asked-text").inner_text()

    field(page, "chords").fill("F | ? | ? | ?")
    row(page, "chords", "F", "·", "·", "·")
    settings = write(page)
    assert "chords F | ?" in settings
    assert "of 1 bar" in settings
    assert "chords met in" in settings


def test_sections_are_chosen_changed_removed_and_dragged_and_the_length_grows(page):
    new_bars(page, 6)
    sections(page).last.click()
    pick(page, "B new")
    holds(page, "form", f"B{BARS}")
    row(page, "sections", "B", "+ section")
    sections(page).last.click()
    pick(page, "A")
    holds(page, "form", f"B{BARS} A{BARS}")
    row(page, "sections", "B", "A", "+")
    assert length(page).input_value() == str(2 * BARS)
    sections(page).first.click()
    page.part("pick").locator("input").fill("2")
    pick(page, "B")
    holds(page, "form", f"B2 A{BARS}")
    row(page, "sections", "B", "A", "+ section")
    sections(page).first.focus()
    page.keyboard.press("Delete")
    holds(page, "form", f"A{BARS}")
    row(page, "sections", "A", "+ section")
    sections(page).first.click()
    pick(page, "Remove")
    holds(page, "form", "")
    row(page, "sections", "+ section")

    # the letter of a section of the prompt is dragged to new bars to ask for its return
    y = box_of(page.part("roll"))["y"] + 48
    page.drag((left_of(page, 2), y), (left_of(page, 5) + 20, y), release=False)
    assert page.part("section-ghost").inner_text() == f"A{BARS}"
    page.mouse.up()
    holds(page, "form", f"A{BARS}")
    row(page, "sections", "A", "+ section")
    assert page.part("section-ghost").is_hidden()
    assert page.part("selection").is_hidden()  # no bars were selected by the drag
    assert f"form A{BARS}" in write(page)


def test_the_rows_are_those_of_the_selected_bars(page):
    page.part("in-bars").click()
    page.part("select-from").press("ArrowRight")
    row(page, "chords", "·", "·", "·")
    assert page.part("selection-bars").inner_text() == f"bars 2–{BARS}"
    assert page.part("growth").is_hidden()
    type_chord(page, 3, "E7")
    holds(page, "chords", "? | ? | E7")
    row(page, "chords", "·", "·", "E7")
    page.compose()
    assert "chords ? | ? | E7" in page.part("settings").inner_text()


def test_a_loop_grows_in_five_ways_that_are_taken_back_and_cleared(page):
    def press_way(name):
        page.part("growth").get_by_role("button", name=name, exact=True).click()

    def pressed(name):
        page.wait_for_selector(f"[data-growth][aria-pressed=true] >> text='{name}'")

    press_way("Vary")
    pressed("Vary")
    press_way("Vary")
    asked(page, "The model chooses form and chords")
    assert length(page).input_value() == str(MusicOptions.bars)
    assert page.part("growth").locator("[aria-pressed=true]").count() == 0
    for name, bars, settings in (
        ("Vary", BARS, "distance 0.50"),
        ("Fill every 4th bar", BARS, "distance 0.25"),
        ("Every 8th", 8, "distance 0.125"),
        ("Ending", BARS, "cadence"),
        ("Next section", BARS, "distance 1.00"),
    ):
        press_way(name)
        pressed(name)
        assert length(page).input_value() == str(bars)
        assert settings in write(page)
        if name != "Next section":
            go_back(page)
    holds(page, "form", "")
    assert "is cleared: Form, Length" in page.locator("#write-facts").inner_text()
    assert length(page).input_value() == str(MusicOptions.bars)


@pytest.mark.parametrize("empty", [(390, 800)], indirect=True)
def test_on_a_phone_chords_are_tapped(planned):
    new_bars(planned, 2)
    planned.part("zoom-in").scroll_into_view_if_needed()
    chord(planned, 1).tap()
    planned.keyboard.type("G")
    planned.keyboard.press("Enter")
    row(planned, "chords", "G", "·")
    assert planned.part("pick").is_hidden()


def test_a_piece_from_nothing_is_planned_in_the_same_rows(planned):
    page = planned
    for name in ("ways", "where", "new-track"):
        assert page.part(name).is_hidden()
    new_bars(page, 4)
    for letter, size in (("A", 2), ("B", 4)):
        sections(page).last.click()
        page.part("pick").locator("input").fill(str(size))
        pick(page, f"{letter} new")
        page.wait_for_function("l => document.body.innerText.includes(l)", arg=f"{letter}{size}")
    row(page, "sections", "A", "B", "+")
    assert length(page).input_value() == "6"  # it grows with the form
    type_chord(page, 2, "Am7")
    holds(page, "chords", "? | Am7 | ? | ? | ? | ?")
    asked(page, "Asked: form A2 B4, chords in 1 of 6 bars")
    settings = write(page)
    assert "6 bars requested" in settings
    assert "form A2 B4" in settings
    page.button("New piece").click()
    row(page, "sections", "+ section")
    page.part("undo").click()
    page.phase("done")
