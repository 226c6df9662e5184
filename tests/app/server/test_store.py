"""The jobs whose files can be requested, and how long the files are kept."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server import store
from app.server.job import PROMPT_ALONE, Job
from app.server.store import KeptJobs, SessionFolders, prune
from app.server.uploads import read_upload


def ids_of(jobs: KeptJobs) -> list[str]:
    """Jobs that are kept, the least recently used first."""
    return list(jobs._jobs)


def add(jobs: KeptJobs, session: str, name: str, size: int = 0) -> None:
    """Adds a job."""
    job = SimpleNamespace(id=name, size=size, is_available=True)
    jobs.add(session, cast("Job", job))


@given(noise=st.integers(0, 60), quiet=st.integers(1, 4))
def test_a_session_within_its_share_loses_no_job_to_others(noise, quiet):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "MOST_OF_SESSION", 8)
        patch.setattr(store, "MOST_JOBS", 12)
        jobs = KeptJobs()
        mine = [f"mine {number}" for number in range(quiet)]
        others = [f"other {number}" for number in range(noise)]
        for name in mine:
            add(jobs, "me", name)
        for number, name in enumerate(others):
            add(jobs, f"other {number % 2}", name)
        assert ids_of(jobs) == mine + others[-min(noise, 12 - quiet) :] * bool(noise)


def test_the_least_recently_used_job_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(store, "MOST_OF_SESSION", 3)
    jobs = KeptJobs()
    for name in "abc":
        add(jobs, "me", name)
    assert jobs.get("a")[0] == "me"
    add(jobs, "me", "d")
    assert ids_of(jobs) == ["c", "a", "d"]
    with pytest.raises(LookupError):
        jobs.get("b")


def test_jobs_are_forgotten_when_they_take_too_much_memory(monkeypatch):
    """Of the session that takes too much, or else of the one that takes the most."""
    monkeypatch.setattr(store, "MOST_BYTES_OF_SESSION", 100)
    monkeypatch.setattr(store, "MOST_BYTES", 150)
    jobs = KeptJobs()
    for session, name, size, kept in (
        ("me", "a", 50, "a"),
        ("me", "b", 50, "ab"),
        ("me", "c", 40, "bc"),
        ("you", "x", 60, "bcx"),
        ("you", "y", 30, "cxy"),
        ("us", "large", 500, ["large"]),
    ):
        add(jobs, session, name, size)
        assert ids_of(jobs) == list(kept)


@pytest.fixture
def upload(studio, midi):
    return read_upload(midi, 10_000, studio.models)


def test_an_upload_makes_one_folder_once_it_is_played(studio, upload, tmp_path):
    jobs = [studio.opened("me", upload) for _ in range(5)]
    assert not (tmp_path / "out").exists()
    assert all(studio.knows(job.id) for job in jobs)
    with ThreadPoolExecutor(8) as threads:
        paths = [threads.submit(jobs[3].file, PROMPT_ALONE, "midi") for _ in range(8)]
        assert len({path.result() for path in paths}) == 1
    assert len(list((tmp_path / "out").glob("*/*"))) == 1


@pytest.fixture
def clock(monkeypatch):
    """Hours since the start, set by a test."""
    hours = [0.0]
    monkeypatch.setattr(store.time, "time", lambda: 3600 * hours[0])
    return hours


def test_files_are_removed_after_a_day_unless_they_are_kept(tmp_path, clock):
    for keep in (False, True):
        clock[0] = 0
        root = tmp_path / str(keep)
        foreign = root / "mine" / "holiday"
        foreign.mkdir(parents=True)
        folders = SessionFolders(root, keep=keep)
        first = folders.new("one/../x")
        (first / "song.mid").write_bytes(b"")
        clock[0] = 23
        second = folders.new("one/../x")
        assert first.exists()
        clock[0] = 25
        third = folders.new("other")
        assert first.exists() == keep
        assert second.exists()
        assert third.parent != second.parent
        assert third.parents[1] == second.parents[1] == root
        clock[0] = 100
        folders.new("other")
        assert second.parent.exists() == keep
        assert foreign.exists()
    # names of folders do not reveal those of sessions
    assert second.parent.name != SessionFolders(root, keep=True).new("one/../x").parent.name


def kept_job(folder, day, session, number, age_days, size):
    job = folder / f"2026-01-{day:02d}-abc_1234" / (str(session) * 16) / f"{number:03d}"
    job.mkdir(parents=True)
    file = job / "song.mid"
    file.write_bytes(b"x" * size)
    for path in (file, job, job.parent, job.parent.parent):
        os.utime(path, (time.time() - 86_400 * age_days,) * 2)
    return job


def test_old_music_is_removed_by_age_and_by_size_and_other_files_are_kept(tmp_path):
    mine = tmp_path / "2026-01-01-holiday" / "photos" / "001"
    mine.mkdir(parents=True)
    (mine / "me.jpg").write_bytes(b"x" * 9000)
    for path in (mine / "me.jpg", mine):
        os.utime(path, (0, 0))
    old = kept_job(tmp_path, 1, 1, 1, age_days=9, size=10)
    middle = kept_job(tmp_path, 2, 2, 1, age_days=3, size=50_000)
    young = kept_job(tmp_path, 2, 3, 2, age_days=1, size=50_000)
    newest = kept_job(tmp_path, 3, 4, 1, age_days=0, size=50_000)
    beside = kept_job(tmp_path, 3, 4, 2, age_days=0.1, size=50_000)
    for days, size, removed in (
        (None, None, []),
        (5, None, [old]),
        (5, 170_000, [middle]),
        (0.5, 120_000, [young]),
        (None, 1, [beside]),  # the newest is kept regardless of its size
        (0, 1, []),
    ):
        assert prune(tmp_path, days, size) == removed
    assert not old.parents[1].exists()
    assert not middle.parent.exists()
    assert newest.exists()
    assert (mine / "me.jpg").exists()
