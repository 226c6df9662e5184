from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import yaml

import relpe
from training import cli
from training.cli import main

COMMANDS = ("prepare", "fit", "evaluate", "export", "fit-pointer")


def test_help_and_version_need_the_core_packages_alone():
    code = (
        "import sys\n"
        "for name in ('yaml', 'torch', 'pooch', 'lightning_fabric', 'symusic', 'relpe.public'):\n"
        "    sys.modules[name] = None\n"
        "from training.cli import main\n"
        "for words in ['--version'], ['--help'], *([name, '--help'] for name in sys.argv[1:]):\n"
        "    try:\n        main(words)\n"
        "    except SystemExit as end:\n        assert end.code == 0\n"
    )
    command = [sys.executable, "-c", code, *COMMANDS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"relpe-train {version('relpe')}\n")
    assert run.stdout.count("usage: relpe-train") == 1 + len(COMMANDS)
    assert relpe.__version__ == version("relpe")


def test_the_commands_from_midi_to_a_released_model(midi_folder, experiment, tmp_path, capsys):
    data, run, model = tmp_path / "data", tmp_path / "run", tmp_path / "model"
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(experiment))
    one_step = ["--set", "trainer.token_budget=64"]
    commands = [
        ["prepare", "--corpus", midi_folder, "--output", data, "--include", "songs/*.mid"],
        ["fit", "--config", config, "--run", run, "--data", data, *one_step],
        ["evaluate", "--run", run, "--data", data, "--length", "32"],
        ["export", "--run", run, "--output", model],
    ]
    for command in commands:
        assert main([str(word) for word in command]) == 0
    captured = capsys.readouterr()
    assert "broken.mid" in captured.err
    assert "train: 5 files" in captured.out
    # minutes depend on the machine
    assert re.search(r"run: step 1, 64 tokens, \d+\.\d minutes, validation", captured.out)


def test_bad_input_is_reported_in_one_sentence_and_exit_code_2(
    experiment, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(experiment))
    data_text = str(data)
    fit = ["fit", "--config", "tiny.yaml"]
    evaluate = ["evaluate", "--run", "x", "--data", data_text]
    for words, message in (
        (["prepare", "--corpus", "none", "--output", "out"], "none: found no such file or folder"),
        (["fit", "--config", "none.yaml"], "none.yaml: no such file"),
        ([*fit, "--data", "none"], "no prepared corpus"),
        ([*fit, "--set", "trainer.sed=1"], "trainer.sed: unknown, expected one of token_budget"),
        ([*fit, "--set", "task.kind=art"], "'art'"),
        ([*fit, "--set", "task.transposition=[6,-5]"], "is (6, -5)"),
        ([*fit, "--set", "task.model.vocabulary_size=100"], "is 100, but the tokenizer"),
        ([*fit, "--resume"], "no last.ckpt"),
        ([*fit, "--run", "r", "--init-from", "none"], "none"),
        (["export", "--run", "none", "--output", "out"], "expected the folder of a run"),
        (["evaluate", "--run", "none"], "no model 'none'"),
        ([*evaluate, "--continuations", "1", "--memory", "2"], "--memory is 2.0, expected 0 to 1"),
        (["fit-pointer", "none", "--data", data_text], "no model 'none'"),
        (["fit-pointer", "piano", "--data", "none"], "found no prepared corpus"),
        (["fit-pointer", "piano", "--data", data_text, "--split", "test"], "expected two splits"),
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
        assert "Traceback" not in error
        assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]


def test_missing_packages_and_ctrl_c_while_loading_are_reported_in_one_sentence(
    monkeypatch, capsys
):
    raised = [
        ModuleNotFoundError("No module named 'yaml'", name="yaml.nodes"),
        KeyboardInterrupt(),
        OSError("no more processes"),
        ModuleNotFoundError("No module named 'relpe.x'", name="relpe.x"),
    ]

    def refused(command):
        raise raised.pop(0)

    monkeypatch.setattr(cli.Fit, "run", refused)
    words = ["fit", "--config", "x.yaml", "--run", "x"]
    for code, said in (
        (2, "the package yaml.nodes is not installed; run pip install "),
        (130, "stopped\n"),
        (2, "no more processes\n"),
    ):
        assert main(words) == code
        assert capsys.readouterr().err.startswith(f"relpe-train: {said}")
    with pytest.raises(ModuleNotFoundError):  # a bug in the project keeps its traceback
        main(words)


def test_help_has_the_default_of_every_option(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        options = capsys.readouterr().out.split("settings for --set")[0].split("\n  -")[1:]
        without = {f"-{option.split()[0]}" for option in options if "default" not in option}
        required = {"--corpus", "--output", "--config", "--run", "--data"}
        flags = {"-h,", "--resume", "--fresh", "--music-only"}
        assert without <= required | flags
