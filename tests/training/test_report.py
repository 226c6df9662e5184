from __future__ import annotations

import csv
import json
import math
from copy import deepcopy

import numpy as np
import pytest

from training.cli import main
from training.errors import TrainingError
from training.experiment import build_experiment
from training.export import _music
from training.report import _validations, draw_results, goals, report, table
from training.run import fit

HISTOGRAM = {
    "divergence": 0.1,
    "divergence_of_real_halves": 0.05,
    "generated": [3, 1],
    "real": [1, 1],
}


def results(**changes):
    """What evaluate writes, of a model that reaches all goals."""
    figure = {"mean": 0.2, "deviation": 0.1}
    style = {"onset_drum": {g: {"mean": [0.8, 0.8, 0.8, 0.75]} for g in ("generated", "real")}}
    copied = {"shares": {"8": 0.25, "16": None}, "longest": 12, "notes": 900}
    found = {
        "model": "x",
        "weights": {"file": "best.ckpt", "tokens": 1_000_000},
        "parameters": 1234,
        "data": "abcdef0123456789",
        "split": "test",
        "pieces": 12,
        "tokens": 3456,
        "draws": 1,
        "trained_length": 512,
        "windows_512": {"nats_per_token": 1.25, "nats_per_note": 4.5, "nats_per_bar": 70.125},
        "streaming": {"nats_per_token": 1.2, "nats_per_note": 4.25},
        "by_position": {
            "bins": [
                {
                    "first": 1,
                    "last": 256,
                    "nats_per_token": 1.5,
                    "standard_error": None,
                    "pieces": 1,
                },
                {
                    "first": 257,
                    "last": 512,
                    "nats_per_token": 1.0,
                    "standard_error": 0.1,
                    "pieces": 1,
                },
            ]
        },
        "beyond_training": {
            "pieces": 7,
            "within": 1.0,
            "within_deviation": 0.1,
            "beyond": 1.04,
            "beyond_deviation": None,
            "difference": 0.04,
            "difference_deviation": 0.02,
        },
        "relativity": {"length": 64, "translation_invariance": {"mean": 0.125}},
        "music": {
            "protocol": {
                "continuations": 4,
                "prompts": 2,
                "pieces": [0, 5],
                "prompt_bars": 8,
                "bars": 32,
                "real_bars": 30.5,
                "temperature": 1.0,
                "top_p": 0.95,
            },
            "figures": {g: {"bars_of_prompt": dict(figure)} for g in ("generated", "real")},
            "faults": {
                g: {"stuck_notes": 0, "longer_silences": 0, "silent_instruments": 0}
                for g in ("generated", "real")
            },
            "style": {"exact": style, "compat": {}},
            "self_similarity": {"lags": [1, 2], "generated": [0.5, None], "real": [0.5, 0.25]},
            "histograms": {"pitch_class": HISTOGRAM, "duration": HISTOGRAM},
            "copies": {"generated": copied, "real": copied},
        },
    }
    return deepcopy(found) | changes


def changed(path, value):
    found = results()
    part = found
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return found


def test_a_model_that_reaches_every_goal_misses_none():
    found = goals(results())
    assert len(found) == 6
    assert all(goal.holds for goal in found)
    assert all(goal.line().startswith("holds: ") for goal in found)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("beyond_training", "difference"), 0.051, "0.05 above those within (+0.051, 7 pieces)"),
        (("music", "faults", "generated", "stuck_notes"), 1, "1 of 4 continuations fail"),
        (("music", "faults", "generated", "longer_silences"), 2, "no run of empty bars"),
        (("music", "faults", "generated", "silent_instruments"), 4, "still plays after 32 bars"),
        (
            ("music", "style", "exact", "onset_drum", "generated", "mean"),
            [0.8, 0.8, 0.8, 0.71],
            "(0.710 of 0.800, 89%)",
        ),
        (("music", "figures", "generated", "bars_of_prompt", "mean"), 0.21, "0.210, real 0.200"),
    ],
)
def test_each_goal_is_missed_alone(path, value, said):
    missed = [goal.line() for goal in goals(changed(path, value)) if not goal.holds]
    (line,) = missed
    assert line.startswith("MISSED: ")
    assert said in line


