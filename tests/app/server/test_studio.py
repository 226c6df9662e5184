"""Jobs of the page, from an upload to the files of the result."""

from __future__ import annotations

import io
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import mido
import pytest
import soundfile

from app.audio import render as sound
from app.audio import stems
from app.compose import continuation
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.errors import BusyError
from app.server.job import PROMPT_ALONE
from app.server.studio import Sharing, Studio, waiting
from app.server.uploads import read_upload
from tokenization.score import Score, Track

ME = "someone"


def parse(text):
    return [tuple(map(int, row.split(","))) for row in text.split(";") if row]


def composing(studio, upload=None, *, job=None, **how: Any) -> Any:
    options = replace(MusicOptions(bars=3, seed=7), **how)
    return studio.compose(ME, upload, options, job)


def compose(studio, upload=None, **how) -> Any:
    return list(composing(studio, upload, **how))


def read(studio, midi):
    return read_upload(midi, 100_000, studio.models)


def test_a_continuation_grows_then_has_files_then_sound(studio, midi, tmp_path):
    upload = read(studio, midi)
    frames = compose(studio, upload, variations=2)
    phases = [frame["phase"] for frame in frames]
    assert phases[0] == "composing"
    assert phases[-3:] == ["rendering", "rendering", "done"]
    assert len({frame["job"] for frame in frames}) == 1
    last = frames[-1]
    assert len(last["variations"]) == 2
    for index, variation in enumerate(last["variations"]):
        stem = f"My-prompt_a4_fake_b3_s{7 + index}_T1.00_p0.97_v{index + 1}"
        assert Path(variation["midi"]).name == f"{stem}.mid"
        assert Path(variation["new_midi"]).name == f"{stem}_new_part.mid"
        assert Path(variation["audio"]).name == f"{stem}.flac"
        said = f"seed {7 + index} · 3 bars requested after bar 4 · temperature 1.00 · "
        assert variation["settings"].startswith(said)
        assert Path(variation["midi"]).is_relative_to(tmp_path / "out")
        assert mido.MidiFile(variation["midi"]).length > mido.MidiFile(variation["new_midi"]).length
        assert soundfile.info(variation["audio"]).duration > 10
    assert not list((tmp_path / "out").rglob(".*"))


def test_a_piece_from_nothing_has_no_new_part(studio):
    last = compose(studio)[-1]
    assert "prompt" not in last
    assert "new_midi" not in last["variations"][0]
    assert last["title"] == "A new piece"


def test_the_same_seed_gives_the_same_file(studio, midi):
    upload = read(studio, midi)
    first, second = (Path(compose(studio, upload)[-1]["variations"][0]["midi"]) for _ in range(2))
    assert first != second
    assert first.read_bytes() == second.read_bytes()


def test_stop_keeps_the_music_so_far(studio, midi):
    upload = read(studio, midi)
    job = studio.begin(ME)
    frames = composing(studio, upload, job=job, bars=400)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    studio.stop(ME)
    last = list(frames)[-1]
    assert last["phase"] == "done"
    assert 0 < len(parse(last["variations"][0]["tracks"][0]["notes"])) < 2000
    assert not studio.stop("someone")  # nothing left to stop


def test_a_job_stopped_while_it_waits_writes_nothing(studio, midi, tmp_path):
    upload = read(studio, midi)
    job = studio.begin(ME)
    studio.stop(ME)
    (last,) = compose(studio, upload, job=job)
    assert "nothing to keep" in last["alert"]
    assert not (tmp_path / "out").exists()


def test_stop_ends_the_jobs_of_a_session_and_no_later_ones(studio):
    jobs = [studio.begin("one"), studio.begin("one")]
    other = studio.begin("other")
    assert studio.stop("one")
    assert [job.is_set() for job in [*jobs, other, studio.begin("one")]] == [
        True,
        True,
        False,
        False,
    ]


def test_closing_the_tab_ends_a_running_job_and_it_writes_nothing(studio, tmp_path):
    job = studio.begin(ME)
    frames = composing(studio, None, job=job, bars=400)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    studio.leave(ME)
    assert not studio.stop("someone")  # it is over
    assert [frame["phase"] for frame in frames if frame["phase"] != "composing"] == []
    assert not list(tmp_path.rglob("*.mid"))


def test_closing_the_tab_ends_a_waiting_job_and_no_others(studio, model, tmp_path):
    other = studio.begin("other")
    job = studio.begin(ME)
    studio.leave(ME)
    assert (job.is_set(), other.is_set()) == (True, False)
    (last,) = compose(studio, job=job)  # it still gets its turn
    assert "nothing to keep" in last["alert"]
    assert not model.ended
    assert not list(tmp_path.rglob("*.mid"))


def test_closing_the_page_stops_all_jobs(studio):
    jobs = [studio.begin(session) for session in ("one", "other", "other")]
    over = studio.begin("one")
    studio.end(over)
    studio.stop_all()
    assert all(job.is_set() for job in jobs)
    assert not over.is_set()


