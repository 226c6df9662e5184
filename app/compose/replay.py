"""Settings of a piece as JSON, from which it can be generated again."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from app.compose.fill.passage import Passage
from app.compose.options import OF_PROMPT, MusicOptions
from app.compose.plan.sections import read_sections, sections_text
from app.errors import UserError
from tokenization.midi.drums import format_drums

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.prompt.prompt import Prompt
    from tokenization.analysis.form import Phrase

MOST_BYTES = 1_000_000
"""Maximum size of a file of settings."""
_EXPORT = "export it again with --json, or from the page"
_KINDS = {
    str: ("model", "model_sha256", "backend", "device", "versions", "prompt_sha256", "sections"),
    int: ("seed", "first_bar", "last_bar"),
    list: ("heard", "played"),
}
"""Types of the settings other than options."""
_LATER = {"variations", "drums", "study", "study_steps"}
"""Options that earlier settings lack; their defaults are as before."""
_CLIP_COLUMNS = ("file", "model", "model_sha256", "backend", "seed", "settings")
"""Columns of a manifest from which a clip can be generated again."""
_SAID = {str: "text", int: "a whole number", list: "a list"}


class ReplayError(UserError):
    """Settings cannot be used; the message is written for the user."""


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
    """SHA-256 of the whole file; None for a piece without a prompt."""
    first_bar: int | None = None
    """Argument of `read_prompt`, like the fields below and the options' `beats`."""
    last_bar: int | None = None
    heard: frozenset[int] | None = None
    played: frozenset[int] | None = None
    passage: Passage | None = None
    sections: tuple[Phrase, ...] = ()
    """Sections of the whole file, to whose letters a form refers; without them, by analysis."""

    def fits(self, data: bytes) -> bool:
        """Return whether `data` is the file that was continued."""
        return hashlib.sha256(data).hexdigest() == self.prompt_sha256

    @property
    def compute(self) -> dict[str, str]:
        """Device, backend and precision as arguments of the commands; defaults if unknown."""
        backend, precision, *_ = *self.backend.split(), "", ""
        return {
            "device": self.device if self.device in ("cpu", "cuda") else "auto",
            "backend": backend if backend in ("compiled", "torch") else "auto",
            "precision": precision if precision in ("int8", "float32") else "int8",
        }

    def differences(self, model: MusicModel) -> list[str]:
        """Return the recorded settings that differ from those here, as `BEFORE (here NOW)`."""
        differences: list[str] = []
        if self.model_sha256 and self.model_sha256 != model.sha256:
            differences.append(f"weights that differ from those of {model.name}")
        for was, here in ((self.backend, model.backend), (self.device, model.device.type)):
            if was and was != here:
                differences.append(f"{was} (here {here})")
        was, here = self.versions.split(", "), versions().split(", ")
        if self.versions and was != here:
            gone, new = (", ".join(sorted(set(a) - set(b))) for a, b in ((was, here), (here, was)))
            differences.append(f"{gone or 'fewer packages'} (here {new or 'fewer packages'})")
        return differences


def settings(
    options: MusicOptions,
    model: MusicModel,
    prompt: Prompt | None = None,
    data: bytes | None = None,
) -> dict[str, Any]:
    """Return all settings that determine the music, for JSON; one backend repeats the bytes.

    `data` is the whole file, if the prompt is only a part of it.
    """
    from app.compose.models import threads  # imports PyTorch

    values = chosen_options(options, after_prompt=prompt is not None)
    recorded: dict[str, Any] = {
        "model": model.name,
        "model_sha256": model.sha256,
        "backend": model.backend,
        "device": model.device.type,
        "versions": versions(),
        "threads": threads(),  # does not affect the music
        "seed": options.seed,
        "options": values,
    }
    if prompt is None:
        return recorded
    values["beats"] = prompt.facts.beats
    values["drums"] = format_drums(row.id for row in prompt.facts.rows if row.drums)
    whole = prompt.data if data is None else data
    recorded["prompt_sha256"] = hashlib.sha256(whole).hexdigest()
    if prompt.sections and options.form is not None:
        recorded["sections"] = sections_text(prompt.sections)
    if prompt.gap is not None:
        return recorded | {"passage": _passage_settings(prompt.gap.passage)}
    last = prompt.bars if prompt.bars < prompt.facts.bars else None
    heard, played = (
        None if numbers is None else sorted(numbers)
        for numbers in (prompt.parts.heard, prompt.parts.played)
    )
    region = {"first_bar": prompt.first_bar, "last_bar": last, "heard": heard, "played": played}
    return recorded | {name: value for name, value in region.items() if value is not None}


