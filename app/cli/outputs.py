"""Output files: checked before any work, and visible only once all of them are complete."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.audio.formats import AUDIO_SUFFIXES
from app.audio.synth.soundfont import SoundError
from app.errors import CommandError
from app.files import check_writable
from relpe.files import atomic_write, remove_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from app.compose.piece import Piece
    from tokenization.score import Score


ABANDONED_SECONDS = 24 * 3600.0
"""Temporary files of at least this age are removed: their commands must have been killed."""


@dataclass(frozen=True)
class Targets:
    """Paths of the files of all variations."""

    midi: tuple[Path, ...]
    audio: tuple[Path, ...]
    """One for each MIDI file, or none."""
    scores: tuple[Path, ...] = ()
    """Sheet music for each MIDI file, or none."""

    @classmethod
    def of(
        cls,
        output: Path,
        audio: Path | None,
        score: Path | None,
        count: int,
        prompt: Path | None,
    ) -> Targets:
        """Return OUT.mid, or OUT.1.mid to OUT.K.mid for K variations, and other files likewise.

        Raises CommandError if a file cannot be written or would overwrite the prompt.
        """
        _check_suffix("--output", output, (".mid", ".midi"))
        if audio is not None:
            _check_suffix("--audio", audio, AUDIO_SUFFIXES)
        if score is not None:
            _check_suffix("--score", score, (".musicxml",))
        targets = cls(
            _numbered(output, count),
            _numbered(audio, count) if audio else (),
            _numbered(score, count) if score else (),
        )
        by_option = {"--output": targets.midi, "--audio": targets.audio, "--score": targets.scores}
        for option, paths in by_option.items():
            for path in paths:
                _check_path(option, path, prompt)
        return targets

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files."""
        return (*self.midi, *self.audio, *self.scores)

    def check_piano(self, score: Score) -> None:
        """Raise CommandError if sheet music is wanted of a piece that is not for the piano."""
        from app.compose.plan.sheet_music import SheetMusicError, check_piano

        if not self.scores:
            return
        try:
            check_piano(score)
        except SheetMusicError as error:
            raise CommandError(f"--score {self.scores[0]}: {error}; leave out --score") from error

    def save(self, pieces: Sequence[Piece], soundfont: Path | None = None) -> None:
        """Write all files; none of them appears before all are complete.

        Audio is rendered one piece at a time, to save memory.
        """
        for folder in {path.parent for path in self.paths}:
            remove_parts(folder, untouched_seconds=ABANDONED_SECONDS)
        try:
            with ExitStack() as stack:
                self._write(pieces, soundfont, stack)
        except OSError as error:
            place = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise CommandError(f"{place}; choose another name or folder") from error

    def _write(self, pieces: Sequence[Piece], soundfont: Path | None, stack: ExitStack) -> None:
        """Write temporary files, which appear when the stack is closed."""
        from app.compose.plan.sheet_music import sheet_music

        for piece, path in zip(pieces, self.midi, strict=True):
            stack.enter_context(atomic_write(path)).write_bytes(piece.midi)
        for piece, path in zip(pieces, self.audio, strict=False):
            from app.audio.render import render, save_audio  # takes two seconds to import

            partial = stack.enter_context(atomic_write(path))
            try:
                save_audio(render(piece.score, soundfont=soundfont), partial)
            except SoundError as error:
                raise CommandError(f"{path}: {error}") from error
        for piece, path in zip(pieces, self.scores, strict=False):
            partial = stack.enter_context(atomic_write(path))
            partial.write_bytes(sheet_music(piece.score, path.stem))


def _check_suffix(option: str, path: Path, suffixes: Sequence[str]) -> None:
    if path.suffix.lower() not in suffixes:
        expected = " or ".join(suffixes)
        raise CommandError(f"{option} {path}: expected a file name that ends in {expected}")


def _check_path(option: str, path: Path, prompt: Path | None) -> None:
    # `Path.resolve` raises an error for circular links
    if prompt is not None and os.path.realpath(path) == os.path.realpath(prompt):
        raise CommandError(f"{option} {path} would overwrite the prompt; choose another name")
    try:
        check_writable(path)
    except OSError as error:
        if not os.path.isdir(path.parent):  # noqa: PTH112 - False if the name is too long
            problem = f"the folder {path.parent} does not exist; create it first"
        else:
            problem = f"{error.strerror or error}; choose another name or folder"
        raise CommandError(f"{option} {path}: {problem}") from error


def _numbered(path: Path, count: int) -> tuple[Path, ...]:
    if count == 1:
        return (path,)
    return tuple(path.with_name(f"{path.stem}.{row + 1}{path.suffix}") for row in range(count))
