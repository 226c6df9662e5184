from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from training.cli import main


@pytest.mark.parametrize("command", [[], ["prepare"], ["fit"], ["evaluate"], ["export"]])
def test_help_answers_without_the_engine(command):
    code = (
        "import sys\nfrom training.cli import main\n"
        "try:\n main([*sys.argv[1:], '--help'])\nexcept SystemExit as end:\n assert end.code == 0\n"
        "assert not {'torch', 'pytorch_lightning', 'relpe', 'symusic'} & set(sys.modules)\n"
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
        (["prepare", "--corpus", "none", "--output", "out"], "none: found nothing"),
        (["fit", "--config", "none.yaml"], "none.yaml: found no such file"),
        (["fit", "--config", "{config}", "--data", "none"], "no prepared corpus"),
        (["fit", "--config", "{config}", "--set", "trainer.speed=3"], "trainer.speed: unknown"),
        (["fit", "--config", "{config}", "--set", "task.kind=art"], "'art'"),
        (["fit", "--config", "{config}", "--set", "task.model.width=15"], "width"),
        (["fit", "--config", "{config}", "--resume"], "no last.ckpt"),
        (["export", "--run", "none", "--output", "out"], "expected a run folder"),
        (["evaluate", "--run", "none", "--data", "{data}"], "none"),
        (["evaluate", "--run", "x", "--data", "{data}", "--draws", "0"], "expected 1 or more"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
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


def test_options_are_not_abbreviated():
    with pytest.raises(SystemExit):
        main(["fit", "--conf", "x.yaml"])