def _passage_settings(passage: Passage) -> dict[str, Any]:
    """Return a passage for JSON, without what is None."""
    values = asdict(passage)
    if passage.tracks is not None:
        values["tracks"] = sorted(passage.tracks)
    values["rests"] = sorted(passage.rests) or None
    return {name: value for name, value in values.items() if value is not None}


def _read_passage(recorded: object) -> Passage:
    """Return a passage from decoded JSON. Raises ReplayError."""
    names = {field.name for field in fields(Passage)}
    if not isinstance(recorded, dict) or not names.issuperset(recorded):
        raise ReplayError(f"passage is {shortened(recorded)}, expected bars and tracks; {_EXPORT}")
    kinds = {name: list if name in ("tracks", "rests") else int for name in names}
    values = {name: _checked(name, value, kinds[name]) for name, value in recorded.items()}
    try:
        return Passage(**values)
    except ValueError as error:
        raise ReplayError(f"{error}; {_EXPORT}") from error


def chosen_options(options: MusicOptions, *, after_prompt: bool) -> dict[str, Any]:
    """Return the options that affect the music except the seed, for JSON."""
    values = asdict(options)
    unused = () if after_prompt else OF_PROMPT
    for name in ("seed", *(("bars",) if options.seconds is not None else ()), *unused):
        del values[name]
    return values


def versions() -> str:
    """Return the versions of relpe and of the packages that affect the music."""
    packages = []
    for name in ("relpe", "torch", "numpy", "numba"):
        try:
            packages.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # Numba may be missing
            continue
    return ", ".join(packages)


def read(text: str | bytes) -> Replay:
    """Read the JSON of `settings`, or the output of a command with --json, which contains it.

    Raises ReplayError if these are not the settings of a piece.
    """
    if len(text) > MOST_BYTES:
        raise ReplayError(
            f"the file has {len(text):,} bytes, expected settings of at most {MOST_BYTES:,}; "
            "choose another file"
        )
    try:
        recorded: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"the settings are not JSON; {_EXPORT}") from error
    if isinstance(recorded, dict) and isinstance(recorded.get("replay"), dict):
        recorded = recorded["replay"]
    if not isinstance(recorded, dict) or not isinstance(recorded.get("options"), dict):
        raise ReplayError(f"this is JSON without the options of a piece; {_EXPORT}")
    return from_settings(recorded)


def replay_of_clip(manifest: Path, name: str) -> Replay:
    """Read the settings of a clip. `name` is its file or its name, such as `ballad_v01`.

    The file may be a manifest or the key of a study. Raises ReplayError if it is neither, has no
    such clip, or the settings cannot be used.
    """
    clips = _read_clips(manifest)
    row = clips.get(Path(name).stem)
    if row is None:
        some = f"expected one such as {next(iter(clips))}" if clips else "the manifest is empty"
        raise ReplayError(f"{manifest}: there is no clip {shortened(name)}, {some}")
    if not row["model"]:
        raise ReplayError(
            f"{manifest}: the clip {shortened(name)} was not generated by a model; it is in "
            f"{row['file']}"
        )
    values: dict[str, Any] = json.loads(row["settings"])
    for part in ("clip", "clip_bars", "loudness"):  # the whole piece is generated
        values.pop(part, None)
    parts = ("device", "versions", "prompt_sha256", "last_bar")
    recorded: dict[str, Any] = {part: values.pop(part) for part in parts if part in values}
    recorded |= {name: row[name] for name in ("model", "model_sha256", "backend")}
    seed = int(row["seed"]) if row["seed"].isdecimal() else row["seed"]
    return from_settings(recorded | {"seed": seed, "options": values})


