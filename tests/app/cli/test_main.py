"""The command `relpe`."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest

from app.audio import render as sound
from app.cli.arguments import music_options
from app.cli.main import _parser, main
from app.compose.options import MusicOptions
from tests.support.commands import help_without_engine, relpe
from tokenization.midi import write_midi
from tokenization.score import Score, Track


def test_same_seed_same_file_and_json_says_what_was_made(folder, parsed, capsys):
    for command in ("generate", "continue"):
        assert relpe(folder, command, "--seed", "3", "--bars", "1", "--json") == 0
        assert parsed[(folder / "prompt.mid").read_bytes()] == (command == "continue")
        first = (folder / "out.mid").read_bytes()
        said = json.loads(capsys.readouterr().out)
        assert said["output"] == [str(folder / "out.mid")]
        assert (said["seed"], said["bars"], said["backend"]) == (3, 1, "torch float32")
        assert said["fell_back"] is None
        assert said["tokens"] > said["notes"] > 0
        assert said["tokens_per_second"] > said["bars_per_second"] > 0
        assert said["real_time_factor"] > 0
        assert (said["prompt_notes"] > 0) == (command == "continue")
        assert relpe(folder, command, "--seed", "3", "--bars", "1") == 0
        assert (folder / "out.mid").read_bytes() == first
        assert not list(folder.glob(".*"))


def test_options_of_the_music_are_those_of_the_dataclass():
    names = [field.name for field in fields(MusicOptions)]
    prompted = ["continue", "song.mid", "--output", "out.mid"]
    options = _parser().parse_args(prompted)
    assert replace(music_options(options), seed=None) == MusicOptions()
    hints = get_type_hints(MusicOptions)
    for name in names:
        choices = get_args(hints[name])
        given = next((choice for choice in choices if isinstance(choice, str)), "1")
        from_nothing = name in ("tempo", "metre", "band")
        arguments = ["generate", "--output", "out.mid"] if from_nothing else prompted
        options = _parser().parse_args([*arguments, f"--{name.replace('_', '-')}", given])
        value = getattr(options, name)
        assert value in choices or type(value) in (hints[name], *choices)


def test_a_bad_file_is_reported_in_one_sentence_and_writes_nothing(folder, capsys):
    """All kinds are in `tests/support/midi_files.py`."""
    drums = write_midi(Score(480, (Track.of([(0, 100, 36, 90)], is_drum=True),)))
    for content, problem in ((b"not music", "MIDI"), (b"", "empty"), (drums, "drums only")):
        (folder / "prompt.mid").write_bytes(content)
        assert relpe(folder, "continue") == 2
        message = capsys.readouterr().err
        assert "prompt.mid" in message
        assert problem in message
        assert message.count("\n") == 1
        assert "Traceback" not in message
        assert sorted(path.name for path in folder.iterdir()) == ["prompt.mid", "small"]
    (folder / "prompt.mid").unlink()
    assert relpe(folder, "continue") == 2
    assert "there is no such file; check its name and folder" in capsys.readouterr().err


def test_bad_options_are_reported_in_one_sentence(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "loop.mid").symlink_to("loop.mid")
    for problem, *extra in (
        ("nowhere", "--output", "nowhere/out.mid"),
        ("out.txt", "--output", "out.txt"),
        ("sound.mp3", "--audio", "sound.mp3"),
        ("xxx", "--output", "x" * 300 + ".mid"),
        ("loop.mid", "--output", "loop.mid"),
        ("yyy", "--output", "out.mid", "--audio", "y" * 300 + ".wav"),
        ("--seed is -4", "--seed", "-4"),
        ("10", "--max-file-size", "10B"),
        ("no-such-model", "--model", "no-such-model"),
        ("--prompt-bars is -1, expected at least 0", "--prompt-bars", "-1"),
    ):
        assert relpe(folder, "continue", *extra) == 2
        message = capsys.readouterr().err
        assert message.startswith("relpe: ")
        assert problem in message
        assert message.count("\n") == 1
        assert not (folder / "out.mid").exists()
    for option, value in (("--max-file-size", "60MB"), ("--ba", "3"), ("--bars", "x")):
        with pytest.raises(SystemExit) as stop:
            relpe(folder, "continue", option, value)
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_sigterm_ends_the_command_cleanly(folder, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def terminated(_, soundfont=None):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        raise AssertionError("still there")

    monkeypatch.setattr(sound, "render", terminated)
    assert relpe(folder, "generate", "--bars", "1", "--audio", str(folder / "out.wav")) == 130
    assert "nothing was written" in capsys.readouterr().err
    assert not list(folder.glob("*out*"))
    assert not list(folder.glob(".*"))
    assert signal.getsignal(signal.SIGTERM) == before


def test_help_does_not_load_the_engine():
    for command, words in (
        ("continue", ("--prompt-bars",)),
        ("fill", ("--bars FIRST-LAST",)),
        ("batch", ("-23 LUFS", "bars of new music (default: 32)")),
        ("listen", ("answers.csv",)),
        ("listen-report", ("--least-attention",)),
    ):
        said = " ".join(help_without_engine(command).split())
        assert all(word in said for word in words)


def test_a_missing_package_is_named(monkeypatch, capsys):
    missing = ModuleNotFoundError("No module named 'soundfile'", name="soundfile")

    def refused(options):
        raise missing

    monkeypatch.setattr("app.cli.music.generate_command", refused)
    assert main(["generate", "--output", "out.mid"]) == 2
    assert "soundfile is not installed; run pip install" in capsys.readouterr().err
    missing.name = "app.nothing"  # a bug in the project keeps its traceback
    with pytest.raises(ModuleNotFoundError):
        main(["generate", "--output", "out.mid"])
