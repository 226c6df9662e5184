from __future__ import annotations

import json
from copy import deepcopy

import pytest

from tests.support.results import DIFFERENCE, MEANS, changed, music, results
from tests.support.runs import piece
from tokenization.measures.bars import BarNotes
from training.cli import main
from training.errors import TrainingError
from training.evaluation.generated_music import figures_of
from training.evaluation.goals import PIANO_LIMITS, form_goals, goal_lines, goals
from training.evaluation.report import (
    music_rows,
    music_table,
    music_tables,
    report,
    rows_of,
    table,
)
from training.experiment import build_experiment
from training.release import export
from training.runs.fit import fit
from training.runs.weights import load_decoder


def test_whole_pieces_have_rows_without_and_with_the_pointer():
    mixed = {"nats_per_token": 1.0, "nats_per_note": 3.5, "nats_per_bar": 50.0}
    rows = {row.label: row.value for row in rows_of(results(streaming_pointer=mixed))}
    assert rows["nats per note, whole pieces"] == "4.250"
    assert rows["nats per note, whole pieces, with pointer"] == "3.500"
    assert not any("pointer" in row.label for row in rows_of(results()))
    found = music()
    assert not any("memory" in row.label for row in music_rows(found))
    found["protocol"]["memory"] = 0.5
    assert ("memory: factor of the pointer's odds", "0.5") in {r[:2] for r in music_rows(found)}


def test_each_goal_is_missed_alone():
    assert [goal.line()[:7] for goal in goals(results())] == ["holds: "] * 10
    music, figures = ("music_8_32",), ("music_8_32", "figures", "generated")
    for path, value, said in (
        (("beyond_training", "difference"), 0.051, "0.05 above those within (+0.051, 7 pieces)"),
        ((*music, "faults", "generated", "stuck_notes"), 1, "1 of 4 continuations fail"),
        ((*music, "faults", "generated", "accident"), 1, "accidents in at most 8% of the"),
        ((*music, "faults", "generated", "silent_instruments"), 4, "still plays after 32 bars"),
        (
            (*music, "style", "exact", "onset_drum", "generated", "mean"),
            [0.8, 0.8, 0.8, 0.71],
            "(0.710 of 0.800, 89%)",
        ),
        ((*figures, "harmonic_period", "mean"), 0.39, "at least 0.40 (0.390, real 0.500)"),
        ((*figures, "static_chord", "mean"), 0.03, "at most 0.02"),
        (
            (*figures, "self_similarity_16", "mean"),
            0.28,
            "at least 0.03, at most 0.27 (0.280, real 0.150)",
        ),
        ((*figures, "harmonic_period", "mean"), None, "undefined"),
    ):
        (line,) = [goal.line() for goal in goals(changed(path, value)) if not goal.holds]
        assert line.startswith("MISSED: ")
        assert said in line


def test_unmeasured_results_are_not_reported():
    found = results(beyond_training=None)
    del found["music_8_32"]
    assert goals(found) == goal_lines(found) == music_tables({"a": found}) == []
    assert not any("style" in line or "beyond" in line for line in table({"a": found}))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_table_has_a_column_for_each_model_and_one_for_their_real_music():
    other = results(parameters=99)
    lines = [cells(line) for line in table({"a": results(), "b": other})]
    assert lines[0] == ["", "a", "b"]
    assert {len(line) for line in lines} == {3}
    rows = {line[0]: line[1:] for line in lines}
    assert rows["parameters"] == ["1,234", "99"]
    assert rows["nats per bar, windows of 512 tokens"] == ["70.12", "70.12"]
    assert rows["beyond minus within (± standard deviation over pieces)"][0] == "0.040 ± 0.020"
    assert rows["nats per token beyond it"][0] == "1.040"
    lines = [cells(line) for line in music_table({"a": results(), "b": other}, "music_8_32")]
    assert lines[0] == ["", "a", "b", "real music"]
    rows = {line[0]: line[1:] for line in lines}
    said = "0.2 (-0.05 ± 0.025)"
    assert rows["bars equal to a prompt bar, share"] == [said, said, "0.2"]
    assert rows["runs of 16 notes found in the train split, share"] == ["–", "–", "–"]
    # models on other data are compared with their own real music
    lines = music_table({"a": results(), "b": results(data="other")}, "music_8_32")
    assert cells(lines[0]) == ["", "a", "real music for a", "b", "real music for b"]
    # a single piece has no halves to compare
    for prompts, halves in ((2, "0.05"), (1, "–")):
        found = changed(("music_8_32", "protocol", "prompts"), prompts)["music_8_32"]
        rows = [row for row in music_rows(found) if row.label.startswith("divergence")]
        assert [(row.value, row.real) for row in rows] == [("0.1", halves)] * 2


def test_several_models_are_reported_with_their_training_curves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, released = tmp_path / "runs/one", tmp_path / "evaluation/two"
    (run / "evaluation").mkdir(parents=True)
    released.mkdir(parents=True)
    (run / "config.yaml").write_text("")
    (run / "metrics.csv").write_text(
        "step,tokens,validation/nats_per_token\n1,10,\n2,20,3.5\n3,30,2.5\n"
    )
    (run / "evaluation/results.json").write_text(json.dumps(results()))
    (released / "results.json").write_text(json.dumps(results(parameters=5)))
    assert main(["report", "runs/one", "evaluation/two", "--output", "out"]) == 0
    text = (tmp_path / "out/report.md").read_text()
    assert cells(text.splitlines()[0]) == ["", "one", "two"]
    assert "## 32 new bars after 8 bars of prompt" in text
    assert "Goals of one:" in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.md", "report.png"]
    assert (tmp_path / "out/report.png").read_bytes().startswith(b"\x89PNG")
    older = results()
    del older["corpora"]
    (released / "results.json").write_text(json.dumps(older))
    with pytest.raises(TrainingError, match=r"no corpora, .* earlier version; evaluate again"):
        report(["evaluation/two"], tmp_path / "out")


