from __future__ import annotations

import pytest

from training.files import replacing


def test_a_file_is_replaced_only_when_all_is_written(tmp_path):
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
