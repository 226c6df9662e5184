from __future__ import annotations

import errno

import pytest

from training.errors import TrainingError
from training.files import read_json, replacing


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("old")
    with replacing(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"

    def break_off():
        with replacing(path) as beside:
            beside.write_text("ne")
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        break_off()
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_a_failed_write_names_the_file(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("old")

    def write(*error):
        with replacing(path) as beside:
            beside.write_text("ne")
            raise OSError(*error)

    with pytest.raises(OSError, match="No space") as full:
        write(errno.ENOSPC, "No space left on device")
    assert full.value.filename == str(path)
    assert path.read_text() == "old"
    with pytest.raises(PermissionError) as other:
        write(errno.EACCES, "not allowed", "elsewhere")
    assert other.value.filename == "elsewhere"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff"])
def test_damaged_json_is_reported_in_one_sentence_with_its_remedy(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(TrainingError, match=rf"^{path}: damaged, expected [^\n]*; try again$"):
        read_json(path, ("a", "b"), "try again")
    path.write_text('{"a": 1, "b": 2, "c": 3}')
    assert read_json(path, ("a", "b"), "try again") == {"a": 1, "b": 2, "c": 3}
