from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relpe.models.classifier.model import Classifier, ClassifierConfig
from relpe.models.config import from_plain
from tests.support.runs import short_experiment
from training.cli import main
from training.runs import onnx_export
from training.runs.fit import fit
from training.runs.onnx_export import write_onnx

SMALL: dict[str, Any] = {"width": 16, "num_layers": 2, "num_heads": 2, "hidden": 16}
SOFTMAX, LINEAR, WINDOW = {"kind": "softmax"}, {"kind": "linear"}, {"kind": "windowed", "span": 3}
TOKENS = {"kind": "tokens", "vocabulary_size": 16}
SPAN = {"width": [2.0], "max_span": 5, "block": 1}
MODELS: dict[str, dict[str, Any]] = {
    "softmax, sinusoid, cls": {
        **{"attention": SOFTMAX, "encoding": {"kind": "sinusoid"}, "input": TOKENS},
        **{"pooling": "cls", "norm": "post", "head_hidden": [8]},
    },
    "softmax, algebraic grid through convolutions": {
        "attention": SOFTMAX,
        "encoding": {"kind": "algebraic", "structure": {"kind": "grid"}},
        "input": {"kind": "convolution", "channels": 3},
        "pooling": "learned",
    },
    "linear, sine SPE": {
        "attention": LINEAR,
        "encoding": {"kind": "sine_spe", "num_realizations": 8},
        "input": {"kind": "values"},
    },
    "FAVOR+, convolutional SPE of a grid": {
        "attention": LINEAR | {"feature_map": {"kind": "favor"}},
        "encoding": {"kind": "conv_spe", "num_realizations": 8, "taps": [4, 4]},
        "input": {"kind": "values"},
    },
    "window, RoPE of every second place, two towers": {
        **{"attention": WINDOW, "encoding": {"kind": "rope"}, "input": TOKENS},
        **{"towers": 2, "combine": "symmetric", "reduction": [2, 1], "pooling": "max"},
    },
    "the classifier of Alfons (2022)": {
        **{"attention": {"kind": "windowed"}, "input": {"kind": "values"}, "norm": "post"},
        "encoding": {"kind": "siren", "num_axes": 2, "window": SPAN | {"mode": "logit_multiply"}},
        **{"attention_biases": True, "feed_forward": "relu", "reduction": [2, 1]},
        **{"pooling": "last", "head_hidden": [8], "head_activation": "norm_relu"},
    },
}
SHAPES = {"tokens": (9,), "values": (6, 5, 1), "convolution": (12, 12, 3)}


def built(name: str) -> Classifier:
    torch.manual_seed(0)
    return from_plain(ClassifierConfig, SMALL | MODELS[name]).build().eval()


def inputs(model: Classifier, rows: int) -> torch.Tensor:
    towers = (2,) if model.config.towers == 2 else ()
    shape = (rows, *towers, *SHAPES[model.config.input.kind])
    draws = torch.Generator().manual_seed(rows)
    if model.config.input.kind == "tokens":
        return torch.randint(0, 16, shape, generator=draws)
    return torch.randn(shape, generator=draws)


def executed(path, x: torch.Tensor) -> np.ndarray:
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    return session.run(None, {"x": x.numpy()})[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_onnx_file_computes_the_same_logits_for_batches_of_any_size(name, tmp_path):
    pytest.importorskip("onnxscript")
    model = built(name)
    write_onnx(model, inputs(model, 3), tmp_path / "model.onnx")
    for rows in (1, 3, 8):
        x = inputs(model, rows)
        with torch.no_grad():
            wanted = model(x).numpy()
        found = executed(tmp_path / "model.onnx", x)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-6)


def test_a_classifier_with_fixed_codes_takes_batches_of_any_size():
    for model in map(built, MODELS):
        on_one_grid = onnx_export._OnOneGrid(model, inputs(model, 3))
        for x in (inputs(model, 1), inputs(model, 5)):
            with torch.no_grad():
                torch.testing.assert_close(on_one_grid(x), model(x))


@pytest.mark.slow
def test_the_command_writes_the_classifier_of_a_run(tmp_path, capsys):
    pytest.importorskip("onnxscript")
    pytest.importorskip("sklearn")
    run, output = tmp_path / "run", tmp_path / "new" / "digits.onnx"
    fit(digits(), run, show=False)
    assert main(["export", "--run", str(run), "--output", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert [path.name for path in output.parent.iterdir()] == ["digits.onnx"]
    logits = executed(output, torch.zeros(5, 8, 8, 1))
    assert logits.shape == (5, 10)


def test_what_cannot_be_written_is_refused_in_a_sentence(tmp_path, capsys, monkeypatch):
    run, words = tmp_path / "run", ["export", "--output", str(tmp_path / "x.onnx"), "--run"]
    monkeypatch.setattr(onnx_export, "_NEEDED", ("no_such_package",))
    assert main([*words, str(run)]) == 2
    assert "need the packages no_such_package" in capsys.readouterr().err
    monkeypatch.setattr(onnx_export, "_NEEDED", ())
    assert main([*words, str(run)]) == 2
    assert "no such file" in capsys.readouterr().err
    fit(listops(), run, show=False)
    assert main([*words, str(run)]) == 2
    assert "differ in length and need a mask" in capsys.readouterr().err
    assert not (tmp_path / "x.onnx").exists()


def digits() -> Any:
    return one_step("digits", "the classifier of Alfons (2022)")


def listops() -> Any:
    return one_step("listops", "softmax, sinusoid, cls", shortest=3, max_length=20)


def one_step(kind: str, model: str, **task: Any) -> Any:
    task |= {"kind": kind, "batch_size": 4, "validation_examples": 4}
    return short_experiment(task | {"model": SMALL | MODELS[model]}, 1)
