"""The command `relpe batch`."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from app.batch import command as batch_command
from app.batch import files as batch_files
from app.batch.files import Savers
from app.batch.manifest import read_manifest, sha256_of
from app.batch.run import BatchProgress, BatchResult, BatchRun
from app.cli.main import main
from relpe.models.checkpoint import save_model
from tests.support import slow_clips
from tests.support.batches import contents
from tokenization.midi import read_midi

if TYPE_CHECKING:
    from pathlib import Path


def command(place: Path, *extra: str) -> list[str]:
    places = ["--output", str(place / "out"), "--models", str(place / "small")]
    return ["batch", *places, "--bars", "1", "--backend", "torch", *extra]


def batch(place: Path, *extra: str) -> int:
    return main(command(place, *extra))


def test_clips_of_prompts_with_sound_and_json(folder, capsys):
    prompts = ["--prompts", str(folder / "prompt.mid"), "--temperature", "0.8"]
    assert batch(folder, *prompts, "--count", "2", "--audio", "flac", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["clips"], said["made"], said["kept"], said["failed"]) == (2, 2, 0, [])
    assert min(said[name] for name in ("clips_per_minute", "tokens_per_second", "seconds")) > 0
    (model,) = said["models"]
    computed = [model[name] for name in ("model", "backend", "fell_back")]
    assert computed == ["small", "torch float32", None]
    rows = read_manifest(folder / "out" / "manifest.csv")
    assert list(rows) == ["midi/prompt_v01.mid", "midi/prompt_v02.mid"]
    shell = ["bash", "-c", "sha256sum model.json model.safetensors | sha256sum"]
    sha256 = subprocess.run(shell, cwd=folder / "small", capture_output=True, check=True).stdout
    for row in rows.values():
        assert row.model_sha256 == model["model_sha256"] == sha256.split()[0].decode()
        assert json.loads(row.settings)["temperature"] == 0.8
        assert row.midi_sha256 == sha256_of(folder / "out" / row.file)
        assert row.audio_sha256 == sha256_of(folder / "out" / row.audio)
        assert float(row.loudness) <= -22.99


def test_each_model_makes_clips_from_nothing(folder, small_model, capsys):
    save_model(small_model.decoder, folder / "other" / "Small")
    small_model.tokenizer.save(folder / "other" / "Small")
    both = f"{folder / 'small'},{folder / 'other' / 'Small'}"
    assert batch(folder, "--models", both, "--count", "1") == 0
    rows = read_manifest(folder / "out" / "manifest.csv").values()
    assert [(row.file, row.model) for row in rows] == [
        ("midi/small_v01.mid", "small"),
        ("midi/Small-2_v01.mid", "Small"),
    ]
    save_model(small_model.decoder, folder / "third" / "small")
    alike = [str(folder / "small"), str(folder / "third" / "small")]
    assert batch(folder, "--models", *alike, "--resume") == 2
    assert "have the same name" in capsys.readouterr().err


def test_a_prompt_that_fails_gives_one_line_and_exit_code_2(folder, capsys):
    (folder / "in").mkdir()
    (folder / "prompt.mid").rename(folder / "in" / "good.mid")
    (folder / "in" / "bad.mid").write_bytes(b"not music")
    assert batch(folder, "--prompts", str(folder / "in"), "--count", "1") == 2
    message = capsys.readouterr().err
    assert message.count("bad.mid") == 1
    assert "1 of the prompts or clips failed" in message
    assert (folder / "out" / "midi" / "good_v01.mid").exists()
    (folder / "in" / "good.mid").unlink()
    assert batch(folder, "--prompts", str(folder / "in"), "--resume") == 2
    assert "none of the prompts can be used" in capsys.readouterr().err


def test_an_impossible_batch_is_reported_in_one_sentence(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    for option, *values in (
        *(("--prompts", "nowhere"), ("--models", "no-such-model"), ("--output", "prompt.mid")),
        *(("--seed", str(2**31 - 2)), ("--soundfont", "font.sf2")),
        ("--soundfont", "font.sf2", "--audio", "flac"),
    ):
        assert batch(folder, option, *values) == 2
        message = capsys.readouterr().err.strip()
        assert message.startswith("relpe: ")
        assert "\n" not in message
        assert not (folder / "out").exists()
    for option, *values in (
        *(("--count", "0"), ("--width", "x"), ("--audio", "mp3"), ("--models", ",")),
        *(("--variations",), ("--clip-bars", "0"), ("--shard", "3/2"), ("--shard", "1")),
    ):
        with pytest.raises(SystemExit) as stop:
            batch(folder, option, *values)
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def study(folder):
    """A study with the model of the folder."""
    path = folder / "study.yaml"
    path.write_text(
        "name: A study\nprompts: [prompt.mid]\nlast_bar: 2\nbars: 1\nrepetitions: 3\n"
        "conditions: [{kind: model, name: a, model: ./small}, {kind: real}]\n"
    )
    return path


def of_study(study: Path, *extra: str) -> list[str]:
    output = str(study.parent / "out")
    return ["batch", str(study), "--output", output, "--backend", "torch", *extra]


def test_a_study_is_made_resumed_and_replayed(folder, study, capsys, monkeypatch):
    study.write_text(study.read_text() + "audio: null\n")
    assert main(of_study(study, "--json")) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["clips"], said["made"], said["failed"]) == (4, 4, [])
    assert main(of_study(study)) == 2
    assert "already contains a batch; use --resume" in capsys.readouterr().err
    assert main(of_study(study, "--resume")) == 0
    rows = read_manifest(folder / "out" / "manifest.csv").values()
    clip = next(row for row in rows if row.model)
    told = ["replay", str(folder / "out" / "key.csv"), "--clip", clip.file]
    told += ["--prompt", str(folder / "prompt.mid"), "--model", str(folder / "small")]
    assert main([*told, "--output", str(folder / "again.mid")]) == 0
    again = read_midi(folder / "again.mid")
    assert int(clip.notes) == sum((t.notes[:, 0] >= 2 * 1920).sum() for t in again.tracks)
    # paths in a study are relative to its file
    monkeypatch.chdir(folder)
    assert main(["batch", "study.yaml", "--output", "again", "--backend", "torch"]) == 0
    assert contents(folder / "again") == contents(folder / "out")


def test_what_cannot_be_used_with_a_study_is_named(study, capsys):
    wrong = study.with_name("wrong.yaml")
    wrong.write_text(study.read_text().replace("./small", "piona"))
    for path, extra, problem in (
        (study, ["--count", "9"], f"--count cannot be used with {study}"),
        (study, ["--top-p", "0.5"], f"--top-p cannot be used with {study}"),
        (study.with_name("none.yaml"), [], "none.yaml: No such file or directory; choose another"),
        (wrong, [], f"relpe: {wrong}: the condition 'a': no model 'piona'"),
    ):
        assert main(of_study(path, *extra)) == 2
        message = capsys.readouterr().err
        assert problem in message
        assert message.count("\n") == 1


def test_a_signal_keeps_what_is_finished(folder, monkeypatch, capsys):
    asked = ["--count", "4", "--width", "2"]
    assert batch(folder, *asked) == 0
    whole = contents(folder / "out")
    (folder / "out").rename(folder / "whole")
    capsys.readouterr()
    save, saved = BatchRun._save, []

    def interrupted(self, *given):
        save(self, *given)  # type: ignore[arg-type]
        saved.append(given)
        if len(saved) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(BatchRun, "_save", interrupted)
    assert batch(folder, *asked) == 130
    message = capsys.readouterr().err
    assert "relpe: stopped: 2 of 4 clips are complete; use --resume" in message
    assert signal.getsignal(signal.SIGTERM) == before
    there = read_manifest(folder / "out" / "manifest.csv")
    assert set(contents(folder / "out")) == {"manifest.csv", *there}
    assert len(there) == 2
    assert batch(folder, *asked, "--resume") == 0
    assert contents(folder / "out") == whole


def test_a_second_signal_ends_rendering_at_once_and_keeps_what_is_finished(
    folder, monkeypatch, capsys
):
    monkeypatch.setattr(batch_files, "save_clip", slow_clips.save_clip)
    take = Savers.take
    progress: list[str] = []

    def interrupted(self, seconds=0.0):
        found = take(self, seconds)
        if found and not progress:
            progress.append("one clip is finished")
            os.kill(os.getpid(), signal.SIGINT)
        elif progress and "Ctrl+C again" in (said := capsys.readouterr().err):
            progress.append(said)
            os.kill(os.getpid(), signal.SIGINT)
        return found

    monkeypatch.setattr(Savers, "take", interrupted)
    assert batch(folder, "--count", "3", "--audio", "ogg") == 130
    assert re.search(
        r"relpe: stopping as soon as \d clips? in work are complete; press", progress[1]
    )
    message = capsys.readouterr().err
    assert message.endswith("stopped immediately; use --resume to generate the missing clips\n")
    assert multiprocessing.active_children() == []
    (row,) = read_manifest(folder / "out" / "manifest.csv").values()
    assert set(contents(folder / "out")) == {"manifest.csv", row.file, row.audio}


@pytest.mark.slow
def test_a_process_that_is_killed_can_be_resumed(folder):
    asked = ["--count", "24", "--bars", "2", "--audio", "ogg"]
    assert batch(folder, *asked) == 0
    whole = contents(folder / "out")
    (folder / "out").rename(folder / "whole")
    program = [sys.executable, "-m", "relpe", *command(folder, *asked)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, start_new_session=True) as process:
        manifest = folder / "out" / "manifest.csv"
        while not (manifest.exists() and read_manifest(manifest)):
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)  # also those that render audio
        process.communicate(timeout=60)
    assert batch(folder, *asked, "--resume") == 0
    assert contents(folder / "out") == whole


def test_the_progress_bar_counts_finished_clips(monkeypatch, capsys):
    clock = itertools.count(0, 2)
    monkeypatch.setattr("tqdm.std.time", lambda: float(next(clock)))
    monkeypatch.setattr(batch_command, "seconds_between_bars", lambda: 0.0)
    result = BatchResult(8, 1, 7, (), False, 1.0, 9, 9.0, ())
    steps = [
        *([BatchProgress(0, 0, 0, "reading the prompts", "bad.mid: not MIDI")] * 2),
        BatchProgress(7, 8, 7, "checking existing clips", "a.mid is damaged"),
        BatchProgress(7.5, 8, 7, "generating"),
        BatchProgress(7.97, 8, 7, "generating"),
    ]
    assert batch_command._run(iter([*steps, result])) is result
    said = capsys.readouterr().err
    assert said.count("relpe: bad.mid: not MIDI") == 2
    assert said.count("relpe: a.mid is damaged") == 1
    bars = [bar for bar in re.split(r"[\r\n]", said) if "reading the prompts" in bar]
    assert bars
    assert not any("clips" in bar for bar in bars)
    assert re.search(r"\| 7/8 clips \[.*<\d\d:\d\d, generating\]", said)
    assert not re.search(r"0/0|8/8|<-", said)
