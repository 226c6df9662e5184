"""What makes a piece again, as JSON: all that decides the music, and reading it back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from app.batch.manifest import read_manifest, versions
from app.compose.options import OF_PROMPT, BeatSource, MusicOptions
from app.errors import UserError

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt import Prompt

MOST_BYTES = 1_000_000
"""Larger files are refused."""
_BEATS: tuple[str, ...] = get_args(BeatSource)
_EXPORT = "export it again with --json, or from the page"


class ReplayError(UserError):
    """Settings cannot be used; the message is one sentence for the user."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The settings of a piece."""

    model: str
    options: MusicOptions
    model_sha256: str = ""
    backend: str = ""
    device: str = ""
    versions: str = ""
    prompt_sha256: str | None = None
    """Of the whole file; None for a piece from nothing."""
    beats: BeatSource = "file"
    first_bar: int | None = None
    """As all that follows: see `read_prompt`."""
    last_bar: int | None = None
    heard: frozenset[int] | None = None
    played: frozenset[int] | None = None

    def fits(self, data: bytes) -> bool:
        """Whether a file is the prompt that was continued."""
        return hashlib.sha256(data).hexdigest() == self.prompt_sha256

    @property
    def compute(self) -> dict[str, str]:
        """Device, backend and precision as the commands name them; auto where nothing is said."""
        words = self.backend.split()
        named = {
            "device": (self.device, ("cpu", "cuda"), "auto"),
            "backend": ("".join(words[:1]), ("compiled", "torch"), "auto"),
            "precision": ("".join(words[1:2]), ("int8", "float32"), "int8"),
        }
        return {
            option: was if was in known else default
            for option, (was, known, default) in named.items()
        }

    def differences(self, model: MusicModel) -> list[str]:
        """What is not as it was, as far as the settings say: `WHAT (here WHAT)`."""
        found: list[str] = []
        if self.model_sha256 and self.model_sha256 != model.sha256:
            found.append(f"other weights than those of {model.name}")
        for was, here in ((self.backend, model.backend), (self.device, model.device.type)):
            if was and was != here:
                found.append(f"{was} (here {here})")
        was, here = self.versions.split(", "), versions().split(", ")
        if self.versions and was != here:
            gone, new = (", ".join(sorted(set(a) - set(b))) for a, b in ((was, here), (here, was)))
            found.append(f"{gone or 'fewer packages'} (here {new or 'fewer packages'})")
        return found


def settings(
    options: MusicOptions,
    model: MusicModel,
    prompt: Prompt | None = None,
    data: bytes | None = None,
) -> dict[str, Any]:
    """All that decides the music: the same again gives the same bytes, on the same backend.

    `data` is the whole file where the prompt ends before its end.
    """
    from app.compose.models import threads  # of the engine

    chosen = asdict(options)
    del chosen["seed"]
    if options.seconds is not None:
        del chosen["bars"]
    told: dict[str, Any] = {
        "model": model.name,
        "model_sha256": model.sha256,
        "backend": model.backend,
        "device": model.device.type,
        "versions": versions(),
        "threads": threads(),  # changes nothing
        "seed": options.seed,
        "options": chosen,
    }
    if prompt is None:
        for name in OF_PROMPT:
            del chosen[name]
        return told
    chosen["beats"] = prompt.facts.beats
    whole = prompt.data if data is None else data
    told["prompt_sha256"] = hashlib.sha256(whole).hexdigest()
    last = prompt.bars if prompt.bars < prompt.facts.bars else None
    heard, played = (
        None if numbers is None else sorted(numbers)
        for numbers in (prompt.parts.heard, prompt.parts.played)
    )
    region = {"first_bar": prompt.first_bar, "last_bar": last, "heard": heard, "played": played}
    return told | {name: value for name, value in region.items() if value is not None}


def read(text: str | bytes) -> Replay:
    """The settings that `settings` gave, as JSON; also inside what a command prints with --json.

    Raises:
        ReplayError: they are no such settings.
    """
    if len(text) > MOST_BYTES:
        raise ReplayError(
            f"found {len(text):,} bytes, expected settings of a piece in at most {MOST_BYTES:,}; "
            "choose another file"
        )
    try:
        told: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"the settings are not JSON; {_EXPORT}") from error
    if isinstance(told, dict) and isinstance(told.get("replay"), dict):
        told = told["replay"]
    if not isinstance(told, dict) or not isinstance(told.get("options"), dict):
        raise ReplayError(f"found JSON without the options of a piece, expected them; {_EXPORT}")
    return _replay(told)


