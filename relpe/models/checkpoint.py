"""Models on disk: a config in `model.json`, weights in `model.safetensors`."""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from relpe.files import atomic_write, write_text
from relpe.forks import use_threads
from relpe.models import int8
from relpe.models.classifier.model import Classifier, ClassifierConfig
from relpe.models.config import CheckpointError, from_plain, to_plain
from relpe.models.decoder import Decoder, DecoderConfig
from relpe.models.encoder_decoder.model import EncoderDecoder, EncoderDecoderConfig

FORMAT_VERSION = 1
SHARD_BYTES = 15 * 2**20
"""Maximum size of a file of weights."""
MAX_DESCRIPTION_BYTES = 1_000_000
"""Maximum size of `model.json`."""
MAX_CONSTANTS_BYTES = 1 << 28
"""Maximum size of the tensors that a model computes when it is built."""


AnyModel = Decoder | Classifier | EncoderDecoder
_AnyConfig = DecoderConfig | ClassifierConfig | EncoderDecoderConfig
_CONFIGS: dict[str, type[_AnyConfig]] = {
    "decoder": DecoderConfig,
    "classifier": ClassifierConfig,
    "encoder_decoder": EncoderDecoderConfig,
}
"""Kinds of models, by the key of their config in `model.json`."""
_LOADERS = {
    "decoder": "load_model",
    "classifier": "load_classifier",
    "encoder_decoder": "load_encoder_decoder",
}


StoredPrecision = Literal["bfloat16", "int8"]
"""Precision of the weights of a model on disk; with int8, that of its linear layers."""


def save_model(
    model: AnyModel, folder: str | Path, precision: StoredPrecision = "bfloat16"
) -> None:
    """Write `model.json`, and the weights as `model.safetensors` or numbered shards.

    With `precision` int8, the files have about half the size; see `relpe.models.int8`.

    Raises:
        CheckpointError: the config has parts that are not of this package, or weights are not
            finite.
        TypeError: this is no such model.
        ValueError: there is no such precision.
    """
    if not isinstance(model, AnyModel):
        raise TypeError(
            f"model is of type {type(model).__name__}, expected Decoder, Classifier or "
            "EncoderDecoder"
        )
    if precision not in get_args(StoredPrecision):
        raise ValueError(f"precision is {precision!r}, expected bfloat16 or int8")
    kind = next(name for name, config in _CONFIGS.items() if isinstance(model.config, config))
    try:
        from_plain(_CONFIGS[kind], to_plain(model.config), "the config")
    except CheckpointError as error:
        raise CheckpointError(
            f"the model cannot be stored, since it could not be loaded ({error}); store its "
            "state_dict instead"
        ) from error
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for part in _stored(model, precision):
        new = sum(weights.nbytes for weights in part.values())
        if size and size + new > SHARD_BYTES - 2**16:
            shards.append({})
            size = 0
        shards[-1] |= part
        size += new
    names = _shard_names(len(shards))
    for old in folder.glob("model*.safetensors"):
        if old.name not in names:
            old.unlink()
    for name, shard in zip(names, shards, strict=True):
        with atomic_write(folder / name) as beside:
            save_file(shard, beside)
            beside.chmod(0o644)
    description = {
        "format_version": FORMAT_VERSION,
        "weights": names,
        kind: to_plain(model.config),
    }
    write_text(folder / "model.json", json.dumps(description, indent=2) + "\n")


def _stored(model: AnyModel, precision: StoredPrecision) -> Iterator[dict[str, torch.Tensor]]:
    """Yield each weight of a model as it is stored."""
    whole = int8.linear_weights(model) if precision == "int8" else set()
    for name, tensor in model.state_dict().items():
        if tensor.is_meta or not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{name} has values that are not finite, or none; train it first")
        weights = tensor.detach().to("cpu", torch.bfloat16).contiguous()
        if name in whole:
            numbers, largest = int8.rounded(weights)
            yield {name: numbers, name + int8.LARGEST: largest}
        else:
            yield {name: weights}


