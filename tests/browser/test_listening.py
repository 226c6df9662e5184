"""The rating page in a browser, on a desktop and on a phone."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit

import pytest

from app.listening.answers import read_answers
from app.listening.page.clips import read_material
from app.listening.page.server import ListeningServing, guarded
from app.listening.page.store import Store
from app.web.guard.port import served
from tests.support.harness import CHROMIUM, FLAGS
from tests.support.listening import study_folder

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SLOWLY = 60_000  # milliseconds: machines are shared
TONES = 3
"""Number of the tones of the level check, with the random number below."""
PHONE = {"width": 360, "height": 740}

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt install chromium"),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def folder(tmp_path):
    link = "https://end.example/done?id={PROLIFIC_PID}&code={completion_code}"
    settings = {"ratings": 2, "preferences": 2, "training": 1, "attention": 2, "repeated": 1}
    return study_folder(tmp_path / "study", completion_link=link, **settings)


@pytest.fixture
def address(folder):
    with closing(Store(folder)) as store:
        guard = guarded(read_material(folder), store, ListeningServing())
        with served(guard, "127.0.0.1", None) as address:
            yield address


@pytest.fixture(params=["desktop", "phone"])
def tab(request, browser, address):
    """A new tab. Afterwards, checks that no request went to another host and no script failed."""
    size = PHONE if request.param == "phone" else {"width": 1280, "height": 860}
    is_phone = request.param == "phone"
    context = browser.new_context(viewport=size, is_mobile=is_phone, has_touch=is_phone)
    tab = context.new_page()
    tab.set_default_timeout(SLOWLY)
    tab.add_init_script("Math.random = () => 0.3")
    hosts, failures = set(), []
    tab.on("request", lambda request: hosts.add(urlsplit(request.url)))
    tab.on("pageerror", lambda error: failures.append(str(error)))
    tab.on("console", lambda line: failures.append(line.text) if line.type == "error" else None)
    yield tab
    context.close()
    own = urlsplit(address).netloc
    assert {url for url in hosts if url.scheme.startswith("http") and url.netloc != own} == set()
    assert [text for text in failures if "Failed to load resource" not in text] == []


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
    tab.locator(".clip").nth(at).and_(tab.locator(".complete")).wait_for()


def answer_trial(tab):
    """Hears and answers a trial; the first choice of preferences, else the fourth."""
    before = tab.locator("#progress p").inner_text()
    for at in range(tab.locator(".clip").count()):
        hear(tab, at)
    for field in tab.locator("fieldset").all():
        choice = 0 if "preference" in field.get_attribute("class") else 3
        field.locator("label").nth(choice).click()
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    tab.click(".action .go:enabled")
    moved = tab.locator("#progress p", has_not_text=before)
    moved.or_(tab.locator(".thanks")).first.wait_for()


def test_a_whole_test(tab, address, folder):
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
        assert 1.7 <= answer.heard_first < 6
        assert answer.seconds >= answer.heard_first + (answer.heard_second or 0) - 0.5
    assert "abc" not in "".join(map(str, answers))


def test_questions_open_when_the_clip_was_played_and_not_when_it_was_skipped(tab, address):
    begin(tab, address)
    tab.click(".action .go")
    play, bar = tab.locator(".play"), tab.locator(".bar")
    tab.locator(".play:enabled").wait_for()
    box = bar.bounding_box()
    for part in (0.2, 0.5, 0.98):  # seeking, without and while playing
        bar.click(position={"x": box["width"] * part, "y": box["height"] / 2})
        if part == 0.2:
            play.click()
            tab.wait_for_timeout(300)
    tab.wait_for_timeout(1200)
    assert tab.locator(".clip.complete").count() == 0
    assert tab.locator("fieldset:enabled").count() == 0
    assert "Listen to the clip first" in tab.locator(".hint").inner_text()
    bar.focus()  # by keys: back to the begin, and play
    for key in ("ArrowLeft", "ArrowLeft", " "):
        tab.keyboard.press(key)
    tab.locator(".clip.complete").wait_for()
    assert tab.locator("fieldset:enabled").count() == 4


def test_a_test_is_resumed_in_this_browser_and_by_code(tab, address, browser):
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
    other = browser.new_context().new_page()
    other.add_init_script("Math.random = () => 0.3")
    other.goto(address)
    other.click("text=I have a code from before")
    other.fill(".code input", "no-such-code")
    other.click("text=Continue")
    assert "no listener with this code" in other.locator(".alert:visible").inner_text()
    other.fill(".code input", f" {code.upper()} ")
    other.click("text=Continue")
    check_sound(other)
    other.click(".action .go")
    other.locator("input:checked").first.wait_for(state="attached")
    assert other.locator("input:checked").get_attribute("value") == "2"
    other.context.close()


def test_an_answer_is_sent_again_when_the_connection_is_back(tab, address, folder):
    begin(tab, address)
    tab.click(".action .go")
    hear(tab, 0)
    tab.context.set_offline(True)
    for field in tab.locator("fieldset").all():
        field.locator("label").nth(1).click()
    tab.locator("#saved.offline").wait_for()
    assert tab.locator(".action .go").is_disabled()
    tab.context.set_offline(False)
    tab.click(".action .go:enabled")
    tab.locator("text=That was the practice").wait_for()
    assert len(read_answers(folder)) == 4


def test_only_one_clip_plays_at_a_time(tab, address):
    begin(tab, address)
    while not tab.locator(".clips.pair").count():
        answer_trial(tab) if tab.locator(".clip").count() else tab.click(".action .go")
        tab.locator(".clip, .action .go").first.wait_for()
    tab.locator(".play:enabled").nth(1).wait_for()
    for at in (0, 1):
        tab.locator(".play").nth(at).click()
        tab.locator(".clip").nth(at).and_(tab.locator(".playing")).wait_for()
        assert tab.locator(".clip.playing").count() == 1
