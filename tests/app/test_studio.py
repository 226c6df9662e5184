"""Jobs of the page, from the callbacks of its buttons to the files that they leave."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import mido
import numpy as np
import pytest
import soundfile

from app import continuation, sound
from app import studio as studio_module
from app.options import MusicOptions
from app.studio import waiting
from tokenization.score import Score, Track

REQUEST = SimpleNamespace(session_hash="someone")


def parse(text):
    return [tuple(map(int, row.split(","))) for row in text.split(";") if row]


def compose(calls, upload, *, bars=3, variations=1, seed=7, job=None):
    return list(calls.compose(upload, bars, variations, 1.0, 0.95, seed, job, None, REQUEST))


def test_a_continuation_grows_then_has_files_then_sound(calls, midi, tmp_path):
    upload, *_ = calls.read(str(midi))
    frames = compose(calls, upload, variations=2)
    phases = [frame["phase"] for frame in frames]
    assert phases[0] == "composing"
    assert phases[-3:] == ["rendering", "rendering", "done"]
    assert len({frame["job"] for frame in frames}) == 1
    last = frames[-1]
    assert len(last["variations"]) == 2
    for index, variation in enumerate(last["variations"]):
        stem = f"My-prompt_a4_fake_b3_s{7 + index}_T1.00_p0.95_v{index + 1}"
        assert Path(variation["midi"]).name == f"{stem}.mid"
        assert Path(variation["new_midi"]).name == f"{stem}_new_part.mid"
        assert Path(variation["audio"]).name == f"{stem}.flac"
        said = f"seed {7 + index} · asked for 3 bars after bar 4 · T 1.00 · top-p 0.95 · "
        assert variation["settings"].startswith(said)
        assert Path(variation["midi"]).is_relative_to(tmp_path / "out")
        assert mido.MidiFile(variation["midi"]).length > mido.MidiFile(variation["new_midi"]).length
        assert soundfile.info(variation["audio"]).duration > 10
    assert not list((tmp_path / "out").rglob(".*"))


def test_a_piece_from_nothing_has_no_new_part(calls):
    last = compose(calls, None)[-1]
    assert "prompt" not in last
    assert "new_midi" not in last["variations"][0]
    assert last["title"] == "A new piece"


def test_the_same_seed_gives_the_same_file(calls, midi):
    upload, *_ = calls.read(str(midi))
    first, second = (Path(compose(calls, upload)[-1]["variations"][0]["midi"]) for _ in range(2))
    assert first != second
    assert first.read_bytes() == second.read_bytes()


def test_stop_keeps_what_is_there(calls, studio, midi):
    upload, *_ = calls.read(str(midi))
    job, seed, frame, *_ = calls.begin(upload, 5, False, 16, REQUEST)
    assert (seed, frame["phase"]) == (5, "waiting")
    frames = calls.compose(upload, 400, 1, 1.0, 0.95, seed, job, None, REQUEST)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    calls.stop_job(REQUEST)
    last = list(frames)[-1]
    assert last["phase"] == "done"
    assert 0 < len(parse(last["variations"][0]["tracks"][0]["notes"])) < 2000
    assert not studio.stop("someone")  # nothing left to stop


def test_a_job_stopped_while_it_waits_writes_nothing(calls, midi, tmp_path):
    upload, *_ = calls.read(str(midi))
    job, *_ = calls.begin(upload, 5, False, 16, REQUEST)
    calls.stop_job(REQUEST)
    (last,) = compose(calls, upload, job=job)
    assert "nothing to keep" in last["alert"]
    assert not (tmp_path / "out").exists()


def test_a_job_that_the_queue_has_no_room_for_leaves_the_player_as_it_was(calls, midi):
    upload, *_ = calls.read(str(midi))
    for prompt, phase in ((upload, "prompt"), (None, "empty")):
        job, *_ = calls.begin(prompt, 5, False, 16, REQUEST)
        frame, *buttons = calls.end(prompt, job)  # without `compose`: Gradio has refused it
        assert frame["phase"] == phase
        assert "try again" in frame["alert"]
        assert [button.visible for button in buttons] == [True, False, True, False]
        assert not calls.studio.stop("someone")


def test_the_end_of_a_job_leaves_its_music_in_the_player(calls):
    job, *_ = calls.begin(None, 5, False, 16, REQUEST)
    compose(calls, None, job=job)
    assert calls.end(None, job)[0] == gr.skip()


def test_stop_ends_all_jobs_of_a_session_and_none_that_is_asked_for_later(studio):
    jobs = [studio.begin("one"), studio.begin("one")]
    other = studio.begin("other")
    assert studio.stop("one")
    assert [job.is_set() for job in [*jobs, other, studio.begin("one")]] == [
        True,
        True,
        False,
        False,
    ]


def test_closing_the_tab_ends_a_job_that_runs_and_it_writes_nothing(calls, studio, tmp_path):
    job, *_ = calls.begin(None, 5, False, 400, REQUEST)
    frames = calls.compose(None, 400, 1, 1.0, 0.95, 5, job, None, REQUEST)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    calls.leave(REQUEST)
    assert not studio.stop("someone")  # it is over
    assert [frame["phase"] for frame in frames if frame["phase"] != "composing"] == []
    assert not list(tmp_path.rglob("*.mid"))


def test_closing_the_tab_ends_a_job_that_waits_and_none_of_others(calls, studio, model, tmp_path):
    other = studio.begin("other")
    job, *_ = calls.begin(None, 5, False, 16, REQUEST)
    calls.leave(REQUEST)
    assert (job.is_set(), other.is_set()) == (True, False)
    (last,) = compose(calls, None, job=job)  # its turn comes all the same
    assert "nothing to keep" in last["alert"]
    assert not model.ended
    assert not list(tmp_path.rglob("*.mid"))


@pytest.mark.parametrize("end", ["stop_job", "leave"])
def test_sound_that_is_not_made_yet_is_left_out_after_stop(calls, end):
    job, *_ = calls.begin(None, 5, False, 2, REQUEST)
    frame = {}
    for frame in calls.compose(None, 2, 3, 1.0, 0.95, 5, job, None, REQUEST):
        if "variation 2" in frame.get("line", ""):
            getattr(calls, end)(REQUEST)
    assert (frame["phase"], frame["status"]) == ("done", "Stopped.")
    assert ["audio" in row for row in frame["variations"]] == [True, False, False]
    assert all(Path(row["midi"]).is_file() for row in frame["variations"])


def test_music_that_is_stopped_while_it_is_written_has_its_sound(calls):
    job, *_ = calls.begin(None, 5, False, 400, REQUEST)
    frames = calls.compose(None, 400, 1, 1.0, 0.95, 5, job, None, REQUEST)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    calls.stop_job(REQUEST)
    assert "audio" in list(frames)[-1]["variations"][0]


def test_a_variation_without_sound_leaves_the_others_theirs(calls, monkeypatch):
    render = sound.render
    results = iter([None, sound.SoundError("it is too long"), None])

    def some(score):
        if error := next(results):
            raise error
        return render(score)

    monkeypatch.setattr(sound, "render", some)
    last = compose(calls, None, variations=3)[-1]
    assert (last["phase"], last["alert"]) == ("done", "it is too long")
    assert ["audio" in row for row in last["variations"]] == [True, False, True]


def test_closing_the_tab_ends_the_work(calls, studio, model, monkeypatch):
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


def test_two_sessions_stop_each_their_own_and_share_no_folder(studio, tmp_path):
    studio.begin("one")
    studio.begin("other")
    assert studio.stop("one")
    piece = list(studio.compose("other", None, MusicOptions(bars=2, seed=1)))[-1]
    assert piece["phase"] == "done"
    list(studio.compose("../../third", None, MusicOptions(bars=2, seed=1)))
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(folders) == 2
    assert all(len(name) == 16 and name.isalnum() for name in folders)


def test_what_goes_wrong_is_said_in_the_player(calls, monkeypatch):
    def broken(*_, **__):
        raise sound.SoundError("there is no sound font")

    monkeypatch.setattr(sound, "render", broken)
    last = compose(calls, None)[-1]
    assert last["phase"] == "done"
    assert last["alert"] == "there is no sound font"
    assert Path(last["variations"][0]["midi"]).exists()


def test_a_bug_is_shown_and_raised(calls, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(continuation, "generate_piece", broken)
    frames = calls.compose(None, 2, 1, 1.0, 0.95, 1, None, None, REQUEST)
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(frames)
    assert "log" in seen[-1]["alert"]


def test_a_new_seed_is_drawn_and_told_unless_one_is_kept(calls):
    _, kept, _, *buttons = calls.begin(None, 42, False, 16, REQUEST)
    assert kept == 42
    assert [button.visible for button in buttons] == [False, True, False, True]
    _, *buttons = calls.end(None, None)
    assert [button.visible for button in buttons] == [True, False, True, False]
    assert buttons[0].interactive is False
    seeds = {calls.begin(None, 42, True, 16, REQUEST)[1] for _ in range(3)}
    assert len(seeds | {42}) == 4


def test_wav_is_made_of_the_studios_own_sounds_only(calls, studio, tmp_path, monkeypatch):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (9000, 2)).astype(np.float32)
    monkeypatch.setattr(sound, "render", lambda _: sound.Audio(noise, 8000, "builtin"))
    flac = compose(calls, None)[-1]["variations"][0]["audio"]
    wav = studio.wav(flac)
    samples, original = (soundfile.read(path, dtype="int16")[0] for path in (wav, flac))
    np.testing.assert_array_equal(samples, original)
    outside = tmp_path / "secret.flac"
    outside.write_bytes(Path(flac).read_bytes())
    inside = f"{Path(flac).parent}/../../../secret.flac"
    for path in (str(outside), inside, flac.replace(".flac", ".mid"), "/etc/passwd", ""):
        with pytest.raises(ValueError, match="not a sound"):
            studio.wav(path)


def test_a_wav_that_two_ask_for_at_once_is_made_once_and_whole(calls, studio, monkeypatch):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (9000, 2)).astype(np.float32)
    monkeypatch.setattr(sound, "render", lambda _: sound.Audio(noise, 8000, "builtin"))
    flac = compose(calls, None)[-1]["variations"][0]["audio"]
    made, decode = [], studio_module._decode

    def slowly(source, target):
        made.append(target)
        time.sleep(0.1)
        decode(source, target)

    monkeypatch.setattr(studio_module, "_decode", slowly)
    with ThreadPoolExecutor(4) as threads:
        paths = set(threads.map(lambda _: studio.wav(flac), range(4)))
    assert len(paths) == len(made) == 1
    assert soundfile.info(paths.pop()).frames == 9000


def test_the_player_waits_with_the_prompt_in_sight(calls, midi):
    upload, *_ = calls.read(str(midi))
    frame = waiting(upload, 7)
    assert frame.get("phase") == "waiting"
    assert frame.get("prompt", {}).get("tracks")
    assert [waiting(None, bars).get("timeline", {}).get("end") for bars in (7, 16)] == [28, 64]


def test_the_written_file_begins_with_the_upload(calls, midi):
    upload, *_ = calls.read(str(midi))
    whole = compose(calls, upload)[-1]["variations"][0]["midi"]
    before = [m for m in mido.MidiFile(midi).tracks[1] if not m.is_meta]
    after = mido.MidiFile(file=io.BytesIO(Path(whole).read_bytes())).tracks[1]
    assert [m for m in after if not m.is_meta][: len(before)] == before
