from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from training import cli
from training.cli import main


@pytest.mark.parametrize(
    "command", [[], ["prepare"], ["fit"], ["evaluate"], ["report"], ["export"], ["fit-pointer"]]
)
def test_help_does_not_import_torch(command):
    code = (
        "import sys\nfrom training.cli import main\n"
        "try:\n main([*sys.argv[1:], '--help'])\nexcept SystemExit as end:\n assert end.code == 0\n"
        "assert not {'torch', 'pytorch_lightning', 'relpe.public', 'symusic'} & set(sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "usage: relpe-train" in run.stdout


def test_the_commands_from_midi_to_a_released_model(midi_folder, experiment, tmp_path, capsys):
    data, run, model = tmp_path / "data", tmp_path / "run", tmp_path / "model"
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(experiment))
    commands = [
        ["prepare", "--corpus", midi_folder, "--output", data, "--include", "songs/*.mid"],
        [
            "fit",
            "--config",
            config,
            "--run",
            run,
            "--data",
            data,
            "--set",
            "trainer.token_budget=64",
        ],
        ["evaluate", "--run", run, "--data", data, "--length", "32", "--draws", "2"],
        ["export", "--run", run, "--output", model],
        ["evaluate", "--run", model, "--data", data, "--output", tmp_path / "results"],
    ]
    for command in commands:
        assert main([str(word) for word in command]) == 0
    captured = capsys.readouterr()
    assert "broken.mid" in captured.err
    assert "train: 5 files" in captured.out
    assert f"{run}: step 1, 64 tokens, 0.0 minutes, validation" in captured.out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["prepare", "--corpus", "none", "--output", "out"], "none: found no such file or folder"),
        (["fit", "--config", "none.yaml"], "none.yaml: no such file"),
        (["fit", "--config", "{config}", "--data", "none"], "no prepared corpus"),
        (["fit", "--config", "{config}", "--set", "trainer.speed=3"], "trainer.speed: unknown"),
        (["fit", "--config", "{config}", "--set", "task.kind=art"], "'art'"),
        (["fit", "--config", "{config}", "--set", "task.model.width=15"], "width"),
        (["fit", "--config", "{config}", "--resume"], "no last.ckpt"),
        (["export", "--run", "none", "--output", "out"], "expected the folder of a run"),
        (["evaluate", "--run", "none", "--data", "{data}"], "none"),
        (["evaluate", "--run", "x", "--data", "{data}", "--draws", "0"], "expected at least 1"),
        (["evaluate", "--run", "x", "--data", "{data}", "--threads", "0"], "--threads is 0"),
        (["evaluate", "--run", "x", "--data", "{data}", "--ngram", "9"], "--ngram is 9"),
        (["prepare", "--corpus", ".", "--output", "out", "--workers", "-1"], "--workers is -1"),
        (["fit", "--config", "{config}", "--set", "trainer=3"], "trainer: found 3"),
        (["fit", "--config", "{config}", "--set", "trainer.seed=-1"], "seed is -1"),
        (["fit", "--config", "{config}", "--set", "trainer.token_budget=0"], "token_budget is 0"),
        (["fit", "--config", "{config}", "--set", "trainer.log_every=0"], "log_every is 0"),
        (["fit", "--config", "{config}", "--set", "task.length=0"], "config.task: length is 0"),
        (["fit", "--config", "{config}", "--set", "task.batch_size=0"], "batch_size is 0"),
        (["fit", "--config", "{config}", "--set", "task.validation_windows=0"], "windows is 0"),
        (["fit", "--config", "{config}", "--set", "task.beginnings=2"], "beginnings is 2"),
        (["fit", "--config", "{config}", "--set", "task.transposition=[6,-5]"], "is (6, -5)"),
        (
            ["fit", "--config", "{config}", "--set", "task.model.vocabulary_size=100"],
            "task.model.vocabulary_size is 100, but the tokenizer",
        ),
        (["fit", "--config", "{config}", "--run", "r", "--init-from", "none"], "none"),
        (["fit-pointer", "none", "--data", "{data}"], "no model 'none'"),
        (["fit-pointer", "piano", "--data", "none"], "found no prepared corpus"),
        (["fit-pointer", "piano", "--data", "{data}", "--pieces", "0"], "--pieces is 0"),
        (["fit-pointer", "piano", "--data", "{data}", "--split", "test"], "expected two splits"),
        (["fit-pointer", "groove", "--data", "{data}"], "another vocabulary"),
        (
            ["evaluate", "--run", "x", "--data", "x", "--continuations", "1", "--memory", "2"],
            "--memory is 2.0, expected 0 to 1",
        ),
    ],
)
def test_bad_input_is_reported_in_one_sentence_and_exit_code_2(
    command, message, experiment, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(experiment))
    words = [word.format(config=config, data=data) for word in command]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_damaged_checkpoints_and_other_weights_are_reported_in_one_sentence(
    experiment, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(yaml.safe_dump(experiment))
    wider = experiment["task"] | {"model": experiment["task"]["model"] | {"hidden": 24}}
    Path("wider.yaml").write_text(yaml.safe_dump(experiment | {"task": wider}))
    start = ["fit", "--config", "tiny.yaml", "--run", "run"]
    assert main(start) == 0
    shutil.copytree("run", "cut")
    for name in ("last.ckpt", "best.ckpt"):
        Path("cut", name).write_bytes(Path("run", name).read_bytes()[:3000])
    capsys.readouterr()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    longer = ["--set", "trainer.token_budget=640"]
    for words, message in (
        (
            ["fit", "--config", "tiny.yaml", "--run", "cut", *longer],
            "cut/last.ckpt: the checkpoint is damaged",
        ),
        (
            ["evaluate", "--run", "cut", "--data", str(data)],
            "cut/best.ckpt: the checkpoint is damaged",
        ),
        (["export", "--run", "cut", "--output", "out"], "cut/best.ckpt: the checkpoint is damaged"),
        (["fit", "--config", "wider.yaml", "--run", "new", "--init-from", "run"], "another model"),
        ([*start, *longer, "--init-from", "other"], "other weights"),
        (["fit", "--config", "wider.yaml", "--run", "run", *longer], "another task.model.hidden"),
        ([*start, *longer, "--set", "trainer.ema_decay=0.9"], "another trainer.ema_decay"),
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_system_error_without_a_file_is_reported(monkeypatch, capsys):
    def broken(options):
        raise OSError("no more processes")

    monkeypatch.setattr(cli, "_prepare", broken)
    assert main(["prepare", "--corpus", "x", "--output", "y"]) == 2
    assert capsys.readouterr().err == "relpe-train: no more processes\n"


def test_an_unknown_option_is_reported_by_its_command(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["prepare", "--corpus", "x", "--output", "y", "--tokeniser", "piano"])
    assert capsys.readouterr().err.startswith("relpe-train prepare: unrecognized arguments: --tok")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            ModuleNotFoundError("No module named 'yaml'", name="yaml.nodes"),
            2,
            "relpe-train: the package yaml.nodes is not installed; "
            "run pip install -c constraints.txt -e '.[train]' in the folder of this project\n",
        ),
        (KeyboardInterrupt(), 130, "relpe-train: stopped\n"),
    ],
)
def test_missing_packages_and_ctrl_c_while_loading_are_reported_in_one_sentence(
    error, code, said, monkeypatch, capsys
):
    def refused(options):
        raise error

    monkeypatch.setattr(cli, "_fit", refused)
    words = ["fit", "--config", "x.yaml", "--run", "x"]
    assert main(words) == code
    assert capsys.readouterr().err == said
    error = ModuleNotFoundError("No module named 'relpe.x'", name="relpe.x")
    with pytest.raises(ModuleNotFoundError):  # a bug in the project keeps its traceback
        main(words)


@pytest.mark.parametrize("command", ["prepare", "fit", "evaluate", "export", "fit-pointer"])
def test_help_has_the_default_of_every_option(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    options = capsys.readouterr().out.split("settings for --set")[0].split("\n  -")[1:]
    without = {f"-{option.split()[0]}" for option in options if "default" not in option}
    required = {"--corpus", "--output", "--config", "--run", "--data"}
    flags = {"-h,", "--resume", "--fresh", "--music-only"}
    assert without <= required | flags