def _shard_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{index + 1}-of-{count}.safetensors" for index in range(count)]


_LOG = logging.getLogger(__name__)
_FORMER = {"piano": "relpe", "groove": "relpe"}
"""Names of released models of 1.0, and of the models in their place once they are gone."""
_PLACES = (Path(__file__).parents[2] / "checkpoints", Path(__file__).parents[1] / "_checkpoints")


def find_checkpoint(name_or_folder: str | Path) -> Path:
    """Return the folder of any model by path, or of a released model by name.

    A folder that exists takes precedence over a released model of the same name. A string with a
    separator, such as `./piano`, is always a path.
    """
    given = str(name_or_folder)
    is_path = any(separator in given for separator in ("/", os.sep))
    if (Path(given) / "model.json").is_file():
        return Path(given)
    if not is_path and (released := released_model(given)) is not None:
        return released
    if (Path(given) / "run.json").is_file():
        raise CheckpointError(
            f"{given}: this is a training run, expected a model; write one from it with "
            f"relpe-train export --run {shlex.quote(given)} --output DIR"
        )
    raise CheckpointError(
        f"no model {str(name_or_folder)!r}: expected a folder with model.json, or the name of a "
        f"released model ({', '.join(released_models()) or 'none is installed'})"
    )


def released_model(name: str) -> Path | None:
    """Folder of a model installed with the project; None if there is none of this name.

    Names of version 1.0 are understood until 2.0.
    """
    installed = released_models()
    if name not in installed and _FORMER.get(name) in installed:
        name = _successor(name)
    if name not in installed:
        return None
    return next(place / name for place in _PLACES if (place / name / "model.json").is_file())


@cache
def _successor(name: str) -> str:
    """Return the name of the model in the place of a former one, and say so once."""
    new = _FORMER[name]
    _LOG.warning(
        "the model %r is now %r; use the new name, as 2.0 will not know the old one", name, new
    )
    return new


def released_models() -> list[str]:
    """Return the names of the models installed with the project, in alphabetical order."""
    return sorted({path.parent.name for place in _PLACES for path in place.glob("*/model.json")})


def load_model(name_or_folder: str | Path, device: torch.device | str = "cpu") -> Decoder:
    """Load a released model by name, or any model by folder, in float32 and evaluation mode.

    Raises:
        CheckpointError: files are missing, damaged or inconsistent, or this is not a decoder.
    """
    decoder = _load(name_or_folder, "decoder", device)
    assert isinstance(decoder, Decoder)
    return decoder


def load_classifier(folder: str | Path, device: torch.device | str = "cpu") -> Classifier:
    """Load a classifier by folder, in float32 and evaluation mode.

    Raises:
        CheckpointError: files are missing, damaged or inconsistent, or this is not a classifier.
    """
    classifier = _load(folder, "classifier", device)
    assert isinstance(classifier, Classifier)
    return classifier


def load_encoder_decoder(folder: str | Path, device: torch.device | str = "cpu") -> EncoderDecoder:
    """Load an encoder-decoder by folder, in float32 and evaluation mode.

    Raises:
        CheckpointError: files are missing, damaged or inconsistent, or this is no
            encoder-decoder.
    """
    model = _load(folder, "encoder_decoder", device)
    assert isinstance(model, EncoderDecoder)
    return model


def _load(name_or_folder: str | Path, kind: str, device: torch.device | str) -> AnyModel:
    use_threads()
    folder = find_checkpoint(name_or_folder)
    try:
        config, files = _description(folder, kind)
        for file in files:
            if not file.is_file():  # safetensors does not say which
                raise CheckpointError(f"{file} is missing; the model's folder is incomplete")
        if folder.parent not in _PLACES:  # it takes two seconds, and released files are trusted
            _check_shapes(config, files, folder)
        model = config.build()
        weights: dict[str, torch.Tensor] = {}
        for file in files:
            weights.update(load_file(file))
        weights = int8.restored(weights)
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{error.filename} is missing; the model's folder is incomplete"
        ) from error
    except (SafetensorError, LookupError, TypeError, ValueError, OSError, AttributeError) as error:
        raise CheckpointError(
            f"{folder}: the model's files are damaged ({error}); download them again"
        ) from error
    load_weights(model, weights, folder)
    return model.to(device).eval().requires_grad_(requires_grad=False)


