"""Form and chords of new bars are chosen in the rows over the roll, and loops grow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.compose.models import Models
from app.compose.options import MusicOptions
from tests.support.bands import band, model_of
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.served import MARKS, served
from tokenization.midi import write_midi
from tokenization.remi.multitrack import MultitrackRemi

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 120_000  # milliseconds: machines are shared
BARS = 4

pytestmark = [
    *MARKS,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page with a model of version 1, and one of version 2."""
    models = Models.only(model_of(MultitrackRemi()))
    models.names = ("first", "second")
    models._loaded["first"] = replace(model_of(MultitrackRemi()), name="first")
    with served(tmp_path_factory.mktemp("music"), models=models) as page:
        yield page.address


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(params=[(1280, 900)])
def empty(address, browser, request):
    """A page without a piece, with the fields of form and chords open; no script may fail."""
    width, height = request.param
    view = {"width": width, "height": height}
    tab = browser.new_page(viewport=view, has_touch=width < 600)
    tab.set_default_timeout(SLOWLY)
    failures = []
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector(".player-roll[aria-valuetext]")
    tab.locator(".plan button", has_text="Form and chords").click()
    yield tab
    tab.close()
    assert failures == []


@pytest.fixture
def page(empty):
    """A page with a band of four bars and a model of version 2."""
    song = {"name": "band.mid", "mimeType": "audio/midi", "buffer": write_midi(band(bars=BARS))}
    empty.set_input_files("#write-upload input[type=file]", files=[song])
    empty.wait_for_selector(".player[data-phase=prompt]")
    model(empty, "second")
    return empty


@pytest.fixture
def planned(empty):
    """The bars of a piece from nothing, by a model of version 2."""
    part(empty, "plan-new").click()
    empty.wait_for_selector(".player[data-phase=prompt]")
    empty.locator(".model label", has_text="second").click()
    empty.wait_for_selector("[data-part=asked-sections] button:enabled")
    return empty


phone = pytest.mark.parametrize("empty", [(390, 800)], indirect=True)


def model(page, name):
    page.locator(".model label", has_text=name).click()
    page.wait_for_function(
        "name => document.querySelector('#write-facts').innerText.includes(`The ${name} model`)",
        arg=name,
    )


def part(page, name):
    return page.locator(f"[data-part={name}]")


def field(page, name):
    return page.locator(f".text-{name} :is(input, textarea)")


def length(page):
    return page.locator(".length input[type=number]")


def row(page, name, *texts):
    """Waits until a row shows these texts, as answered by the server."""
    page.wait_for_function(
        """([name, texts]) => JSON.stringify([...document.querySelectorAll(
        `[data-part=asked-${name}] button`)].map(cell => cell.textContent)) === texts""",
        arg=[name, str(list(texts)).replace("'", '"').replace('", "', '","')],
    )


def holds(page, name, text):
    """Waits until a field has this text."""
    page.wait_for_function(
        """([name, text]) =>
        document.querySelector(`.text-${name} :is(input, textarea)`)?.value === text""",
        arg=[name, text],
    )


def asked(page, text):
    page.wait_for_function(
        "text => document.querySelector('[data-part=asked-text]').innerText === text", arg=text
    )


def chord(page, number):
    """The cell of a new bar, from 1."""
    return part(page, "asked-chords").locator("button").nth(number - 1)


def pick(page, text):
    part(page, "pick").get_by_role("button", name=text, exact=True).click()


def new_bars(page, number):
    length(page).fill(str(number))
    length(page).press("Enter")
    page.wait_for_function(
        "n => document.querySelectorAll('[data-part=asked-chords] button').length === n",
        arg=number,
    )


def beat_x(page, bar):
    """Where a bar begins, in pixels from the left of the page; counted from 1."""
    cell = chord(page, 1).bounding_box()
    return cell["x"] - 1 + (bar - BARS - 1) * (cell["width"] + 2)


def write(page):
    part(page, "continue").click()
    page.wait_for_selector(".player[data-phase=done]")
    return part(page, "settings").inner_text()


