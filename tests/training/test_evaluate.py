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
    streaming_nats,
    summary,
    window_nats,
)
from training.export import export
from training.run import build_experiment, fit
from training.weights import load_decoder


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
    _, origin = load_decoder(run)
    assert results["weights"] == origin._asdict()
    assert results["weights"]["file"] == "best.ckpt"
    assert (run / "evaluation" / "nll_by_position.png").exists()

    folder = export(run, tmp_path / "piano", licence="MIT, by nobody")
    readme = (folder / "README.md").read_text()
    assert "MIT, by nobody" in readme
    assert f"{results['streaming']['nats_per_token']:.4f}" in readme
    assert f"`best.ckpt`, step {origin.step}, {origin.tokens:,} tokens" in readme
    released, (trained, _) = load_model(folder), load_decoder(run)
    for name, tensor in trained.state_dict().items():
        assert torch.equal(released.state_dict()[name], tensor.bfloat16().float()), name

    again = EvaluateOptions(
        model=str(folder), data=data, length=32, output=tmp_path / "out", reach=100
    )
    measured = evaluate(again, show=False)
    assert measured["weights"]["file"] == "model.safetensors"
    assert measured["windows_32"]["nats_per_token"] == pytest.approx(
        results["windows_32"]["nats_per_token"], rel=1e-2
    )


def test_export_tells_no_results_of_other_weights(experiment, data, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)
    evaluate(EvaluateOptions(model=str(run), data=data, length=32), show=False)
    export(run, tmp_path / "best")
    export(run, tmp_path / "last", "last")
    assert "Measured on the test split" in (tmp_path / "best" / "README.md").read_text()
    readme = (tmp_path / "last" / "README.md").read_text()
    assert "Not measured yet: run `relpe-train evaluate --weights last`" in readme


def test_draws_of_the_noise_are_averaged_and_their_spread_is_told(experiment, data, tmp_path):
    run = tmp_path / "run"
    fit(build_experiment(experiment), run, show=False)

    def measured(draws):
        options = EvaluateOptions(
            model=str(run), data=data, length=32, device="cpu", draws=draws, batch_size=64
        )
        results = evaluate(options, show=False)
        del results["seconds"]
        return results

    one, three = measured(1), measured(3)
    assert measured(3) == three
    assert (one["draws"], three["draws"]) == (1, 3)
    for name in ("windows_32", "streaming"):
        assert set(one[name]) == {"nats_per_token", "nats_per_note"}
        for unit in ("nats_per_token", "nats_per_note"):
            spread = three[name][f"{unit}_deviation"]
            assert 0 < spread < 1
            # none of three values lies further than this from their mean
            assert abs(three[name][unit] - one[name][unit]) < 1.2 * spread
    export(run, tmp_path / "model")
    readme = (tmp_path / "model" / "README.md").read_text()
    token = three["streaming"]["nats_per_token"]
    deviation = three["streaming"]["nats_per_token_deviation"]
    assert f"{token:.4f} ± {deviation:.4f}" in readme
    assert "over 3 draws" in readme


def test_the_noise_is_that_of_the_seed(decoder, pieces):
    assert decoder.config.noise_seed == 0
    for read in (window_nats, streaming_nats):
        own, zero, other = (read(decoder, pieces, 16, 3, seed) for seed in (None, 0, 1))
        np.testing.assert_array_equal(own[3], zero[3])
        assert not np.array_equal(own[3], other[3])


def test_progress_counts_every_token_once(decoder, pieces):
    for read in (window_nats, streaming_nats):
        counts = []
        read(decoder, pieces, 16, 3, None, counts.append)
        assert sum(counts) == sum(len(piece) - 1 for piece in pieces)


def test_a_summary_is_the_mean_over_draws():
    draws = [[np.array([1.0, 2.0]), np.array([3.0])], [np.array([2.0, 2.0]), np.array([4.0])]]
    assert summary(draws[:1], 2) == {"nats_per_token": 2.0, "nats_per_note": 3.0}
    both = summary(draws, 2)
    assert both["nats_per_token"] == pytest.approx(7 / 3)
    assert both["nats_per_note_deviation"] == pytest.approx(2**0.5 / 2)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="expected a run folder"):
        export(tmp_path, tmp_path / "out")
