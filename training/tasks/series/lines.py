"""Lines of a file in a folder, or in a zip or wheel, which need not be unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path

from training.errors import TrainingError


def read_lines(data: Path, file: str) -> tuple[str, list[str]]:
    """Return the name for messages and the lines of a file.

    `data` is a folder that contains the file, or a folder with it, or a zip or wheel that contains
    it anywhere.

    Raises:
        TrainingError: the file is missing or damaged.
    """
    if not data.exists():
        raise TrainingError(f"{data}: not found; give a folder, zip or wheel with {file} in it")
    if data.is_dir():
        places = (data / file, *sorted(data.glob(f"*/{file}")))
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise TrainingError(
                f"{data}: found no {file}, nor a folder with it; give the folder, zip or wheel of "
                "the data with --data"
            )
        return str(path), path.read_text("utf-8-sig", errors="replace").splitlines()
    try:
        with zipfile.ZipFile(data) as archive:
            names = [one for one in archive.namelist() if one.rpartition("/")[2] == file]
            if not names:
                raise TrainingError(f"{data}: has no {file}; choose another file or set")
            text = archive.read(names[0]).decode("utf-8-sig", errors="replace")
            return f"{data}/{names[0]}", text.splitlines()
    except (zipfile.BadZipFile, OSError) as error:
        raise TrainingError(
            f"{data}: not a folder and not a readable zip ({error}); download it again"
        ) from error