def test_new_bars_are_left_to_the_model_until_something_is_asked(page):
    new_bars(page, 3)
    row(page, "chords", "·", "·", "·")
    row(page, "sections", "+ section")
    asked(page, "The model chooses form and chords")
    new_bars(page, 5)
    settings = write(page)
    assert "chords" not in settings
    assert "form" not in settings
    assert part(page, "asked").is_hidden()


def test_chords_are_typed_clicked_and_removed_in_the_row_and_in_the_field(page):
    new_bars(page, 4)
    chord(page, 2).click()
    page.keyboard.type("Am7")
    page.keyboard.press("Enter")
    holds(page, "chords", "? | Am7 | ? | ?")
    row(page, "chords", "·", "Am7", "·", "·")
    asked(page, "Asked: chords in 1 of 4 bars")
    known = page.evaluate("document.querySelector('.chart td:nth-child(3)').innerText")
    chord(page, 4).click()
    pick(page, known)
    row(page, "chords", "·", "Am7", "·", known)
    chord(page, 2).focus()
    page.keyboard.press("Delete")
    row(page, "chords", "·", "·", "·", known)
    chord(page, 4).click()
    pick(page, "Model chooses")
    holds(page, "chords", "")
    row(page, "chords", "·", "·", "·", "·")
    field(page, "chords").fill("Dm | G7 C")
    row(page, "chords", "Dm", "G7 C", "Dm", "G7 C")
    field(page, "chords").fill("Dm | H")
    page.wait_for_selector("[data-part=asked-text].wrong")
    row(page, "chords", "Dm", "H", "Dm", "H")
    assert part(page, "asked-chords").locator("button.wrong").count() == 2
    assert "H" in part(page, "asked-text").inner_text()


def test_what_is_asked_is_written_and_the_chords_that_are_met_are_counted(page):
    new_bars(page, 2)
    chord(page, 1).click()
    page.keyboard.type("F")
    page.keyboard.press("Enter")
    holds(page, "chords", "F | ?")
    row(page, "chords", "F", "·")
    settings = write(page)
    assert "chords F | ?" in settings
    assert "of 1 bar" in settings
    assert "chords met in" in settings


def test_sections_are_chosen_changed_and_removed_and_the_length_grows(page):
    new_bars(page, 6)
    add = part(page, "asked-sections").locator("button")
    add.last.click()
    pick(page, "B new")
    holds(page, "form", f"B{BARS}")
    row(page, "sections", "B", "+ section")
    add.last.click()
    pick(page, "A")
    holds(page, "form", f"B{BARS} A{BARS}")
    row(page, "sections", "B", "A", "+")
    assert length(page).input_value() == str(2 * BARS)
    add.first.click()
    part(page, "pick").locator("input").fill("2")
    pick(page, "B")
    holds(page, "form", f"B2 A{BARS}")
    row(page, "sections", "B", "A", "+ section")
    add.first.focus()
    page.keyboard.press("Delete")
    holds(page, "form", f"A{BARS}")
    row(page, "sections", "A", "+ section")
    add.first.click()
    pick(page, "Remove")
    holds(page, "form", "")
    row(page, "sections", "+ section")


def test_the_letter_of_a_section_is_dragged_to_new_bars_to_ask_for_its_return(page):
    new_bars(page, 6)
    top = part(page, "roll").bounding_box()["y"] + 48
    page.mouse.move(beat_x(page, 2), top)
    page.mouse.down()
    page.mouse.move(beat_x(page, 5) + 20, top, steps=6)
    assert part(page, "section-ghost").inner_text() == f"A{BARS}"
    page.mouse.up()
    holds(page, "form", f"A{BARS}")
    row(page, "sections", "A", "+ section")
    assert part(page, "section-ghost").is_hidden()
    assert part(page, "selection").is_hidden()  # no bars were selected by the drag
    assert f"form A{BARS}" in write(page)


