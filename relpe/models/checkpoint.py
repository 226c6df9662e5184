"""Models on disk: `model.json` says what to build, `model.safetensors` fills it."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from relpe.models.decoder import Decoder, DecoderConfig

FORMAT_VERSION = 1
SHARD_BYTES = 15 * 2**20
"""Largest size of one file of weights."""


class CheckpointError(ValueError):
    """A model's files cannot be used; the message says why."""


def to_plain(value: object) -> Any:  # noqa: ANN401 - values of JSON and YAML
    """A config's dataclasses as dictionaries, lists, texts and numbers."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_plain(kind: Any, value: Any, where: str = "config") -> Any:  # noqa: ANN401 - any config type
    """A value of type `kind` from plain ones; unions of dataclasses are told apart by their `kind`.

    Raises:
        CheckpointError: a name is unknown or missing, or a value is of another type.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _from_union(args, value, where)
    if _is_section(kind):
        return _from_section(kind, value, where)
    if origin is Literal:
        for choice in args:
            if choice in (value, str(value)):
                return choice
        choices = ", ".join(map(repr, args))
        raise CheckpointError(f"{where}: found {value!r}, expected one of {choices}")
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        kinds = [args[0]] * len(items) if args[-1] is Ellipsis else args
        if len(kinds) != len(items):
            raise CheckpointError(f"{where}: found {value!r}, expected {len(kinds)} values")
        return tuple(from_plain(k, item, where) for k, item in zip(kinds, items, strict=True))
    return _from_one(kind, value, where)


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _from_section(kind: Any, value: object, where: str) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: found {value!r}, expected a section")
    hints = typing.get_type_hints(kind)
    names = [item.name for item in dataclasses.fields(kind)]
    for name in value:
        if name not in names:
            raise CheckpointError(f"{where}.{name}: unknown, expected one of {', '.join(names)}")
    values = {
        name: from_plain(hints[name], part, f"{where}.{name}") for name, part in value.items()
    }
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: {error}") from error


def _from_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:  # noqa: ANN401
    if value is None and type(None) in kinds:
        return None
    choices = [choice for choice in kinds if choice is not type(None)]
    sections = {
        getattr(choice, "kind", choice): choice for choice in choices if _is_section(choice)
    }
    if sections and isinstance(value, dict):
        wanted = value.get("kind", next(iter(sections)) if len(sections) == 1 else None)
        if wanted not in sections:
            names = ", ".join(map(str, sections))
            raise CheckpointError(f"{where}.kind: found {wanted!r}, expected one of {names}")
        return from_plain(sections[wanted], value, where)
    for choice in choices[:-1]:
        try:
            return from_plain(choice, value, where)
        except CheckpointError:  # another choice may fit; the last one says what is wrong
            continue
    return from_plain(choices[-1], value, where)


def _from_one(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and is_number:
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    fits = isinstance(kind, type) and isinstance(value, kind)
    if fits and (kind is bool or not isinstance(value, bool)):
        return value
    name = getattr(kind, "__name__", str(kind))
    raise CheckpointError(f"{where}: found {value!r}, expected a value of type {name}")


def save_model(decoder: Decoder, folder: Path) -> None:
    """Writes `model.json` and `model.safetensors` (or numbered shards) in bfloat16."""
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
    """Folder of a released model by name, or of any model by path."""
    folders = [Path(name_or_folder), *(place / name_or_folder for place in _PLACES)]
    if len(Path(name_or_folder).parts) == 1:  # a name: a folder here must not stand in its way
        folders = [*folders[1:], folders[0]]
    for folder in folders:
        if (folder / "model.json").is_file():
            return folder
    raise CheckpointError(
        f"no model {str(name_or_folder)!r}: neither a folder with model.json nor a released model "
        f"({', '.join(released_models()) or 'none is installed'})"
    )


def released_models() -> list[str]:
    """Names of the models that are installed with the project, in alphabetical order."""
    return sorted({path.parent.name for place in _PLACES for path in place.glob("*/model.json")})


def load_model(name_or_folder: str | Path, device: torch.device | str = "cpu") -> Decoder:
    """The model of a folder or of a released name, in float32, ready for use.

    Raises CheckpointError for files that are missing, damaged or do not fit one another.
    """
    folder = find_checkpoint(name_or_folder)
    try:
        description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        version = description["format_version"]
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{folder / 'model.json'}: format {version}, expected {FORMAT_VERSION}; "
                "update this program"
            )
        decoder = from_plain(DecoderConfig, description["decoder"], "model.json").build()
        weights: dict[str, torch.Tensor] = {}
        for name in description["weights"]:
            if Path(name).name != name:
                raise CheckpointError(
                    f"{folder / 'model.json'}: weights {name!r} lie outside the folder"
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
            f"{folder}: the model's files are damaged ({error}); get them again"
        ) from error
    load_weights(decoder, weights, folder)
    return decoder.to(device).eval().requires_grad_(requires_grad=False)


def load_weights(decoder: Decoder, weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Fills every parameter.

    Missing, left-over, misshapen and broken tensors are a CheckpointError that names them.
    """
    wanted = decoder.state_dict()
    problems = [f"{name} is missing" for name in wanted if name not in weights]
    problems += [f"{name} is left over" for name in weights if name not in wanted]
    problems += [
        f"{name} is {tuple(weights[name].shape)}, expected {tuple(wanted[name].shape)}"
        for name in wanted
        if name in weights and weights[name].shape != wanted[name].shape
    ]
    problems += [
        f"{name} has values that are no numbers"
        for name, tensor in weights.items()
        if not bool(tensor.isfinite().all())
    ]
    if problems:
        raise CheckpointError(f"{folder}: weights do not fit model.json: {'; '.join(problems[:4])}")
    decoder.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
