"""The manifest of a batch: one row per finished clip, with its settings and hashes."""

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
    """The settings and the result of a clip; its fields are the columns of the manifest."""

    file: str
    """Path relative to the folder of the manifest, like `audio`."""
    audio: str
    """Empty if there is no audio."""
    prompt: str
    """Path of the prompt as given; empty for a piece without a prompt."""
    model: str
    model_sha256: str
    backend: str
    seed: str
    settings: str
    """The options as JSON."""
    bars: str = ""
    """Of the new music, like `notes` and `seconds`."""
    notes: str = ""
    seconds: str = ""
    midi_sha256: str = ""
    audio_sha256: str = ""

    def difference(self, now: Row) -> str | None:
        """The first setting that differs, as `NAME X, now Y`; None if all are equal.

        Results and the prompt's path are not compared; the hash of the prompt is.
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
        """Describes the first file that does not match its hash; None if all match."""
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
    """SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(path: Path) -> dict[str, Row]:
    """Reads the rows, keyed by `file`; empty if there is no manifest.

    Raises CommandError if the file is not a manifest of `relpe batch`.
    """
    columns = [field.name for field in fields(Row)]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            found = list(reader)
        named = reader.fieldnames or ()
        missing = [column for column in columns if column not in named]
        if missing and {"file", "settings"}.issubset(named):
            raise CommandError(
                f"{path}: written by another version of relpe, without the column "
                f"{', '.join(missing)}; complete the batch with that version, or choose another "
                "--output"
            )
        if named != columns:
            raise ValueError(f"expected the columns {', '.join(columns)}")
        rows = [Row(**row) for row in found]
        for row in rows:
            if not isinstance(json.loads(row.settings), dict):
                raise ValueError(f"the settings of {row.file} are not a JSON object")
    except (FileNotFoundError, NotADirectoryError):
        return {}  # `make_folders` reports problems with the folder
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, csv.Error) as error:
        raise CommandError(
            f"{path}: this is not a manifest of relpe batch ({error}); choose another --output"
        ) from error
    return {row.file: row for row in rows}


def write_manifest(path: Path, rows: Iterable[Row]) -> None:
    """Writes all rows atomically."""
    with appearing(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def replay_of_clip(manifest: Path, name: str) -> replay.Replay:
    """The settings of a clip. `name` is its file or its name, such as `ballad_v01`.

    Raises:
        ReplayError: there is no such clip, or its settings cannot be used.
        CommandError: the file is not a manifest.
    """
    if not manifest.is_file():
        raise replay.ReplayError(f"{manifest}: no such file")
    clips = {Path(row.file).stem: row for row in read_manifest(manifest).values()}
    row = clips.get(Path(name).stem)
    if row is None:
        some = f"expected one such as {next(iter(clips))}" if clips else "the manifest is empty"
        raise replay.ReplayError(f"{manifest}: there is no clip {replay.shortened(name)}, {some}")
    chosen: dict[str, Any] = json.loads(row.settings)
    parts = ("device", "versions", "prompt_sha256")
    told: dict[str, Any] = {part: chosen.pop(part) for part in parts if part in chosen}
    told |= {"model": row.model, "model_sha256": row.model_sha256, "backend": row.backend}
    seed = int(row.seed) if row.seed.isdecimal() else row.seed
    return replay.from_settings(told | {"seed": seed, "options": chosen})
