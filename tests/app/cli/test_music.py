"""`--json` and `relpe replay`."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from app.cli.main import main
from app.compose.models import Models, files_sha256, find_model
from app.compose.options import OF_PROMPT, MusicOptions
from app.compose.plan.lead_sheet import LeadSheet
from app.compose.replay import chosen_options
from app.errors import CommandError
from relpe.models.checkpoint import released_model
from tests.support import musicxml
from tests.support.commands import relpe
from tokenization.midi import read_midi
from tokenization.midi.musicxml import as_midi

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def test_musicxml_is_continued_like_the_same_midi_file(folder, capsys):
    pytest.importorskip("music21")
    written = musicxml.score({"Piano": musicxml.bars(*[musicxml.note("C4", 16)] * 4)})
    (folder / "prompt.mid").rename(folder / "other.mid")
    outputs = []
    for content in (written, musicxml.compressed(written), as_midi(written, "song.mxl")):
        (folder / "prompt.mid").write_bytes(content)  # recognised by its contents
        assert relpe(folder, "continue", "--bars", "1", "--seed", "3") == 0
        outputs.append((folder / "out.mid").read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]
    assert "without its" not in capsys.readouterr().err
    sung = musicxml.note("C4", 16, "<lyric><text>la</text></lyric>")
    (folder / "prompt.mid").write_bytes(musicxml.score({"Piano": musicxml.bars(*[sung] * 4)}))
    assert relpe(folder, "continue", "--bars", "1", "--seed", "3") == 0
    assert "prompt.mid: the file was read without its lyrics\n" in capsys.readouterr().err
    (folder / "out.mid").unlink()
    (folder / "prompt.mid").write_bytes(b"<score")
    assert relpe(folder, "continue", "--bars", "1") == 2
    assert "prompt.mid: this MusicXML cannot be read" in capsys.readouterr().err
    assert not (folder / "out.mid").exists()


def test_an_unusable_backend_is_reported_in_one_sentence(folder, monkeypatch, capsys):
    monkeypatch.setattr("relpe.decoding.choose.why_not_compiled", lambda _: "no compiler here")
    assert relpe(folder, "generate", "--backend", "auto", "--bars", "1", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["backend"], said["fell_back"]) == ("torch float32", "no compiler here")
    assert relpe(folder, "generate", "--backend", "compiled", "--bars", "1") == 2
    assert "no compiler here" in capsys.readouterr().err


def test_json_contains_what_makes_the_piece_again(folder, capsys):
    # with this seed, the model generates notes, so that the results differ from the prompt
    given = ("--bars", "1", "--variations", "2", "--seed", "1", "--json")
    assert relpe(folder, "continue", *given) == 0
    settings = folder / "made.json"
    settings.write_text(capsys.readouterr().out)
    told = json.loads(settings.read_text())["replay"]
    assert told["model_sha256"] == files_sha256(folder / "small")
    assert (told["model"], told["backend"], told["device"]) == ("small", "torch float32", "cpu")
    assert told["prompt_sha256"] == sha256((folder / "prompt.mid").read_bytes()).hexdigest()
    options = {field.name for field in fields(MusicOptions)} - {"seed"}
    assert told["options"].keys() == options
    first = [(folder / f"out.{number}.mid").read_bytes() for number in (1, 2)]
    replay = ["replay", str(settings), "--output", str(folder / "again.mid")]
    replay += ["--model", str(folder / "small"), "--backend", "torch"]
    assert main([*replay, "--prompt", str(folder / "prompt.mid")]) == 0
    assert [(folder / f"again.{number}.mid").read_bytes() for number in (1, 2)] == first
    assert "differ" not in capsys.readouterr().err
    assert main(replay) == 2
    assert "continues a MIDI file" in capsys.readouterr().err
    assert main([*replay, "--prompt", str(folder / "out.1.mid")]) == 2
    assert "out.1.mid: not the file that was continued" in capsys.readouterr().err
    settings.write_text("{}")
    assert main(replay) == 2
    assert "without the options" in capsys.readouterr().err


TOLD = {
    "model": "small",
    "backend": "compiled float32 for a processor",
    "device": "cpu",
    "seed": 1,
    "options": chosen_options(MusicOptions(bars=1), after_prompt=False),
}


def again(place: Path, told: Mapping[str, object], *extra: str) -> int:
    """Runs `relpe replay` with some settings."""
    (place / "told.json").write_text(json.dumps(told))
    return main(["replay", str(place / "told.json"), "--output", str(place / "b.mid"), *extra])


def test_a_piece_is_made_again_on_the_backend_that_made_it(folder, capsys):
    assert relpe(folder, "generate", "--bars", "1", "--seed", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    options = {field.name for field in fields(MusicOptions)} - {"seed"}
    assert told["replay"]["options"].keys() == options - {*OF_PROMPT}
    small = ["--model", str(folder / "small")]
    assert again(folder, told, *small, "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["backend"] == "torch float32"
    assert "may differ" not in said.err
    assert (folder / "b.mid").read_bytes() == (folder / "out.mid").read_bytes()
    assert again(folder, told, *small, "--prompt", str(folder / "prompt.mid")) == 2
    assert "generated from nothing" in capsys.readouterr().err
    told["replay"] |= {"versions": "relpe 0.0.1", "device": "cuda"}
    assert again(folder, told, *small, "--device", "cpu") == 0
    said = capsys.readouterr().err
    assert said.count("the music may differ") == 1
    assert "generated with cuda (here cpu), with relpe 0.0.1 (here " in said


def test_options_of_the_command_line_override_those_of_the_settings(tmp_path, monkeypatch):
    seen: list[tuple[str, ...]] = []

    def models(given, _):
        seen.append((given.device, given.backend, given.precision))
        raise CommandError("enough")

    monkeypatch.setattr("app.cli.music.chosen_models", models)
    for extra, chosen in (
        ([], ("cpu", "compiled", "float32")),
        (["--backend", "torch"], ("cpu", "torch", "float32")),
        (["--precision", "int8", "--device", "auto"], ("auto", "compiled", "int8")),
    ):
        assert again(tmp_path, TOLD, "--model", "small", *extra) == 2
        assert seen.pop() == chosen


def test_a_replay_that_cannot_be_computed_is_reported_in_one_sentence(folder, monkeypatch, capsys):
    monkeypatch.setattr("relpe.decoding.choose.why_not_compiled", lambda _: "no compiler here")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    model = ["--model", str(folder / "small")]
    for told, extra, words in (
        (TOLD, model, "cannot be compiled: no compiler here"),
        (TOLD | {"backend": "torch float32", "device": "cuda"}, model, "found no CUDA device"),
        (TOLD | {"model": "mymodel"}, [], "give the folder of its model with --model DIR"),
        (TOLD | {"seed": None}, model, "no seed"),
    ):
        assert again(folder, told, *extra) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
        assert not (folder / "b.mid").exists()


def test_a_piece_of_a_folder_named_like_a_released_model_is_not_replayed_with_that_model(
    folder, monkeypatch, capsys
):
    shutil.copytree(folder / "small", folder / "piano")
    monkeypatch.chdir(folder)
    made = ["generate", "--output", "a.mid", "--bars", "1", "--seed", "1", "--backend", "torch"]
    assert main([*made, "--model", "./piano", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert again(folder, told) == 0  # the folder is here
    assert "may differ" not in capsys.readouterr().err
    assert (folder / "b.mid").read_bytes() == (folder / "a.mid").read_bytes()
    (folder / "b.mid").unlink()
    released = released_model("piano")
    assert released is not None
    assert find_model("piano", files_sha256(released)) == Models().folder("piano") == released
    assert find_model("piano", files_sha256(folder / "piano")).resolve() == folder / "piano"
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert again(folder, told) == 2
    said = capsys.readouterr().err
    assert "generated with other weights than those in " in said
    assert "checkpoints/piano; give the folder of its model with --model DIR\n" in said
    assert said.count("\n") == 1
    assert not (folder / "b.mid").exists()
    assert again(folder, told, "--model", "../piano") == 0


def test_a_clip_of_a_batch_is_made_again(folder, capsys):
    prompt, model = str(folder / "prompt.mid"), str(folder / "small")
    made = ["--models", model, "--backend", "torch", "--output", str(folder / "out")]
    made += ["--count", "1", "--bars", "1", "--seed", "7"]
    assert main(["batch", "--prompts", prompt, *made]) == 0
    manifest = str(folder / "out" / "manifest.csv")
    replay = ["replay", manifest, "--model", model, "--output", str(folder / "b.mid")]
    capsys.readouterr()
    assert main([*replay, "--clip", "prompt_v01", "--prompt", prompt]) == 0
    assert "may differ" not in capsys.readouterr().err
    clip = folder / "out" / "midi" / "prompt_v01.mid"
    assert (folder / "b.mid").read_bytes() == clip.read_bytes()
    for extra, words in (
        ([], "choose one with --clip"),
        (["--clip", "x"], "there is no clip 'x', expected one such as prompt_v01"),
        (["--clip", "prompt_v01"], "give that file with --prompt"),
    ):
        assert main([*replay, *extra]) == 2
        assert words in capsys.readouterr().err


def test_a_soundfont_without_audio_is_refused(folder, capsys):
    assert relpe(folder, "generate", "--soundfont", "nope.sf2") == 2
    assert "--soundfont nope.sf2: no audio was requested" in capsys.readouterr().err
    assert not (folder / "out.mid").exists()


def test_without_a_length_a_form_is_written_to_its_end(filling, capsys):
    model = ["--model", str(filling / "second"), "--seed", "1", "--takes", "1"]

    def written(command, *extra):
        assert relpe(filling, command, *model, *extra) == 0
        return capsys.readouterr().err.splitlines()[-1].split(": ")[1]

    assert written("generate", "--form", "A1 B1 A") == "3 bars, seed 1, model second"
    assert written("generate", "--form", "A2 B1", "--bars", "1") == "1 bar, seed 1, model second"
    assert written("generate", "--form", "A2", "--seconds", "1") == "1 bar, seed 1, model second"
    sections = LeadSheet.of(read_midi(filling / "prompt.mid")).phrases
    count = next(bars for letter, _, bars in reversed(sections) if letter == "A")
    assert written("continue", "--form", "A").startswith(f"{count} bar")
    closing = written("continue", "--bars", "1", "--ending", "cadence", "--key", "F#m")
    assert closing.endswith("closes in F# minor")
    assert relpe(filling, "continue", "--form", "Q3 R", *model) == 2
    assert "--form: the section 'R' of the form has 0 bars" in capsys.readouterr().err
