"""Jobs of the page, from an upload to the files of the result."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mido
import pytest
import soundfile

from app.compose import continuation
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.errors import BusyError
from app.server import studio as studios
from app.server.job import PROMPT_ALONE
from app.server.studio import Sharing, Studio, waiting
from app.server.uploads import read_upload
from tokenization.score import Score, Track

ME = "someone"


def composing(studio, upload=None, *, job=None, who=ME, **how: Any) -> Any:
    options = replace(MusicOptions(bars=3, seed=7, takes=1), **how)
    return studio.compose(who, upload, options, job)


def compose(studio, upload=None, **how) -> Any:
    return list(composing(studio, upload, **how))


def until_music(frames):
    """Skip frames until one has notes."""
    while not next(frames)["variations"][0]["tracks"]:
        pass


@pytest.fixture
def upload(studio, midi):
    return read_upload(midi, 100_000, studio.models)


def test_a_continuation_grows_then_has_files(studio, upload, midi, tmp_path):
    frames = compose(studio, upload, variations=2)
    phases = [frame["phase"] for frame in frames]
    assert phases[0] == "composing"
    assert phases[-2:] == ["composing", "done"]
    assert len({frame["job"] for frame in frames}) == 1
    last = frames[-1]
    assert len(last["variations"]) == 2
    for index, variation in enumerate(last["variations"]):
        stem = f"My-prompt_a4_fake_b3_s{7 + index}_T1.00_p0.97_n1_v{index + 1}"
        assert Path(variation["midi"]).name == f"{stem}.mid"
        assert Path(variation["new_midi"]).name == f"{stem}_new_part.mid"
        sound = studio.file(last["job"], index, "flac")
        assert sound.name == f"{stem}.flac"
        settings = f"seed {7 + index} · 3 bars requested after bar 4 · temperature 1.00 · "
        assert variation["settings"].startswith(settings)
        assert Path(variation["midi"]).is_relative_to(tmp_path / "out")
        assert mido.MidiFile(variation["midi"]).length > mido.MidiFile(variation["new_midi"]).length
        assert soundfile.info(sound).duration > 10
    assert not list((tmp_path / "out").rglob(".*"))
    # the same seed gives the same file, which begins with the upload
    path = Path(last["variations"][0]["midi"])
    again = Path(compose(studio, upload, variations=2)[-1]["variations"][0]["midi"])
    assert again != path
    assert again.read_bytes() == path.read_bytes()
    before, after = ([m for m in mido.MidiFile(p).tracks[1] if not m.is_meta] for p in (midi, path))
    assert after[: len(before)] == before


def test_stop_keeps_the_music_so_far(studio, upload):
    frames = composing(studio, upload, job=studio.begin(ME), bars=400)
    until_music(frames)
    assert studio.stop(ME)
    last = list(frames)[-1]
    assert (last["phase"], last["status"]) == ("done", "Ready to play.")
    (row,) = last["variations"]
    assert 0 < row["tracks"][0]["notes"].count(";") < 2000
    assert not studio.stop(ME)  # nothing left to stop


def test_stop_and_closed_tabs_end_the_jobs_of_a_session_and_no_others(
    studio, tmp_path, monkeypatch
):
    monkeypatch.setattr(studios, "LAST_SECONDS", 0.0)
    for end in (studio.stop, studio.leave, lambda _: studio.stop_all()):
        jobs = [studio.begin("one"), studio.begin("one")]
        over, other = studio.begin("one"), studio.begin("other")
        assert [studio.end(over), studio.end(over)] == [True, False]
        end("one")
        ended = [job.is_set() for job in (*jobs, over, studio.begin("one"))]
        assert ended == [True, True, False, False]
        assert other.is_set() is (end not in (studio.stop, studio.leave))
        (last,) = compose(studio, job=jobs[0], who="one")  # it still gets its turn
        assert "nothing to keep" in last["alert"]
    assert not (tmp_path / "out").exists()
    for who in ("other", "../../third"):
        assert compose(studio, who=who)[-1]["phase"] == "done"
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert len(names) == 2
    assert all(len(name) == 16 and name.isalnum() for name in names)


def test_a_closed_tab_ends_a_running_job_and_it_writes_nothing(studio, model, tmp_path):
    frames = composing(studio, job=studio.begin(ME), bars=400)
    until_music(frames)
    studio.leave(ME)
    assert not studio.stop(ME)  # it is over
    assert all(frame["phase"] == "composing" for frame in frames)
    frames = composing(studio, bars=400)
    until_music(frames)
    frames.close()
    assert not studio.stop(ME)
    assert len(model.ended) == 2
    assert not list(tmp_path.rglob("*.mid"))


def test_a_job_that_takes_too_long_is_ended_and_its_music_is_kept(model, tmp_path, monkeypatch):
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(studios, "time", clock)
    limited = Studio(Models.only(model), tmp_path, sharing=Sharing(max_seconds=20))
    last = compose(limited, bars=400)[-1]
    assert last["alert"].startswith("The job was stopped after 20 s, the time limit of this page")
    assert 0 < last["variations"][0]["tracks"][0]["notes"].count(";") < 100
    # the time of compilation does not count
    monkeypatch.setattr(model, "preparing", lambda: iter([None] * 30), raising=False)
    limited = Studio(Models.only(model), tmp_path, sharing=Sharing(max_seconds=40))
    assert "alert" not in compose(limited, bars=1)[-1]

    def reading(*_):
        for _ in range(50):
            yield continuation.Progress(0, 16, 0, 0, 0.0, (Score(12, (Track.of([]),)),))

    monkeypatch.setattr(continuation, "generate_piece", reading)
    *frames, last = compose(limited)
    assert {frame["line"] for frame in frames[-9:]} == {"Starting …"}
    assert last["alert"].startswith("The job was stopped after 40 s, the time limit of this ")
    assert last["alert"].endswith("page: there is nothing to keep.")


def test_waiting_jobs_show_their_place_and_too_many_are_refused(model, tmp_path, monkeypatch):
    small = Studio(Models.only(model), tmp_path, sharing=Sharing(max_rows=1, max_waiting=2))
    first = composing(small, bars=400)
    until_music(first)
    waits = [composing(small, bars=1) for _ in range(2)]
    for frames, place in zip(waits, ("you are next", "1 job before yours"), strict=True):
        assert next(frames)["phase"] == "composing"
        frame = next(frames)
        line = f"Waiting for the fake model: {place}"
        assert (frame["phase"], frame["line"]) == ("waiting", line)
    with pytest.raises(BusyError, match="The queue for"):
        compose(small, bars=1)
    health = small.health()
    assert (health["models"], health["jobs"]) == (["fake"], {"running": 1, "waiting": 2})
    monkeypatch.setattr("app.server.scheduler._SharedModel.seconds_left", lambda *_: 130.0)
    line = next(waits[1])["line"]
    assert line == "Waiting for the fake model: 1 job before yours, about 2 min"
    first.close()
    for frames in waits:
        assert list(frames)[-1]["phase"] == "done"
    assert small.health()["jobs"] == {"running": 0, "waiting": 0}


def test_files_are_requested_by_job_variation_and_kind_until_they_are_removed(
    studio, upload, monkeypatch
):
    job = compose(studio, upload, variations=2)[-1]["job"]
    assert studio.file(job, 1, "midi").read_bytes()[:4] == b"MThd"
    assert studio.file(job, 0, "flac").suffix == ".flac"
    assert studio.file(job, 0, "flac", {0}) != studio.file(job, 0, "flac")
    for wrong in ((job[:-1], 0, "midi"), ("", 0, "midi"), (job, 2, "midi"), (job, 0, "../x")):
        with pytest.raises(LookupError):
            studio.file(*wrong)
    opened = studio.opened(ME, upload)
    assert opened.id != job
    assert len(opened.id) == 32
    assert studio.file(opened.id, PROMPT_ALONE, "flac").exists()
    with monkeypatch.context() as patch:
        patch.setattr("app.server.store.MOST_JOBS", 2)
        last = compose(studio)[-1]["job"]
    with pytest.raises(LookupError, match="its files were removed"):
        studio.file(job, 0, "midi")  # the oldest one was forgotten
    monkeypatch.setattr("app.server.store.KEPT_SECONDS", -1.0)
    studio.folders.new("other")  # expired folders are removed now
    assert not studio.knows(last)


def test_music_that_is_heard_while_it_is_written_does_not_change(studio, upload, monkeypatch):
    monkeypatch.setattr(studios, "FRAME_SECONDS", 0.0)
    monkeypatch.setattr(continuation, "SECONDS_BETWEEN_REPORTS", 0.0)
    for how in ({}, {"takes": 3, "bars": 6}):
        options = replace(MusicOptions(bars=3, seed=7, takes=1), **how)
        frames = list(studio.compose(ME, upload, options, listens=True))
        assert all(frame["listens"] for frame in frames)
        writing = [frame for frame in frames if "written" in frame]
        written = [frame["written"] for frame in writing]
        assert written == sorted(written)
        assert any(frame["timeline"]["end"] > frame["written"] > 16 for frame in writing), how
        last = notes_until(frames[-1], 1e9)
        for frame in writing:
            assert notes_until(frame, frame["written"]) == notes_until(frames[-1], frame["written"])
        assert last
    again = compose(studio, upload, takes=3, bars=6, rank_every=4)
    first, second = (
        Path(frames[-1]["variations"][0]["midi"]).read_bytes() for frames in (frames, again)
    )
    assert first == second
    assert not any("listens" in frame for frame in again)


def notes_until(frame, beat):
    """Notes of the first variation before a time in quarter notes, with their tracks."""
    return {
        (track["id"], note)
        for track in frame["variations"][0]["tracks"]
        for note in track["notes"].split(";")
        if note and int(note.split(",")[0]) < 96 * beat
    }


def test_a_piece_from_nothing_has_no_new_part_and_the_bars_that_are_waited_for(studio, upload):
    frames = compose(studio)
    assert "prompt" not in frames[-1]
    assert "new_midi" not in frames[-1]["variations"][0]
    assert frames[-1]["title"] == "A new piece"
    # the player shows the bars that are waited for
    frame = waiting(upload, 7)
    assert (frame.get("phase"), len(frame.get("prompt", {})["tracks"])) == ("waiting", 2)
    assert [waiting(None, bars).get("timeline", {}).get("end") for bars in (7, 16)] == [28, 64]