def test_an_unevaluated_model_is_reported_with_the_command_to_run(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    with pytest.raises(TrainingError, match=r"results.json; run relpe-train evaluate"):
        report([str(tmp_path)], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_best_ngram_model_is_reported_with_a_model():
    found, units = results(), ("nats_per_token", "nats_per_note", "nats_per_bar")
    found["5-gram"] = {"near": dict.fromkeys(units, 2.9), "far": dict.fromkeys(units, 3.1)}
    rows = [row[:2] for row in rows_of(found) if "gram" in row.label]
    assert rows == [
        ("nats per token, best 5-gram (near)", "2.9000"),
        ("nats per note, best 5-gram (near)", "2.900"),
        ("nats per bar, best 5-gram (near)", "2.90"),
    ]


def tokens_of(found):
    (row,) = [row for row in rows_of(found) if row.label == "training tokens, all runs"]
    return row.value


def measured_of(model):
    return results(model=str(model), weights=load_decoder(model)[1]._asdict())


def test_tokens_are_counted_over_all_runs(experiment, finished, tmp_path, monkeypatch):
    fit(build_experiment(experiment), tmp_path / "runs/two", init_from=finished, show=False)
    model = export(tmp_path / "runs/two", tmp_path / "model")
    assert tokens_of(measured_of(finished)) == "384"
    for place in (tmp_path / "runs/two", model):
        found = measured_of(place)
        assert tokens_of(found) == "768"

    # results contain less if the model has been removed or replaced
    assert tokens_of(measured_of(finished) | {"model": "gone"}) == "at least 384"
    assert tokens_of(found | {"model": "gone"}) == "unknown"
    assert tokens_of(found | {"weights": found["weights"] | {"digest": "x"}}) == "unknown"
    (model / "training.json").write_text("{")
    assert tokens_of(found) == "unknown"

    # a report uses the current path of the model
    (tmp_path / "runs/two/evaluation").mkdir()
    moved = measured_of(tmp_path / "runs/two") | {"model": "elsewhere"}
    (tmp_path / "runs/two/evaluation/results.json").write_text(json.dumps(moved))
    monkeypatch.chdir(tmp_path)
    for name in ("runs/two", "runs/two/evaluation"):
        text = report([name], tmp_path / "out").read_text()
        assert "| training tokens, all runs | 768 |" in text


def test_labels_of_music_are_distinct():
    names = figures_of(BarNotes.of(piece(0)), 4)
    found = music()
    for group in ("generated", "real"):
        found["figures"][group] = {n: {"mean": 0.5, "deviation": 0.1} for n in names}
    found["differences"] = dict.fromkeys(names, DIFFERENCE)
    labels = [row.label for row in music_rows(found)]
    assert len(labels) == len(set(labels))


def copied(**means):
    """Music after 40 bars, with figures of a copier."""
    found = music(40, 16)
    of_copier = MEANS | {"bars_of_any_earlier": 1.0, "most_similar_earlier": 1.0} | means
    found["figures"]["copier"] = {name: {"mean": mean} for name, mean in of_copier.items()}
    return found


def test_goals_after_long_prompts_are_met_by_real_music_but_not_a_copier():
    found = copied()
    names = [limits.name for limits in PIANO_LIMITS[40, 16]]
    assert [goal.holds for goal in form_goals(found)] == [True] * len(names)
    assert all(goal.holds for goal in form_goals(found, "real"))
    assert [goal.holds for goal in form_goals(found, "copier")] == [False, True, True, True, True]
    lines = goal_lines({"music_40_16": found})
    assert lines[-1].startswith(
        "- 16 bars after a prompt of 40: the copier misses 1 of 5 goals of form: bars e"
    )
    (row,) = [row for row in music_rows(found) if "any earlier bar" in row.label]
    assert row[1:] == ("0.45 (-0.05 ± 0.025)", "0.45", "1")
    both = results(music_40_16=found)
    assert cells(music_table({"a": both}, "music_40_16")[0]) == ["", "a", "real music", "copier"]
    assert music_tables({"a": both})[1::2][0] == "## 32 new bars after 8 bars of prompt"
    assert "## 16 new bars after 40 bars of prompt" in music_tables({"a": both})


def test_if_real_music_exceeds_a_limit_its_figure_is_the_limit():
    found = music(40, 16, like_bar_before=0.12)
    assert [goal.holds for goal in form_goals(found)][-1] is False
    found["figures"]["real"]["like_bar_before"]["mean"] = 0.13
    assert [goal.holds for goal in form_goals(found)][-1] is True


def test_bands_have_goals_relative_to_real_music():
    found = music(bars_of_prompt=0.25, fills=0.03)
    found["protocol"]["several_tracks"] = True
    found["figures"]["real"]["fills"] = {"mean": 0.06}
    assert [goal.holds for goal in form_goals(found)] == [True, True]
    for name, mean in (("bars_of_prompt", 0.26), ("bars_of_prompt", 0.14), ("fills", 0.02)):
        missed = deepcopy(found)
        missed["figures"]["generated"][name]["mean"] = mean
        (goal,) = [goal for goal in form_goals(missed) if not goal.holds]
        assert f"{mean:.3f}" in goal.figure
