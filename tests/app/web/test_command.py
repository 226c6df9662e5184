"""The command `relpe ui`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.compose.models import Models
from app.errors import CommandError
from app.web.command import _asked_for
from app.web.serving import Serving


def free_port() -> str:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_own_models_are_offered_after_the_others(folder, tmp_path):
    released = Models().names
    small, several = folder / "small", tmp_path / "several"
    shutil.copytree(small, several / "mine")
    shutil.copytree(small, several / "yours")
    (several / "notes").mkdir()
    assert Models(_asked_for(None, None)).names == released
    assert Models(_asked_for(None, small)).names == (*released, "small")
    assert Models(_asked_for(None, several)).names == (*released, "mine", "yours")
    assert Models(_asked_for(str(small), several)).names == ("small", "mine", "yours")
    with pytest.raises(CommandError, match="found no model"):
        _asked_for(None, several / "notes")


def test_an_unusable_address_is_reported_in_one_sentence(capsys):
    for host, problem in (
        ("no.such.host.invalid", "choose a --host of this machine"),
        ("127.0.0.1", "Address already in use; choose another --port"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            assert main(["ui", "--host", host, "--port", port, "--model", "no such model"]) == 2
        message = capsys.readouterr().err
        assert message.startswith(f"relpe: --host {host} --port {port}: ")
        assert problem in message
        assert message.count("\n") == 1
        assert "http" not in message


@pytest.mark.slow
def test_sigterm_ends_the_page_and_leaves_nothing(folder, tmp_path):
    rest = tmp_path / "temporary"
    rest.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "relpe", "ui", "--port", port]
    command += ["--model", str(folder / "small")]
    environment = os.environ | {"TMPDIR": str(rest)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as page:
        assert page.stderr is not None
        assert page.stderr.readline() == f"relpe: http://127.0.0.1:{port} (press Ctrl+C to stop)\n"
        assert list(rest.glob("relpe-*"))
        page.terminate()
        assert page.wait(30) == 0
    assert not list(rest.glob("relpe-*"))


def serving_of(monkeypatch: pytest.MonkeyPatch, folder: Path, *extra: str) -> Any:
    """The arguments with which `relpe ui` serves the page."""
    served = []
    monkeypatch.setattr(
        "app.web.serving.launch", lambda _, serving, announce: served.append(serving)
    )
    model = ["--model", str(folder / "small"), "--backend", "torch", "--port", free_port()]
    assert main(["ui", *model, *extra]) == 0
    return served[0]


def test_arguments_reach_the_page(folder, monkeypatch, caplog):
    accounts = folder / "accounts"
    accounts.write_text("# who\nada:se:cret\n\nbob: x \n")
    accounts.chmod(0o600)
    serving = serving_of(
        monkeypatch,
        folder,
        *("--root-path", "/music/", "--auth-file", str(accounts), "--max-queue", "3"),
        *("--max-seconds", "60", "--output-dir", str(folder / "kept")),
        *("--keep-days", "7.5", "--keep-size", "1GB"),
        *("--allow-host", "music.example", "--allow-host", "other.example"),
    )
    assert serving.allowed_hosts == ("music.example", "other.example")
    assert serving.root_path == "/music"
    assert serving.accounts == (("ada", "se:cret"), ("bob", " x "))
    assert (serving.sharing.max_waiting, serving.sharing.max_seconds) == (3, 60)
    assert (serving.keep_days, serving.keep_bytes) == (7.5, 1_000_000_000)
    assert "chmod" not in caplog.text
    assert serving_of(monkeypatch, folder, "--max-seconds", "0").sharing.max_seconds is None
    assert replace(serving_of(monkeypatch, folder), port=7860) == Serving()
    if os.name == "posix":
        accounts.chmod(0o644)
        serving_of(monkeypatch, folder, "--auth-file", str(accounts))
        assert "chmod 600" in caplog.text
        assert "cret" not in caplog.text


def test_unusable_arguments_are_reported_in_one_sentence(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    for name, text in (("wrong", "a:b\nsecret"), ("twice", "a:b\na:secret"), ("empty", "")):
        (folder / name).write_text(text)
    for option, value, message in (
        ("--port", "0", "expected 1 to 65535"),
        ("--port", "65536", "expected 1 to 65535"),
        ("--port", "http", "expected 1 to 65535"),
        ("--output-dir", "prompt.mid/music", "relpe: --output-dir "),
        ("--keep-days", "3", "require --output-dir"),
        ("--keep-days", "0", "not a number above 0"),
        ("--max-seconds", "nan", "not a number above 0"),
        ("--max-queue", "-1", "not a whole number"),
        ("--allow-host", "http://music.example", "expected one such as music.example"),
        ("--allow-host", "music.example:80", "not the name of a host"),
        ("--root-path", "music", "expected one such as /music"),
        ("--auth-file", "nothing", "No such file"),
        ("--auth-file", "wrong", "line 2 is not user:password"),
        ("--auth-file", "twice", "line 2 repeats a user"),
        ("--auth-file", "empty", "found no user"),
        ("--soundfont", "empty", "empty"),
    ):
        command = ["ui", "--port", free_port(), "--model", str(folder / "small"), option, value]
        try:
            code = main(command)
        except SystemExit as ended:
            code = ended.code
        assert code == 2
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("relpe")]
        assert message in said[-1]
        assert "secret" not in said[-1]
