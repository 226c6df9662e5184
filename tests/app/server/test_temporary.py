"""Folders of this process, and of processes that were killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time

import pytest

from app.server import temporary
from app.server.temporary import LOCK, make_room, private_folder


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """The folder of temporary files, which other users can also write."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(temporary, "STARTING_SECONDS", 0.0)
    return tmp_path


def test_a_folder_is_private_and_removed_at_the_end(shared):
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "uploads").mkdir()
        with private_folder() as other:  # of another page
            assert folder.exists()
            assert other != folder
    assert not list(shared.iterdir())


def test_the_folder_of_a_process_that_was_killed_is_removed(shared):
    code = """
import tempfile, sys, os, signal
tempfile.tempdir = sys.argv[1]
from app.server.temporary import private_folder
with private_folder() as folder:
    (folder / "upload").write_bytes(b"x" * 1000)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(shared)], check=False)
    (left,) = shared.iterdir()
    assert (left / "upload").exists()
    with private_folder():
        assert not left.exists()


def test_other_folders_and_those_of_pages_that_are_starting_stay(shared, monkeypatch):
    others = [shared / "relpe-mine", shared / "else", shared / "relpe-starting"]
    for folder in others:
        folder.mkdir()
    (shared / "relpe-link").symlink_to(others[1])
    (others[1] / LOCK).touch()
    with private_folder():
        assert all(folder.exists() for folder in (*others, shared / "relpe-link"))
    (others[2] / LOCK).touch()
    monkeypatch.setattr(temporary, "STARTING_SECONDS", 60.0)  # it may not be locked yet
    with private_folder():
        assert others[2].exists()
    monkeypatch.setattr(temporary, "STARTING_SECONDS", 0.0)
    with private_folder():
        assert not others[2].exists()


def test_the_oldest_uploads_make_room(tmp_path, monkeypatch):
    now = time.time()
    for most, number in ((3000, 10), (10**6, 3)):
        monkeypatch.setattr(temporary, "MAX_UPLOADED", most)
        monkeypatch.setattr(temporary, "MAX_UPLOADS", number)
        for age in range(6):
            path = tmp_path / f"hash{age}" / f"{age}.mid"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x" * 1000)
            os.utime(path, (now - age, now - age))
        make_room(tmp_path)
        kept = sorted(path.name for path in tmp_path.rglob("*.mid"))
        assert kept == ["0.mid", "1.mid", "2.mid"]
        assert len(list(tmp_path.iterdir())) == 3
