"""Images pixel by pixel: ids, places, generation, bits per dimension, training and evaluation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from relpe.decoding.choose import choose_steps
from relpe.decoding.generate import Generation, Request
from relpe.decoding.sampling import SamplingOptions
from tests.support.lra_files import write_cifar, write_mnist
from tests.support.runs import evaluated, fit_words
from training.cli import main
from training.experiment import build_experiment
from training.tasks.images.cifar10 import cifar10
from training.tasks.images.mnist import mnist
from training.tasks.images.pixels import Raster

GRID = [{"encoding": {"kind": "algebraic", "structure": {"kind": "grid"}}, "axes": [1, 2]}]
MODEL: dict[str, Any] = {
    **{"width": 16, "num_layers": 1, "num_heads": 2, "hidden": 16, "layers": GRID},
    **{"attention": {"kind": "softmax"}, "encoding": {"kind": "none"}},
}
SPLITS = ("train", "validation", "test")
READ = {"mnist": mnist, "cifar10": cifar10}


def plain_of(folder, images="mnist", levels=4, **changes: Any) -> dict[str, Any]:
    ids = levels * (3 if images == "cifar10" else 1) + 1
    task = {"kind": "pixels", "data": folder and str(folder), "images": images, "levels": levels}
    return task | {"batch_size": 2, "model": MODEL | {"vocabulary_size": ids}} | changes


def task_of(folder, *of: Any, **changes: Any) -> Any:
    return build_experiment({"task": plain_of(folder, *of, **changes)}).task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    write_mnist(folder)
    write_cifar(folder)
    return folder


@pytest.mark.parametrize(("images", "levels"), [("mnist", 256), ("cifar10", 2), ("cifar10", 17)])
def test_ids_are_the_images_with_the_levels_of_each_channel_apart(images, levels, folder):
    task = task_of(folder, images, levels)
    for split in SPLITS:
        pixels, _ = READ[images](folder, split)
        ids = task.ids(split)
        shown = np.stack([task.picture(one) for one in ids])
        assert np.abs(shown - pixels / 255).max() <= (levels < 256) / levels + 1e-9
        channels = ids.reshape(-1, task.shape[-1]) // levels
        assert (channels == np.arange(task.shape[-1])).all()


def test_every_value_is_predicted_from_those_before_it(folder):
    for images in READ:
        rows = task_of(folder, images).rows("test")
        assert (rows[:, 0, 0] == rows[..., 1].max() + 1).all()
        assert (rows[:, 1:, 0] == rows[:, :-1, 1]).all()


def test_the_rule_allows_exactly_the_values_of_the_next_channel(folder):
    task = task_of(folder, "cifar10")
    rule = Raster(task)
    for count, token in enumerate(task.ids("test")[0]):
        channel = count % 3
        allowed = rule.allowed.nonzero()[0]
        assert allowed.tolist() == list(range(4 * channel, 4 * channel + 4))
        rule = rule.advance(int(token))
    assert rule.allowed.nonzero()[0].tolist() == [task.num_tokens - 1]
    assert not rule.advance(task.num_tokens - 1).allowed.any()


def test_places_of_any_parts_are_those_of_the_whole(folder):
    task = task_of(folder, "cifar10")
    tokens = torch.from_numpy(task.rows("test")[:1, :, 0].astype(np.int64))
    wanted = task.positions(tokens)[0, :, 1:].numpy()
    assert wanted[[0, 2, 3, 96]].tolist() == [[0, 0], [0, 0], [0, 1], [1, 0]]
    draws, state, found = np.random.default_rng(0), Raster(task), []
    cuts = np.sort(draws.integers(0, task.length, 5))
    for part in np.split(tokens[0].numpy(), cuts):
        places, state = state.read(part)
        found.append(places)
    assert (np.concatenate(found) == wanted).all()


@pytest.mark.parametrize("layers", [GRID, [{"encoding": {"kind": "rope"}}]])
def test_generated_images_are_the_likeliest_values_of_the_model_one_by_one(layers, folder):
    task = task_of(folder, model=MODEL | {"vocabulary_size": 5, "layers": layers})
    torch.manual_seed(0)
    decoder = task.model.build().eval()
    given = np.concatenate([[4], task.ids("test")[0, : 26 * 28]])
    steps = choose_steps(decoder, precision="float32").make()
    generation: Generation[Raster] = Generation(decoder, steps)
    options = SamplingOptions(temperature=0)
    rule = Raster(task, len(given) - 1)
    (sample,) = generation.add(Request(given, rule, (0,), options, Raster(task)))
    while len(generation):
        generation.step()
    assert sample.error is None
    tokens = torch.from_numpy(given)
    with torch.inference_mode():
        while len(tokens) <= task.length:
            row = tokens[None]
            logits, _ = decoder(row, task.positions(row), decoder.init_state(1))
            tokens = torch.cat([tokens, logits[0, -1:, :4].argmax(-1)])
    assert sample.tokens == tokens[len(given) :].tolist()


def test_bits_per_dimension_are_those_of_the_predictions(folder, monkeypatch):
    task = task_of(folder, "cifar10")
    nats = np.full(task.ids("test").shape, math.log(8))
    figures = task.figures("test", nats)
    assert figures["bits_per_dimension"] == pytest.approx(3)
    # the pixels of the stand-in are drawn independently, so places tell nothing
    assert 2 <= figures["by_place"] < 2.2
    alike = np.tile(np.arange(784, dtype=np.int16) % 4, (1000, 1))
    task = task_of(folder)
    monkeypatch.setattr(type(task), "ids", lambda self, name: alike)
    figures = task.figures("test", np.zeros(alike.shape))
    assert figures["by_place"] == pytest.approx(math.log2(1004 / 1001))


def test_a_run_is_trained_and_evaluated_and_draws_images(tmp_path, capsys):
    pytest.importorskip("sklearn")
    task = plain_of(None, "digits", 17, batch_size=16)
    results = evaluated(tmp_path, task, token_budget=30 * 16 * 64, validate_every=30)
    assert "23,040 values: " in capsys.readouterr().out
    assert results["figures"]["bits_per_dimension"] < math.log2(17) - 1
    assert 2.3 < results["figures"]["by_place"] < 2.5
    assert (tmp_path / "run" / "evaluation" / "images.png").read_bytes()[:4] == b"\x89PNG"


def test_what_cannot_be_used_is_one_clear_sentence(tmp_path, capsys):
    for changes, message in (
        ({"images": "cats"}, "images"),
        ({"levels": 1}, "levels is 1"),
        ({"levels": 5}, "vocabulary_size is 5, but the task has 6 tokens"),
        ({"data": None}, "mnist needs a folder with its files; give --data"),
    ):
        assert main(fit_words(tmp_path, plain_of(tmp_path) | changes)) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
