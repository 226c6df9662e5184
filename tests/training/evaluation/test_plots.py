from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from tests.support.results import results
from training.errors import TrainingError
from training.evaluation.metrics.nll_by_position import nll_by_position
from training.evaluation.plots import draw_by_position, draw_results, read_curve


def test_the_curve_of_a_run_has_the_tokens_of_its_steps(finished, tmp_path):
    tokens, nats = read_curve(finished / "metrics.csv")
    assert tokens == [step * 64 for step in (4, 6)]
    assert all(math.isfinite(value) for value in nats)
    older = tmp_path / "metrics.csv"
    older.write_text("step,tokens,validation/nats_per_token\n1,10,\n2,,3.5\n")
    with pytest.raises(TrainingError, match=rf"^{older}: .* of an earlier version; train again"):
        read_curve(older)


@pytest.fixture
def figures(monkeypatch):
    """Collects the figures that are drawn."""
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


def test_a_plot_shows_the_results_that_exist(tmp_path, figures):
    draw_results({"a": results()}, tmp_path / "a.png", {"a": ([10, 20], [3.0, 2.0])})
    without = results()
    del without["music_8_32"]
    draw_results({"a": without, "b": without}, tmp_path / "b.png")
    drawn = [panels(figure) for figure in figures]
    assert [len(found) for found in drawn] == [7, 2]
    assert drawn[0][0].get_xlabel() == "million tokens of the run"
    np.testing.assert_allclose(drawn[0][3].lines[0].get_ydata(), [0.8, 0.8, 0.8, 0.75])


def test_without_results_a_message_is_logged_and_nothing_is_drawn(tmp_path, caplog):
    found = results(by_position={"bins": []}, loops={"pieces": 0, "nats_per_token": {}})
    for name in ("music_8_32", "windows_512", "streaming"):
        del found[name]
    (tmp_path / "a.png").write_bytes(b"of earlier results")
    with caplog.at_level(logging.INFO):
        draw_results({"a": found}, tmp_path / "a.png", {"a": ([], [])})
    assert not any(tmp_path.iterdir())
    (said,) = caplog.messages
    assert "a.png: not drawn, since the results have nothing to plot" in said


def test_a_model_has_one_colour_and_real_music_is_drawn_once(tmp_path, figures):
    found = {name: results(loops={"nats_per_token": {"1": 1.0, "2": 0.5}}) for name in "abc"}
    found["c"]["data"] = "other"
    # a curve of b and c alone: a was released
    curves = {name: ([10.0, 20.0], [3.0, 2.0]) for name in ("b", "c")}
    draw_results(found, tmp_path / "a.png", curves)

    def looks(lines):
        return [(line.get_color(), line.get_linestyle()) for line in lines]

    handles = figures[0].legends[0].get_lines()
    names = [handle.get_label() for handle in handles]
    assert names == ["a", "b", "c", "real music for a, b", "real music for c"]
    every = looks(handles)
    assert len(set(every)) == 5
    training, places, _, loops, *of_music = panels(figures[0])
    assert looks(training.lines) == every[1:3]
    assert looks(places.lines)[:3] == looks(loops.lines) == every[:3]
    assert len(of_music) == 4
    assert all(looks(axes.lines) == every for axes in of_music)


def test_the_loss_by_position_is_a_separate_plot(tmp_path, figures):
    bins = nll_by_position([np.ones(20), np.zeros(30)], reach=20, width=5)
    draw_by_position({"model": bins}, tmp_path / "a.png", 10)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 1
    labels = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert labels == ["model", "training length"]