@pytest.mark.parametrize("end", ["stop", "leave"])
def test_stop_leaves_out_sound_that_is_not_rendered_yet(studio, end):
    job = studio.begin(ME)
    frame = {}
    for frame in composing(studio, None, job=job, bars=2, variations=3):
        if "variation 2" in frame.get("line", ""):
            getattr(studio, end)(ME)
    assert (frame["phase"], frame["status"]) == ("done", "Stopped.")
    assert ["audio" in row for row in frame["variations"]] == [True, False, False]
    assert all(Path(row["midi"]).is_file() for row in frame["variations"])


def test_music_stopped_during_generation_still_gets_sound(studio):
    job = studio.begin(ME)
    frames = composing(studio, None, job=job, bars=400)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    studio.stop(ME)
    assert "audio" in list(frames)[-1]["variations"][0]


def test_a_variation_without_sound_does_not_affect_the_others(studio, monkeypatch):
    render = stems.render
    results = iter([None, sound.SoundError("it is too long"), None])

    def some(*told, **more):
        if error := next(results):
            raise error
        return render(*told, **more)

    monkeypatch.setattr(stems, "render", some)
    last = compose(studio, variations=3)[-1]
    assert (last["phase"], last["alert"]) == ("done", "it is too long")
    assert ["audio" in row for row in last["variations"]] == [True, False, True]


def test_closing_the_tab_ends_the_work(studio, model, monkeypatch):
    ended = []

    def endless(*_):
        try:
            while True:
                score = Score(12, (Track.of([(0, 12, 60, 80)]),))
                yield continuation.Progress(0, 16, 1, 1, 1.0, (score,))
        finally:
            ended.append(True)

    monkeypatch.setattr(continuation, "generate_piece", endless)
    frames = studio.compose("someone", None, MusicOptions(seed=1))
    for _ in range(3):
        next(frames)
    frames.close()
    assert ended
    assert not studio.stop("someone")


def test_sessions_stop_only_their_own_jobs_and_share_no_folder(studio, tmp_path):
    studio.begin("one")
    studio.begin("other")
    assert studio.stop("one")
    piece = list(studio.compose("other", None, MusicOptions(bars=2, seed=1)))[-1]
    assert piece["phase"] == "done"
    list(studio.compose("../../third", None, MusicOptions(bars=2, seed=1)))
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(folders) == 2
    assert all(len(name) == 16 and name.isalnum() for name in folders)


def test_an_error_of_the_sound_is_shown_in_the_player(studio, monkeypatch):
    def broken(*_, **__):
        raise sound.SoundError("there is no sound font")

    monkeypatch.setattr(stems, "render", broken)
    last = compose(studio)[-1]
    assert last["phase"] == "done"
    assert last["alert"] == "there is no sound font"
    assert Path(last["variations"][0]["midi"]).exists()


