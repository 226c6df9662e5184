"""Frames, file names and settings of a job."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from app.audio import stems
from app.compose import continuation, replay
from app.compose.fill.passage import Passage
from app.compose.models import Models, MusicModel
from app.compose.options import MusicOptions
from app.compose.prompt.prompt import passage_options
from app.server.downloads import SOUND_KINDS
from app.server.job import PROMPT_ALONE, Job
from app.server.studio import Studio
from app.server.uploads import read_upload
from tests.support import fakes
from tests.support.bands import band, model_of
from tests.support.scores import two_hands
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.score import Score, Track


@pytest.fixture
def upload(midi, studio):
    return read_upload(midi, 10_000, studio.models)


def made(studio, upload, **options):
    """The first variation of a finished job: the name of its file, and its settings."""
    frames = studio.compose("one", upload, MusicOptions(bars=3, seed=7, **options))
    row = list(frames)[-1]["variations"][0]
    return Path(row["midi"]).name, row["settings"]


def test_names_and_settings_suffice_to_make_a_piece_again(studio, upload):
    chosen = upload.counted_by("grid").choose(2, 2, frozenset({0}), None)
    name, settings = made(studio, chosen, temperature=0.975, top_p=0.9)
    assert name == "My-prompt_a2_grid_h2_t1_fake_b3_s7_T0.975_p0.90.mid"
    assert settings.startswith(
        "seed 7 · 3 bars requested after bar 2 · beats at 120 bpm · temperature 0.975 · "
        "top-p 0.90 · prompt from bar 2 · prompt tracks: "
    )
    steered = {"top_k": 40, "min_p": 0.05, "key": "F#m", "density": 12.5, "ending": "cadence"}
    name, settings = made(studio, upload, prompt_bars=2, memory=0.5, repetition=0.5, **steered)
    chosen_names = "k40_m0.05_d12.50_r0.50_e0.50_in-F-sharp-m_cadence"
    assert name == f"My-prompt_a4_l2_fake_b3_s7_T1.00_p0.97_{chosen_names}.mid"
    assert settings.startswith(
        "seed 7 · 3 bars requested after bar 4 · temperature 1.00 · top-p 0.97 · prompt of 2 bars "
        "· top-k 40 · min-p 0.05 · density 12.50 · repetition 0.50 · memory 0.50 · in F#m · cadence"
    )
    name, settings = made(studio, None)
    assert name == "fake_b3_s7_T1.00_p0.97.mid"
    assert settings.startswith("seed 7 · 3 bars requested · temperature 1.00 · top-p 0.97 · ")


def finished(model, prompt, options):
    """The pieces after a prompt."""
    result = list(continuation.continue_prompt(model, prompt, options))[-1]
    assert isinstance(result, continuation.Result)
    return result.pieces


@pytest.fixture
def job(quick_model, tmp_path, monkeypatch):
    """Two variations of three bars after two hands, without sound."""
    monkeypatch.setattr(stems, "render", fakes.silent_stems)
    path = tmp_path / "two hands.mid"
    path.write_bytes(write_midi(two_hands()))
    upload = read_upload(path, 10_000, Models.only(quick_model))
    options = MusicOptions(bars=3, seed=5, variations=2)
    result = finished(quick_model, upload.choose(2, 4, None, frozenset({0})).prompt, options)
    made = Job(quick_model, upload.choose(2, 4, None, frozenset({0})), options)
    made.write(result, tmp_path)
    return made


def test_files_are_made_on_request_and_kept(job, tmp_path):
    assert len(job.id) == 32
    for variation, kind, suffix in (
        *((0, "flac", ".flac"), (0, "wav", ".wav"), (1, "ogg", ".ogg"), (1, "stems", ".zip")),
    ):
        before = set(tmp_path.iterdir())
        path = job.sound(variation).file(kind)
        assert (path in before, path.suffix) == (False, suffix)
        assert path.name.startswith(Path(job.variations[variation]["midi"]).stem)
        assert job.sound(variation).file(kind) == path
        assert job.file(variation, "midi").read_bytes() == job.pieces[variation].midi
        assert job.file(variation, "new_midi").read_bytes() == job.pieces[variation].new_midi
    assert job.file(PROMPT_ALONE, "midi").name == "two-hands.mid"
    assert job.file(PROMPT_ALONE, "midi").read_bytes() == write_midi(two_hands())
    heard = [job.sound(PROMPT_ALONE).file("flac", without) for without in ({0}, ())]
    assert heard[0] != heard[1]
    assert not [path for path in tmp_path.iterdir() if ".part" in path.name]
    wrong = ((2, "midi"), (-2, "midi"), (0, "exe"), (-1, "replay"), (-1, "new_midi"), (9, "wav"))
    for variation, kind in wrong:
        with pytest.raises(LookupError):
            job.sound(variation) if kind in SOUND_KINDS else job.file(variation, kind)
    with pytest.raises(LookupError):
        Job(job.model, job.upload, job.options).file(0, "midi")


def test_the_replay_of_a_variation_makes_it_again(job):
    found = replay.read(job.file(1, "replay").read_text())
    assert found.fits(write_midi(two_hands()))
    assert (found.first_bar, found.last_bar, found.played) == (2, None, {0})
    prompt = continuation.read_prompt(
        write_midi(two_hands()), first_bar=found.first_bar, played=found.played
    )
    result = finished(job.model, prompt, found.options)
    assert [piece.midi for piece in result] == [job.pieces[1].midi]
    # that of a stopped piece has the bars that were kept
    job.pieces = tuple(replace(piece, stopped=True, bars=1) for piece in job.pieces)
    assert replay.read(job.file(0, "replay").read_text()).options.bars == 1


def test_frames_list_the_files(job):
    frame = job.frame("done")
    rows = frame["variations"]
    kinds = ["midi", "new_midi", "score", "replay", *SOUND_KINDS]
    assert [row.get("files") for row in rows] == [kinds] * 2
    assert re.fullmatch(r"\d+ notes · 0:0\d", rows[0].get("facts", ""))
    for kind in rows[0].get("files", []):
        path = job.sound(0).file(kind) if kind in SOUND_KINDS else job.file(0, kind)
        assert path.is_file()


def test_progress_in_seconds_does_not_depend_on_estimated_bars(quick_model, monkeypatch):
    """The bars of the options are only an estimate then."""
    monkeypatch.setattr(continuation, "SECONDS_BETWEEN_REPORTS", 0.0)
    for guess in (2, 200):
        options = MusicOptions(bars=guess, seconds=30, seed=4)
        job = Job(quick_model, None, options)
        parts: list[float] = []
        lines: list[str] = []
        bars_done = 0
        for step in continuation.generate_piece(quick_model, options):
            if isinstance(step, continuation.Progress) and step.tokens:
                frame = job.progress(step)
                parts.append(frame.get("progress", 0.0))
                lines.append(frame.get("line", ""))
                bars_done = step.bars_done
                assert frame.get("subtitle") == "30 s"
        assert parts == sorted(parts)
        assert 0 <= parts[0] < 1
        assert parts[-1] == 1
        assert len(set(parts)) > 4
        assert not [line for line in lines if f" of {guess}" in line]
        bars = [int(line.split()[1]) for line in lines]
        assert bars[0] == 1
        assert bars[-1] == bars[-2] == bars_done
        assert re.fullmatch(r"Bar \d+ · \d+ notes( · \d+ notes/s)? · 30 of 30 s", lines[-1])


def test_the_line_tells_progress_speed_and_time_left_after_the_prompt_was_read(upload):
    frame = Job(upload.model, upload, MusicOptions(seconds=10)).starting()  # four bars at 96 bpm
    assert frame.get("subtitle") == "4 bars after bar 4"
    assert frame.get("timeline", {}).get("end") == 32
    assert frame.get("line") == "Reading the prompt …"
    job = Job(upload.model, upload, MusicOptions())
    score = Score(12, (Track.of([]),))
    step = continuation.Progress(8, 16, 90, 30, 9.0, (score,), part_done=0.5, reading_seconds=6.0)
    frame = job.progress(step)
    assert frame.get("line") == "Bar 9 of 16 · 30 notes · 10 notes/s · about 3 s left"
    assert (frame.get("status"), frame.get("progress")) == ("Bar 9 of 16", 0.5)
    several = job.progress(replace(step, scores=(score, score)))
    assert "30 notes in 2 variations" in several.get("line", "")
    assert job.progress(replace(step, preparing=True)).get("line", "").startswith("Compiling")
    assert job.progress(replace(step, tokens=0)).get("line") == "Reading the prompt …"


def test_a_long_name_in_any_script_fits_the_file_system(studio, tmp_path):
    for letter in ("a", "楽"):
        path = tmp_path / f"{letter * (240 // len(letter.encode()))}.mid"
        path.write_bytes(fakes.example_midi(bars=2))
        studio.models = Models.only(
            cast("MusicModel", fakes.FakeModel(name=letter * 100, speed=5000.0))
        )
        upload = read_upload(path, 10_000, studio.models)
        frames = studio.compose("one", upload, MusicOptions(bars=1, variations=4))
        files = [Path(row["new_midi"]) for row in list(frames)[-1]["variations"]]
        assert all(file.is_file() and letter * 10 in file.name for file in files)


def test_a_part_of_an_upload_is_written(monkeypatch, tmp_path):
    monkeypatch.setattr(stems, "render", fakes.silent_stems)
    models = Models.only(model_of(MultitrackRemi()))
    studio = Studio(models, tmp_path / "out")
    path = tmp_path / "song.mid"
    path.write_bytes(write_midi(band(bars=6)))
    passage = Passage(first_bar=3, last_bar=4, tracks=frozenset({1, 2}))
    upload = read_upload(path, 100_000, models).writing(passage)
    assert (upload.bars, upload.splice, upload.first_bar) == (2, 8.0, 1)
    options = passage_options(MusicOptions(seed=1, takes=1), passage, upload.prompt)
    last = list(studio.compose("me", upload, options))[-1]
    job = studio.kept.get(last.get("job", ""))[1]
    (row,) = job.variations
    settings = "seed 1 · Electric Bass (finger) and Drums, bars 3 to 4 · "
    assert row.get("settings", "").startswith(settings)
    written = job.file(0, "midi")
    assert written.name == "song_a2_i2_second_b2_s1_T1.00_p0.97_n1.mid"
    assert read_midi(path).tracks[0] == read_midi(written).tracks[0]
    assert last.get("timeline", {}).get("end") == 24
    assert replay.read(job.file(0, "replay").read_text()).passage == passage
    # tracks that were to be written and have no notes are named
    (piece,) = job.pieces
    bass = upload.score.tracks[1]
    for tracks, facts in (
        (upload.score.tracks, []),
        ((bass,), ["no notes in Drums"]),
        ((), ["nothing was written"]),
    ):
        assert job._without_notes(replace(piece, new=piece.new.with_tracks(tracks))) == facts
