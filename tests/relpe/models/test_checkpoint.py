from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from relpe.attention.feature_maps import FavorConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.encodings import RopeConfig, SineSPEConfig
from relpe.models import checkpoint
from relpe.models.checkpoint import CheckpointError, find_checkpoint, load_model, save_model
from relpe.models.config import from_plain, to_plain
from relpe.models.decoder import Decoder, DecoderConfig

SMALL = DecoderConfig(vocabulary_size=12, width=16, num_layers=2, num_heads=2, hidden=24)


def saved(folder: Path) -> Decoder:
    torch.manual_seed(1)
    model = SMALL.build().eval()
    save_model(model, folder)
    return model


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        DecoderConfig(encoding=RopeConfig(base=50.0), attention=SoftmaxAttentionConfig()),
        DecoderConfig(attention=LinearAttentionConfig(feature_map=FavorConfig(num_features=8))),
        DecoderConfig(encoding=SineSPEConfig(num_sines=2, gated=False)),
        DecoderConfig(attention=LinearAttentionConfig(half_lives=(1.0, 64.0))),
    ],
)
def test_a_config_survives_json(config: DecoderConfig) -> None:
    assert from_plain(DecoderConfig, json.loads(json.dumps(to_plain(config)))) == config


def test_a_loaded_model_is_the_saved_one_in_bfloat16(tmp_path: Path) -> None:
    model = saved(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    for name, weights in loaded.state_dict().items():
        assert weights.dtype == torch.float32
        assert torch.equal(weights, model.state_dict()[name].bfloat16().float()), name


def test_large_models_are_cut_into_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 2**16 + 2000)
    model = saved(tmp_path)
    files = list(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    assert all(file.stat().st_size < checkpoint.SHARD_BYTES for file in files)
    for name, weights in load_model(tmp_path).state_dict().items():
        assert torch.equal(weights, model.state_dict()[name].bfloat16().float())


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["stranger"] = weights.pop("norm.weight")
    save_file(weights, file)
    with pytest.raises(CheckpointError, match=r"norm\.weight is missing; stranger is unexpected"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "missing"),
        (lambda f: (f / "model.safetensors").write_bytes(b"no weights"), "damaged"),
        (lambda f: (f / "model.json").write_text("{"), "are damaged"),
        (lambda f: (f / "model.json").write_text('{"format_version": 99}'), "format 99"),
        (
            lambda f: (f / "model.json").write_text(
                '{"format_version": 1, "weights": [], "decoder": {"encoding": {"kind": "x"}}}'
            ),
            "sine_spe",
        ),
        (
            lambda f: (f / "model.json").write_text(
                '{"format_version": 1, "weights": ["../x"], "decoder": {}}'
            ),
            "outside",
        ),
        (
            lambda f: (f / "model.json").write_text(
                '{"format_version": 1, "weights": [], "decoder": {"width": "16"}}'
            ),
            r"model\.json\.width: found '16', expected a value of type int",
        ),
        (
            lambda f: (f / "model.json").write_text(
                '{"format_version": 1, "weights": [], "decoder": {"girth": 16}}'
            ),
            r"model\.json\.girth: unknown, expected one of vocabulary_size, width",
        ),
    ],
)
def test_bad_files_are_one_clear_error(tmp_path: Path, damage: object, message: str) -> None:
    saved(tmp_path)
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="no model 'nothing'"):
        find_checkpoint("nothing")
