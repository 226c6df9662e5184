from __future__ import annotations

import pytest

from training.errors import TrainingError
from training.files import alone_in, read_json


def test_damaged_json_is_reported_in_one_sentence_with_its_remedy(tmp_path):
    path = tmp_path / "x.json"
    for content, message in (
        (b"", "damaged, expected JSON"),
        (b"\xff", "damaged, expected JSON"),
        (b"[1]", "damaged, expected a JSON object"),
        (b'{"a": 1}', "found no b, so it is damaged or of an earlier version"),
    ):
        path.write_bytes(content)
        with pytest.raises(TrainingError, match=rf"^{path}: {message}[^\n]*; try again$"):
            read_json(path, ("a", "b"), "try again")
    path.write_text('{"a": 1, "b": 2, "c": 3}')
    assert read_json(path, ("a", "b"), "try again") == {"a": 1, "b": 2, "c": 3}


def test_temporary_files_of_a_killed_process_are_removed_from_a_locked_folder(tmp_path):
    (tmp_path / ".0123456789abcdef.part.ckpt").touch()
    with alone_in(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