def _read_clips(manifest: Path) -> dict[str, dict[str, str]]:
    """Read the rows of a manifest by the names of their clips."""
    try:
        with manifest.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows, columns = list(reader), reader.fieldnames or ()
        if "file" in columns and "settings" not in columns:
            raise ReplayError(
                f"{manifest}: this is the manifest of a study, which does not name the models; "
                f"give {manifest.with_name('key.csv')} instead"
            )
        if missing := [column for column in _CLIP_COLUMNS if column not in columns]:
            raise ValueError(f"it has no column {missing[0]}")
        for row in rows:
            if None in row.values() or not isinstance(json.loads(row["settings"]), dict):
                raise ValueError(f"the row of {row['file']} is damaged")
    except OSError as error:
        raise ReplayError(f"{manifest}: {error.strerror or error}; choose another file") from error
    except (ValueError, csv.Error) as error:
        raise ReplayError(
            f"{manifest}: this is not a manifest of relpe batch ({error}); choose another file"
        ) from error
    return {Path(row["file"]).stem: row for row in rows}


def from_settings(recorded: dict[str, Any]) -> Replay:
    """Return the settings from decoded JSON, with their types checked.

    Raise ReplayError like `read`.
    """
    values = {
        name: _checked(name, recorded[name], kind)
        for kind, names in _KINDS.items()
        for name in names
        if recorded.get(name) is not None
    }
    for name in ("model", "seed"):
        if name not in values:
            raise ReplayError(f"the settings have no {name}; {_EXPORT}")
    after_prompt = "prompt_sha256" in values
    # settings of a continuation that name no beats are those of its file
    settings: dict[str, Any] = {"beats": "file"} if after_prompt else {}
    settings |= recorded["options"] | {"seed": values.pop("seed")}
    options = _options(settings, after_prompt=after_prompt)
    passage = _read_passage(recorded["passage"]) if recorded.get("passage") is not None else None
    try:
        values["sections"] = read_sections(values.get("sections", ""))
    except ValueError as error:
        raise ReplayError(f"{error}; {_EXPORT}") from error
    return Replay(options=options, passage=passage, **values)


def _checked(name: str, value: Any, kind: type) -> Any:  # noqa: ANN401 - values of JSON
    """Return a setting, with its type checked."""
    if not _is_a(value, kind):
        raise ReplayError(f"{name} is {shortened(value)}, expected {_SAID[kind]}; {_EXPORT}")
    if not isinstance(value, list):
        return value
    if not all(_is_a(number, int) for number in value):
        raise ReplayError(f"{name} is {shortened(value)}, expected track numbers; {_EXPORT}")
    return frozenset(value)


def _options(values: dict[str, Any], *, after_prompt: bool) -> MusicOptions:
    """Return the options, with their types checked; all that affect the music must be there."""
    hints = get_type_hints(MusicOptions)
    if unknown := sorted(values.keys() - {option.name for option in fields(MusicOptions)}):
        raise ReplayError(
            f"this release has no option {shortened(unknown[0])}; use the release of relpe that "
            "saved the settings"
        )
    for name, value in values.items():
        if not _is_a(value, hints[name]):
            raise ReplayError(f"{name.replace('_', ' ')} is {shortened(value)}; {_EXPORT}")
    try:
        options = MusicOptions(**values)
    except ValueError as error:
        raise ReplayError(f"{error}; {_EXPORT}") from error
    expected = chosen_options(options, after_prompt=after_prompt).keys() - _LATER
    if missing := sorted(expected - values.keys()):
        raise ReplayError(
            f"the settings have no {missing[0]}, so they are of an earlier version; use the "
            "release of relpe that saved them"
        )
    return options


def _is_a(value: object, hint: Any) -> bool:  # noqa: ANN401 - any annotation
    """Return whether a value from JSON has a type; whole numbers count as floats."""
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is Literal:
        return value in kinds
    kinds = (*kinds, int) if float in kinds else kinds
    return isinstance(value, kinds) and not isinstance(value, bool)


def shortened(value: object) -> str:
    """Return a value as text of at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
