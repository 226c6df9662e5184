from __future__ import annotations

import csv
import inspect
import json
import logging
import math
from copy import deepcopy

import numpy as np
import pytest

from relpe.models.checkpoint import find_checkpoint
from tests.training.conftest import piece
from training.cli import main
from training.errors import TrainingError
from training.evaluation.generated_music import STUCK_BARS
from training.evaluation.metrics.bars import BarNotes
from training.evaluation.metrics.structure import playing_at_end, structure, stuck_notes
from training.evaluation.plots import draw_results, read_curve
from training.evaluation.report import goals, music_rows, report, rows_of, table
from training.experiment import build_experiment
from training.release import _music, export
from training.runs.fit import fit
from training.runs.lineage import read_history, total_tokens
from training.runs.weights import load_decoder

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


def test_a_model_card_has_figures_of_music_alone_beside_real_music_and_the_goals():
    found = results()
    card = "\n".join(_music(found))
    of_music = table({"model": found}, music_rows)
    assert all(line in card for line in of_music)
    others = {row.label for row in rows_of(found)} - {row.label for row in music_rows(found)}
    assert "nats per token, whole pieces" in others
    assert not {cells(line)[0] for line in card.splitlines() if line.startswith("|")} & others
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
    assert rows["bars equal to a prompt bar, share"] == ["0.2", "0.2", "0.2"]
    assert rows["runs of 16 notes found in the train split, share"] == ["–", "–", "–"]


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


def test_the_curve_of_a_run_has_the_tokens_of_itsread_curve(experiment, tmp_path):
    fit(build_experiment(experiment), tmp_path, show=False)
    tokens, nats = read_curve(tmp_path / "metrics.csv")
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


@pytest.fixture
def figures(monkeypatch):
    """Pictures as they are drawn."""
    from matplotlib.figure import Figure

    kept = []
    save = Figure.savefig

    def keep(figure, *arguments, **options):
        kept.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


def panels(figure):
    return [axes for axes in figure.axes if axes.lines or axes.patches]


def test_a_picture_shows_what_there_is(tmp_path, figures):
    draw_results({"a": results()}, tmp_path / "a.png", {"a": ([10, 20], [3.0, 2.0])})
    draw_results({"a": results(), "b": results()}, tmp_path / "b.png")
    without = results()
    del without["music"]
    draw_results({"a": without}, tmp_path / "c.png")
    drawn = [panels(figure) for figure in figures]
    assert [len(found) for found in drawn] == [7, 6, 2]
    labels = [axes.get_xlabel() for axes in drawn[0]]
    assert labels[0] == "million tokens of the run"
    style = drawn[0][3]
    np.testing.assert_allclose(style.lines[0].get_ydata(), [0.8, 0.8, 0.8, 0.75])


def test_likelihood_and_loops_are_drawn_where_no_piece_is_long_and_no_music_was_made(
    tmp_path, figures
):
    found = results(by_position={"reach": 4096, "pieces": 0, "bins": []}, beyond_training=None)
    found["loops"] = {"pieces": 3, "nats_per_token": {"1": 2.0, "2": 1.0, "4": 0.5}}
    del found["music"]
    draw_results({"a": found}, tmp_path / "a.png")
    readings, loops = panels(figures[0])
    assert [bar.get_height() for bar in readings.patches] == [1.25, 1.2]
    names = [label.get_text() for label in readings.get_xticklabels()]
    assert names == ["windows of 512", "whole pieces"]
    np.testing.assert_array_equal(loops.lines[0].get_xydata(), [[1, 2], [2, 1], [4, 0.5]])


def test_nothing_to_draw_is_said_and_leaves_no_picture(tmp_path, caplog):
    found = results(by_position={"bins": []}, loops={"pieces": 0, "nats_per_token": {}})
    for name in ("music", "windows_512", "streaming"):
        del found[name]
    (tmp_path / "a.png").write_bytes(b"of earlier results")
    with caplog.at_level(logging.INFO):
        draw_results({"a": found}, tmp_path / "a.png", {"a": ([], [])})
    assert not any(tmp_path.iterdir())
    (said,) = caplog.messages
    assert "a.png: not drawn, since nothing was measured" in said


def test_a_model_has_one_colour_and_real_music_is_drawn_once(tmp_path, figures):
    found = {name: results(loops={"nats_per_token": {"1": 1.0, "2": 0.5}}) for name in "abc"}
    found["c"]["data"] = "other"
    found["b"]["by_position"]["bins"] = []  # so that c stands second there
    # a curve of b and c alone: a was released
    curves = {name: ([10.0, 20.0], [3.0, 2.0]) for name in ("b", "c")}
    draw_results(found, tmp_path / "a.png", curves)
    from matplotlib.colors import to_rgba

    legend = figures[0].legends[0]
    handles = {handle.get_label(): handle for handle in legend.get_lines()}
    assert list(handles) == ["a", "b", "c", "real music for a, b", "real music for c"]
    look = [(to_rgba(h.get_color()), h.get_linestyle()) for h in handles.values()]
    assert len(set(look)) == 5
    a, b, c, real, other = look
    assert real[0] == other[0] not in {a[0], b[0], c[0]}
    training, places, readings, *rest = panels(figures[0])

    def looks(axes):
        lines = [line for line in axes.lines if line.get_label() != "training length"]
        return [(to_rgba(line.get_color()), line.get_linestyle()) for line in lines]

    assert looks(training) == [b, c]
    assert looks(places) == [a, c]
    assert [to_rgba(area.get_facecolor()[0])[:3] for area in places.collections] == [
        a[0][:3],
        c[0][:3],
    ]
    assert [bar.get_facecolor() for bar in readings.patches] == [x[0] for x in (a, a, b, b, c, c)]
    assert looks(rest[0]) == [a, b, c]
    assert len(rest) == 5
    assert all(looks(axes) == [a, b, c, real, other] for axes in rest[1:])


