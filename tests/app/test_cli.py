from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.cli import main
from relpe.checkpoint import save_model
from tests.app.conftest import two_hands
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Track

if TYPE_CHECKING:
    from app.continuation import MusicModel


@pytest.fixture
def folder(tmp_path: Path, small_model: MusicModel) -> Path:
    """A folder with a prompt, and a model to make music with."""
    save_model(small_model.decoder, tmp_path / "small")
    small_model.tokenizer.save(tmp_path / "small")
    (tmp_path / "prompt.mid").write_bytes(write_midi(two_hands()))
    return tmp_path


def relpe(folder: Path, command: str, *extra: str) -> int:
    arguments = [command]
    if command == "continue":
        arguments += [str(folder / "prompt.mid")]
    output = [] if "--output" in extra else ["--output", str(folder / "out.mid")]
    model = [] if "--model" in extra else ["--model", str(folder / "small")]
    return main([*arguments, *output, *model, *extra])


@pytest.mark.parametrize("command", ["continue", "generate"])
def test_same_seed_same_file_and_json_says_what_was_made(
    folder: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert relpe(folder, command, "--seed", "3", "--bars", "2", "--json") == 0
    first = (folder / "out.mid").read_bytes()
    said = json.loads(capsys.readouterr().out)
    assert said["output"] == [str(folder / "out.mid")]
    assert (said["seed"], said["bars"], said["backend"]) == (3, 2, "torch")
    assert said["tokens"] > said["notes"] > 0
    assert said["tokens_per_second"] > 0
    assert (said["prompt_notes"] > 0) == (command == "continue")
    assert relpe(folder, command, "--seed", "3", "--bars", "2") == 0
    assert (folder / "out.mid").read_bytes() == first
    assert not list(folder.glob("*.part"))


def test_variations_and_sound(folder: Path) -> None:
    audio = str(folder / "out.flac")
    assert (
        relpe(
            folder, "continue", "--bars", "1", "--variations", "2", "--audio", audio, "--seed", "1"
        )
        == 0
    )
    names = sorted(path.name for path in folder.glob("out*"))
    assert names == ["out.1.flac", "out.1.mid", "out.2.flac", "out.2.mid"]
    assert read_midi(folder / "out.2.mid").num_notes > two_hands().num_notes


def drums() -> bytes:
    return write_midi(Score(480, (Track.of([(0, 100, 36, 90)], is_drum=True),)))


MIDI = write_midi(two_hands())
BAD_FILES = {
    "text": (b"not music at all, really", "MIDI"),
    "empty": (b"", "empty"),
    "truncated": (MIDI[:20], ""),
    "drums": (drums(), "drums only"),
    "division zero": (MIDI[:12] + b"\0\0" + MIDI[14:], "division"),
    "film frames": (MIDI[:12] + b"\xe7\x28" + MIDI[14:], "frames"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_one_sentence_and_writes_nothing(
    folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, word = BAD_FILES[kind]
    (folder / "prompt.mid").write_bytes(content)
    assert relpe(folder, "continue") == 2
    message = capsys.readouterr().err
    assert "prompt.mid" in message
    assert word in message
    assert message.count("\n") == 1
    assert "Traceback" not in message
    assert not (folder / "out.mid").exists()


@pytest.mark.parametrize(
    "extra",
    [
        ["--output", "nowhere/out.mid"],
        ["--output", "out.txt"],
        ["--audio", "sound.mp3"],
        ["--bars", "0"],
        ["--temperature", "-1"],
        ["--variations", "0"],
        ["--seed", "-4"],
        ["--max-file-size", "10B"],
        ["--model", "no-such-model"],
    ],
)
def test_bad_options_are_one_sentence(
    folder: Path,
    extra: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert relpe(folder, "continue", *extra) == 2
    message = capsys.readouterr().err
    assert message.startswith("relpe: ")
    assert message.count("\n") == 1
    assert not (folder / "out.mid").exists()


@pytest.mark.parametrize("extra", [["--max-file-size", "much"], ["--ba", "3"], ["--bars", "x"]])
def test_options_that_cannot_be_read_exit_with_2(
    folder: Path, extra: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        relpe(folder, "continue", *extra)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_prompt_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "prompt.mid").unlink()
    assert relpe(folder, "continue") == 2
    assert "No such file" in capsys.readouterr().err


def test_the_prompt_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "prompt.mid").read_bytes()
    assert relpe(folder, "continue", "--output", str(folder / "prompt.mid")) == 2
    assert "choose another name" in capsys.readouterr().err
    (folder / "prompt.mid").rename(folder / "prompt.1.mid")
    (folder / "prompt.mid").write_bytes(before)
    output = ["--output", str(folder / "prompt.mid"), "--variations", "2"]
    assert main(["continue", str(folder / "prompt.1.mid"), *output]) == 2
    assert (folder / "prompt.1.mid").read_bytes() == before
    assert (folder / "prompt.mid").read_bytes() == before


def test_help_does_not_load_the_engine() -> None:
    code = (
        "import sys\nfrom app.cli import main\n"
        "try:\n    main(['continue', '--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules or 'gradio' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "--prompt-bars" in run.stdout
