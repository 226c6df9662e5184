"""relpe-train fetch against a local server: whole or absent, checked, and safe to unpack."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from training.cli import main
from training.data.fetch import download, public
from training.data.fetch.download import fetch
from training.data.fetch.public import PublicFile, PublicSet
from training.errors import TrainingError
from training.files import alone_in


class Handler(BaseHTTPRequestHandler):
    """Serves `contents`; a path in `cut` ends in the middle of its file."""

    contents: ClassVar[dict[str, bytes]] = {}
    cut: ClassVar[set[str]] = set()
    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(self.path)
        content = self.contents.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.path in self.cut else content)

    def log_message(self, format, *args):  # noqa: A002 - its name in the base class
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Handler.contents, Handler.cut, Handler.asked = {}, set(), []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def archive_of(files: dict[str, str], *, tar: bool = True) -> bytes:
    stream = io.BytesIO()
    if tar:
        with tarfile.open(fileobj=stream, mode="w:gz") as opened:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                opened.addfile(member, io.BytesIO(text.encode()))
    else:
        with zipfile.ZipFile(stream, "w") as opened:
            for name, text in files.items():
                opened.writestr(name, text)
    return stream.getvalue()


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


def set_of(address: str, name: str, content: bytes, *, known: bool = True, **changes) -> PublicSet:
    Handler.contents[f"/{name}"] = content
    file = PublicFile(f"{address}/{name}", md5(content) if known else None)
    return PublicSet((file,), "set", "use DIR", "a test", **changes)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_an_archive_is_checked_unpacked_recorded_and_not_fetched_again(address, tmp_path):
    content = archive_of({"set/a.txt": "one", "set/inner/b.txt": "two"})
    wanted = set_of(address, "set.tar.gz", content)
    lines = fetch("some", wanted, tmp_path)
    assert (tmp_path / "set" / "inner" / "b.txt").read_text() == "two"
    assert left_in(tmp_path) == ["set", "set.fetched.json"]
    [file] = json.loads((tmp_path / "set.fetched.json").read_text())["files"]
    assert file["bytes"] == len(content)
    assert file["sha256"] == hashlib.sha256(content).hexdigest()
    assert file["checked"] == md5(content)
    assert lines[-1] == f"next: use {tmp_path}"
    assert fetch("some", wanted, tmp_path)[1:] == lines[1:]
    assert Handler.asked == ["/set.tar.gz"]


def test_an_archive_without_a_folder_and_without_a_checksum_says_so(address, tmp_path):
    content = archive_of({"a.ts": "one"}, tar=False)
    wanted = set_of(address, "set.zip", content, known=False, inside=False)
    lines = fetch("some", wanted, tmp_path)
    assert (tmp_path / "set" / "a.ts").read_text() == "one"
    assert "not checked, since no checksum is published" in lines[1]
    assert hashlib.sha256(content).hexdigest() in lines[1]


def test_another_checksum_is_refused_and_nothing_stays(address, tmp_path):
    wanted = set_of(address, "set.zip", archive_of({"set/a": "one"}, tar=False))
    Handler.contents["/set.zip"] += b"more"
    with pytest.raises(TrainingError, match=r"does not have the checksum md5:"):
        fetch("some", wanted, tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize("known", [True, False])
def test_a_lost_connection_leaves_no_half_file_and_the_rest_is_resumed(address, tmp_path, known):
    first = set_of(address, "a.gz", b"one" * 9999, known=known, is_archive=False)
    second = set_of(address, "b.gz", b"two" * 9999, known=known, is_archive=False)
    both = PublicSet((*first.files, *second.files), "set", "", "", is_archive=False)
    Handler.cut = {"/b.gz"}
    with pytest.raises(TrainingError, match="the connection was lost before the end"):
        fetch("some", both, tmp_path)
    assert left_in(tmp_path) == ["set.partial"]
    assert left_in(tmp_path / "set.partial") == ["a.gz"]
    Handler.cut = set()
    (tmp_path / "set.partial" / "tmpabc").write_bytes(b"of a process that was killed")
    fetch("some", both, tmp_path)
    assert Handler.asked == ["/a.gz", "/b.gz", "/b.gz"]
    assert (tmp_path / "set" / "b.gz").read_bytes() == b"two" * 9999
    assert left_in(tmp_path / "set") == ["a.gz", "b.gz"]


def test_names_that_lead_out_of_the_folder_are_refused(address, tmp_path):
    for name, tar in (
        ("../evil.txt", True),
        ("set/../../evil.txt", True),
        ("../evil.txt", False),
        ("set/../../evil.txt", False),
        ("/tmp/evil.txt", False),
    ):
        content = archive_of({"set/a.txt": "one", name: "evil"}, tar=tar)
        wanted = set_of(address, "set.tar.gz" if tar else "set.zip", content)
        folder = tmp_path / "data"
        with pytest.raises(TrainingError, match=r"evil.txt', which leads out of its folder"):
            fetch("some", wanted, folder)
        assert not (folder / "set").exists()
        assert not (folder / "set.unpacked").exists()
        assert not list(tmp_path.rglob("evil*"))
        assert not Path("/tmp/evil.txt").exists()
    # tarfile removes the slash, so that the file stays inside
    content = archive_of({"set/a.txt": "one", "/tmp/evil.txt": "evil"})
    fetch("some", set_of(address, "set.tar.gz", content), tmp_path / "other")
    assert not Path("/tmp/evil.txt").exists()


def test_a_link_that_leads_out_of_the_folder_is_refused(address, tmp_path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as opened:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        opened.addfile(link)
    with pytest.raises(TrainingError, match="leads out of its folder"):
        fetch("some", set_of(address, "set.tar", stream.getvalue()), tmp_path)
    assert not (tmp_path / "set").exists()


def test_a_damaged_archive_is_removed_and_one_of_another_layout_is_named(address, tmp_path):
    with pytest.raises(TrainingError, match="a damaged archive"):
        fetch("some", set_of(address, "set.zip", b"no zip"), tmp_path)
    content = archive_of({"other/a": "one"}, tar=False)
    with pytest.raises(TrainingError, match=r"has no folder set \(found other\)"):
        fetch("some", set_of(address, "set.zip", content), tmp_path)
    assert not (tmp_path / "set").exists()


def test_what_is_there_is_not_overwritten(address, tmp_path):
    (tmp_path / "set").mkdir()
    with pytest.raises(TrainingError, match="exists, but was not fetched by this command"):
        fetch("some", set_of(address, "set.zip", b""), tmp_path)
    (tmp_path / "set").rmdir()
    with (
        alone_in(tmp_path, "fetch", "--data-dir"),
        pytest.raises(TrainingError, match="another relpe-train fetch is working in this folder"),
    ):
        fetch("some", set_of(address, "set.zip", b""), tmp_path)


def test_the_command_says_in_one_sentence_what_is_wrong(address, tmp_path, monkeypatch, capsys):
    wanted = set_of(address, "a.gz", b"one", is_archive=False)
    missing = PublicSet((PublicFile(f"{address}/nothing.gz"),), "set", "", "")
    closed = PublicSet((PublicFile("http://127.0.0.1:9/a.gz"),), "set", "", "")
    monkeypatch.setattr(public, "SETS", {"good": wanted, "missing": missing, "offline": closed})
    arguments = ["--data-dir", str(tmp_path / "new" / "data")]
    for name, message in (
        ("missing", "nothing.gz: the server answered 404 Not Found"),
        ("offline", "http://127.0.0.1:9/a.gz: cannot be reached"),
        ("other", "expected good, missing, offline, or"),
        ("ucr/../x", "ucr/../x: not a data set that can be fetched"),
    ):
        assert main(["fetch", name, *arguments]) == 2
        [said] = capsys.readouterr().err.splitlines()
        assert said.startswith("relpe-train: ")
        assert message in said
    assert not (tmp_path / "new").exists()
    assert main(["fetch", "good", *arguments]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'new' / 'data' / 'set'}: fetched\n")


def test_no_answer_is_not_waited_for_endlessly(address, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.05)
    waits = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: waits.wait(5))
    with pytest.raises(TrainingError, match="no answer within"):
        fetch("some", set_of(address, "set.zip", b""), tmp_path)
    waits.set()
