import io
import re
from contextlib import closing, contextmanager
from typing import Any

import pytest
import soundfile
from starlette.testclient import TestClient

from app.listening.answers import read_answers
from app.listening.page import server
from app.listening.page.clips import read_material
from app.listening.page.server import guarded
from app.listening.page.store import Store
from tests.support.listening import answers_to, study_folder

ADDRESS = "http://localhost:7860"
COUNTS = {"ratings": 2, "preferences": 2, "attention": 2, "repeated": 2, "training": 1}
SETTINGS: dict[str, Any] = COUNTS | {"completion_code": "C1"}


@contextmanager
def page(folder, address=ADDRESS, **serving):
    with closing(Store(folder)) as store:
        guard = guarded(read_material(folder), store, **serving)
        yield TestClient(guard, base_url=address)


@pytest.fixture
def folder(tmp_path):
    return study_folder(tmp_path / "study", completion_link="https://end.example/{ID}", **SETTINGS)


@pytest.fixture
def client(folder):
    with page(folder) as client:
        yield client


def join(client):
    code = client.post("/listeners", json={}).json()["listener"]
    return code, {"Listener": code}


def test_a_listener_goes_through_the_whole_test_and_hears_tones_where_they_belong(client, folder):
    code, who = join(client)
    states, heard = [client.get("/listener", headers=who).json()], []
    while "questions" in (state := states[-1]):
        number = state["position"]
        for side in ("first", "second")[: len(state["clips"])]:
            sound = client.get(f"/clips/{number}/{side}", headers=who).content
            heard.append((number, side, sound))
        for answer in answers_to(state):
            assert client.post("/answers", json=answer, headers=who).json() == {"saved": True}
        states.append(client.post("/next", json={"trial": number}, headers=who).json())
    assert [state["position"] for state in states] == list(range(1, 12))
    assert {state["trials"] for state in states} == {10}
    assert [state["practice"] for state in states[:-1]].count(True) == 2
    assert [state["begins"] for state in states[:-1]].count(True) == 2
    assert [state["ends_practice"] for state in states[:-1]].count(True) == 2
    assert states[-1]["completion_code"] == "C1"
    assert states[-1]["completion_link"] == "https://end.example/{ID}"
    # nothing tells a listener which clip or check a trial has, and the end only when it is reached
    words = ("midi/", "stimuli/", "expected", "repeats", "real", "piano", "C1", "https")
    assert not [word for state in states[:-1] for word in words if word in str(state)]
    answers = read_answers(folder)
    assert len(answers) == 5 * 4 + 5
    assert {answer.listener for answer in answers} == {code}
    assert sum(bool(answer.expected) for answer in answers) == 4 + 1
    assert sum(answer.repeats is not None for answer in answers) == 4 + 1
    assert all(re.fullmatch(r"20.*T.*Z", answer.answered_at) for answer in answers)
    of_trial = {answer.trial: answer for answer in answers}
    for number, side, sound in heard:
        answer = of_trial[number]
        name = (answer.first if side == "first" else answer.second).removeprefix("midi/")
        plain = (folder / "stimuli" / name).with_suffix(".wav").read_bytes()
        assert (sound != plain) == (answer.expected not in ("", side))


def test_the_test_is_resumed_by_code_with_the_answers_so_far(client, folder):
    code, who = join(client)
    state = client.get("/listener", headers=who).json()
    client.post("/answers", json=answers_to(state)[0], headers=who)
    typed = {"Listener": f" {code[:4].upper()}-{code[4:]} "}
    with page(folder) as restarted:
        again = restarted.get("/listener", headers=typed).json()
    assert again["position"] == 1
    assert list(again["answers"]) == [state["questions"][0]]


def test_clips_are_served_for_this_trial_and_the_next(client):
    _, who = join(client)
    heard = {}
    for number, side, status in (
        (1, "first", 200),
        (2, "first", 200),
        (3, "first", 404),
        (0, "first", 404),
        (1, "second", 404),
        (1, "third", 404),
    ):
        answer = client.get(f"/clips/{number}/{side}", headers=who)
        assert answer.status_code == status
        heard[number, side] = answer.content
    samples, rate = soundfile.read(io.BytesIO(heard[1, "first"]))
    assert len(samples) / rate == 2.5
    assert client.get("/clips/1/first").status_code == 404  # no listener


def test_a_malformed_answer_is_refused_and_not_stored(client, folder):
    _, who = join(client)
    told = answers_to(client.get("/listener", headers=who).json())[0]
    for change, status in (
        ({"answer": "6"}, 422),
        ({"answer": None}, 422),
        ({"question": "beauty"}, 422),
        ({"question": ["coherence"]}, 422),
        ({"trial": 2}, 409),
        ({"trial": "1"}, 422),
        ({"seconds": -1}, 422),
        ({"seconds": True}, 422),
        ({"heard_first": "long"}, 422),
        ({"heard_first": None}, 422),
        ({"heard_first": 1.0}, 409),  # the clip was not heard
        ({"more": "x" * 5000}, 413),
    ):
        assert client.post("/answers", json=told | change, headers=who).status_code == status
    for body in (b"", b"[]", b"{", b"[" * 3000, b"\xff"):
        for path in ("/answers", "/next"):
            assert client.post(path, content=body, headers=who).status_code == 422
    assert read_answers(folder) == []


