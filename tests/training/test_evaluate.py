from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from relpe.checkpoint import load_model
from training.errors import TrainingError
from training.evaluate import (
    EvaluateOptions,
    evaluate,
    load_decoder,
    streaming_nats,
    window_nats,
)
from training.export import export
from training.run import build_experiment, fit


@pytest.fixture
def decoder(experiment):
    return build_experiment(experiment).task.model.build().eval()


@pytest.fixture
def pieces():
    draw = np.random.default_rng(0)
    return [draw.integers(4, 512, length) for length in (2, 70, 33, 90, 5)]


def test_windows_give_every_token_once(decoder, pieces):
    nats = window_nats(decoder, pieces, 16, 3)
    assert [len(row) for row in nats] == [len(piece) - 1 for piece in pieces]
    assert all((row > 0).all() for row in nats)


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_neither_chunks_nor_batches_change_what_is_measured(decoder, pieces, batch_size):
    whole = streaming_nats(decoder, pieces, 1000, 1)
    parts = streaming_nats(decoder, pieces, 16, batch_size)
    cut = window_nats(decoder, pieces, 1000, batch_size)
    for index, row in enumerate(whole):
        np.testing.assert_allclose(parts[index], row, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(cut[index], row, rtol=1e-3, atol=1e-3)


def test_a_window_knows_nothing_of_the_last_one(decoder, pieces):
    alone = window_nats(decoder, [pieces[3][32:]], 16, 4)
    within = window_nats(decoder, [pieces[3]], 16, 4)
    np.testing.assert_allclose(within[0][32:], alone[0], rtol=1e-3, atol=1e-3)


def test_a_run_is_measured_exported_and_loaded(experiment, data, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    options = EvaluateOptions(
        model=str(run), data=data, length=32, chunk=20, reach=100, ngram=3, batch_size=2
    )
    results = evaluate(options, show=False)
    assert json.loads((run / "evaluation" / "results.json").read_text()) == results
    assert results["pieces"] == results["by_position"]["pieces"] == 2
    for name in ("windows_32", "streaming"):
        ratio = results[name]["nats_per_note"] / results[name]["nats_per_token"]
        assert ratio == pytest.approx(results["tokens"] / results["notes"])
    assert len(results["3-gram"]) == 4
    assert (run / "evaluation" / "nll_by_position.png").exists()

    folder = export(run, tmp_path / "piano", licence="MIT, by nobody")
    readme = (folder / "README.md").read_text()
    assert "MIT, by nobody" in readme
    assert f"{results['streaming']['nats_per_token']:.4f}" in readme
    released, trained = load_model(folder), load_decoder(run)
    for name, tensor in trained.state_dict().items():
        assert torch.equal(released.state_dict()[name], tensor.bfloat16().float()), name

    again = EvaluateOptions(
        model=str(folder), data=data, length=32, output=tmp_path / "out", reach=100
    )
    measured = evaluate(again, show=False)
    assert measured["windows_32"]["nats_per_token"] == pytest.approx(
        results["windows_32"]["nats_per_token"], rel=1e-2
    )


def test_averaged_weights_are_those_that_are_loaded(experiment, tmp_path):
    experiment["trainer"] = experiment["trainer"] | {"ema_decay": 0.9}
    fit(build_experiment(experiment), tmp_path, show=False)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    decoder = load_decoder(tmp_path, "last")
    for parameter, mean in zip(decoder.parameters(), checkpoint["average"]["mean"], strict=True):
        assert torch.equal(parameter, mean)


def test_what_is_no_run_is_refused(experiment, data, tmp_path):
    with pytest.raises(TrainingError, match="expected a run folder"):
        export(tmp_path, tmp_path / "out")
    fit(build_experiment(experiment), tmp_path, show=False)
    (tmp_path / "best.ckpt").unlink()
    with pytest.raises(TrainingError, match=r"no best\.ckpt"):
        load_decoder(tmp_path)
