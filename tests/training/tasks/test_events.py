"""Training of models with a pattern of layers and with events."""

from __future__ import annotations

import numpy as np
import torch

from relpe.models.checkpoint import load_model
from tests.support.runs import with_model
from tokenization.presets import load_tokenizer
from training.experiment import build_experiment
from training.learning.muon import parameter_groups
from training.release import export
from training.runs.fit import fit
from training.runs.weights import load_decoder


def test_a_run_with_events_and_a_pattern_of_layers(experiment, tmp_path):
    windowed = {"attention": {"kind": "windowed", "span": 9}, "encoding": {"kind": "algebraic"}}
    config = build_experiment(
        with_model(experiment, num_layers=2, layers=[{}, windowed], events={"hidden": 16})
    )
    fit(config, tmp_path / "run", show=False)
    module = config.task.build_module(config.optimizer, config.trainer)
    decoder = module.decoder
    names = np.array(load_tokenizer(config.task.data).vocabulary.names)
    closes = decoder.events.closes.numpy()[: len(names)]
    kinds = {name.split("_")[0] for name in names[~closes]}
    assert kinds == {"PAD", "Position", "Program", "Part", "Pitch", "Drum", "Velocity"}
    assert closes[np.char.startswith(names, "Duration")].all()
    groups = parameter_groups(decoder, 0.1, orthogonalized=True)
    by_muon = {id(weight) for group in groups if group["parts"] for weight in group["params"]}
    for weight in decoder.events.feed_forward.parameters():
        assert id(weight) in by_muon
    assert id(decoder.events.embedding.weight) not in by_muon
    released = load_model(export(tmp_path / "run", tmp_path / "model"))
    assert released.config == decoder.config
    trained, _ = load_decoder(tmp_path / "run")
    for name, weight in trained.state_dict().items():
        torch.testing.assert_close(weight, released.state_dict()[name], rtol=0.01, atol=0.01)
