"""The files that a command writes: either all are complete, or there are none."""

from pathlib import Path

import numpy as np

from app.audio import length
from app.audio import render as sound
from app.cli.main import main
from app.compose.plan.sheet_music import sheet_music
from tests.support.commands import relpe
from tokenization.midi import read_midi
from tokenization.midi.writer import write_midi
from tokenization.score import Score, Track


def test_sound_that_fails_leaves_no_partial_files(folder, monkeypatch):
    made = iter([sound.Audio(np.zeros((800, 2), np.float32), 8000, "builtin"), None])

    def render(_, soundfont=None):
        audio = next(made)
        if audio is None:
            raise KeyboardInterrupt
        return audio

    monkeypatch.setattr(sound, "render", render)
    (folder / "out.1.mid").write_bytes(b"from before")
    audio = ["--audio", str(folder / "out.wav"), "--variations", "2"]
    assert relpe(folder, "generate", "--bars", "1", *audio) == 130
    assert sorted(path.name for path in folder.iterdir()) == ["out.1.mid", "prompt.mid", "small"]
    assert (folder / "out.1.mid").read_bytes() == b"from before"


def test_every_name_is_checked_in_advance(folder, monkeypatch, capsys):
    (folder / "out.1.mid").write_bytes(b"from before")
    outputs = ["--audio", str(folder / "out.wav"), "--variations", "3"]
    for name in ("out.2.mid", "out.2.wav"):
        (folder / name).mkdir()
        assert relpe(folder, "generate", "--model", "no such model", *outputs) == 2
        message = capsys.readouterr().err
        assert f"{folder / name}: this is a folder, expected a file name" in message
        (folder / name).rmdir()
    for name, problem in (("out.xml", "ends in .musicxml"), ("no/a.musicxml", "no")):
        score = str(folder / name)
        assert relpe(folder, "continue", "--model", "no such model", "--score", score) == 2
        assert problem in capsys.readouterr().err
    assert (folder / "out.1.mid").read_bytes() == b"from before"

    def refused(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("app.files.tempfile.TemporaryFile", refused)
    assert relpe(folder, "continue", "--model", "no such model") == 2
    said = f"relpe: --output {folder / 'out.mid'}: Permission denied; choose another name or folder"
    assert capsys.readouterr().err.strip() == said


def test_a_file_that_turns_out_not_to_be_writable_is_named(folder, monkeypatch, capsys):
    replace = Path.replace

    def full(self, target):
        if target.name == "out.1.mid":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert relpe(folder, "generate", "--bars", "1", "--variations", "2") == 2
    assert f"{folder / 'out.1.mid'}: No space left on device; " in capsys.readouterr().err
    assert not list(folder.glob(".*"))


def test_a_continuation_too_long_for_sound_is_refused_in_advance(folder, monkeypatch, capsys):
    def work(*_):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("app.compose.continuation.continue_prompt", work)
    audio = ["--audio", str(folder / "out.wav")]
    assert relpe(folder, "continue", "--bars", "800", *audio) == 2  # 2.5 s each
    assert "the piece lasts 34 minutes, expected at most 30" in capsys.readouterr().err


def test_a_piece_that_gets_too_long_for_sound_is_kept_as_midi(folder, monkeypatch, capsys):
    monkeypatch.setattr(length, "MAX_SECONDS", 0.1)
    audio = ["--audio", str(folder / "out.wav")]
    # some seeds give an empty bar
    assert relpe(folder, "generate", "--bars", "1", "--seed", "0", *audio) == 2
    message = capsys.readouterr().err
    assert f"{folder / 'out.mid'}: written without audio: the piece lasts" in message
    assert read_midi(folder / "out.mid").num_notes
    assert not (folder / "out.wav").exists()


def test_the_prompt_is_not_overwritten(folder, capsys):
    before = (folder / "prompt.mid").read_bytes()
    assert relpe(folder, "continue", "--output", str(folder / "prompt.mid")) == 2
    assert "choose another name" in capsys.readouterr().err
    (folder / "prompt.mid").rename(folder / "prompt.1.mid")
    (folder / "prompt.mid").write_bytes(before)
    output = ["--output", str(folder / "prompt.mid"), "--variations", "2"]
    assert main(["continue", str(folder / "prompt.1.mid"), *output]) == 2
    assert (folder / "prompt.1.mid").read_bytes() == before
    assert (folder / "prompt.mid").read_bytes() == before


def test_sound_and_sheet_music_are_written_for_every_variation_of_a_piano(folder, capsys):
    more = ["--score", str(folder / "out.musicxml"), "--audio", str(folder / "out.flac")]
    assert relpe(folder, "continue", "--bars", "1", *more, "--variations", "2") == 0
    kinds = ("flac", "mid", "musicxml")
    names = {f"out.{row}.{kind}" for row in (1, 2) for kind in kinds}
    assert {path.name for path in folder.glob("out*")} == names
    for row in (1, 2):
        midi = read_midi((folder / f"out.{row}.mid").read_bytes())
        written = (folder / f"out.{row}.musicxml").read_bytes()
        assert written == sheet_music(midi, f"out.{row}")
        for kind in kinds:
            (folder / f"out.{row}.{kind}").unlink()
    capsys.readouterr()
    band = Score(12, (Track.of([(0, 12, 40, 80)], 33), Track.of([(0, 1, 36, 80)], is_drum=True)))
    (folder / "prompt.mid").write_bytes(write_midi(band))
    before = sorted(folder.iterdir())
    assert relpe(folder, "continue", "--score", str(folder / "out.musicxml")) == 2
    said = capsys.readouterr().err
    assert "sheet music is for pieces for the piano; found Drums, Electric Bass (finger)" in said
    assert said.count("\n") == 1
    assert sorted(folder.iterdir()) == before
