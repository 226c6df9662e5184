"""Malformed calls: each gets a status of 4xx and a sentence, and the log has no traceback."""

from __future__ import annotations

import json
import logging
import random

import gradio as gr
import httpx
import pytest

from app.web.guard.failures import FAILED, described
from app.web.guard.routes import MAX_CALL_BYTES
from tests.support.guarded import client_of, guard_of, guarded_page, post
from tests.support.served import served

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SESSION = "somebody"
JUNK = [
    *(None, True, 0, -1, 2**70, 1e308, "", "x", "\0", "../../etc/passwd", "é" * 300, [], {}),
    *(float("nan"), float("inf"), "\ud800", "x\udfff\u202e", [0] * 10_000, "x" * 100_000),
    *([None], [[[]]], {"path": "/etc/passwd"}, {"job": None}, {"error": None}, {"a": {"b": [1]}}),
    {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
    {"job": "0" * 32, "variation": 0, "kind": "midi"},
    {"job": ["x"], "variation": {}, "kind": "\0", "without": [{}]},
    {"job": "0" * 32, "variation": 1e9, "kind": "../wav", "without": None},
    {"audio": "/etc/passwd"},
    {"path": "\ud800.mid", "meta": {"_type": "gradio.FileData"}},
    {"path": "a\0b.mid", "url": "file:///etc/passwd", "meta": {"_type": "gradio.FileData"}},
    {"path": ["x"], "orig_name": {}, "meta": {"_type": "gradio.FileData"}},
    {"audio": ["x"]},
    {"first": "a", "last": None},
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with guarded_page(tmp_path_factory.mktemp("music")) as page:
        yield page


@pytest.fixture(scope="module")
def client(page):
    return client_of(page.guard)


@pytest.fixture(autouse=True)
def no_traceback(capfd, caplog):
    with caplog.at_level(logging.WARNING):
        yield
    said = "".join(capfd.readouterr())
    assert "Traceback" not in said
    assert all(record.exc_info is None for record in caplog.records)


def refused(answer):
    """Asserts that an answer is a refusal of one sentence."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text
    return answer


@pytest.mark.parametrize("route", ["run/continue", "queue/join", "component_server", "call/stop"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 100_000])
def test_a_malformed_call_is_refused(client, route, body):
    assert refused(post(client, route, body)).json()["error"].startswith("found")


def test_a_call_that_is_too_large_is_refused(client):
    body = b'{"data": ["' + b"x" * MAX_CALL_BYTES + b'"]}'
    assert refused(post(client, "run/stop", body)).status_code == 413


@pytest.mark.parametrize("index", [9999, -1, "0", 1.5, True, [], {}])
@pytest.mark.parametrize("route", ["run/predict", "queue/join"])
def test_an_unknown_call_is_refused(client, route, index):
    body = {"data": [], "fn_index": index, "session_hash": SESSION}
    assert "fn_index is" in refused(post(client, route, body)).json()["error"]


@pytest.mark.parametrize("name", ["x" * 65, "\0", "\ud800", "a\nb", "é"])
@pytest.mark.parametrize("route", ["run/stop", "queue/join", "call/stop", "component_server"])
def test_an_invalid_name_of_a_session_is_refused(client, route, name):
    """The length of names is limited, since they are kept while the program runs."""
    answer = post(client, route, {"data": [], "fn_index": 0, "session_hash": name})
    assert refused(answer).json()["error"].startswith("session_hash is ")


@pytest.mark.parametrize("name", ["nothing", "x" * 300, "%00", "..%2Fstop"])
@pytest.mark.parametrize("route", ["run", "api", "call", "call/v2"])
def test_an_unknown_name_is_refused(client, route, name):
    refused(post(client, f"{route}/{name}", {"data": [], "session_hash": SESSION}))


@pytest.mark.parametrize("value", JUNK, ids=range(len(JUNK)))
@pytest.mark.parametrize("field", ["component_id", "fn_name", "session_hash"])
def test_an_unknown_function_of_a_component_is_refused(page, client, field, value):
    known, name = next(iter(server_functions(page.blocks)))
    good = {"component_id": known, "fn_name": name, "session_hash": SESSION, "data": {}}
    if field == "session_hash" and value in ("", "x", "../../etc/passwd"):
        return  # a valid name of a session
    refused(post(client, "component_server", good | {field: value}))


def server_functions(page):
    return [
        (known, name)
        for known, block in page.blocks.items()
        for name in vars(block)
        if getattr(vars(block)[name], "_is_server_fn", False)
    ]


@pytest.mark.parametrize("value", JUNK, ids=range(len(JUNK)))
def test_functions_of_components_answer_anything_with_a_sentence(page, client, value):
    """Each returns {"error": …} or is refused, and discloses no other file."""
    assert server_functions(page.blocks)
    for known, name in server_functions(page.blocks):
        body = {"component_id": known, "fn_name": name, "session_hash": SESSION, "data": value}
        answer = post(client, "component_server", body)
        assert answer.status_code < 500
        assert "root:" not in answer.text
        if answer.status_code == 200:
            assert "error" in answer.json()


def calls_of(page):
    """All functions that are called without the queue and accept values."""
    return [
        fn
        for fn in page.fns.values()
        if fn.queue is False and fn.fn is not None and fn.js is not True
    ]


def tried(page, client, values):
    """Calls every function with the right number of values, one too few, and one too many."""
    for fn in calls_of(page.blocks):
        for number in {0, len(fn.inputs) - 1, len(fn.inputs), len(fn.inputs) + 1} - {-1}:
            data = [next(values) for _ in range(number)]
            body = {"data": data, "fn_index": fn._id, "session_hash": SESSION}
            body["event_data"] = next(values)
            answer = post(client, "run/predict", body)
            assert answer.status_code < 500, (fn.name, data, answer.text)
            assert "Traceback" not in answer.text
            assert "root:" not in answer.text


def test_callbacks_called_with_wrong_values_answer_with_a_sentence(page, client):
    drawn = random.Random(0)
    tried(page, client, iter(lambda: drawn.choice(JUNK), ...))


@pytest.mark.slow
def test_callbacks_survive_random_values(page, client):
    drawn = random.Random(1)

    def grown(depth=0):
        kind = drawn.randrange(8 if depth < 3 else 5)
        if kind == 6:
            return [grown(depth + 1) for _ in range(drawn.randrange(4))]
        if kind == 7:
            keys = (
                "path",
                "meta",
                "job",
                "variation",
                "kind",
                "without",
                "first",
                "heard",
                "_type",
            )
            return {drawn.choice(keys): grown(depth + 1) for _ in range(drawn.randrange(5))}
        return drawn.choice(JUNK)

    for _ in range(10):
        tried(page, client, iter(grown, ...))
        for known, name in server_functions(page.blocks):
            body = {"component_id": known, "fn_name": name, "session_hash": SESSION}
            assert post(client, "component_server", body | {"data": grown()}).status_code < 500


@pytest.mark.parametrize(
    "path",
    [
        *("file=/etc/passwd", "file=%00", "file=../../etc/passwd", "file=http://example.org/x"),
        *(
            "vibe-code",
            "vibe-starter-queries/",
            "dev/reload",
            "proxy=http://example.org",
            "call/x/y",
        ),
        *("stream/a/b/c/playlist.m3u8", "custom_component/a/b/c/d", "profiling/traces"),
        *("upload_progress", "queue/data", "queue/data?session_hash=x"),
    ],
)
def test_other_files_are_not_served(client, path):
    refused(client.get(f"/gradio_api/{path}"))


@pytest.mark.parametrize("route", ["cancel", "reset", "upload", "login", "vibe-edit", "stream/x"])
@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b'{"event_id": 5, "session_hash": []}'])
def test_other_routes_refuse_invalid_requests(client, route, body):
    refused(post(client, route, body))


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "/tmp/gradio/secret/secret song.mid"),
        ValueError("no file at /tmp/gradio/secret/song.mid or C:\\secret\\song.mid"),
        KeyError("secret"),
        TypeError("""found {'password': 'secret', "x": "secret"} and 'secret that is cut"""),
        LookupError("no session 0123456789secret0123456789"),
    ],
)
def test_the_log_contains_neither_paths_nor_values(error):
    said = described(error)
    assert said.startswith(f"{type(error).__name__}: ")
    assert "secret" not in said
    assert "song" not in said


