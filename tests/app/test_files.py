"""Finding and reading files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.errors import CommandError
from app.files import find_midi, read_file


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
