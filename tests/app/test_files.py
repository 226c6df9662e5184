from __future__ import annotations

import os
import threading
import time

import pytest

from app import files
from app.files import SessionFolders, appearing, prune


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


@pytest.fixture
def clock(monkeypatch):
    """Hours since the start, which a test sets."""
    hours = [0.0]
    monkeypatch.setattr(files.time, "time", lambda: 3600 * hours[0])
    return hours


@pytest.mark.parametrize("keep", [False, True])
def test_files_go_a_day_after_they_were_made_unless_they_are_kept(tmp_path, clock, keep):
    foreign = tmp_path / "mine" / "holiday"
    foreign.mkdir(parents=True)
    folders = SessionFolders(tmp_path, keep=keep)
    first = folders.new("one")
    (first / "song.mid").write_bytes(b"")
    clock[0] = 23
    second = folders.new("one")
    assert first.exists()
    clock[0] = 25
    third = folders.new("other")
    assert first.exists() == keep
    assert second.exists()
    assert third.parent != second.parent
    clock[0] = 100
    folders.new("other")
    assert second.parent.exists() == keep
    assert foreign.exists()


def test_files_go_an_hour_after_their_session(tmp_path, clock):
    folders = SessionFolders(tmp_path, keep=False)
    over, going_on = folders.new("over"), folders.new("going on")
    folders.leave("over")
    clock[0] = 0.9
    folders.new("going on")
    assert over.exists()
    clock[0] = 1.1
    folders.new("going on")
    assert not over.parent.exists()
    assert going_on.exists()


def test_a_session_that_comes_back_has_its_files_as_before(tmp_path, clock):
    """A connection was lost while nothing was done."""
    folders = SessionFolders(tmp_path, keep=False)
    mine = folders.new("me")
    folders.leave("me")
    clock[0] = 0.5
    folders.back("me")
    clock[0] = 23
    folders.new("other")
    assert mine.exists()
    clock[0] = 25
    folders.new("other")
    assert not mine.exists()


@pytest.mark.parametrize("keep", [False, True])
def test_nothing_is_remembered_of_what_is_gone_or_kept(tmp_path, clock, keep):
    folders = SessionFolders(tmp_path, keep=keep)
    for number in range(50):
        clock[0] += 1
        folders.new(f"session {number}")
        folders.leave(f"session {number}")
        folders.leave(f"nobody {number}")
    assert len(folders._made) <= 2
    assert len(folders._left) <= 2


def test_the_name_of_a_folder_tells_nothing_of_the_session(tmp_path):
    one, other = (SessionFolders(tmp_path / name, keep=False).new("x/../y") for name in "ab")
    assert one.parent.name != other.parent.name
    assert one.parent.parent == tmp_path / "a"


def kept_job(folder, day, session, number, age_days, size):
    job = folder / f"2026-01-{day:02d}-abc_1234" / (str(session) * 16) / f"{number:03d}"
    job.mkdir(parents=True)
    file = job / "song.mid"
    file.write_bytes(b"x" * size)
    for path in (file, job, job.parent, job.parent.parent):
        os.utime(path, (time.time() - 86_400 * age_days,) * 2)
    return job


def test_old_music_is_removed_by_age_and_by_size_and_nothing_else_is(tmp_path):
    mine = tmp_path / "2026-01-01-holiday" / "photos" / "001"
    mine.mkdir(parents=True)
    (mine / "me.jpg").write_bytes(b"x" * 9000)
    for path in (mine / "me.jpg", mine):
        os.utime(path, (0, 0))
    old = kept_job(tmp_path, 1, 1, 1, age_days=9, size=10)
    middle = kept_job(tmp_path, 2, 2, 1, age_days=3, size=50_000)
    young = kept_job(tmp_path, 2, 3, 2, age_days=1, size=50_000)
    newest = kept_job(tmp_path, 3, 4, 1, age_days=0, size=50_000)
    assert prune(tmp_path, None, None) == []
    assert prune(tmp_path, 5, None) == [old]
    assert not old.parent.parent.exists()
    assert prune(tmp_path, 5, 120_000) == [middle]
    assert not middle.parent.exists()
    assert young.exists()
    assert prune(tmp_path, 0.5, 1) == [young]
    assert newest.exists()  # whatever its size
    assert prune(tmp_path, 0.5, 1) == []
    assert (mine / "me.jpg").exists()


def test_a_folder_that_is_in_use_stays(tmp_path):
    jobs = [kept_job(tmp_path, 1, 1, number, age_days=0, size=50_000) for number in (1, 2)]
    assert len(prune(tmp_path, None, 75_000)) == 1
    assert jobs[0].parent.exists()


def test_raw_sound_counts_as_what_it_takes_on_the_disk(tmp_path):
    """It lies in a folder of its own, and has holes where it is silent."""
    old, young = (
        kept_job(tmp_path, 1, number, 1, age_days=3 - number, size=10) for number in (1, 2)
    )
    for folder in (old, young):
        raw = folder / f"{files.RAW_SOUND}x"
        raw.mkdir()
        (raw / "whole").write_bytes(b"x" * 100_000)
        with (raw / "silence").open("wb") as file:
            file.truncate(10_000_000)
    taken = files.size_on_disk(old) + files.size_on_disk(young)
    assert 200_000 <= taken < 1_000_000
    assert prune(tmp_path, None, taken) == []
    assert len(prune(tmp_path, None, 150_000)) == 1