def test_the_log_contains_no_name_of_a_session(caplog, capfd):
    """Nor does it contain the name and password of a login, or text that was sent."""

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
            known = client.post("/login", data=form)
            assert known.status_code == (200 if password == "secret-word" else 400)
        refused(client.get("/gradio_api/file=/tmp/secret-song.mid"))
        assert refused(post(client, "run/broken", call)).json()["error"] == FAILED
    said = "".join([*(record.getMessage() for record in caplog.records), *capfd.readouterr()])
    assert "broken: KeyError" in said
    assert "secret" not in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["continue", "generate", "inspect", "render"])
def test_jobs_with_invalid_values_end_with_a_sentence(tmp_path, name):
    drawn = random.Random(2)
    with served(tmp_path, speed=5000.0) as page, httpx.Client(timeout=60) as client:
        where = f"{page.address}gradio_api/call/{name}"
        for number in range(60):
            body = {"data": [drawn.choice(JUNK) for _ in range(number % 20)]}
            content = json.dumps(body).encode()
            asked = client.post(
                where, content=content, headers={"content-type": "application/json"}
            )
            assert asked.status_code < 500, (body, asked.text)
            if asked.status_code != 200:
                continue
            told = client.get(f"{where}/{asked.json()['event_id']}")
            assert told.status_code == 200
            assert "event: error" in told.text
            assert "Traceback" not in told.text
            assert "root:" not in told.text


def test_a_bug_is_one_line_in_the_log_and_one_sentence_for_the_caller(caplog):
    def broken():
        return 1 / 0

    with gr.Blocks(analytics_enabled=False) as blocks:
        gr.Button().click(broken, api_name="broken", queue=False)
    with client_of(guard_of(blocks)) as client:
        answer = post(client, "run/broken", {"data": [], "session_hash": SESSION})
    assert refused(answer).json()["error"] == FAILED
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith("broken: ZeroDivisionError: division by zero (guard/test_calls.py:")
