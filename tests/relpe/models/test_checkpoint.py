from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.decoding.kernels import Matrices
from relpe.decoding.packed_weights import packed_weights
from relpe.models import checkpoint
from relpe.models.checkpoint import (
    CheckpointError,
    find_checkpoint,
    load_classifier,
    load_encoder_decoder,
    load_model,
    released_model,
    save_model,
)
from relpe.models.decoder import Decoder, DecoderConfig
from relpe.models.int8 import linear_weights
from relpe.models.pointer.config import BalanceConfig, GateConfig, PointerConfig
from tests.support.classifiers import classifier
from tests.support.decoders import CONFIGS, decoder
from tests.support.encoder_decoders import encoder_decoder
from tests.support.flip import FlipConfig

SMALL = DecoderConfig(vocabulary_size=12, width=16, num_layers=2, num_heads=2, hidden=24)

POINTING = replace(
    SMALL,
    pointer=PointerConfig(
        reach=100,
        unit=4,
        ignored=((6, 8), (8, 12)),
        families=(0, 5),
        gates=GateConfig(family=(0.5, -0.25)),
        balance=BalanceConfig(most_generated=0.4, temperature=(1.0, 0.9)),
    ),
)


def saved(folder: Path) -> Decoder:
    torch.manual_seed(1)
    model = SMALL.build().eval()
    save_model(model, folder)
    return model


def test_shapes_are_compared_first_unless_the_model_is_released(tmp_path, monkeypatch):
    compared = []
    monkeypatch.setattr(checkpoint, "_check_shapes", lambda *given: compared.append(given[-1]))
    saved(tmp_path / "mine")
    load_model(tmp_path / "mine")
    assert compared == [tmp_path / "mine"]
    monkeypatch.setattr(checkpoint, "_PLACES", (tmp_path,))
    load_model("mine")
    assert compared == [tmp_path / "mine"]
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"")  # what is released can be damaged
    with pytest.raises(CheckpointError, match="damaged"):
        load_model("mine")


def test_a_loaded_model_is_the_saved_one_in_bfloat16(tmp_path: Path) -> None:
    for name in CONFIGS:
        model = decoder(name)
        save_model(model, tmp_path)
        loaded = load_model(tmp_path)
        assert loaded.config == model.config, name
        for key, weights in loaded.state_dict().items():
            assert weights.dtype == torch.float32
            assert torch.equal(weights, model.state_dict()[key].bfloat16().float()), (name, key)


def test_a_model_in_int8_is_half_as_large_and_close_to_the_one_in_bfloat16(tmp_path: Path) -> None:
    model = SMALL.build().eval()
    save_model(model, tmp_path, "int8")
    loaded = load_model(tmp_path).state_dict()
    linear = linear_weights(model)
    for name, weights in model.state_dict().items():
        expected = weights.bfloat16().float()
        if name not in linear:
            assert torch.equal(loaded[name], expected)
            continue
        step = expected.abs().amax(1, keepdim=True) / 127
        assert ((loaded[name] - expected).abs() <= 0.5001 * step).all()
        assert not torch.equal(loaded[name], expected)
    large = DecoderConfig(width=128, num_layers=2, num_heads=2, hidden=256).build()
    sizes: list[int] = []
    for precision in ("bfloat16", "int8"):
        save_model(large, tmp_path / precision, precision)
        sizes.append((tmp_path / precision / "model.safetensors").stat().st_size)
    assert sizes[1] < 0.7 * sizes[0]


@pytest.mark.parametrize(
    "name", ["sine favor", "events: siren windowed", "algebraic delta", "conv relu"]
)
def test_int8_code_has_the_same_weights_from_both_files(tmp_path: Path, name: str) -> None:
    model = decoder(name)
    found = []
    for precision in ("bfloat16", "int8"):
        save_model(model, tmp_path, precision)
        loaded = load_model(tmp_path)
        found.append(packed_weights(loaded, loaded.init_state(1), "int8"))
    for part, again in zip(*found, strict=True):
        pairs = zip(part, again, strict=True) if isinstance(part, Matrices) else [(part, again)]
        for one, other in pairs:
            assert np.array_equal(one, other)


def test_weights_in_int8_need_the_largest_of_each_row(tmp_path: Path) -> None:
    save_model(SMALL.build(), tmp_path, "int8")
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    largest = weights.pop("project_out.weight.largest")
    save_file(weights, file)
    with pytest.raises(CheckpointError, match=r"project_out\.weight\.largest is missing"):
        load_model(tmp_path)
    save_file({**weights, "project_out.weight.largest": largest[1:].clone()}, file)
    with pytest.raises(CheckpointError, match=r"project_out\.weight\.largest is unexpected"):
        load_model(tmp_path)