def test_a_model_card_has_all_figures_beside_real_music_and_the_goals():
    found = results()
    card = "\n".join(_music(found))
    assert all(line.replace("| a |", "| model |") in card for line in table({"a": found}))
    assert all(f"- {goal.line()}" in card for goal in goals(found))


def test_nothing_is_said_of_what_was_not_measured():
    found = results(beyond_training=None)
    del found["music"]
    assert goals(found) == []
    assert not any("style" in line or "beyond" in line for line in table({"a": found}))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_table_has_a_column_for_each_model_and_one_for_their_real_music():
    other = results(parameters=99)
    lines = [cells(line) for line in table({"a": results(), "b": other})]
    assert lines[0] == ["", "a", "b", "real music"]
    assert {len(line) for line in lines} == {4}
    rows = {line[0]: line[1:] for line in lines}
    assert rows["parameters"] == ["1,234", "99", ""]
    assert rows["nats per bar, windows 512"] == ["70.12", "70.12", ""]
    assert "nats per bar, whole pieces" not in rows
    assert rows["beyond minus within (± over pieces)"][0] == "0.040 ± 0.020"
    assert rows["nats per token beyond it"][0] == "1.040"
    assert rows["bars of prompt"] == ["0.2", "0.2", "0.2"]
    assert rows["runs of 16 notes found in the train split"] == ["–", "–", "–"]


def test_models_on_other_data_stand_beside_their_own_real_music():
    lines = table({"a": results(), "b": results(data="other")})
    assert cells(lines[0]) == ["", "a", "real music for a", "b", "real music for b"]


def test_several_models_are_reported_with_their_training_curves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, released = tmp_path / "runs/one", tmp_path / "evaluation/two"
    (run / "evaluation").mkdir(parents=True)
    released.mkdir(parents=True)
    (run / "config.yaml").write_text("")
    (run / "metrics.csv").write_text(
        "step,tokens,validation/nats_per_token\n1,10,\n2,,3.5\n3,30,2.5\n"
    )
    (run / "evaluation/results.json").write_text(json.dumps(results()))
    (released / "results.json").write_text(json.dumps(results(parameters=5)))
    assert main(["report", "runs/one", "evaluation/two", "--output", "out"]) == 0
    text = (tmp_path / "out/report.md").read_text()
    assert cells(text.splitlines()[0]) == ["", "one", "two", "real music"]
    assert "Goals of one:" in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.md", "report.png"]
    assert (tmp_path / "out/report.png").read_bytes().startswith(b"\x89PNG")


def test_the_curve_of_a_run_has_the_tokens_of_its_validations(experiment, tmp_path):
    fit(build_experiment(experiment), tmp_path, show=False)
    tokens, nats = _validations(tmp_path / "metrics.csv")
    task = build_experiment(experiment).task
    assert tokens == [step * task.length * task.batch_size for step in (4, 6)]
    assert all(math.isfinite(value) for value in nats)
    with (tmp_path / "metrics.csv").open(newline="") as stream:
        rows = [*csv.DictReader(stream)]
    assert [row["tokens"] for row in rows if row["validation/nats_per_token"]] == [
        str(int(count)) for count in tokens
    ]


def test_a_model_that_was_not_measured_is_named_with_the_command_that_does(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(TrainingError, match=r"has not been measured; run relpe-train evaluate"):
        report([str(tmp_path)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_picture_shows_what_there_is(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig

    def kept(figure, *arguments, **options):
        drawn.append([axes for axes in figure.axes if axes.lines])
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    draw_results({"a": results()}, tmp_path / "a.png", {"a": ([10, 20], [3.0, 2.0])})
    draw_results({"a": results(), "b": results()}, tmp_path / "b.png")
    without = results()
    del without["music"]
    draw_results({"a": without}, tmp_path / "c.png")
    assert [len(panels) for panels in drawn] == [6, 5, 1]
    labels = [axes.get_xlabel() for axes in drawn[0]]
    assert labels[0] == "million tokens learnt from"
    style = drawn[0][2]
    np.testing.assert_allclose(style.lines[0].get_ydata(), [0.8, 0.8, 0.8, 0.75])