def test_a_model_of_version_1_has_no_form_and_says_why(page):
    model(page, "first")
    new_bars(page, 2)
    add = part(page, "asked-sections").locator("button")
    assert add.is_disabled()
    assert "Choose second" in add.get_attribute("title")
    chord(page, 1).click()
    page.keyboard.type("C")
    page.keyboard.press("Enter")
    row(page, "chords", "C", "·")
    assert "chords C | ?" in write(page)


def test_the_rows_are_those_of_the_selected_bars(page):
    part(page, "in-bars").click()
    part(page, "select-from").press("ArrowRight")
    row(page, "chords", "·", "·", "·")
    assert part(page, "selection-bars").inner_text() == f"bars 2–{BARS}"
    assert part(page, "growth").is_hidden()
    chord(page, 3).click()
    page.keyboard.type("E7")
    page.keyboard.press("Enter")
    holds(page, "chords", "? | ? | E7")
    row(page, "chords", "·", "·", "E7")
    part(page, "write").click()
    page.wait_for_selector(".player[data-phase=done]")
    assert "chords ? | ? | E7" in part(page, "settings").inner_text()


DIFFER = "new bars differ from yours"
ONE_DIFFERS = "new bars differs from yours"


@pytest.mark.parametrize(
    ("name", "bars", "told", "settings"),
    [
        ("Vary", BARS, f"at least 2 of the 4 {DIFFER}", "distance 0.50"),
        (
            "Fill every 4th bar",
            BARS,
            f"at least 1 of the 4 {ONE_DIFFERS}",
            "distance 0.25",
        ),
        ("Every 8th", 8, f"at least 1 of the 8 {ONE_DIFFERS}", "distance 0.125"),
        ("Next section", BARS, f"form B{BARS}, all of the 4 {DIFFER}", "distance 1.00"),
        ("Ending", BARS, "a cadence", "cadence"),
    ],
)
def test_a_loop_grows(page, name, bars, told, settings):
    button = part(page, "growth").get_by_role("button", name=name, exact=True)
    button.click()
    asked(page, f"Asked: {told}")
    page.wait_for_selector(f"[data-growth][aria-pressed=true] >> text='{name}'")
    assert length(page).input_value() == str(bars)
    assert settings in write(page)


@pytest.mark.parametrize("name", ["Vary", "Ending"])
def test_a_way_that_is_pressed_again_is_taken_back(page, name):
    button = part(page, "growth").get_by_role("button", name=name, exact=True)
    button.click()
    page.wait_for_selector(f"[data-growth][aria-pressed=true] >> text='{name}'")
    button.click()
    asked(page, "The model chooses form and chords")
    assert length(page).input_value() == "16"
    assert part(page, "growth").locator("[aria-pressed=true]").count() == 0


def test_what_was_asked_is_cleared_when_a_result_is_continued(page):
    part(page, "growth").get_by_text("Next section", exact=True).click()
    holds(page, "form", f"B{BARS}")
    write(page)
    page.get_by_role("button", name="Continue this", exact=True).click()
    holds(page, "form", "")
    asked(page, "The model chooses form and chords")
    told = "What was asked of the piece before is cleared: Form, Length, How far from the prompt."
    assert told in page.locator("#write-facts").inner_text()
    assert length(page).input_value() == str(MusicOptions.bars)


def test_a_form_of_a_new_piece_is_written_by_the_automatic_model(empty):
    field(empty, "form").fill("A2 B2")
    row(empty, "sections", "A", "B", "+ section")
    asked(empty, "Asked: form A2 B2 and 12 bars of the model's choice")
    new_bars(empty, 4)
    empty.locator(".go-music").click()
    empty.wait_for_selector(".player[data-phase=done]")
    assert "form A2 B2" in part(empty, "settings").inner_text()
    assert "second model" in part(empty, "subtitle").inner_text()


def test_an_ending_of_a_model_of_version_1_is_a_cadence(page):
    model(page, "first")
    part(page, "growth").get_by_role("button", name="Ending", exact=True).click()
    asked(page, "Asked: a cadence")
    assert "cadence" in write(page)


