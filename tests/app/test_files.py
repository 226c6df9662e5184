"""Finding, reading and atomically writing files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from app.errors import CommandError
from app.files import appearing, find_midi, read_file, remove_parts


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "song.mid"
    path.write_bytes(b"old")
    with appearing(path) as beside:
        assert beside.suffix == ".mid"
        beside.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
    # a link stays, and the file that it names is written
    link = tmp_path / "link.mid"
    link.symlink_to(path)
    with appearing(link) as beside:
        beside.write_bytes(b"music")
    assert link.is_symlink()
    assert path.read_bytes() == b"music"


def test_an_error_leaves_what_was_there(tmp_path):
    path = tmp_path / "song.mid"
    path.write_bytes(b"old")

    def fail():
        with appearing(path) as beside:
            beside.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_that_write_the_same_file_do_not_meet(tmp_path):
    path, meet = tmp_path / "song.mid", threading.Barrier(2)

    def write(content):
        with appearing(path) as beside, beside.open("wb") as file:
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


def place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_folders_are_searched_in_order_and_files_taken_once(tmp_path):
    folder, output = tmp_path / "prompts", tmp_path / "prompts" / "out" / "midi"
    late, early = place(folder / "b.MID"), place(folder / "a" / "x.midi")
    alone = place(tmp_path / "song.mid")
    for other in ("b.txt", ".hidden.mid", ".git/x.mid", "out/midi/b_v01.mid"):
        place(folder / other)
    (folder / "again.mid").symlink_to(late)
    (folder / "round").symlink_to(folder, target_is_directory=True)
    found = find_midi([alone, folder, late], output)
    assert list(found.items()) == [(alone, "song"), (early, "a-x"), (folder / "again.mid", "again")]


def test_a_missing_file_or_empty_folder_is_refused(tmp_path):
    with pytest.raises(CommandError, match="nowhere: no such file or folder"):
        find_midi([tmp_path / "nowhere"], tmp_path / "out")
    with pytest.raises(CommandError, match="found no file that ends with"):
        find_midi([tmp_path], tmp_path / "out")
    with pytest.raises(CommandError, match="no such file or folder"):
        find_midi([tmp_path / ("x" * 300)], tmp_path / "out")


def test_a_file_is_read_up_to_a_size(tmp_path):
    path = place(tmp_path / "a.mid")
    path.write_bytes(b"1234")
    assert read_file(path, 4) == b"1234"
    with pytest.raises(CommandError, match="larger than 3 bytes"):
        read_file(path, 3)
    with pytest.raises(CommandError, match="found a folder, expected a file; choose a file in"):
        read_file(tmp_path, 3)
    with pytest.raises(CommandError, match=r"b\.mid: there is no such file; check its name"):
        read_file(tmp_path / "b.mid", 3)
    os.mkfifo(tmp_path / "pipe")  # which may never end
    with pytest.raises(CommandError, match="expected a file"):
        read_file(tmp_path / "pipe", 100)


def test_old_parts_are_removed_and_new_ones_stay(tmp_path):
    old, new = (tmp_path / f".{letter * 16}.part.mid" for letter in "ab")
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    remove_parts(tmp_path, untouched_seconds=3600)
    assert [old.exists(), new.exists()] == [False, True]
