"""Malformed calls: each gets a status of 4xx and a sentence, and reads no file."""

from __future__ import annotations

import itertools

import gradio as gr
import pytest

from app.web.guard.calls import MAX_SESSION, check_call
from app.web.guard.middleware import FAILED
from app.web.guard.refused import RefusedError
from tests.support.guarded import client_of, guard_of, post

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SESSION = "somebody"
JUNK = [
    *(None, -1, float("nan"), "\ud800", "../../etc/passwd", [[[]]], {"first": "a", "last": None}),
    {"job": ["x"], "variation": {}, "kind": "\0", "without": [{}]},
]


def refused(answer):
    """Asserts that an answer is a refusal that shows nothing of the program."""
    assert 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text
    assert "root:" not in answer.text
    return answer


def test_a_malformed_call_is_refused(client):
    for body in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 60_000):
        for route in ("run/continue", "queue/join", "component_server", "cancel"):
            assert refused(post(client, route, body)).json()["error"].startswith("found no JSON")
    for route in ("reset", "upload", "login", "vibe-edit", "stream/x"):
        refused(post(client, route, {"event_id": 5, "session_hash": []}))
    for path in (
        *("file=/etc/passwd", "file=%00", "file=../../etc/passwd", "file=http://example.org/x"),
        *("proxy=http://example.org", "stream/a/b/c/playlist.m3u8", "upload_progress"),
        "queue/data",
    ):
        refused(client.get(f"/gradio_api/{path}"))
    # Gradio would fetch it for anyone
    assert client.get("/gradio_api/file=https://example.org").status_code == 404


def test_an_unknown_call_is_refused(client):
    good = {"data": [], "fn_index": 0, "session_hash": SESSION}
    for change in (
        *({"fn_index": 9999}, {"fn_index": []}, {"data": None}, {"trigger_id": 9999}),
        *({"fn_name": "__init__", "component_id": 1}, {"session_hash": "x" * (MAX_SESSION + 1)}),
    ):
        for route in ("run/predict", "component_server"):
            refused(post(client, route, good | change))
    for route in ("run/nothing", "api/%00", "call/..%2Fstop", "call/v2/nothing"):
        refused(post(client, route, {"data": [], "session_hash": SESSION}))
    called = {"data": [], "session_hash": "x" * MAX_SESSION}
    assert post(client, "run/stop", called).json()["data"] == [False]


def test_functions_of_components_answer_anything_with_a_sentence(page, client):
    """Each returns {"error": …} or is refused."""
    functions = [
        (number, name)
        for number, block in page.blocks.blocks.items()
        for name in vars(block)
        if getattr(vars(block)[name], "_is_server_fn", False)
    ]
    assert functions
    for (number, name), value in itertools.product(functions, JUNK):
        call = {"component_id": number, "fn_name": name, "session_hash": SESSION, "data": value}
        answer = post(client, "component_server", call)
        assert answer.status_code < 500
        assert "root:" not in answer.text
        assert answer.status_code != 200 or "error" in answer.json()


def test_callbacks_called_with_wrong_values_are_answered(page, client):
    values = itertools.cycle(JUNK)
    for fn in page.blocks.fns.values():
        if fn.queue is not False or fn.fn is None or fn.js is True:
            continue
        data = [next(values) for _ in fn.inputs]
        call = {"data": data, "fn_index": fn._id, "session_hash": SESSION}
        answer = post(client, "run/predict", call | {"event_data": next(values)})
        assert answer.status_code < 500, (fn.name, data, answer.text)
        assert "root:" not in answer.text
    taking = next(fn for fn in page.blocks.fns.values() if fn.queue is False and fn.inputs)
    call = {"data": [], "fn_index": taking._id, "session_hash": SESSION}
    refused(post(client, "run/predict", call))


def test_a_call_can_only_name_files_that_were_uploaded(page, client, tmp_path):
    """Also at any depth; a folder, a link and the address of another server are no uploads."""
    (path,) = client.post("/gradio_api/upload", files={"files": ("a.mid", b"MThd")}).json()
    assert path.startswith(str(page.uploads))
    link = page.uploads / "link.mid"
    link.symlink_to("/etc/passwd")
    for name in (
        *(str(page.uploads), path.rpartition("/")[0], "/etc/passwd", f"{path}/../../../.."),
        *("http://x.example/a", "a\0b.mid", str(link), "missing.mid"),
    ):
        file = {"path": name, "meta": {"_type": "gradio.FileData"}}
        for route, data in (
            ("run/inspect", {"data": [file, "auto"]}),
            ("queue/join", {"data": [[{"x": file}]], "fn_index": 0}),
            ("call/v2/inspect", {"midi": file}),
        ):
            answer = refused(post(client, route, data | {"session_hash": SESSION}))
            assert "was not uploaded" in answer.json()["error"]
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    answer = post(client, "call/inspect", {"data": [file, "auto"]})
    assert answer.status_code == 200
    with pytest.raises(RefusedError, match="not uploaded"):
        check_call(b'{"data": [{"path": "x.mid"}]}', tmp_path)


def test_a_bug_is_answered_without_names_of_sessions_and_users(capfd, caplog):
    """Its traceback is in the log only."""

    def broken(text, request: gr.Request):
        raise KeyError(f"{text} of {request.session_hash} {request.username}")

    with gr.Blocks(analytics_enabled=False) as blocks:
        gr.Button().click(broken, gr.Textbox(), api_name="broken", queue=False)
    guard = guard_of(blocks, accounts=(("anna", "secret-word"),))
    call = {"data": ["secret-text"], "session_hash": "secret-session"}
    with client_of(guard) as client:
        assert post(client, "run/broken", call).status_code == 401
        for password in ("secret-wrong", "secret-word"):
            form = {"username": "anna", "password": password}
            answer = client.post("/login", data=form)
            assert answer.status_code == (200 if password == "secret-word" else 400)
        assert "secret" not in refused(post(client, "run/broken", call)).text
        call["fn_index"] = "9999"
        assert refused(post(client, "run/broken", call)).json()["error"] == FAILED
    assert caplog.messages == ["a request failed"]
    assert "KeyError" in capfd.readouterr().err
