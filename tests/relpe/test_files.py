"""Atomic writing of files."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from relpe.files import atomic_write, remove_parts, write_text


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "song.mid"
    path.write_bytes(b"old")
    with atomic_write(path) as beside:
        assert beside.suffix == ".mid"
        beside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "song.mid"
    path.write_bytes(b"old")

    def fail():
        with atomic_write(path) as beside:
            beside.write_bytes(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_that_write_the_same_file_do_not_meet(tmp_path):
    path, meet = tmp_path / "song.mid", threading.Barrier(2)

    def write(content):
        with atomic_write(path) as beside, beside.open("wb") as file:
            meet.wait()
            file.write(content)
            meet.wait()

    threads = [threading.Thread(target=write, args=(part * 9,)) for part in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in {b"a" * 9, b"b" * 9}
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "out.mid"
    link.symlink_to(tmp_path / "there" / "song.mid")
    with atomic_write(link) as beside:
        beside.write_bytes(b"music")
    assert link.is_symlink()
    assert (tmp_path / "there" / "song.mid").read_bytes() == b"music"


def test_old_parts_are_removed_and_new_ones_stay(tmp_path):
    old, new = (tmp_path / f".{letter * 16}.part.mid" for letter in "ab")
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    remove_parts(tmp_path, untouched_seconds=3600)
    assert [old.exists(), new.exists()] == [False, True]


def test_a_failed_write_names_the_file(tmp_path):
    path = tmp_path / "run.json"

    def write(*error):
        with atomic_write(path) as beside:
            raise OSError(*(str(beside) if word == "beside" else word for word in error))

    for error in ((errno.ENOSPC, "full"), (errno.EACCES, "not allowed", "beside")):
        with pytest.raises(OSError, match=error[1]) as named:
            write(*error)
        assert named.value.filename == str(path)
    with pytest.raises(PermissionError) as other:
        write(errno.EACCES, "not allowed", "elsewhere")
    assert other.value.filename == "elsewhere"
    path.touch()
    with pytest.raises(NotADirectoryError) as named:
        write_text(path / "run.json", "")
    assert named.value.filename == str(path / "run.json")