def test_rows_have_one_tab_stop_each_and_arrow_keys(page):
    new_bars(page, 12)
    for name in ("sections", "chords"):
        assert part(page, f"asked-{name}").locator("[tabindex='0']").count() == 1
    chord(page, 1).focus()
    for number in range(2, 13):  # also those that are not in view
        page.keyboard.press("ArrowRight")
        assert chord(page, number).evaluate("cell => cell === document.activeElement")
    page.keyboard.press("End")
    last = chord(page, 12)
    assert last.evaluate("cell => cell === document.activeElement")
    page.wait_for_timeout(600)
    assert last.bounding_box()["width"] > 20  # it has come into view
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert part(page, "pick").is_hidden()
    assert last.evaluate("cell => cell === document.activeElement")


def tap_a_chord(page):
    """Chooses the chord of the first of two new bars by a finger."""
    new_bars(page, 2)
    part(page, "zoom-in").scroll_into_view_if_needed()
    chord(page, 1).tap()
    page.keyboard.type("G")
    page.keyboard.press("Enter")
    row(page, "chords", "G", "·")


@phone
def test_on_a_phone_chords_are_tapped(page):
    tap_a_chord(page)
    box = part(page, "pick").bounding_box()
    assert box is None


def test_a_piece_from_nothing_is_planned_in_the_same_rows(planned):
    page = planned
    assert part(page, "ways").is_hidden()
    assert part(page, "where").is_hidden()
    assert part(page, "new-track").is_hidden()
    new_bars(page, 4)
    asked(page, "The model chooses form and chords")
    add = part(page, "asked-sections").locator("button")
    add.last.click()
    part(page, "pick").locator("input").fill("2")
    pick(page, "A new")
    row(page, "sections", "A", "+ section")
    add.last.click()
    pick(page, "B new")
    holds(page, "form", "A2 B4")
    row(page, "sections", "A", "B", "+")
    assert length(page).input_value() == "6"  # it grows with the form
    chord(page, 2).click()
    page.keyboard.type("Am7")
    page.keyboard.press("Enter")
    holds(page, "chords", "? | Am7 | ? | ? | ? | ?")
    asked(page, "Asked: form A2 B4, chords in 1 of 6 bars")
    settings = write(page)
    assert "6 bars requested" in settings
    assert "form A2 B4" in settings
    assert "of 1 bar" in settings
    part(page, "plan-again").click()
    row(page, "sections", "A", "B", "+")
    part(page, "undo").click()
    page.wait_for_selector(".player[data-phase=done]")


def test_a_section_that_is_asked_is_dragged_to_ask_for_its_return(planned):
    page = planned
    new_bars(page, 6)
    field(page, "form").fill("A2 B2")
    row(page, "sections", "A", "B", "+ section")
    first, _, rest = part(page, "asked-sections").locator("button").all()
    place = first.bounding_box()
    x, y = place["x"] + 20, place["y"] + 12
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 15, y, steps=3)  # within the section: it stays
    page.mouse.up()
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(rest.bounding_box()["x"] + 20, y, steps=6)
    assert part(page, "section-ghost").inner_text() == "A2"
    page.mouse.up()
    holds(page, "form", "A2 B2 A2")
    row(page, "sections", "A", "B", "A", "+")
    assert part(page, "section-ghost").is_hidden()
    assert part(page, "pick").is_hidden()


def test_typing_chords_on_an_empty_page_shows_the_rows_of_a_new_piece(empty):
    assert part(empty, "asked").is_hidden()
    bars = int(length(empty).input_value())
    field(empty, "chords").fill("C | G7")
    row(empty, "chords", *["C", "G7"] * (bars // 2))
    assert part(empty, "title").inner_text() == "A new piece"
    assert part(empty, "play").is_disabled()


@phone
def test_on_a_phone_chords_of_a_new_piece_are_tapped(planned):
    tap_a_chord(planned)
