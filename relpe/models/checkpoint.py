"""Models on disk: a config in `model.json`, weights in `model.safetensors`."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from relpe.models.config import CheckpointError, from_plain, to_plain
from relpe.models.decoder import Decoder, DecoderConfig

FORMAT_VERSION = 1
SHARD_BYTES = 15 * 2**20
"""Maximum size of a file of weights."""


def save_model(decoder: Decoder, folder: Path) -> None:
    """Writes `model.json`, and weights in bfloat16 as `model.safetensors` or numbered shards."""
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in decoder.state_dict().items():
        weights = tensor.detach().to("cpu", torch.bfloat16).contiguous()
        if size and size + weights.nbytes > SHARD_BYTES - 2**16:
            shards.append({})
            size = 0
        shards[-1][name] = weights
        size += weights.nbytes
    names = _shard_names(len(shards))
    for old in folder.glob("model*.safetensors"):
        if old.name not in names:
            old.unlink()
    for name, shard in zip(names, shards, strict=True):
        beside = folder / (name + ".part")
        save_file(shard, beside)
        beside.chmod(0o644)
        beside.replace(folder / name)
    description = {
        "format_version": FORMAT_VERSION,
        "weights": names,
        "decoder": to_plain(decoder.config),
    }
    beside = folder / "model.json.part"
    beside.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    beside.replace(folder / "model.json")


def _shard_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{index + 1}-of-{count}.safetensors" for index in range(count)]


_PLACES = (Path(__file__).parents[2] / "checkpoints", Path(__file__).parents[1] / "_checkpoints")


def find_checkpoint(name_or_folder: str | Path) -> Path:
    """Folder of a released model by name, or of any model by path.

    A string with a separator, such as `./piano`, is a path. Otherwise a released model takes
    precedence over a folder of the same name.
    """
    given = str(name_or_folder)
    is_path = any(separator in given for separator in ("/", os.sep))
    released = () if is_path else (place / given for place in _PLACES)
    for folder in (*released, Path(given)):
        if (folder / "model.json").is_file():
            return folder
    if (Path(given) / "run.json").is_file():
        raise CheckpointError(
            f"{given}: this is a training run, expected a model; write one from it with "
            f"relpe-train export --run {shlex.quote(given)} --output DIR"
        )
    raise CheckpointError(
        f"no model {str(name_or_folder)!r}: expected a folder with model.json, or the name of a "
        f"released model ({', '.join(released_models()) or 'none is installed'})"
    )


def released_models() -> list[str]:
    """Names of the models installed with the project, in alphabetical order."""
    return sorted({path.parent.name for place in _PLACES for path in place.glob("*/model.json")})


def load_model(name_or_folder: str | Path, device: torch.device | str = "cpu") -> Decoder:
    """Loads a released model by name, or any model by folder, in float32 and evaluation mode.

    Raises:
        CheckpointError: files are missing, damaged or inconsistent.
    """
    folder = find_checkpoint(name_or_folder)
    try:
        description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        version = description["format_version"]
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{folder / 'model.json'}: format {version}, expected {FORMAT_VERSION}; "
                "update relpe"
            )
        decoder = from_plain(DecoderConfig, description["decoder"], "model.json").build()
        weights: dict[str, torch.Tensor] = {}
        for name in description["weights"]:
            if Path(name).name != name:
                raise CheckpointError(
                    f"{folder / 'model.json'}: the file of weights {name!r} is outside the folder"
                )
            weights.update(load_file(folder / name))
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{error.filename} is missing; the model's folder is incomplete"
        ) from error
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{folder}: the model's files are damaged ({error}); download them again"
        ) from error
    load_weights(decoder, weights, folder)
    return decoder.to(device).eval().requires_grad_(requires_grad=False)


def load_weights(decoder: Decoder, weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Fills every parameter.

    Raises:
        CheckpointError: tensors are missing, unexpected, of the wrong shape or not finite.
    """
    wanted = decoder.state_dict()
    problems = [f"{name} is missing" for name in wanted if name not in weights]
    problems += [f"{name} is unexpected" for name in weights if name not in wanted]
    problems += [
        f"{name} is {tuple(weights[name].shape)}, expected {tuple(wanted[name].shape)}"
        for name in wanted
        if name in weights and weights[name].shape != wanted[name].shape
    ]
    problems += [
        f"{name} has values that are not finite"
        for name, tensor in weights.items()
        if not bool(tensor.isfinite().all())
    ]
    if problems:
        raise CheckpointError(
            f"{folder}: the weights do not match model.json: {'; '.join(problems[:4])}"
        )
    decoder.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