def test_no_legend_lies_on_a_panel(tmp_path, figures):
    draw_results({"a": results()}, tmp_path / "a.png", {"a": ([10, 20], [3.0, 2.0])})
    (figure,) = figures
    boxes = [axes.get_window_extent() for axes in panels(figure)]
    own = [legend for axes in figure.axes if (legend := axes.get_legend())]
    assert len(own) == 2  # training length and profiles
    for legend in (*figure.legends, *own):
        extent = legend.get_window_extent()
        assert not any(extent.overlaps(box) for box in boxes)


def test_the_best_ngram_model_stands_beside_a_model_by_name():
    found = results()
    found["5-gram"] = {
        "kneser_ney, untransposed": {"nats_per_token": 3.1, "nats_per_note": 11.0},
        "kneser_ney, 12 transpositions": {"nats_per_token": 2.9, "nats_per_note": 10.5},
    }
    rows = {row.label: row.value for row in rows_of(found) if "gram" in row.label}
    assert rows == {
        "nats per token, best 5-gram (kneser ney, 12 transpositions)": "2.9000",
        "nats per note, best 5-gram (kneser ney, 12 transpositions)": "10.500",
    }


def tokens_of(found):
    (row,) = [row for row in rows_of(found) if row.label == "tokens learnt from, all runs"]
    return row.value


def measured_of(model):
    return results(model=str(model), weights=load_decoder(model)[1]._asdict())


def test_tokens_are_those_of_all_runs(experiment, tmp_path, monkeypatch):
    task = build_experiment(experiment)
    fit(task, tmp_path / "one", show=False)
    fit(task, tmp_path / "runs/two", init_from=tmp_path / "one", show=False)
    model = export(tmp_path / "runs/two", tmp_path / "model")
    assert tokens_of(measured_of(tmp_path / "one")) == "384"
    for place in (tmp_path / "runs/two", model):
        found = measured_of(place)
        assert tokens_of(found) == "768"

    # results tell less where the model is gone, or another one
    assert tokens_of(measured_of(tmp_path / "one") | {"model": "gone"}) == "at least 384"
    assert tokens_of(found | {"model": "gone"}) == "unknown"
    assert tokens_of(found | {"weights": found["weights"] | {"digest": "x"}}) == "unknown"
    (model / "training.json").write_text("{")
    assert tokens_of(found) == "unknown"

    # and a report looks where the model is by now
    (tmp_path / "runs/two/evaluation").mkdir()
    moved = measured_of(tmp_path / "runs/two") | {"model": "elsewhere"}
    (tmp_path / "runs/two/evaluation/results.json").write_text(json.dumps(moved))
    monkeypatch.chdir(tmp_path)
    for name in ("runs/two", "runs/two/evaluation"):
        text = report([name], tmp_path / "out").read_text()
        assert "| tokens learnt from, all runs | 768 |" in text


def test_a_released_model_tells_the_tokens_of_all_runs():
    runs = read_history(find_checkpoint("groove"))
    weights = {"file": "model.safetensors", "digest": runs[-1].weights, "tokens": None}
    told = tokens_of(results(model="groove", weights=weights))
    assert told == total_tokens(runs)


def test_rows_of_music_have_names_of_their_own_without_names_of_code():
    found = results()
    names = structure(BarNotes.of(piece(0)), 4)
    for group in ("generated", "real"):
        found["music"]["figures"][group] = {n: {"mean": 0.5, "deviation": 0.1} for n in names}
    labels = [row.label for row in music_rows(found)]
    assert len(labels) == len(set(labels))
    plain = [label for label in labels if label not in {name.replace("_", " ") for name in names}]
    assert len(plain) == len(labels)
    assert not any(word in label for label in labels for word in ("_", "lag", "compat", "exact"))


def default(function, name):
    return inspect.signature(function).parameters[name].default


def test_rows_of_long_notes_say_how_long():
    labels = [row.label for row in music_rows(results())]
    assert any(f"a note longer than {STUCK_BARS} bars" in label for label in labels)
    last = default(playing_at_end, "last_bars")
    assert any(f"silent in the last {last} bars" in label for label in labels)
    found = changed(("music", "figures", "generated"), {"stuck_share": {"mean": 0.1}})
    found["music"]["figures"]["real"] = {"stuck_share": {"mean": 0.2}}
    bars = default(stuck_notes, "bars")
    assert (f"notes longer than {bars} bars, share", "0.1", "0.2") in [*music_rows(found)]


def test_one_piece_has_no_halves_to_compare():
    for prompts, told in ((2, "0.05"), (1, "–")):
        found = changed(("music", "protocol", "prompts"), prompts)
        rows = [row for row in music_rows(found) if row.label.startswith("divergence")]
        assert [(row.value, row.real) for row in rows] == [("0.1", told)] * 2
