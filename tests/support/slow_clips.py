"""Writing of clips by processes that take very long, except for the first clip."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from app.batch.manifest import sha256_of

if TYPE_CHECKING:
    from pathlib import Path

    from app.batch.files import ClipFiles
    from app.batch.manifest import Row


def save_clip(folder: Path, row: Row, files: ClipFiles) -> Row:
    """Like that of `app.batch.files`, with other audio; all but the first clip never end."""
    (folder / row.audio).write_bytes(b"audio")
    if not row.file.endswith("_v01.mid"):
        time.sleep(600)
    (folder / row.file).write_bytes(files.midi)
    hashes = [sha256_of(folder / name) for name in (row.file, row.audio)]
    return replace(row, midi_sha256=hashes[0], audio_sha256=hashes[1])
