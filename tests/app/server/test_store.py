"""Whose files can still be asked for, and how long raw sound stays on the disk."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from app.audio import stems
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.files import RAW_SOUND
from app.server import store as kept
from app.server.job import PROMPT_ALONE, Job
from app.server.store import KeptJobs
from app.server.studio import Studio
from app.server.uploads import read_upload
from tests.app.conftest import two_hands
from tokenization.midi import write_midi

if TYPE_CHECKING:
    from pathlib import Path

    from app.server.uploads import Upload

REAL = stems.render


class Silent:
    """A job of which nothing is heard."""

    is_there = True

    def __init__(self, name: str) -> None:
        self.id = name
        self.sound = self
        self.raw: dict[int, object] = {}

    def drop(self) -> None:
        """There is nothing to drop."""


def ids_of(jobs: KeptJobs, names: list[str]) -> list[str]:
    found = []
    for name in names:
        try:
            jobs.get(name)
        except LookupError:
            continue
        found.append(name)
    return found


@given(noise=st.integers(0, 60), quiet=st.integers(1, 5))
def test_one_session_takes_no_room_of_another(noise, quiet):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "MOST_OF_SESSION", 8)
        patch.setattr(kept, "MOST_JOBS", 12)
        jobs = KeptJobs()
        mine = [f"mine {number}" for number in range(quiet)]
        for name in mine:
            jobs.add("me", cast("Job", Silent(name)))
        others = [f"other {number}" for number in range(noise)]
        for number, name in enumerate(others):
            jobs.add(f"other {number % 2}", cast("Job", Silent(name)))
        assert ids_of(jobs, mine) == mine
        left = ids_of(jobs, others)
        assert left == others[len(others) - len(left) :]
        assert len(left) == min(noise, 12 - quiet)


def test_what_was_used_stays_longest(monkeypatch):
    monkeypatch.setattr(kept, "MOST_OF_SESSION", 3)
    jobs = KeptJobs()
    for name in "abc":
        jobs.add("me", cast("Job", Silent(name)))
    jobs.get("a")
    jobs.add("me", cast("Job", Silent("d")))
    assert ids_of(jobs, list("abcd")) == ["a", "c", "d"]


@pytest.fixture
def heard(model, tmp_path, monkeypatch) -> Studio:
    """A studio whose sound is real."""
    monkeypatch.setattr(stems, "render", partial(REAL, sample_rate=8000))
    return Studio(Models.only(model), tmp_path / "out", keep=True)


@pytest.fixture
def upload(heard, tmp_path) -> Upload:
    path = tmp_path / "two hands.mid"
    path.write_bytes(write_midi(two_hands(2)))
    return read_upload(path, 10_000, heard.models)


def raw_of(folder: Path) -> list[Path]:
    return list(folder.rglob(f"{RAW_SOUND}*"))


def played(studio: Studio, upload: Upload, session: str = "me") -> str:
    """The id of an upload that was heard."""
    job = studio.opened(session, upload).id
    studio.mix(job, PROMPT_ALONE, ())
    return job


def test_a_mute_works_after_the_raw_sound_was_dropped(heard, upload, tmp_path, monkeypatch):
    job = played(heard, upload)
    assert len(raw_of(tmp_path)) == 1
    monkeypatch.setattr(kept, "RAW_SECONDS", 0.0)
    time.sleep(0.01)
    heard._kept.tidy()
    assert raw_of(tmp_path) == []
    whole = heard.mix(job, PROMPT_ALONE, ())  # its file is there
    assert raw_of(tmp_path) == []
    muted, _ = soundfile.read(heard.mix(job, PROMPT_ALONE, {0}))
    assert muted.any()
    assert (muted != soundfile.read(whole)[0]).any()
    archive = heard.file(job, PROMPT_ALONE, "stems")
    heard._kept.tidy()
    assert heard.file(job, PROMPT_ALONE, "stems") == archive


def test_raw_sound_that_is_not_used_goes_by_itself(heard, upload, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "RAW_SECONDS", 0.1)
    played(heard, upload)
    assert len(raw_of(tmp_path)) == 1
    until = time.monotonic() + 10
    while raw_of(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert heard._kept._later is None or not heard._kept._later.finished.wait(0)


@pytest.mark.parametrize("limit", ["MOST_RAW_OF_SESSION", "MOST_RAW"])
def test_raw_sound_has_so_much_room_and_the_newest_stays(
    heard, upload, tmp_path, monkeypatch, limit
):
    first = played(heard, upload)
    (size,) = [raw.size for raw in heard._kept.get(first)[1].sound.raw.values()]
    assert size > 100_000
    monkeypatch.setattr(kept, limit, int(2.5 * size))
    sessions = ["me", "me", "you"] if limit == "MOST_RAW_OF_SESSION" else ["me", "you", "them"]
    jobs = [first, *(played(heard, upload, session) for session in sessions)]
    has_raw = [bool(heard._kept.get(job)[1].sound.raw) for job in jobs]
    by_session = limit == "MOST_RAW_OF_SESSION"
    assert has_raw == ([False, True, True, True] if by_session else [False, False, True, True])
    monkeypatch.setattr(kept, limit, 1)
    newest = played(heard, upload)
    assert heard._kept.get(newest)[1].sound.raw


def test_pieces_that_are_made_keep_to_the_room_as_well(heard, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "MOST_RAW_OF_SESSION", 1)
    last = list(heard.compose("me", None, MusicOptions(bars=1, seed=1, variations=3)))[-1]
    assert [row["sound"] for row in last["variations"]] == ["ready"] * 3
    assert len(raw_of(tmp_path)) == 1
    assert heard.mix(last["job"], 0, {0}).is_file()


@pytest.mark.parametrize("how", ["forgotten", "left", "the end", "late"])
def test_no_raw_sound_stays_of_what_is_over(heard, upload, tmp_path, monkeypatch, how):
    job = played(heard, upload)
    found = heard._kept.get(job)[1]
    if how == "forgotten":
        monkeypatch.setattr(kept, "MOST_OF_SESSION", 1)
        heard.opened("me", upload)
    elif how == "left":
        heard.leave("me")
    elif how == "the end":
        heard.stop_all()
    else:  # it was forgotten while its sound was being made
        heard._kept._jobs.clear()
        heard._kept.done(found)
    assert raw_of(tmp_path) == []
    assert found.sound.find(PROMPT_ALONE, "flac") is not None


def test_an_upload_that_nobody_plays_leaves_no_folder(heard, upload, tmp_path):
    jobs = [heard.opened("me", upload) for _ in range(5)]
    assert not (tmp_path / "out").exists()
    assert all(heard.knows(job.id) for job in jobs)
    assert jobs[0].frame("prompt")["prompt"].get("sound") == "ready"
    heard.mix(jobs[3].id, PROMPT_ALONE, ())
    assert len(list((tmp_path / "out").glob("*/*"))) == 1


def test_two_who_play_an_upload_at_once_share_its_folder(heard, upload, tmp_path):
    job = heard.opened("me", upload)
    threads = [
        threading.Thread(target=job.file, args=(PROMPT_ALONE, "midi"), daemon=True)
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list((tmp_path / "out").glob("*/*"))) == 1
