"""The files of a corpus by split, without those that a mixture leaves out, and their styles."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from training.data.mixtures.mixture import SPLITS, CorpusConfig
from training.data.sources import MemberError, Source, deal
from training.errors import TrainingError

_NAMED = 5
"""Maximum number of names in a warning."""


@dataclass(frozen=True, eq=False)
class Listing:
    """The files of a corpus that are prepared."""

    name: str
    config: CorpusConfig
    source: Source
    splits: Mapping[str, Sequence[str]]
    """Names of the files of each split."""
    unassigned: Sequence[str]
    """Names of files in no split."""
    styles: Mapping[str, str]
    """Style of each file that has one."""
    filtered: int
    """Number of files left out because of `CorpusConfig.pieces`."""
    warnings: Sequence[str]
    """Sentences about splits and files that do not match."""

    @classmethod
    def of(cls, name: str, config: CorpusConfig, folder: Path, splits: Path | None) -> Listing:
        """List the files of a corpus; `splits` is a table of splits outside the source.

        Raises:
            TrainingError: the source, its splits or its table of pieces cannot be used.
        """
        source = Source.open(folder / config.source)
        every = source.midi_names(config.include)
        dealt, unassigned, missing = deal(source, every, splits, config.splits)
        if config.train_only:
            dealt, unassigned = {"train": every, "validation": [], "test": []}, []
        rows = _rows(source, config, every)
        taken = {member for member in every if not rows or config.takes(rows[member])}
        if not taken:
            raise TrainingError(
                f"{source.path}: `pieces` of corpus {name} leaves out all {len(every):,} files; "
                "change its expressions, or remove the corpus"
            )
        dealt = {split: [m for m in members if m in taken] for split, members in dealt.items()}
        styles = {member: config.style_of(rows.get(member, {})) for member in taken}
        warnings: list[str] = []
        if missing:
            warnings.append(
                f"{name}: splits.json names {len(missing):,} pieces without a file: "
                f"{_some(missing)}; remove them, or add the files"
            )
        warnings += [
            f"{name}: found a split {split!r}, expected train, validation or test; it is prepared, "
            f"but only relpe-train evaluate --split {split} uses it"
            for split in dealt
            if split not in SPLITS
        ]
        return cls(
            name,
            config,
            source,
            dealt,
            [member for member in unassigned if member in taken],
            {member: style for member, style in styles.items() if style is not None},
            len(every) - len(taken),
            warnings,
        )


def _rows(
    source: Source, config: CorpusConfig, members: Sequence[str]
) -> dict[str, Mapping[str, str]]:
    """Return the row of each file in the corpus's table of pieces; empty if no column is needed."""
    if not config.columns:
        return {}
    inside = [name for name in source.names if f"/{name}".endswith(f"/{config.table}")]
    if not inside:
        raise TrainingError(
            f"{source.path}: found no {config.table}, which has the columns "
            f"{', '.join(config.columns)} that the mixture needs"
        )
    [(_, content)] = source.part(inside[:1]).read()
    if isinstance(content, MemberError):
        raise TrainingError(f"{source.path}: {config.table} is {content}")
    text = io.StringIO(content.decode("utf-8-sig", "replace"))
    reader = csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    header = next(reader, [])
    unknown = [column for column in config.columns if column not in header]
    if unknown:
        raise TrainingError(
            f"{source.path}: {config.table} has no column {unknown[0]}, expected one of "
            f"{', '.join(header)}"
        )
    rows: dict[str, list[tuple[str, Mapping[str, str]]]] = {}
    for cells in filter(None, reader):
        path = _without_suffix(cells[0])
        # spreadsheets may omit empty cells at the end of a row
        row = dict(zip_longest(header, cells[: len(header)], fillvalue=""))
        rows.setdefault(_stem(path), []).append((path, row))
    row_of_member = {member: _row_of(member, rows) for member in members}
    without = [member for member, row in row_of_member.items() if row is None]
    if without:
        raise TrainingError(
            f"{source.path}: {config.table} has no row for {len(without):,} files, or several that "
            f"may be meant: {_some(without)}"
        )
    return {member: row for member, row in row_of_member.items() if row is not None}


def _row_of(
    member: str, rows: Mapping[str, Sequence[tuple[str, Mapping[str, str]]]]
) -> Mapping[str, str] | None:
    """Return the row of a file: the one with its path, or else the only one with its name."""
    path = _without_suffix(member)
    of_name = rows.get(_stem(path), [])
    exact = [row for held, row in of_name if f"/{path}".endswith(f"/{held}") and "/" in held]
    candidates = exact or [row for _, row in of_name]
    return candidates[0] if len(candidates) == 1 else None


def _without_suffix(name: str) -> str:
    """Return a name without the suffix of MIDI files."""
    return re.sub(r"(?i)\.midi?$", "", name)


def _stem(name: str) -> str:
    """Return a name without folders."""
    return name.rpartition("/")[2]


def _some(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
