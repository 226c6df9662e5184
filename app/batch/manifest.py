"""The manifest of a batch: a row for each finished clip, with its settings and hashes."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from app.compose import replay
from app.errors import CommandError
from app.files import appearing

NAME = "manifest.csv"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The settings and the result of a clip; the fields are the columns."""

    file: str
    """Path relative to the folder of the manifest, like `audio`."""
    audio: str
    """Empty if there is no sound."""
    prompt: str
    """Its path as it was given; empty for a piece without a prompt."""
    model: str
    model_sha256: str
    backend: str
    seed: str
    settings: str
    """JSON of the options."""
    bars: str = ""
    """Of the new music, like `notes` and `seconds`."""
    notes: str = ""
    seconds: str = ""
    midi_sha256: str = ""
    audio_sha256: str = ""

    def difference(self, now: Row) -> str | None:
        """The first setting that differs, as `NAME X, now Y`; None if all are equal.

        Neither results nor the prompt's path are compared, but the hash of the prompt is.
        """
        before, after = self._made_of(), now._made_of()
        for name in before | after:
            was, now_is = before.get(name, "none"), after.get(name, "none")
            if was != now_is:
                return f"{name.replace('_', ' ')} {was or 'none'}, now {now_is or 'none'}"
        return None

    def _made_of(self) -> dict[str, object]:
        named = asdict(self)
        results = ("bars", "notes", "seconds", "midi_sha256", "audio_sha256")
        # the hash of the prompt is among the settings
        for name in (*results, "settings", "prompt"):
            del named[name]
        return named | json.loads(self.settings)

    def damage(self, folder: Path) -> str | None:
        """The first file that does not match its hash, and why; None if all match."""
        for file, sha256 in ((self.file, self.midi_sha256), (self.audio, self.audio_sha256)):
            try:
                if file and sha256_of(folder / file) != sha256:
                    return f"{file} is damaged"
            except FileNotFoundError:
                return f"{file} is missing"
            except OSError as error:
                return f"{file} cannot be read ({error.strerror or error})"
        return None


def sha256_of(path: Path) -> str:
    """Hash of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(path: Path) -> dict[str, Row]:
    """The rows, keyed by `file`; empty if there is no manifest.

    Raises CommandError if it was not written by this command.
    """
    columns = [field.name for field in fields(Row)]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            found = list(reader)
        if reader.fieldnames != columns:
            raise ValueError(f"expected the columns {', '.join(columns)}")
        rows = [Row(**row) for row in found]
        for row in rows:
            if not isinstance(json.loads(row.settings), dict):
                raise ValueError(f"settings of {row.file} are no JSON object")
    except (FileNotFoundError, NotADirectoryError):
        return {}  # `make_folders` reports problems with the folder
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, csv.Error) as error:
        raise CommandError(
            f"{path}: not a manifest of this command ({error}); choose another --output"
        ) from error
    return {row.file: row for row in rows}


def write_manifest(path: Path, rows: Iterable[Row]) -> None:
    """Writes all rows, atomically."""
    with appearing(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def replay_of_clip(manifest: Path, name: str) -> replay.Replay:
    """The settings of a clip, named by its file or as `ballad_v01`.

    Raises:
        ReplayError: there is no such clip, or its row holds no settings.
        CommandError: the file is no manifest.
    """
    if not manifest.is_file():
        raise replay.ReplayError(f"{manifest}: there is no such file")
    clips = {Path(row.file).stem: row for row in read_manifest(manifest).values()}
    row = clips.get(Path(name).stem)
    if row is None:
        some = f"expected one such as {next(iter(clips))}" if clips else "it lists none"
        raise replay.ReplayError(f"{manifest}: found no clip {replay.shortened(name)}, {some}")
    chosen: dict[str, Any] = json.loads(row.settings)
    parts = ("device", "versions", "prompt_sha256")
    told: dict[str, Any] = {part: chosen.pop(part) for part in parts if part in chosen}
    told |= {"model": row.model, "model_sha256": row.model_sha256, "backend": row.backend}
    seed = int(row.seed) if row.seed.isdecimal() else row.seed
    return replay.from_settings(told | {"seed": seed, "options": chosen})
