from __future__ import annotations

import itertools
import json
import subprocess
import sys
import weakref
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_type_hints

import numpy as np
import pytest

from app import sound
from app.cli import _parser, main
from app.options import MusicOptions
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
    assert not list(folder.glob(".*"))


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


def test_sound_is_made_of_one_variation_at_a_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[sound.Audio]] = []

    def render(_: Score) -> sound.Audio:
        assert [audio for audio in made if audio() is not None] == []
        audio = sound.Audio(np.zeros((800, 2), np.float32), 8000, "builtin")
        made.append(weakref.ref(audio))
        return audio

    monkeypatch.setattr(sound, "render", render)
    audio = ["--audio", str(folder / "out.wav"), "--variations", "3"]
    assert relpe(folder, "generate", "--bars", "1", *audio) == 0
    assert len(made) == len(list(folder.glob("out.*.wav"))) == 3


@pytest.mark.parametrize("error", [sound.SoundError("it is too long"), KeyboardInterrupt()])
def test_sound_that_fails_leaves_nothing_half_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    made = iter([sound.Audio(np.zeros((800, 2), np.float32), 8000, "builtin"), error])

    def render(_: Score) -> sound.Audio:
        result = next(made)
        if isinstance(result, sound.Audio):
            return result
        raise result

    monkeypatch.setattr(sound, "render", render)
    (folder / "out.1.mid").write_bytes(b"from before")
    audio = ["--audio", str(folder / "out.wav"), "--variations", "2"]
    assert relpe(folder, "generate", "--bars", "1", *audio) in {2, 130}
    assert sorted(path.name for path in folder.iterdir()) == ["out.1.mid", "prompt.mid", "small"]
    assert (folder / "out.1.mid").read_bytes() == b"from before"


def test_options_of_the_music_are_those_of_the_dataclass() -> None:
    names = [field.name for field in fields(MusicOptions)]
    arguments = ["continue", "song.mid", "--output", "out.mid"]
    options = _parser().parse_args(arguments)
    assert MusicOptions(**{name: getattr(options, name) for name in names}) == MusicOptions()
    given = [(f"--{name.replace('_', '-')}", "1") for name in names]
    options = _parser().parse_args([*arguments, *itertools.chain(*given)])
    hints = get_type_hints(MusicOptions)
    for name in names:
        assert type(getattr(options, name)) in (hints[name], *get_args(hints[name]))


def test_a_folder_that_cannot_be_made_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside_a_file = str(folder / "prompt.mid" / "music")
    assert main(["ui", "--model", str(folder / "small"), "--output-dir", inside_a_file]) == 2
    message = capsys.readouterr().err
    assert message.startswith("relpe: --output-dir ")
    assert message.count("\n") == 1


def drums() -> bytes:
    return write_midi(Score(480, (Track.of([(0, 100, 36, 90)], is_drum=True),)))


def gaps(count: int) -> bytes:
    """Notes of two ticks, each as long after the last as a MIDI file can say: 2**28 - 1 ticks."""
    notes = b"\0\x90\x3c\x40\2\x80\x3c\x40" + b"\xff\xff\xff\x7f\x90\x3c\x40\2\x80\x3c\x40" * count
    track = notes + b"\0\xff\x2f\0"
    return b"MThd\0\0\0\6\0\0\0\1\0\1MTrk" + len(track).to_bytes(4, "big") + track


MIDI = write_midi(two_hands())
BAD_FILES = {
    "text": (b"not music at all, really", "MIDI"),
    "empty": (b"", "empty"),
    "truncated": (MIDI[:20], ""),
    "drums": (drums(), "drums only"),
    "division zero": (MIDI[:12] + b"\0\0" + MIDI[14:], "division"),
    "film frames": (MIDI[:12] + b"\xe7\x28" + MIDI[14:], "frames"),
    "no notes": (write_midi(Score(480, (Track.of([]),), end_ticks=1920)), "no notes"),
    "no tracks": (b"MThd\0\0\0\6\0\1\0\0\1\xe0", "no track"),
    "a gap of years": (gaps(1), "remove the gap"),
    "gaps beyond what ticks can count": (gaps(2000), "remove the gap"),
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
    assert sorted(path.name for path in folder.iterdir()) == ["prompt.mid", "small"]


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