def test_a_trial_ends_only_when_all_questions_are_answered(client):
    _, who = join(client)
    state = client.get("/listener", headers=who).json()
    assert client.post("/next", json={"trial": 1}, headers=who).status_code == 409
    for answer in answers_to(state):
        client.post("/answers", json=answer, headers=who)
    for _ in range(2):  # also if the first reply was lost
        assert client.post("/next", json={"trial": 1}, headers=who).json()["position"] == 2
    assert client.post("/next", json={"trial": 3}, headers=who).status_code == 409


def test_unknown_codes_and_new_listeners_are_limited(folder, monkeypatch):
    monkeypatch.setattr(server, "JOINS", 2)
    monkeypatch.setattr(server, "WRONG_CODES", 3)
    with page(folder) as client:
        statuses = [client.post("/listeners", json={}).status_code for _ in range(3)]
        answers = [client.get("/listener", headers={"Listener": "nobody22"}) for _ in range(4)]
    assert statuses == [200, 200, 429]
    assert [answer.status_code for answer in answers] == [404, 404, 404, 429]


def test_the_page_loads_only_its_own_files(client):
    answer = client.get("/?PROLIFIC_PID=abc")
    assert answer.headers["content-security-policy"].split("; ")[1] == "script-src 'self'"
    assert "abc" not in answer.text
    for name in re.findall(r'(?:src|href)="([^"]+)"', answer.text):
        assert client.get(f"/{name.lstrip('/')}").status_code == 200
    assert client.get("/font.woff2").status_code == 200
    style = client.get("/listen.css").text
    assert "--paper" in style
    assert not re.findall(r"https?://(?!www\.w3\.org)", style + answer.text)


def test_the_guard_is_in_front_of_the_page(client):
    for method, path, headers, status in (
        ("GET", "/answers.sqlite", {}, 404),
        ("GET", "/clips/1/..%2f..%2fkey.csv", {}, 404),
        ("PUT", "/", {}, 405),
        ("POST", "/listeners", {"origin": "https://evil.example"}, 403),
        ("POST", "/listeners", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", "/", {"host": "evil.example"}, 421),
        ("GET", "/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
    ):
        assert client.request(method, path, headers=headers).status_code == status
    join(client)
    assert client.get("/healthz").json() == {"status": "ok", "listeners": 1, "completed": 0}


def test_the_page_works_below_a_path(folder):
    with page(folder, root_path="/music") as client:
        text = client.get("/music").text
        assert '<base href="/music/">' in text
        for begin in ("", "/music"):  # a proxy may remove the path
            assert client.get(f"{begin}/study").status_code == 200
            assert client.get(f"{begin}/listen.css").status_code == 200
        (script,) = re.findall(r'module" src="([^"]+)"', text)
        assert client.get(script).status_code == 200


def test_a_login_is_needed_if_there_are_accounts(folder):
    with page(folder, accounts=(("ana", "right"),)) as client:
        assert "Log in" in client.get("/").text
        for path in ("/study", "/listener", "/clips/1/first"):
            assert client.get(path).status_code == 401
        assert client.post("/listeners", json={}).status_code == 401
        assert client.get("/listen.css").status_code == 200
        for wrong in ({"user": "ana", "password": "wrong"}, {"user": ["ana"]}, {}):
            assert client.post("/login", json=wrong).status_code == 401
        answer = client.post("/login", json={"user": "ana", "password": "right"})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie
        assert "Welcome" not in client.get("/").text
        assert client.get("/study").status_code == 200
        assert client.post("/listeners", json={}).status_code == 200
        wrong = {"user": "ana", "password": "wrong"}
        statuses = [client.post("/login", json=wrong).status_code for _ in range(3)]
        assert statuses == [401] * 2 + [429]  # a right one gives back its own attempt only


def test_a_clip_that_was_removed_from_the_study_is_reported(client, folder):
    _, who = join(client)
    for name in ("manifest.csv", "key.csv"):
        (folder / name).write_text((folder / name).read_text().replace("midi/", "midi/z"))
    with page(folder) as restarted:
        answer = restarted.get("/listener", headers=who)
    assert answer.status_code == 410


def test_texts_of_the_researcher_are_on_the_first_page(tmp_path):
    """They are data: the page never makes HTML of them."""
    texts: dict[str, Any] = {"welcome": "Hello.\n\nSecond paragraph.", "consent": "<b>I agree</b>"}
    with page(study_folder(tmp_path / "study", **texts)) as client:
        told = client.get("/study").json()
    assert {name: told[name] for name in texts} == texts
    assert told["title"] == "Two ways to go on"
    assert told["minutes"] > 1
