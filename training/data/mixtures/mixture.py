"""Mixtures: the corpora of a prepared corpus, with their weights, licences, styles and rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from training.config import build, read_yaml
from training.errors import TrainingError, check_range

FOLDER = Path(__file__).parent
"""Folder of the mixtures that can be given by name."""
SPLITS = ("train", "validation", "test")
UNKNOWN = "unknown"
"""The licence of a corpus whose licence is not known."""


@dataclass(frozen=True, kw_only=True)
class StyleRule:
    """Styles by a column of the corpus's table of pieces."""

    column: str
    """Column of the table."""
    names: dict = field(default_factory=dict)
    """Name of a style -> regular expression that is found in the column; the first one applies.
    Without names, the value of the column is the style."""

    def __post_init__(self) -> None:
        _check_patterns("names", self.names)

    def style_of(self, row: Mapping[str, str]) -> str | None:
        """Return the style of a piece, given its row of the table.

        It is None if no expression matches.
        """
        value = row[self.column]
        if not self.names:
            return value or None
        matches = (name for name, pattern in self.names.items() if re.search(pattern, value))
        return next(matches, None)


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """One corpus of a mixture."""

    source: str
    """Folder or zip archive, relative to the folder given by `--from`."""
    include: str | None = None
    """Shell pattern of the names of files in the source; None: all MIDI files."""
    table: str = "pieces.tsv"
    """Table of pieces in the source, tab-separated with a header. Its first column is the name of a
    file, with or without folders and suffix. It is read only for `pieces` and `style`."""
    pieces: dict | None = None
    """Column of the table -> regular expression. Pieces are left out unless each expression is
    found in its column. None: all pieces."""
    style: tuple[StyleRule | str, ...] = ()
    """Name of the style of all pieces, or rules, the first of which that finds a style applies."""
    weight: float | None = None
    """Share of training examples, in any unit; either all corpora of a mixture have one or none.
    None: in proportion to the tokens of the corpus."""
    splits: dict = field(default_factory=dict)
    """Name of a split in the source -> train, validation or test, for other names."""
    train_only: bool = False
    """Whether all pieces are for training; those with the melody of a held-out piece are left out.
    """
    beats: Literal["file", "estimate"] = "file"
    """estimate: find the beats in the notes, because those of the files have no meaning."""
    default_tempos: tuple[float, ...] = ()
    """Tempos in quarter notes per minute that a notation program writes if the score has none. In
    pieces with one of these as the only tempo, tempos are read but not predicted."""
    licence: str = UNKNOWN
    """Licence of the corpus."""
    attribution: str = ""
    """Whom to name, in the words that the licence requires."""
    changes: str = ""
    """What was changed, if the licence requires to say so."""
    address: str = ""
    """Where the corpus comes from."""

    def __post_init__(self) -> None:
        check_range("weight", self.weight, 0, above=True)
        _check_patterns("pieces", self.pieces or {})
        wrong = [split for split in self.splits.values() if split not in SPLITS]
        if wrong:
            raise TrainingError(f"splits: found {wrong[0]!r}, expected one of {', '.join(SPLITS)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that are needed."""
        rules = (rule.column for rule in self.style if isinstance(rule, StyleRule))
        return (*(self.pieces or ()), *rules)

    def takes(self, row: Mapping[str, str]) -> bool:
        """Return whether a piece belongs to the mixture, given its row of the table."""
        patterns = (self.pieces or {}).items()
        return all(re.search(pattern, row[name]) for name, pattern in patterns)

    def style_of(self, row: Mapping[str, str]) -> str | None:
        """Return the style of a piece, given its row of the table; None if it has none."""
        styles = (rule if isinstance(rule, str) else rule.style_of(row) for rule in self.style)
        return next((style for style in styles if style is not None), None)


@dataclass(frozen=True)
class Mixture:
    """Some corpora that are prepared as one."""

    corpora: Mapping[str, CorpusConfig]
    """The corpora by name."""
    folder: Path = Path()
    """Folder of their sources."""
    tokenizer: str = "piano"
    """Name of the tokenizer in `PRESETS`."""

    @classmethod
    def of(cls, sources: Iterable[Path], includes: Iterable[str | None]) -> Mixture:
        """Return a mixture without weights, of corpora named after their files."""
        pairs = zip(sources, includes, strict=True)
        return cls(
            {
                path.absolute().name: CorpusConfig(source=str(path.absolute()), include=include)
                for path, include in pairs
            }
        )

    @classmethod
    def load(cls, name: str, folder: Path) -> Mixture:
        """Read a mixture: the name of one of this project, or a YAML file.

        Raises:
            TrainingError: there is no such mixture, or the file is not valid.
        """
        presets = sorted(path.stem for path in FOLDER.glob("*.yaml"))
        path = FOLDER / f"{name}.yaml" if name in presets else Path(name)
        if not path.is_file():
            raise TrainingError(
                f"--mixture {name}: no such file, expected {' or '.join(presets)}, or a YAML file"
            )
        mapping = read_yaml(path, library=FOLDER)
        sections = mapping.pop("corpora", None)
        header = build(_Header, mapping, str(path))
        if not isinstance(sections, dict) or not sections:
            raise TrainingError(f"{path}: found no corpora, expected a section for each")
        corpora = {
            str(key): build(CorpusConfig, part, f"{path}: corpora.{key}")
            for key, part in sections.items()
        }
        weighted = [corpus.weight is not None for corpus in corpora.values()]
        if any(weighted) and not all(weighted):
            without = [key for key, corpus in corpora.items() if corpus.weight is None]
            raise TrainingError(
                f"{path}: found no weight for {', '.join(without)}; give all corpora a weight, or "
                "none"
            )
        return cls(corpora, folder, header.tokenizer)


@dataclass(frozen=True, kw_only=True)
class _Header:
    """A mixture file without its corpora."""

    tokenizer: str
    """Name of the tokenizer."""


def _check_patterns(name: str, patterns: Mapping[Any, Any]) -> None:
    """Raise TrainingError for a value that is not a regular expression."""
    for key, pattern in patterns.items():
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise TrainingError(
                f"{name}.{key}: found {pattern!r}, expected a regular expression ({error})"
            ) from error