def _description(folder: Path, kind: str) -> tuple[Any, list[Path]]:
    """Read the config of a model of a `kind` in `model.json`, and the names of its weights."""
    file = folder / "model.json"
    with file.open("rb") as opened:
        content = opened.read(MAX_DESCRIPTION_BYTES + 1)
    if len(content) > MAX_DESCRIPTION_BYTES:
        raise CheckpointError(
            f"{file}: found more than {MAX_DESCRIPTION_BYTES:,} bytes, expected at most that many; "
            "download the model again"
        )
    try:
        description = json.loads(content)
    except RecursionError as error:
        raise CheckpointError(f"{file} is nested too deeply; download the model again") from error
    version = description["format_version"]
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{file}: format {version!r}, expected {FORMAT_VERSION}; update relpe"
        )
    names = list(map(str, description["weights"]))
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{file}: the file of weights {name!r} is outside the folder")
    others = [other for other in _CONFIGS if other in description and kind not in description]
    if others:
        raise CheckpointError(
            f"{file}: found the model of a {others[0]}, expected a {kind}; load it with "
            f"{_LOADERS[others[0]]}"
        )
    config = from_plain(_CONFIGS[kind], description[kind], "model.json")
    return config, [folder / name for name in names]


def _check_shapes(config: _AnyConfig, files: list[Path], folder: Path) -> None:
    """Compare the shapes of weights and config before any memory is allocated for them.

    Raises CheckpointError if they differ, or if the model has too large constants.
    """
    stored: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            stored |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118 - not a dictionary
    for name in [name for name in stored if int8.is_largest(name, stored)]:
        if stored[name] == stored[name.removesuffix(int8.LARGEST)][:1]:
            del stored[name]
    elements = sum(math.prod(shape) for shape in stored.values())
    largest = config.largest
    if config.num_layers > len(stored) or largest > elements:
        raise CheckpointError(
            f"{folder}: the weights do not match model.json: found {len(stored):,} tensors of "
            f"{elements:,} numbers, expected those of {config.num_layers:,} layers and a size of "
            f"{largest:,}"
        )
    try:
        with torch.device("meta"):
            model = config.build()
    except (RuntimeError, OverflowError, MemoryError) as error:
        raise CheckpointError(
            f"{folder / 'model.json'}: the model cannot be built, since a size is too large; "
            "download the model again"
        ) from error
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    _raise_for(_differences(stored, expected), folder)
    constants = sum(buffer.nbytes for buffer in model.buffers())
    if constants > MAX_CONSTANTS_BYTES:
        raise CheckpointError(
            f"{folder / 'model.json'}: the model needs {constants:,} bytes of constants, expected "
            f"at most {MAX_CONSTANTS_BYTES:,}"
        )


def _differences(
    stored: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> list[str]:
    return [
        *(f"{name} is missing" for name in expected if name not in stored),
        *(f"{name} is unexpected" for name in stored if name not in expected),
        *(
            f"{name} is {stored[name]}, expected {shape}"
            for name, shape in expected.items()
            if name in stored and stored[name] != shape
        ),
    ]


def _raise_for(problems: list[str], folder: Path) -> None:
    if problems:
        raise CheckpointError(
            f"{folder}: the weights do not match model.json: {'; '.join(problems[:4])}"
        )


def load_weights(model: AnyModel, weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Fill every parameter.

    Raises:
        CheckpointError: tensors are missing, unexpected, of the wrong shape or not finite.
    """
    problems = _differences(
        {name: tuple(tensor.shape) for name, tensor in weights.items()},
        {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()},
    )
    problems += [
        f"{name} has values that are not finite"
        for name, tensor in weights.items()
        if not bool(tensor.isfinite().all())
    ]
    _raise_for(problems, folder)
    model.load_state_dict(weights)
