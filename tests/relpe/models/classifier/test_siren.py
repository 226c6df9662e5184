"""The classifier of Alfons (2022): values of the original, and its number of parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import SirenConfig, TransformerXLConfig
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.offset.windows import WindowConfig
from relpe.models.classifier.inputs import ValueInputConfig
from relpe.models.classifier.model import Classifier, ClassifierConfig
from tests.support.golden_siren import golden

ORIGINAL: dict[str, Any] = {
    "input": ValueInputConfig(channels=3),
    "attention": WindowedAttentionConfig(span=2000),
    "normalize_queries_keys": False,
    "attention_biases": True,
    "feed_forward": "relu",
    "norm": "post",
    "head_activation": "norm_relu",
    "initialization": "xavier",
}
CASES: dict[str, dict[str, Any]] = {
    "clf1d": {"grids": [(12,), (12,)], "classifier": {"order": "raster"}},
    "clf2d": {"grids": [(6, 7), (3, 3)], "classifier": {"reduction": (2, 1)}},
    "clf2das1d": {
        "grids": [(12,), (6,)],
        "classifier": {"reduction": (2, 1)},
        "window": {"acts_on": "position"},
    },
}


def lengths(grid: tuple[int, ...]) -> Tensor:
    """Steps per unit of normalised coordinates, by axis."""
    return torch.tensor(grid, dtype=torch.float64) - 1


def golden_classifier(case: str, pooling: str) -> Classifier:
    """The classifier whose weights are stored under this name."""
    settings = CASES[case]
    first = lengths(settings["grids"][0])
    window = WindowConfig(
        mode="logit_multiply",
        threshold=float(golden(f"{case}/threshold")),
        block=1,
        **settings.get("window", {}),
    )
    network = SirenNetworkConfig(width=8, w0=10.0, initialization="original")
    encoding = SirenConfig(
        network=network,
        window=window,
        num_axes=len(first),
        reference_length=tuple(first.tolist()),
    )
    sizes: Any = {"width": 8, "num_layers": 2, "num_heads": 2, "hidden": 12, "num_classes": 5}
    config = ClassifierConfig(
        **{**ORIGINAL, **sizes, **settings["classifier"]},
        encoding=encoding,
        head_hidden=(8,),
        pooling=pooling,  # type: ignore[arg-type]
    )
    model = config.build().double().eval()
    model.load_state_dict(weights(case, settings["grids"]))
    return model


def weights(case: str, grids: list[tuple[int, ...]]) -> dict[str, Tensor]:
    """The stored weights by our names.

    The original's coordinates are -1 to 1 on the grid of each layer, ours are in steps of the
    input. Hence the widths of windows, and the first weights of a network after a reduction.
    """

    def stored(name: str) -> Tensor:
        return golden(f"{case}/param/{name}")

    found = {}
    names = {"embedding": "input", "head_layers.0": "head1", "head_norms.0": "head_norm"}
    for layer in range(2):
        for name, old in {
            "attention.project_in": "qkv",
            "attention.project_out": "out",
            "attention_norm": "norm1",
            "feed_forward.project_in": "ff1",
            "feed_forward.project_out": "ff2",
            "feed_forward_norm": "norm2",
        }.items():
            names[f"blocks.{layer}.{name}"] = f"layer{layer}.{old}"
        step = 1 if grids[0] == grids[layer] else 2
        scale = lengths(grids[0]) / (step * lengths(grids[layer]))
        for number in range(3):
            old, new = f"layer{layer}.siren", f"encoding.networks.{layer}.0.layers.{number}"
            found[f"{new}.weight"] = stored(f"{old}.W{number}") * (1 if number else scale)
            found[f"{new}.bias"] = stored(f"{old}.b{number}")
    for new, old in {**names, "project_out": "head2"}.items():
        for kind in ("weight", "bias"):
            found[f"{new}.{kind}"] = stored(f"{old}.{kind}")
    for new, old in {"content_bias": "u", "position_bias": "vbias"}.items():
        found[f"encoding.{new}"] = torch.stack([stored(f"layer{layer}.{old}") for layer in (0, 1)])
    widths = [stored(f"layer{layer}.sigma") * lengths(grids[layer]) for layer in (0, 1)]
    found["encoding.window.log_width"] = torch.stack(widths).log()[:, None]
    return found


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_the_original(case: str) -> None:
    for pooling in ("last",) if case == "clf2das1d" else ("last", "mean", "max"):
        model = golden_classifier(case, pooling)
        outputs: list[Tensor] = []
        for block in model.blocks:
            block.register_forward_hook(lambda _, __, out, outs=outputs: outs.append(out))
        logits = model(golden(f"{case}/x"))
        assert len(outputs) == 2
        for number, out in enumerate(outputs):
            expected = golden(f"{case}/block{number}_out")
            torch.testing.assert_close(out, expected, atol=1e-9, rtol=1e-9)
        expected = golden(f"{case}/logits_{pooling}")
        torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-9)


def test_parameters_are_as_many_as_published() -> None:
    for encoding, parameters in (
        (TransformerXLConfig(num_sinusoids=64, origin=1023), 231_754),
        (SirenConfig(window=None), 257_482),
        (SirenConfig(), 257_488),
        (SirenConfig(num_axes=2, window=None), 257_866),
        (SirenConfig(num_axes=2), 257_878),
    ):
        config = ClassifierConfig(
            **ORIGINAL,
            width=64,
            num_layers=6,
            num_heads=8,
            hidden=128,
            head_hidden=(64,),
            pooling="last",
            encoding=encoding,
        )
        with torch.device("meta"):
            model = config.build()
        assert sum(weight.numel() for weight in model.parameters()) == parameters


def test_initial_weights_are_those_of_the_original() -> None:
    torch.manual_seed(0)
    sizes: Any = {"width": 64, "num_layers": 1, "num_heads": 8, "hidden": 128}
    config = ClassifierConfig(**ORIGINAL, **sizes, encoding=SirenConfig())
    (block,) = config.build().blocks
    attention: Any = block.attention
    for linear, bound in ((attention.project_in, 4 * 64), (attention.project_out, 2 * 64)):
        limit = (6 / bound) ** 0.5
        assert 0.99 * limit < linear.weight.abs().max() <= limit
        assert (linear.bias == 0).all()
    feed_forward: Any = block.feed_forward
    for linear, fan_in in ((feed_forward.project_in, 64), (feed_forward.project_out, 128)):
        for values in (linear.weight, linear.bias):
            assert 0.9 * fan_in**-0.5 < values.abs().max() <= fan_in**-0.5
