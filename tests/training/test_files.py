from __future__ import annotations

import errno

import pytest

from training.errors import TrainingError
from training.files import read_json, replacing


def test_a_file_is_replaced_only_when_it_is_complete_and_a_failed_write_names_it(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("old")

    def write(text, *error):
        with replacing(path) as beside:
            beside.write_text(text)
            assert path.read_text() == "old"
            if error:
                raise OSError(*error)

    for error, named in (
        ((errno.ENOSPC, "No space left on device"), str(path)),
        ((errno.EACCES, "not allowed", "elsewhere"), "elsewhere"),
        (("disk full",), None),
    ):
        with pytest.raises(OSError, match=error[min(1, len(error) - 1)]) as raised:
            write("ne", *error)
        assert raised.value.filename == named
        assert path.read_text() == "old"
        assert [*tmp_path.iterdir()] == [path]
    write("new")
    assert path.read_text() == "new"


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