def test_large_models_are_split_into_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_bad_files_are_one_clear_error(tmp_path: Path) -> None:
    def described(**changes: object) -> Callable[[Path], object]:
        description = {"format_version": 1, "weights": [], "decoder": {}} | changes
        return lambda folder: (folder / "model.json").write_text(json.dumps(description))

    damages: list[tuple[Callable[[Path], object], str]] = [
        (lambda folder: (folder / "model.safetensors").unlink(), "missing"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no weights"), "damaged"),
        (lambda folder: (folder / "model.json").write_text("{"), "are damaged"),
        (lambda folder: (folder / "model.json").write_text("[" * 100_000), "nested too deeply"),
        (lambda folder: (folder / "model.json").write_text(" " * 2**21), "1,000,000"),
        (described(format_version=99), "format 99"),
        (described(decoder={"encoding": {"kind": "x"}}), "sine_spe"),
        (described(weights=["../x"]), "outside"),
        (described(decoder={"width": "16"}), r"model\.json\.width: found '16', .* type int"),
        (
            described(decoder={"girth": 16}),
            r"model\.json\.girth: unknown, .* vocabulary_size, width",
        ),
    ]
    for damage, message in damages:
        saved(tmp_path)
        damage(tmp_path)
        with pytest.raises(CheckpointError, match=message):
            load_model(tmp_path)


def test_a_path_with_a_separator_or_a_folder_that_exists_is_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    released = find_checkpoint("piano")
    with pytest.raises(CheckpointError, match=r"no model '\./piano'"):
        find_checkpoint("./piano")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(CheckpointError, match=f"relpe-train export --run {tmp_path} --output DIR"):
        find_checkpoint(str(tmp_path))
    saved(tmp_path / "piano")
    assert find_checkpoint("./piano").resolve() == (tmp_path / "piano").resolve()
    assert find_checkpoint(f"{tmp_path}/piano") == tmp_path / "piano"
    assert find_checkpoint("piano").resolve() == (tmp_path / "piano").resolve()
    assert released_model("piano") == released


def test_a_size_that_the_weights_do_not_have_is_refused(tmp_path: Path) -> None:
    """Without memory for such weights, those of 64 GB among them."""
    saved(tmp_path)
    description = json.loads((tmp_path / "model.json").read_text())
    for name, value in (
        ("vocabulary_size", 10**9),
        ("width", 10**9),
        ("num_layers", 10**9),
        ("convolution_taps", 10**9),
        ("width", 10**400),
        ("num_layers", 1e300),
    ):
        changed = description | {"decoder": description["decoder"] | {name: value}}
        (tmp_path / "model.json").write_text(json.dumps(changed))
        with pytest.raises(CheckpointError) as error:
            load_model(tmp_path)
        assert len(str(error.value)) < 600


def test_a_model_keeps_its_pointer_and_files_without_one_are_read(tmp_path: Path) -> None:
    save_model(POINTING.build(), tmp_path)
    assert load_model(tmp_path).config == POINTING
    file = tmp_path / "model.json"
    description = json.loads(file.read_text())
    del description["decoder"]["pointer"]
    file.write_text(json.dumps(description))
    assert load_model(tmp_path).config == SMALL


def test_a_damaged_pointer_is_one_clear_error(tmp_path: Path) -> None:
    changes: list[tuple[dict[str, object], str]] = [
        ({"reach": 0}, "reach is 0, expected 1 to 1048576"),
        ({"unit": 12}, "the id 12, expected ids below vocabulary_size, 12"),
        ({"ignored": [[6]]}, r"ignored: found \[6\], expected 2 values"),
        ({"families": [0, 10**15]}, "expected ids below vocabulary_size, 12"),
        ({"gates": {"similar": [0.0] * 25}}, "similar has 25 entries, expected 26"),
        ({"gates": {"family": [0, 10**400]}}, "entries of the gates must be finite"),
        ({"gates": {"record": "x"}}, "record: found 'x', expected a value of type float"),
        ({"balance": {"most_generated": float("nan")}}, r"expected -50\.0 to 50\.0"),
        ({"balance": {"temperature": [0.0, 1]}}, r"the factor 0\.0, expected 0\.1 to 10\.0"),
        ({"gates": []}, r"gates: found \[\], expected a section"),
        ({"range": 3}, "pointer.range: unknown, expected one of reach, unit"),
    ]
    save_model(POINTING.build(), tmp_path)
    file = tmp_path / "model.json"
    description = json.loads(file.read_text())
    pointer = description["decoder"]["pointer"]
    for change, message in changes:
        description["decoder"]["pointer"] = pointer | change
        text = json.dumps(description)
        for content in {text, text.replace("NaN", "1e400")}:
            file.write_text(content)
            with pytest.raises(CheckpointError, match=message) as caught:
                load_model(tmp_path)
            assert "\n" not in str(caught.value)
            assert str(caught.value).startswith("model.json")


def test_other_models_are_saved_and_loaded_like_a_decoder(tmp_path: Path) -> None:
    for model, load in (
        (encoder_decoder("tree softmax", dropout=0.1), load_encoder_decoder),
        (classifier(head_hidden=(6,), pooling="learned"), load_classifier),
    ):
        save_model(model.float(), tmp_path)
        loaded = load(tmp_path)
        assert loaded.config == model.config
        for name, weight in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], weight.bfloat16().float()), name
    with pytest.raises(CheckpointError, match="the model of a classifier, expected a decoder"):
        load_model(tmp_path)
    saved(tmp_path)
    with pytest.raises(CheckpointError, match="expected a classifier; load it with load_model"):
        load_classifier(tmp_path)


def test_a_model_that_could_not_be_loaded_is_not_stored(tmp_path):
    own: Any = replace(SMALL, attention=SoftmaxAttentionConfig(), encoding=FlipConfig())
    with pytest.raises(CheckpointError, match="store its state_dict instead"):
        save_model(own.build(), tmp_path / "own")
    assert not (tmp_path / "own").exists()
    save_model(SMALL.build(), str(tmp_path / "named"))
    assert load_model(str(tmp_path / "named")).config == SMALL
