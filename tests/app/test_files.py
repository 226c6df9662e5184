from __future__ import annotations

import threading

import pytest

from app.files import appearing


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "song.mid"
    path.write_bytes(b"old")
    with appearing(path) as beside:
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
        with appearing(path) as beside:
            beside.write_bytes(b"half")
            raise error

    with pytest.raises(error):
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
