"""Listening studies: the same configuration gives the same bytes, and names reveal nothing."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import soundfile
import yaml

from app.batch import study as studies
from app.batch.clips import Condition
from app.batch.manifest import BLIND_COLUMNS, KEY_COLUMNS, read_manifest
from app.batch.study import StudyConfig, options_of, read_study
from app.errors import CommandError
from tests.support.batches import contents, listed, run
from tests.support.paths import ROOT
from tests.support.scores import two_hands
from tokenization.midi import read_midi, write_midi

if TYPE_CHECKING:
    from app.batch.clips import BatchOptions

CONDITIONS = """
  - {kind: model, name: warm, model: piano}
  - {kind: model, name: cool, model: piano, options: {temperature: 0.8}}
  - {kind: real}
  - {kind: shuffled_bars}
  - {kind: shuffled_notes}
"""
STUDY = f"name: A study\nprompts: [prompts]\nlast_bar: 2\nbars: 2\nconditions: {CONDITIONS}"


def write_config(folder: Path) -> Path:
    """A study of two prompts, without audio."""
    (folder / "prompts").mkdir()
    (folder / "prompts" / "a song.mid").write_bytes(write_midi(two_hands()))
    (folder / "prompts" / "waltz.mid").write_bytes(write_midi(two_hands(metre=(3, 4))))
    path = folder / "study.yaml"
    path.write_text(STUDY + "repetitions: 2\naudio: null\nclip_bars: 1\n")
    return path


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path)


def asked(config: Path, output: Path, **others: Any) -> BatchOptions:
    """The clips of a study, with the model of the tests."""
    made = options_of(read_study(config), config.parent, output, **others)
    conditions = tuple(
        replace(one, model="small") if one.kind == "model" else one for one in made.conditions
    )
    return replace(made, conditions=conditions)


@pytest.fixture(scope="module")
def whole(quick_model, tmp_path_factory):
    """The clips of the study, made in one run; tests do not change them."""
    folder = tmp_path_factory.mktemp("study")
    _, result = run(quick_model, asked(write_config(folder), folder / "whole"))
    assert (result.made, result.total, result.failed) == (18, 18, ())
    return folder / "whole"


def test_a_study_has_each_condition_of_each_prompt(whole, config):
    rows = read_manifest(whole / "manifest.csv").values()
    cells = sorted((row.prompt, row.condition, row.repetition) for row in rows)
    names = ["cool", "shuffled bars", "shuffled notes", "warm"]
    assert cells == sorted(
        (f"prompts/{prompt}.mid", condition, repetition)
        for prompt in ("a song", "waltz")
        for condition, repetitions in (*((name, "12") for name in names), ("real", "1"))
        for repetition in repetitions
    )
    assert {row.seed for row in rows if row.condition == "real"} == {""}
    seeds = [row.seed for row in rows if row.condition != "real"]
    assert len(set(seeds)) == len(seeds)
    assert {row.new_bar for row in rows} == {"2"}
    for row in rows:
        temperature = json.loads(row.settings).get("temperature")
        assert temperature == {"warm": 1.0, "cool": 0.8}.get(row.condition)
    kept = yaml.safe_load((whole / "study.yaml").read_text())
    assert kept["conditions"][1]["options"] == {"temperature": 0.8}
    assert studies.from_plain(StudyConfig, kept) == read_study(config)


def test_the_same_study_gives_the_same_bytes_wherever_it_runs(
    quick_model, whole, tmp_path, config, monkeypatch
):
    monkeypatch.chdir(config.parent)
    run(quick_model, asked(Path("study.yaml"), tmp_path / "again", width=3))
    assert contents(tmp_path / "again") == contents(whole)
    for shard, said in ((3, "1/3 (6 clips), 2/3 (6 clips)"), (1, "2/3 (6 clips)"), (2, "")):
        told, result = run(quick_model, asked(config, tmp_path / "parts", shard=(shard, 3)))
        assert (result.made, result.total) == (6, 6)
        if said:
            assert told == [
                f"{tmp_path / 'parts'}: of 18 clips, {6 + 6 * (shard == 3)} are missing, those of "
                f"--shard {said}; the shard that ends last merges all"
            ]
    assert contents(tmp_path / "parts") == contents(whole)
    with pytest.raises(CommandError, match="already contains a complete batch"):
        run(quick_model, asked(config, tmp_path / "parts", shard=(1, 3)))


def test_shards_that_do_not_fit_are_refused(quick_model, whole, tmp_path, config):
    output = tmp_path / "out"
    run(quick_model, asked(config, output, shard=(1, 2)))
    with pytest.raises(CommandError, match="use the same number of shards"):
        run(quick_model, asked(config, output, shard=(2, 3)))
    with pytest.raises(CommandError, match="complete the shards with --shard"):
        run(quick_model, asked(config, output))
    first = next((output / "shard-1-of-2" / "midi").iterdir())
    first.write_bytes(b"damaged")
    with pytest.raises(CommandError, match=f"midi/{first.name} is damaged; run --shard 1/2 again"):
        run(quick_model, asked(config, output, shard=(2, 2)))
    run(quick_model, asked(config, output, shard=(1, 2), resume=True))
    assert contents(output) == contents(whole)


def test_files_for_listeners_reveal_no_condition(quick_model, whole, tmp_path, config):
    out = whole
    rows = list(read_manifest(out / "manifest.csv").values())
    with (out / "manifest.csv").open() as file:
        assert tuple(file.readline().strip().split(",")) == BLIND_COLUMNS
    with (out / "key.csv").open() as file:
        assert tuple(file.readline().strip().split(",")) == KEY_COLUMNS
    words = {b"small", b"warm", b"cool", b"real", b"shuffled", b"temperature"}
    words |= {row.seed.encode() for row in rows if row.seed}
    for path in [out / "manifest.csv", *(out / "midi").iterdir()]:
        assert not [word for word in words if word in path.read_bytes()], path
    for row in rows:
        data = (out / row.file).read_bytes()
        assert len(Path(row.file).stem) == 16
        assert not [kind for kind in range(1, 8) if bytes((0, 0xFF, kind)) in data]  # texts, names
    # all files have one time, and the manifest is in the order of names
    assert len({path.stat().st_mtime for path in out.rglob("*.*") if path.name != ".lock"}) == 1
    assert [row["file"] for row in listed(out)] == sorted(row.file for row in rows)
    of_prompt = [row for row in rows if "song" in row.prompt]
    clips = [read_midi((out / row.file).read_bytes()) for row in of_prompt]
    assert len({clip.ticks_per_beat for clip in clips}) == 1
    for column in ("bars", "seconds", "new_bar", "new_seconds", "clip_seconds"):
        assert len({getattr(row, column) for row in of_prompt}) == 1
    # another seed gives other names
    other = replace(asked(config, tmp_path / "b"))
    assert other.study is not None
    run(quick_model, replace(other, study=replace(other.study, seed=9)))
    assert not contents(out / "midi").keys() & contents(tmp_path / "b" / "midi").keys()


def test_what_cannot_be_made_ends_the_study_before_it_begins(quick_model, tmp_path, config):
    (tmp_path / "prompts" / "b.mid").write_bytes(write_midi(two_hands(bars=3)))
    with pytest.raises(CommandError, match="the file has 3 bars, but 2 bars of real music after"):
        run(quick_model, asked(config, tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    config.write_text(config.read_text().replace("cool, model: piano", "cool, model: nowhere"))
    with pytest.raises(CommandError, match="the condition 'cool': no model 'nowhere': expected"):
        asked(config, tmp_path / "out")


def test_json_of_mirex_goes_in_and_comes_out(quick_model, tmp_path):
    prompt = [{"start": 16 + i, "pitch": 60 + i % 12, "duration": 2} for i in range(64)]
    real = [{"start": 80 + 2 * i, "pitch": 50 + i % 24, "duration": 2} for i in range(96)]
    (tmp_path / "p.json").write_text(json.dumps({"prompt": prompt, "generation": real}))
    config = tmp_path / "study.yaml"
    config.write_text(
        "name: MIREX\nprompts: [p.json]\nbars: 12\naudio: null\n"
        "conditions: [{kind: model, name: m, model: piano}, {kind: real}]\n"
    )
    run(quick_model, asked(config, tmp_path / "out"))
    rows = read_manifest(tmp_path / "out" / "manifest.csv").values()
    files = {row.condition: f"{Path(row.file).stem}.json" for row in rows}
    folder = tmp_path / "out" / "mirex"
    told = {name: json.loads((folder / file).read_text()) for name, file in files.items()}
    assert told["real"] == {"generation": real}
    for note in told["m"]["generation"]:
        assert 80 <= note["start"] < note["start"] + note["duration"] <= 272
        assert 0 <= note["pitch"] <= 127


def test_all_stimuli_of_a_prompt_are_equally_loud_and_long(quick_model, tmp_path, config):
    config.write_text(
        STUDY.replace("[prompts]", "[prompts/a song.mid]") + "loudness: -12\nclip: new\n"
    )
    run(quick_model, asked(config, tmp_path / "out"))
    rows = read_manifest(tmp_path / "out" / "manifest.csv").values()
    (loudness,) = {row.loudness for row in rows}
    assert -30 < float(loudness) < -12.1  # the peaks of at least one were too high
    assert len({(tmp_path / "out" / row.audio).stat().st_size for row in rows}) == 1
    import pyloudnorm

    for row in rows:
        assert row.damage(tmp_path / "out") is None
        assert (row.soundfont, len(row.soundfont_sha256)) == ("TimGM6mb.sf2", 64)
        samples, rate = soundfile.read(tmp_path / "out" / row.audio)
        assert len(samples) / rate == pytest.approx(float(row.clip_seconds) + 2, abs=1e-3)
        measured = pyloudnorm.Meter(rate).integrated_loudness(samples)
        assert measured == pytest.approx(float(loudness), abs=0.1)
    before = contents(tmp_path / "out")
    (tmp_path / "out" / next(row.audio for row in rows)).write_bytes(b"")
    _, result = run(quick_model, asked(config, tmp_path / "out", resume=True))
    assert (result.kept, result.made) == (4, 1)
    assert contents(tmp_path / "out") == before
    told = yaml.safe_load((tmp_path / "out" / "webmushra.yaml").read_text())
    (page,) = told["pages"][1][1:]
    assert sorted(page["stimuli"]) == sorted(Path(row.audio).stem for row in rows)


WRONG = [
    ("name: A study", "nam: A study", "study.nam: unknown, expected one of name"),
    ("name: A study", "name: ''", "name is empty"),
    ("name: A study", "name: [A", "this is not YAML"),
    ("last_bar: 2", "last_bar: 0", "last_bar is 0, expected at least 1"),
    ("bars: 2\ncond", "bars: 2\nloudness: 3\ncond", "loudness is 3.0, expected -70 to -10"),
    ("temperature: 0.8", "seed: 8", "options.seed: all conditions have the same length"),
    ("temperature: 0.8", "beats: grid", "set bars and beats for the whole study"),
    ("name: cool", "name: warm", "2 conditions are named 'warm'"),
    ("prompts: [prompts]\n", "", "prompts are empty, but the condition 'real'"),
]


def test_a_wrong_key_or_value_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "study.yaml"
    for text, other, said in WRONG:
        assert text in STUDY
        path.write_text(STUDY.replace(text, other, 1))
        with pytest.raises(CommandError) as refused:
            read_study(path)
        message = str(refused.value)
        assert message.startswith(f"{path}: ")
        assert said in message
        assert "\n" not in message
        assert "__init__" not in message


def test_the_example_is_a_study_of_the_released_models(quick_model, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = tmp_path / "examples" / "listening" / "study.yaml"
    study = read_study(path)
    whole = options_of(study, path.parent, tmp_path / "out")
    models = [one.model for one in whole.conditions if one.kind == "model"]
    assert models == ["piano", "piano-spe"]
    small = (Condition("small", whole.music, "model", "small"), *whole.conditions[2:])
    _, result = run(
        quick_model,
        replace(whole, conditions=small, prompts=whole.prompts[:1], count=1, audio=None),
    )
    assert (result.made, result.failed) == (4, ())