def of_clip(manifest: Path, name: str) -> Replay:
    """The settings of a clip, named by its file or as `ballad_v01`.

    Raises:
        ReplayError: there is no such clip, or its row holds no settings.
        CommandError: the file is no manifest.
    """
    if not manifest.is_file():
        raise ReplayError(f"{manifest}: there is no such file")
    clips = {Path(row.file).stem: row for row in read_manifest(manifest).values()}
    row = clips.get(Path(name).stem)
    if row is None:
        some = f"expected one such as {next(iter(clips))}" if clips else "it lists none"
        raise ReplayError(f"{manifest}: found no clip {_short(name)}, {some}")
    chosen: dict[str, Any] = json.loads(row.settings)
    parts = ("device", "versions", "prompt_sha256")
    told: dict[str, Any] = {part: chosen.pop(part) for part in parts if part in chosen}
    told |= {"model": row.model, "model_sha256": row.model_sha256, "backend": row.backend}
    seed = int(row.seed) if row.seed.isdecimal() else row.seed
    return _replay(told | {"seed": seed, "options": chosen})


def _replay(told: dict[str, Any]) -> Replay:
    """The settings, each of its own kind."""
    chosen: dict[str, Any] = dict(told["options"])
    beats = chosen.pop("beats", "file")
    if beats not in _BEATS:
        raise ReplayError(f"beats is {beats!r}, expected {' or '.join(_BEATS)}; {_EXPORT}")
    sha = _one(told, "prompt_sha256", str, None)
    return Replay(
        model=_one(told, "model", str),
        options=_options(chosen | {"seed": _one(told, "seed", int)}),
        model_sha256=_one(told, "model_sha256", str, ""),
        backend=_one(told, "backend", str, ""),
        device=_one(told, "device", str, ""),
        versions=_one(told, "versions", str, ""),
        prompt_sha256=sha,
        beats=beats,
        first_bar=_one(told, "first_bar", int, None),
        last_bar=_one(told, "last_bar", int, None),
        heard=_numbers(told, "heard"),
        played=_numbers(told, "played"),
    )


def one_of(told: Replay, number: int) -> Replay:
    """Those of one variation of several, from 0: seeds count up from the first."""
    seed = told.options.seed
    alone = replace(told.options, seed=None if seed is None else seed + number, variations=1)
    return replace(told, options=alone)


_REQUIRED: Any = object()


def _one(told: dict[str, Any], name: str, kind: type, default: Any = _REQUIRED) -> Any:  # noqa: ANN401
    """A value of the settings; one that is null is none."""
    value = told.get(name)
    if value is None:
        if default is _REQUIRED:
            raise ReplayError(f"the settings have no {name}, expected one; {_EXPORT}")
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ReplayError(f"{name} is {_short(value)}, expected {_said(kind)}; {_EXPORT}")
    return value


def _numbers(told: dict[str, Any], name: str) -> frozenset[int] | None:
    """Numbers of tracks; None where there are none."""
    numbers = _one(told, name, list, None)
    if numbers is None:
        return None
    if any(not isinstance(number, int) or isinstance(number, bool) for number in numbers):
        raise ReplayError(f"{name} is {_short(numbers)}, expected numbers of tracks; {_EXPORT}")
    return frozenset(numbers)


def _options(chosen: dict[str, Any]) -> MusicOptions:
    """Options of which each has its own kind."""
    hints = get_type_hints(MusicOptions)
    known = {option.name: hints[option.name] for option in fields(MusicOptions)}
    if unknown := sorted(chosen.keys() - known.keys()):
        raise ReplayError(
            f"found an option {_short(unknown[0])} that this release does not know; use the "
            "release that wrote the settings"
        )
    for name, value in chosen.items():
        kinds = tuple(get_args(known[name]) or (known[name],))
        if get_origin(known[name]) is not None and value in kinds:
            continue  # one of some words
        if value is None and (type(None) in kinds or name == "prompt_bars"):
            continue
        numbers = (int, float) if float in kinds else kinds
        is_kind = isinstance(value, tuple(kind for kind in numbers if isinstance(kind, type)))
        if not is_kind or isinstance(value, bool):
            raise ReplayError(f"{name.replace('_', ' ')} is {_short(value)}; {_EXPORT}")
    if chosen.get("prompt_bars", 0) is None:  # as earlier releases wrote it
        chosen["prompt_bars"] = 0
    if "prompt_bars" in chosen:  # of earlier releases, which had neither
        chosen = {"presence": 0.0, "recall": 0.0} | chosen
    try:
        return MusicOptions(**chosen)
    except ValueError as error:
        raise ReplayError(f"{error}; {_EXPORT}") from error


def _said(kind: type) -> str:
    return {str: "a text", int: "a whole number", list: "a list"}[kind]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
