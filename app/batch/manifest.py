"""The manifest of a batch: one row per finished clip, with its settings and hashes.

In a listening study, whose clips have blind names, the columns that give a clip's condition away
are in a second file, the key.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from app.compose.options import MusicOptions
from app.errors import CommandError
from relpe.files import atomic_write

NAME = "manifest.csv"
KEY_NAME = "key.csv"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The settings and the result of a clip; its fields are the columns of the manifest."""

    file: str
    """Path relative to the folder of the manifest, like `audio`."""
    audio: str
    """Empty if there is no audio."""
    prompt: str
    """Path of the prompt as given; empty for a piece without a prompt."""
    condition: str
    """What is compared: the name of a condition of a study, or of the model."""
    repetition: str
    """Number of the clip among those of its prompt and condition, from 1."""
    model: str
    """Empty for music that no model generated, like `model_sha256` and `backend`."""
    model_sha256: str
    backend: str
    seed: str
    settings: str
    """The options as JSON."""
    bars: str = ""
    """Of the new music, like `notes` and `seconds`."""
    notes: str = ""
    seconds: str = ""
    new_bar: str = ""
    """The bar of the clip in which the new music begins, from 1."""
    new_seconds: str = ""
    """The second of the clip at which the new music begins."""
    choice: str = ""
    """Which of several takes it is, and why; empty if there was only one."""
    clip_seconds: str = ""
    """Length of the clip up to the end of its last bar; audio fades out after it."""
    loudness: str = ""
    """Of the audio, in LUFS; -inf for silence."""
    soundfont: str = ""
    """File name of the SoundFont; empty if there is no audio, like its hash."""
    soundfont_sha256: str = ""
    midi_sha256: str = ""
    audio_sha256: str = ""

    def difference(self, now: Row) -> str | None:
        """Return the first setting that differs, as `NAME X, now Y`; None if all are equal.

        Results and the prompt's path are not compared; the hash of the prompt is.
        """
        before, after = self._made_of(), now._made_of()
        if lacking := sorted(_OPTIONS & (after.keys() - before.keys())):
            return f"another version of relpe, without {', '.join(lacking)}"
        for name in before | after:
            was, now_is = before.get(name, "none"), after.get(name, "none")
            if was != now_is:
                return f"{name.replace('_', ' ')} {was or 'none'}, now {now_is or 'none'}"
        return None

    def _made_of(self) -> dict[str, object]:
        values = asdict(self)
        # the hash of the prompt is among the settings
        for name in (*RESULTS, "settings", "prompt"):
            del values[name]
        return values | json.loads(self.settings)

    def damage(self, folder: Path) -> str | None:
        """Describe the first file that does not match its hash; None if all match."""
        for file, sha256 in ((self.file, self.midi_sha256), (self.audio, self.audio_sha256)):
            try:
                if file and sha256_of(folder / file) != sha256:
                    return f"{file} is damaged"
            except FileNotFoundError:
                return f"{file} is missing"
            except OSError as error:
                return f"{file} cannot be read ({error.strerror or error})"
        return None


_OPTIONS = {field.name for field in fields(MusicOptions)}
COLUMNS = tuple(field.name for field in fields(Row))
RESULTS = (
    *("bars", "notes", "seconds", "new_bar", "new_seconds", "choice", "clip_seconds"),
    *("loudness", "midi_sha256", "audio_sha256"),
)
"""Columns that are known when a clip is finished."""
_OF_KEY = ("condition", "repetition", "model", "model_sha256", "backend", "seed", "settings")
KEY_COLUMNS = ("file", *_OF_KEY, "notes", "choice")
"""Columns of the key; anchors have as many notes as the music they are made of."""
BLIND_COLUMNS = tuple(name for name in COLUMNS if name == "file" or name not in KEY_COLUMNS)
"""Columns of the manifest of a study."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(path: Path) -> dict[str, Row]:
    """Read the rows, keyed by `file`; empty if there is no manifest.

    The rows of a study are completed from its key; rows that are not in the key are left out.
    Raises CommandError if a file is not a manifest or a key of `relpe batch`.
    """
    columns, rows = _read_table(path)
    if columns == BLIND_COLUMNS:
        key_path = path.with_name(KEY_NAME)
        if not key_path.is_file():
            raise CommandError(
                f"{key_path}: this file is missing, expected the conditions of the clips in "
                f"{path.name}; restore it, or choose another folder"
            )
        names, conditions = _read_table(key_path)
        _check_columns(key_path, names, KEY_COLUMNS)
        of_file = {row["file"]: row for row in conditions}
        rows = [row | of_file[row["file"]] for row in rows if row["file"] in of_file]
    elif columns:
        _check_columns(path, columns, COLUMNS)
    return {row["file"]: Row(**row) for row in rows}


def _check_columns(path: Path, columns: Sequence[str], expected: Sequence[str]) -> None:
    missing = [column for column in expected if column not in columns]
    if missing and {"file", "settings"}.issubset(columns):
        several = "s" if len(missing) > 1 else ""
        raise CommandError(
            f"{path}: written by another version of relpe, without the column{several} "
            f"{', '.join(missing)}; use that version, or choose another folder"
        )
    if tuple(columns) != tuple(expected):
        raise _foreign(path, f"expected the columns {', '.join(expected)}")


def _foreign(path: Path, problem: object) -> CommandError:
    return CommandError(
        f"{path}: this is not a manifest of relpe batch ({problem}); choose another folder"
    )


def _read_table(path: Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Return the columns and rows of a CSV file; empty if there is no such file."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows = list(reader)
            columns = tuple(reader.fieldnames or ())
        if not columns or "file" not in columns:
            raise ValueError(f"expected the columns {', '.join(COLUMNS)}")
        for row in rows:
            if None in row or None in row.values():
                raise ValueError(f"a row has not {len(columns)} values")
            if "settings" in row and not isinstance(json.loads(row["settings"]), dict):
                raise ValueError(f"the settings of {row['file']} are not a JSON object")
    except (FileNotFoundError, NotADirectoryError):
        return (), []  # `make_folders` reports problems with the folder
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:
        raise _foreign(path, error) from error
    return columns, rows


def write_manifest(path: Path, rows: Iterable[Row], *, blind: bool = False) -> None:
    """Write all rows atomically; if `blind`, sorted by name, in a manifest and a key."""
    tables = [asdict(row) for row in rows]
    if not blind:
        write_table(path, COLUMNS, tables)
        return
    tables.sort(key=lambda row: row["file"])
    write_table(path.with_name(KEY_NAME), KEY_COLUMNS, tables)
    write_table(path, BLIND_COLUMNS, tables)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Write some columns of rows as CSV, atomically. Raises OSError if it cannot be written."""
    with atomic_write(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
