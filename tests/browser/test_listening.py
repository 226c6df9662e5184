"""The rating page in a browser, on a desktop and on a phone."""

from __future__ import annotations

from contextlib import closing, contextmanager

import pytest

from app.listening.answers import read_answers
from app.listening.page.clips import read_material
from app.listening.page.server import guarded
from app.listening.page.store import Store
from app.web.guard.port import served
from tests.support.browser import box_of, opened
from tests.support.listening import study_folder

TONES = 3
"""Number of the tones of the level check, with the random number below."""
RANDOM = "Math.random = () => 0.3"


@pytest.fixture
def folder(tmp_path):
    link = "https://end.example/done?id={PROLIFIC_PID}&code={completion_code}"
    settings = {"ratings": 2, "preferences": 2, "training": 1, "attention": 2, "repeated": 1}
    return study_folder(tmp_path / "study", completion_link=link, **settings)


@pytest.fixture
def address(folder):
    with closing(Store(folder)) as store:
        guard = guarded(read_material(folder), store)
        with served(guard, "127.0.0.1", None) as address:
            yield address


@contextmanager
def listener(browser, address, *, is_phone=False):
    """A tab in which no script may log an error."""
    size = (360, 740) if is_phone else (1280, 860)
    with opened(
        browser, address, size=size, ready="body", script=RANDOM, is_mobile=is_phone
    ) as tab:
        errors = []
        tab.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        yield tab
        assert [text for text in errors if "Failed to load resource" not in text] == []


def begin(tab, address):
    tab.goto(f"{address}?PROLIFIC_PID=abc%2012")
    assert tab.locator("text=Begin").is_disabled()  # without consent
    tab.check(".agree input")
    tab.click("text=Begin")
    check_sound(tab)


def check_sound(tab):
    tab.click("text=Play the tones")
    tab.click(f".counts button:enabled:text-is('{TONES + 1}')")
    assert tab.locator("text=That was another number").is_visible()
    tab.click("text=Play them again")
    tab.click(f".counts button:enabled:text-is('{TONES}')")
    tab.locator("ol.steps").wait_for()


def hear(tab, at):
    tab.locator(".play").nth(at).click()
    tab.locator(".clip").nth(at).and_(tab.locator(".playing")).wait_for()
    assert tab.locator(".clip.playing").count() == 1  # even if another was not heard to its end
    tab.locator(".clip").nth(at).and_(tab.locator(".complete")).wait_for()


def answer_trial(tab):
    """Hears and answers a trial; the first choice of preferences, else the fourth."""
    before = tab.locator("#progress p").inner_text()
    if tab.locator(".clips.pair").count():
        tab.locator(".play:enabled").nth(1).click()
        tab.locator(".clip").nth(1).and_(tab.locator(".playing")).wait_for()
    for at in range(tab.locator(".clip").count()):
        hear(tab, at)
    for field in tab.locator("fieldset").all():
        choice = 0 if "preference" in field.get_attribute("class") else 3
        field.locator("label").nth(choice).click()
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.click(".action .go:enabled")
    moved = tab.locator("#progress p", has_not_text=before)
    moved.or_(tab.locator(".thanks")).first.wait_for()


@pytest.mark.parametrize("is_phone", [False, True])
def test_a_whole_test(browser, address, folder, is_phone):
    with listener(browser, address, is_phone=is_phone) as tab:
        begin(tab, address)
        screens = []
        while not tab.locator(".thanks").count():
            screens.append(tab.locator("h2").inner_text())
            if tab.locator(".clip").count():
                answer_trial(tab)
            else:
                tab.click(".action .go")
                tab.locator(".clip").first.wait_for()
        assert screens.count("Rate a clip") == screens.count("Compare two clips") == 1
        assert screens.count("That was the practice") == 2
        code = tab.locator(".completion").inner_text()
        link = f"https://end.example/done?id=abc%2012&code={code}"
        assert tab.locator("a.go").get_attribute("href") == link
        tab.reload()
        tab.locator(".thanks").wait_for()
        assert tab.locator(".completion").inner_text() == code
        assert tab.locator("a.go").get_attribute("href") == link
        tab.click("text=Another person takes part here")
        tab.click("text=Begin a new test")
        tab.locator("text=Begin").wait_for()
        assert tab.locator("text=Continue where you stopped").count() == 0
    answers = read_answers(folder)
    assert len({answer.trial for answer in answers}) == 9
    for answer in answers:
        assert answer.answer == ("first" if answer.second else "4")
        assert answer.heard_first >= 1.7  # of the two seconds of a clip
        assert answer.seconds >= answer.heard_first + (answer.heard_second or 0) - 0.5
    assert "abc" not in "".join(map(str, answers))


def test_questions_open_when_the_clip_was_played_and_answers_wait_for_the_connection(
    browser, address, folder
):
    with listener(browser, address) as tab:
        begin(tab, address)
        tab.click(".action .go")
        play, bar = tab.locator(".play"), tab.locator(".bar")
        tab.locator(".play:enabled").wait_for()
        box = box_of(bar)
        for share in (0.2, 0.5, 0.98):  # seeking, without and while playing
            bar.click(position={"x": box["width"] * share, "y": box["height"] / 2})
            if share == 0.2:
                play.click()
                tab.wait_for_timeout(300)
        tab.wait_for_timeout(1200)
        assert tab.locator(".clip.complete").count() == 0
        assert tab.locator("fieldset:enabled").count() == 0
        assert "Listen to the clip first" in tab.locator(".hint").inner_text()
        bar.focus()  # by keys: back to the begin, and play
        tab.keys("ArrowLeft", "ArrowLeft", " ")
        tab.locator(".clip.complete").wait_for()
        assert tab.locator("fieldset:enabled").count() == 4
        tab.context.set_offline(True)
        for field in tab.locator("fieldset").all():
            field.locator("label").nth(1).click()
        tab.locator("#saved.offline").wait_for()
        assert tab.locator(".action .go").is_disabled()
        tab.context.set_offline(False)
        tab.click(".action .go:enabled")
        tab.locator("text=That was the practice").wait_for()
    assert len(read_answers(folder)) == 4


def test_a_test_is_resumed_in_this_browser_and_by_code(browser, address):
    with listener(browser, address, is_phone=True) as tab:
        begin(tab, address)
        tab.click(".action .go")
        answer_trial(tab)
        tab.locator("text=That was the practice").wait_for()
        code = tab.locator("#foot b").inner_text()
        assert len(code) == 9
        tab.reload()
        tab.click("text=Continue where you stopped")
        check_sound(tab)
        assert tab.locator("#progress p").inner_text() == "2 of 9"
        tab.click(".action .go")
        hear(tab, 0)
        tab.locator("fieldset").first.locator("label").nth(1).click()
        tab.locator("#saved.saved").wait_for()
    with listener(browser, address) as tab:
        tab.click("text=I have a code from before")
        tab.fill(".code input", "no-such-code")
        tab.click("text=Continue")
        assert "no listener with this code" in tab.locator(".alert:visible").inner_text()
        tab.fill(".code input", f" {code.upper()} ")
        tab.click("text=Continue")
        check_sound(tab)
        tab.click(".action .go")
        tab.locator("input:checked").first.wait_for(state="attached")
        assert tab.locator("input:checked").get_attribute("value") == "2"