def test_a_failure_of_the_sound_never_discards_the_music(studio, monkeypatch, caplog):
    def broken(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(stems, "render", broken)
    last = compose(studio, variations=2)[-1]
    assert last["phase"] == "done"
    assert last["alert"].startswith("The sound could not be rendered (see the program's log)")
    for row in last["variations"]:
        assert row["sound"] == "none"
        assert Path(row["midi"]).read_bytes()[:4] == b"MThd"
        assert studio.file(last["job"], 0, "midi").is_file()
    assert len([record for record in caplog.records if record.exc_info]) == 2


def test_a_session_that_comes_back_soon_has_its_files(studio, monkeypatch):
    monkeypatch.setattr("app.server.store.LEFT_SECONDS", 0.05)
    jobs = [compose(studio)[-1]["job"] for _ in range(2)]
    studio.leave(ME)
    studio.back(ME)
    time.sleep(0.1)
    studio.folders.new("other")  # expired folders are removed now
    assert studio.file(jobs[0], 0, "midi").is_file()
    studio.leave(ME)
    time.sleep(0.1)
    studio.folders.new("other")
    with pytest.raises(LookupError):
        studio.file(jobs[0], 0, "midi")


def test_the_waiting_player_shows_the_prompt(studio, midi):
    upload = read(studio, midi)
    frame = waiting(upload, 7)
    assert frame.get("phase") == "waiting"
    assert frame.get("prompt", {}).get("tracks")
    assert [waiting(None, bars).get("timeline", {}).get("end") for bars in (7, 16)] == [28, 64]


def test_the_continued_file_begins_with_the_upload(studio, midi):
    upload = read(studio, midi)
    whole = compose(studio, upload)[-1]["variations"][0]["midi"]
    before = [m for m in mido.MidiFile(midi).tracks[1] if not m.is_meta]
    after = mido.MidiFile(file=io.BytesIO(Path(whole).read_bytes())).tracks[1]
    assert [m for m in after if not m.is_meta][: len(before)] == before


def test_a_job_that_takes_too_long_is_ended_and_its_music_is_kept(model, tmp_path):
    limited = Studio(Models.only(model), tmp_path, sharing=Sharing(max_seconds=0.2))
    last = compose(limited, bars=400)[-1]
    assert last["alert"].startswith("The job was stopped after 0.2 s, the time limit of this page")
    assert 0 < len(parse(last["variations"][0]["tracks"][0]["notes"])) < 4000
    assert "audio" in last["variations"][0]
    assert "alert" not in compose(limited, bars=1)[-1]


def test_compilation_does_not_count_towards_the_time_limit(model, tmp_path, monkeypatch):
    def preparing():
        for _ in range(5):
            time.sleep(0.1)
            yield

    monkeypatch.setattr(model, "preparing", preparing, raising=False)
    limited = Studio(Models.only(model), tmp_path, sharing=Sharing(max_seconds=0.4))
    last = compose(limited, bars=1)[-1]
    assert last["phase"] == "done"
    assert "alert" not in last


def test_a_job_that_ends_before_its_first_note_says_why(model, tmp_path):
    """The time limit passes while a long prompt is read."""
    limited = Studio(Models.only(model), tmp_path, sharing=Sharing(max_seconds=0.0))

    def reading(*_):
        for _ in range(50):
            yield continuation.Progress(0, 16, 0, 0, 0.0, ())
            time.sleep(0.01)
        yield continuation.Result(())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(continuation, "generate_piece", reading)
        last = compose(limited)[-1]
    assert last["alert"].startswith("The job was stopped after 0 s, the time limit of this ")
    assert last["alert"].endswith("page: there is nothing to keep.")


def test_waiting_jobs_show_their_place_and_too_many_are_refused(model, tmp_path, monkeypatch):
    small = Studio(Models.only(model), tmp_path, sharing=Sharing(max_rows=1, max_waiting=2))
    first = composing(small, bars=400)
    while not next(first)["variations"][0]["tracks"]:
        pass
    waits = [composing(small, bars=1) for _ in range(2)]
    frame = {}
    for place, frames in enumerate(waits, 1):
        assert next(frames)["phase"] == "composing"
        frame = next(frames)
        said = "you are next" if place == 1 else f"{place - 1} job{'s' * (place > 2)} before yours"
        assert (frame["phase"], frame["line"]) == ("waiting", f"Waiting for the fake model: {said}")
    with pytest.raises(BusyError, match="The queue for"):
        compose(small, bars=1)
    assert small.health()["jobs"] == {"running": 1, "waiting": 2}
    monkeypatch.setattr("app.server.scheduler._SharedModel.seconds_left", lambda *_: 130.0)
    (told,) = {next(waits[1])["line"]}
    assert told == "Waiting for the fake model: 1 job before yours, about 2 min"
    first.close()
    for frames in waits:
        assert list(frames)[-1]["phase"] == "done"
    assert small.health()["jobs"] == {"running": 0, "waiting": 0}


def test_generation_does_not_wait_for_the_sound_of_others(studio, monkeypatch):
    """While the sound of one job is rendered, another generates; only its sound waits."""
    going, render = threading.Event(), stems.render

    def slow(*told, **more):
        assert going.wait(30)
        return render(*told, **more)

    monkeypatch.setattr(stems, "render", slow)
    with ThreadPoolExecutor(2) as threads:
        one, other = composing(studio), composing(studio)
        while next(one)["phase"] != "rendering":
            pass
        works = [threads.submit(list, one)]
        while next(other)["phase"] != "rendering":
            pass
        assert not works[0].done()
        works.append(threads.submit(list, other))
        going.set()
        assert all("audio" in work.result(30)[-1]["variations"][0] for work in works)


def test_files_are_requested_by_job_variation_and_kind(studio, midi):
    upload = read(studio, midi)
    job = compose(studio, upload, variations=2)[-1]["job"]
    assert studio.file(job, 1, "midi").read_bytes()[:4] == b"MThd"
    assert studio.file(job, 0, "flac").suffix == ".flac"
    assert studio.mix(job, 0, {0}) != studio.mix(job, 0, set())
    for wrong in ((job[:-1], 0, "midi"), ("", 0, "midi"), (job, 2, "midi"), (job, 0, "../x")):
        with pytest.raises(LookupError):
            studio.file(*wrong)
    opened = studio.opened(ME, upload)
    assert opened.id != job
    assert len(opened.id) == 32
    assert studio.mix(opened.id, PROMPT_ALONE, ())[0].exists()


def test_removed_files_are_reported(studio, monkeypatch):
    monkeypatch.setattr("app.server.store.MOST_JOBS", 2)
    jobs = [compose(studio)[-1]["job"] for _ in range(3)]
    with pytest.raises(LookupError, match="its files were removed"):
        studio.file(jobs[0], 0, "midi")
    shutil.rmtree(studio.file(jobs[1], 0, "midi").parent)
    with pytest.raises(LookupError, match="its files were removed"):
        studio.file(jobs[1], 0, "midi")
    assert studio.file(jobs[2], 0, "midi").exists()
