"""Malformed calls: each gets a status of 4xx and a sentence, and the log has no traceback."""

from __future__ import annotations

import itertools
import logging

import gradio as gr
import pytest

from app.web.guard.failures import FAILED, described
from tests.support.guarded import client_of, guard_of, post

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SESSION = "somebody"
UPLOADED = {"_type": "gradio.FileData"}
JUNK = [
    *(None, True, -1, 2**70, float("nan"), "", "\0", "\ud800", "../../etc/passwd", "x" * 3000),
    *([], [[[]]], [0] * 1000, {}, {"job": None}, {"first": "a", "last": None}),
    {"path": "/etc/passwd", "meta": UPLOADED},
    {"path": "a\0b.mid", "url": "file:///etc/passwd", "meta": UPLOADED},
    {"path": ["x"], "orig_name": {}, "meta": UPLOADED},
    {"job": "0" * 32, "variation": 0, "kind": "midi"},
    {"job": ["x"], "variation": {}, "kind": "\0", "without": [{}]},
]


@pytest.fixture(autouse=True)
def no_traceback(capfd, caplog):
    with caplog.at_level(logging.WARNING):
        yield
    output = "".join(capfd.readouterr())
    assert "Traceback" not in output
    assert all(record.exc_info is None for record in caplog.records)


def refused(answer):
    """Asserts that an answer is a refusal of one sentence."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text
    return answer


def server_function(page):
    """The component and name of each function that the page's scripts call."""
    return [
        (number, name)
        for number, block in page.blocks.items()
        for name in vars(block)
        if getattr(vars(block)[name], "_is_server_fn", False)
    ]


def test_a_malformed_call_is_refused(client):
    for body in (b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 60_000):
        assert refused(post(client, "run/continue", body)).json()["error"].startswith("found")
    for route in ("queue/join", "component_server", "call/stop"):
        assert refused(post(client, route, b"[]")).json()["error"].startswith("found")
    for route in ("cancel", "reset", "upload", "login", "vibe-edit", "stream/x"):
        for body in (b"{", b"[]", b"{}", b'{"event_id": 5, "session_hash": []}'):
            refused(post(client, route, body))
    for path in (
        *("file=/etc/passwd", "file=%00", "file=../../etc/passwd", "file=http://example.org/x"),
        *("proxy=http://example.org", "call/x/y", "stream/a/b/c/playlist.m3u8", "upload_progress"),
        *("queue/data", "queue/data?session_hash=x"),
    ):
        refused(client.get(f"/gradio_api/{path}"))


def test_an_unknown_call_is_refused(client):
    good = {"data": [], "fn_index": 0, "session_hash": SESSION}
    for index in (9999, -1, "0", True, []):
        answer = refused(post(client, "run/predict", good | {"fn_index": index}))
        assert "fn_index is" in answer.json()["error"]
    for change, error in (
        ({"fn_index": None}, "found no fn_index"),
        ({"fn_index": 9999}, "fn_index is"),
        ({"data": None}, "data is null"),
        ({"trigger_id": 9999}, "trigger_id is"),
        # the length of names is limited, since they are kept while the program runs
        *(({"session_hash": name}, "session_hash is ") for name in ("x" * 65, "\ud800", "a\nb")),
    ):
        assert error in refused(post(client, "queue/join", good | change)).json()["error"]
    for route in ("run/nothing", "api/%00", "call/..%2Fstop", "call/v2/nothing"):
        refused(post(client, route, {"data": [], "session_hash": SESSION}))
    for route in ("run/stop", "call/stop", "component_server"):
        answer = refused(post(client, route, good | {"session_hash": "é"}))
        assert "session_hash is " in answer.json()["error"]
    assert post(client, "run/stop", {"data": [], "session_hash": "x" * 64}).status_code == 200


def test_functions_of_components_answer_anything_with_a_sentence(page, client):
    """Each returns {"error": …} or is refused, and discloses no other file."""
    functions = server_function(page.blocks)
    assert functions
    number, name = functions[0]
    good = {"component_id": number, "fn_name": name, "session_hash": SESSION, "data": {}}
    for field in ("component_id", "fn_name"):
        for value in JUNK:
            refused(post(client, "component_server", good | {field: value}))
    for missing in ("session_hash", "data"):
        call = {field: value for field, value in good.items() if field != missing}
        assert missing in refused(post(client, "component_server", call)).json()["error"]
    for number, name in functions:
        for value in JUNK:
            call = good | {"component_id": number, "fn_name": name, "data": value}
            answer = post(client, "component_server", call)
            assert answer.status_code < 500
            assert "root:" not in answer.text
            assert answer.status_code != 200 or "error" in answer.json()


def test_callbacks_called_with_wrong_values_answer_with_a_sentence(page, client):
    """Each is called with the right number of values, and with one too few."""
    values = itertools.cycle(JUNK)
    for fn in page.blocks.fns.values():
        if fn.queue is not False or fn.fn is None or fn.js is True:
            continue
        for number in {max(len(fn.inputs) - 1, 0), len(fn.inputs)}:
            data = [next(values) for _ in range(number)]
            call = {"data": data, "fn_index": fn._id, "session_hash": SESSION}
            answer = post(client, "run/predict", call | {"event_data": next(values)})
            assert answer.status_code < 500, (fn.name, data, answer.text)
            assert "root:" not in answer.text
            if number < len(fn.inputs):
                refused(answer)


def test_the_log_contains_neither_paths_nor_values():
    for error in (
        FileNotFoundError(2, "No such file", "/tmp/gradio/secret/secret song.mid"),
        ValueError("no file at /tmp/gradio/secret/song.mid or C:\\secret\\song.mid"),
        TypeError("""found {'password': 'secret', "x": "secret"} and 'secret that is cut"""),
        LookupError("no session 0123456789secret0123456789"),
    ):
        text = described(error)
        assert text.startswith(f"{type(error).__name__}: ")
        assert "secret" not in text
        assert "song" not in text
    assert described(ValueError("an x " * 100)) == f"ValueError: {'an x ' * 40}"


def test_a_bug_is_one_line_in_the_log_without_names_of_sessions_and_users(caplog, capfd):
    """Nor does it contain passwords, or text that was sent."""

    def broken(text, request: gr.Request):
        raise KeyError(f"{text} of {request.session_hash} {request.username}")

    with gr.Blocks(analytics_enabled=False) as blocks:
        gr.Button().click(broken, gr.Textbox(), api_name="broken", queue=False)
    guard = guard_of(blocks, accounts=(("secret-anna", "secret-word"),))
    call = {"data": ["secret-text"], "session_hash": "secret-session"}
    with client_of(guard) as client:
        assert post(client, "run/broken", call).status_code == 401
        for password in ("secret-wrong", "secret-word"):
            form = {"username": "secret-anna", "password": password}
            answer = client.post("/login", data=form)
            assert answer.status_code == (200 if password == "secret-word" else 400)
        refused(client.get("/gradio_api/file=/tmp/secret-song.mid"))
        assert refused(post(client, "run/broken", call)).json()["error"] == FAILED
    (line,) = [text for text in caplog.messages if text.startswith("broken")]
    assert line.startswith("broken: KeyError: ")
    assert "(guard/test_calls.py:" in line
    assert "secret" not in "".join([*caplog.messages, *capfd.readouterr()])
