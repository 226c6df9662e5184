"""Training of an encoding with a window of learned width: penalty, spans and figures."""

from __future__ import annotations

import math

import pytest
import torch
from lightning_fabric import Fabric
from torch.nn.functional import cross_entropy

from relpe.models.checkpoint import load_model, save_model
from tests.support.runs import (
    assert_resumes,
    assert_same_weights,
    changed,
    checkpoint,
    metrics,
    with_model,
)
from training.errors import TrainingError
from training.experiment import build_experiment
from training.learning.seeding import noise_seed
from training.runs.fit import fit
from training.runs.weights import load_decoder

SPANS = ("mean_span", "receptive_field", "outgrown_spans")


@pytest.fixture
def windowed(experiment):
    """A tiny SIREN encoding whose spans, refreshed every second step, grow and shrink."""

    def make(trainer=None, **window):
        # in this mode, weights beyond the span are not zero, so results depend on the span
        window = {
            **{"mode": "log_bias", "width": 3.0, "per_head": True, "block": 1},
            **{"span_refresh": 2, "max_span": 31},
            **window,
        }
        encoding = {"kind": "siren", "network": {"depth": 2, "width": 4}, "window": window}
        plain = with_model(
            experiment, num_layers=2, attention={"kind": "windowed"}, encoding=encoding
        )
        settings = {"log_every": 1} | (trainer or {})
        optimizer = {"encoding_learning_rate": 0.3}
        return build_experiment(changed(plain, optimizer=optimizer, trainer=settings))

    return make


def trained(folder):
    return metrics(folder, "train/nats_per_token")


def test_pictures_and_spans_of_layers_are_logged_and_change_nothing(windowed, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in (False, True):
        fit(windowed({"pictures": name}), tmp_path / str(name), show=False)
    assert_same_weights(checkpoint(tmp_path / "False"), checkpoint(tmp_path / "True"))
    tags = []
    for name in ("False", "True"):
        events = EventAccumulator(str(tmp_path / name / "tensorboard"))
        events.Reload()
        tags.append(events.Tags())
    assert tags[0]["images"] == []
    assert {"encoding/features", "encoding/window"} <= set(tags[1]["images"])
    assert {"span/layer_1", "span/layer_2", "window_width/layer_1"} <= set(tags[0]["scalars"])


def test_a_resumed_run_continues_with_its_spans(windowed, tmp_path):
    assert_resumes(windowed({"ema_decay": 0.5}), tmp_path)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert checkpoint(whole)["spans"] == checkpoint(parts)["spans"]
    assert checkpoint(whole)["spans"]["calls"] == 6
    columns = (*SPANS, "encoding_change", "validation/nats_per_token")
    seen = [[[row[key] for key in columns] for row in metrics(run)] for run in (whole, parts)]
    assert seen[0] == seen[1]
    spans = {tuple(row[key] for key in SPANS) for row in trained(whole)}
    assert len(spans) == 3  # each refresh changes them


def test_a_penalty_narrows_windows_and_is_not_part_of_the_validation(windowed, tmp_path):
    for name, penalty in (("free", 0.0), ("dear", 1e4)):
        fit(windowed(penalty=penalty), tmp_path / name, show=False)
    free, dear = trained(tmp_path / "free"), trained(tmp_path / "dear")
    assert free[0]["train/nats_per_token"] == dear[0]["train/nats_per_token"]
    guess = math.log(1246)
    assert all(float(row["train/nats_per_token"]) < guess for row in dear)
    assert float(dear[-1]["mean_span"]) < float(free[-1]["mean_span"])
    [_, validation] = metrics(tmp_path / "dear", "validation/nats_per_token")
    assert float(validation["validation/nats_per_token"]) < 7


def test_invalid_chunks_are_refused(experiment):
    for values, message in (
        ({"chunk": 0}, "chunk is 0"),
        ({"truncated": True}, "truncated is true without a chunk"),
    ):
        with pytest.raises(TrainingError, match=message):
            build_experiment(changed(experiment, task=values))


def test_gradients_are_those_of_the_mean_loss_and_the_penalty(windowed):
    config = windowed({"accumulate": 2}, penalty=3.0)
    module = config.task.build_module(config.optimizer, config.trainer)
    module.begin(Fabric(accelerator="cpu", devices=1))
    batch = torch.randint(1, 300, (2, 16))
    batch[1, 9:] = 0
    nats = module.gradients(batch, torch.tensor(15.0 + 8)).item()
    found = {name: value.grad.clone() for name, value in module.decoder.named_parameters()}

    module.decoder.zero_grad()
    state = module.decoder.init_state(2, seed=noise_seed(0, 0))
    positions = torch.arange(15)[None, :, None]
    logits, _ = module.decoder(batch[:, :-1], positions, state)
    mean = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=0)
    (mean + module.decoder.encoding.training_window().penalty()).backward()
    assert nats / 23 == pytest.approx(mean.item())
    for name, value in module.decoder.named_parameters():
        torch.testing.assert_close(found[name], value.grad, rtol=1e-4, atol=1e-6, msg=name)
    assert found["encoding.window.log_width"].min() > 1e-2  # the gradient of the penalty


def test_a_released_model_contains_only_its_parameters(windowed, tmp_path):
    fit(windowed(), tmp_path / "run", show=False)
    decoder, _ = load_decoder(tmp_path / "run")
    names = {f"decoder.{name}" for name, _ in decoder.named_parameters()}
    assert checkpoint(tmp_path / "run")["state_dict"].keys() == names
    save_model(decoder, tmp_path / "released")
    released = load_model(tmp_path / "released")  # strictly
    assert released.state_dict().keys() == decoder.state_dict().keys()


def test_without_a_window_the_columns_of_windows_are_empty(finished):
    assert not any(row[key] for row in trained(finished) for key in SPANS)
    changes = [float(row["encoding_change"]) for row in trained(finished)]
    assert 0 < changes[0] < changes[-1] < 1
    assert "spans" not in checkpoint(finished)
