"""The sound files of one piece: what they are called by what they leave out, and which are kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_MIXES = 16
"""Files of mixes without some tracks that are kept in a folder; the oldest go."""


@dataclass(frozen=True)
class SoundFiles:
    """Where the sound files of a piece are, or would be."""

    folder: Path
    name: str
    """Of the files, without suffix."""
    tracks: Collection[int]
    """The ids of all that play, in the order of the score."""

    def left_out(self, without: Collection[int]) -> list[int]:
        """The tracks that a mix lacks; ids that none has are passed over."""
        return [number for number in self.tracks if number in set(without)]

    def mix(self, without: Collection[int] = (), suffix: str = ".flac") -> Path:
        """That of all tracks but some."""
        said = ""
        if left_out := self.left_out(without):
            said = "-".join(map(str, left_out))
            if len(said) > 24:  # file systems allow 255 bytes for all
                said = hashlib.blake2b(said.encode(), digest_size=6).hexdigest()
            said = f"_without-{said}"
        return self.folder / f"{self.name}{said}{suffix}"

    @property
    def archive(self) -> Path:
        """That of all tracks apart."""
        return self.folder / f"{self.name}_stems.zip"

    def make_room(self) -> None:
        """Removes the oldest mixes, of what others may have removed already."""
        mixes: list[tuple[float, Path]] = []
        for path in self.folder.glob("*_without-*"):
            with suppress(FileNotFoundError):
                mixes.append((path.stat().st_mtime, path))
        for _, path in sorted(mixes)[: -MOST_MIXES + 1]:
            path.unlink(missing_ok=True)


def in_use(path: Path) -> bool:
    """Whether a file is there, which makes it a young one.

    Not with `touch`, which would leave an empty file where another has just removed the old one.
    """
    with suppress(FileNotFoundError):
        os.utime(path)
        return True
    return False
