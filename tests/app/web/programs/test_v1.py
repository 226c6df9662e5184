"""POST /v1: calls of programs pass the guard, are typed by the options, and end in files."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import pytest

from app.compose.options import OPTIONS
from app.web.guard.limits import MAX_LOGINS
from app.web.programs.tools import TOOLS
from app.web.programs.v1 import _in_header, _unless_gone
from tests.support import fakes
from tests.support.guarded import LARGEST, client_of, guarded_page
from tests.support.paths import ROOT
from tests.support.served import served
from tokenization.midi import read_midi

PAGE = ROOT / "docs" / "pages" / "how-to" / "script.md"
DEFAULT_ADDRESS = "http://127.0.0.1:7860"
ACCOUNT = ("anna", "secret-word")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("music")
    with guarded_page(folder, max_upload_bytes=LARGEST) as page:
        yield page


@pytest.fixture(scope="module")
def client(page):
    with client_of(page.guard) as client:
        yield client


def prompt(data=None):
    return {"prompt": ("My song.mid", fakes.example_midi(bars=3) if data is None else data)}


def test_a_file_and_options_go_in_and_a_file_comes_out(client, page):
    options = {"bars": 2, "seed": 5, "density": 8, "key": "C", "last_bar": 2}
    first, again = (client.post("/v1/continue", files=prompt(), data=options) for _ in range(2))
    assert first.content == again.content
    assert read_midi(first.content).num_notes
    assert first.headers["content-type"] == "audio/midi"
    assert first.headers["relpe-seed"] == "5"
    assert "2 bars requested after bar 2" in first.headers["relpe-settings"]
    assert "density 8.00; in C" in first.headers["relpe-settings"]
    filled = client.post("/v1/fill", files=prompt(), data={"first_bar": 2, "last_bar": 2})
    new = client.post("/v1/generate", data={"bars": 2})
    assert all(read_midi(answer.content).num_notes for answer in (filled, new))
    assert client.post("/v1/inspect", files=prompt()).json()["bars"] == 3
    assert client.post("/v1/render", files=prompt()).content[:4] == b"fLaC"
    assert not [path for path in page.uploads.parent.rglob("*") if path.is_file()]


def test_bad_input_is_refused_in_one_sentence(client):
    for name, data, file, status, sentence in (
        ("continue", {"bars": 257}, None, 422, "bars is '257': Input should be less than"),
        ("continue", {"bars": "many"}, None, 422, "bars is 'many': Input should be a valid int"),
        ("continue", {"tempo": 1}, None, 422, "tempo is '1': Extra inputs are not permitted"),
        ("continue", {"beats": "none"}, None, 422, "beats is 'none': Input should be 'auto', "),
        ("continue", {"key": "H"}, None, 400, "key is 'H', expected a note from A to G"),
        ("continue", {"last_bar": 9}, None, 400, "the last bar of the prompt is 9, expected 1 to"),
        ("continue", {"model": "x"}, None, 400, "model is 'x', expected one of fake"),
        ("fill", {"tracks": "oboe"}, None, 400, "no track fits 'oboe'"),
        ("accompany", {}, None, 422, "instrument: Field required"),
        (
            "accompany",
            {"instrument": "Drums"},
            None,
            400,
            "expected a model of several instruments",
        ),
        ("render", {}, b"MThd", 400, "My-song.mid: the file is cut off"),
        ("inspect", {}, bytes(3 * LARGEST), 413, "expected at most that many"),
        ("other", {}, None, 404, "Not Found"),
    ):
        answer = client.post(f"/v1/{name}", files=prompt(file), data=data)
        assert answer.status_code == status, answer.text
        assert sentence in answer.json()["detail"]
        assert len(answer.json()["detail"]) < 400
    assert client.post("/v1/continue").json()["detail"] == "prompt: Field required"


def test_openapi_has_the_types_and_limits_of_the_options(client):
    api = client.get("/v1/openapi.json").json()
    assert set(api["paths"]) == {f"/{name}" for name in TOOLS}
    for name, arguments in api["components"]["schemas"].items():
        if name.lower() not in TOOLS:
            continue
        assert arguments["additionalProperties"] is False
        for field, kind in arguments["properties"].items():
            option = OPTIONS.get(field)
            kind = kind.get("anyOf", [kind])[0]
            if option and option.limits:
                assert kind["maximum"] == option.limits.scripts[1]
            elif option and option.words:
                assert tuple(kind["enum"]) == option.words
    assert api["components"]["schemas"]["Generate"]["properties"]["bars"]["default"] == 32


def test_calls_need_the_login_by_cookie_or_password(tmp_path):
    with guarded_page(tmp_path, accounts=(ACCOUNT,)) as page, client_of(page.guard) as client:

        def status(*account):
            other: dict[str, Any] = {"auth": account} if account else {}
            return client.post("/v1/inspect", files=prompt(), **other).status_code

        form = {"username": ACCOUNT[0], "password": ACCOUNT[1]}
        browser = client_of(page.guard)
        assert browser.post("/login", data=form).status_code == 200
        assert browser.post("/v1/inspect", files=prompt()).status_code == 200
        assert status() == client.get("/v1/openapi.json").status_code == 401
        assert status(*ACCOUNT) == 200
        assert client.get("/config", auth=ACCOUNT).status_code == 200
        wrong = [("anna", ""), ("otto", ""), ("anna", "secret"), ("", ""), ("anna", "x" * 999)]
        assert len(wrong) == MAX_LOGINS
        assert {status(*account) for account in wrong} == {401}
        assert status(*ACCOUNT) == 429


def test_a_right_password_gives_no_more_guesses_of_another(tmp_path):
    accounts = (ACCOUNT, ("otto", "an-ö-word"))
    with guarded_page(tmp_path, accounts=accounts) as page, client_of(page.guard) as client:

        def status(*account):
            return client.get("/config", auth=account).status_code

        assert status("otto", "an-ö-word".encode()) == 200
        guesses = [(status("otto", f"{n}"), status(*ACCOUNT)) for n in range(MAX_LOGINS)]
        assert guesses == [(401, 200)] * (MAX_LOGINS - 1) + [(401, 429)]
        wrong = [(b"authorization", b"Basic \xff\xfe")]
        assert client.get("/config", headers=wrong).status_code == 429


def test_headers_are_one_line():
    assert _in_header("chords C |\r\nRelpe-X: F · ♯") == "chords C | Relpe-X: F; ?"


def test_a_call_is_cancelled_when_its_client_has_gone():
    cancelled = threading.Event()

    async def call():
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def gone():
        return {"type": "http.disconnect"}

    async def run():
        with pytest.raises(gr.Error, match="has gone"):
            await _unless_gone(cast("Any", SimpleNamespace(receive=gone)), cast("Any", call()))
        await asyncio.sleep(0)

    asyncio.run(run())
    assert cancelled.is_set()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    """Each writes the same file."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    with served(tmp_path, speed=200.0) as page:
        text = PAGE.read_text("utf-8").replace(f"{DEFAULT_ADDRESS}/", page.address)
        blocks = re.findall(r"```(?:python|sh|js)\n(.*?)```", text, re.DOTALL)
        code, command, script = (block for block in blocks if "/v1/" in block)
        exec(code, {})
        assert capsys.readouterr().out == "1\n"
        music = [Path("continued.mid").read_bytes()]
        for program in (["sh", "-c", command], ["node", "--input-type=module", "-e", script]):
            if shutil.which(program[0]) and (program[0] == "node" or shutil.which("curl")):
                Path("continued.mid").unlink()
                subprocess.run(program, check=True, capture_output=True)
                music.append(Path("continued.mid").read_bytes())
    assert len(set(music)) == 1
    assert read_midi(music[0]).num_notes
