"""Results as data: a line of JSON per figure, and the tables that pages show.

A figure says what it is (table, row, column), its value or values, unit and error, and the command,
commit and machine that gave it. Pages name a table, `<!-- results: takes-piano -->`, and
`docs/build.py` puts it there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "results"

Value = int | Decimal | str | None
"""Decimals keep the zeros at the end of a figure, which say how exact it is."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured value, or several that stand in one cell."""

    what: tuple[str, str, str]
    """Table, row and column."""
    value: Value | list[Value]
    """A number, words where there is none, such as "not run", or a list of both."""
    unit: str
    """Unit of the value, empty for shares and counts that the table explains."""
    error: Value | list[Value] = None
    """Standard error or deviation, as the page says; None: not known."""
    command: str
    """Command that measures it; empty for figures of others, whose source the page names.

    `docs/pages/how-to/corpus.md` makes the folders of data that it reads.
    """
    commit: str
    """Commit of the code that was measured, or that first stated a figure older than this file."""
    machine: str
    """Device and versions."""


def read_figures(folder: Path = FOLDER) -> list[Figure]:
    """Read the figures of all files `*.jsonl` of a folder.

    Raises:
        ValueError: a line is not a figure; the message names the file and the line.
    """
    names = {field.name for field in fields(Figure)}
    figures = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            entry = json.loads(line, parse_float=Decimal)
            if set(entry) != names or len(entry["what"]) != 3:
                raise ValueError(f"{path}, line {number}: expected the keys {sorted(names)}")
            figures.append(Figure(**entry | {"what": tuple(entry["what"])}))
    return figures


def table_of(figures: Sequence[Figure]) -> str:
    """Return the figures of one table as Markdown, with their commands below it.

    Rows and columns are in the order in which they first occur. Rows that have a command each are
    followed by it. Units stand in the corner, or with the columns, or with the rows.
    """
    rows = list(dict.fromkeys(figure.what[1] for figure in figures))
    columns = list(dict.fromkeys(figure.what[2] for figure in figures))
    cells = {figure.what[1:]: figure for figure in figures}
    units = {figure.unit for figure in figures}
    by_column = {c: _only({f.unit for f in figures if f.what[2] == c}) for c in columns}
    by_row = {r: _only({f.unit for f in figures if f.what[1] == r} - {""}) for r in rows}
    corner, heads, names = "", columns, rows
    if len(units) == 1:
        corner = units.pop()
    elif None not in by_column.values():
        heads = [_with_unit(column, by_column[column]) for column in columns]
    else:
        names = [_with_unit(row, by_row[row]) for row in rows]
    commands = {r: _only({f.command for f in figures if f.what[1] == r}) for r in rows}
    listed = None not in commands.values() and len(set(commands.values())) > 1
    heads = [*heads, "command"] if listed else heads
    lines = [_line([corner, *heads]), _line(["---"] * (len(heads) + 1))]
    for name, row in zip(names, rows, strict=True):
        shown = [cells.get((row, column)) for column in columns]
        values = ["" if figure is None else _cell(figure) for figure in shown]
        source = [f"`{commands[row]}`" if commands[row] else ""] if listed else []
        lines.append(_line([name, *values, *source]))
    return "\n".join([*lines, "", *_sources(figures, listed)]).rstrip()


def plot_of(figures: Sequence[Figure], column: str) -> str:
    """Return a column of a table as bars with their errors: SVG in the colours of the page."""
    shown = [
        replace(figure, value=_list(figure.value)[0], error=_list(figure.error)[0])
        for figure in figures
        if figure.what[2] == column
    ]
    values, errors = ([float(getattr(f, part) or 0) for f in shown] for part in ("value", "error"))
    scale = 300 / max(map(sum, zip(values, errors, strict=True)))
    lines = [f'<figure><svg role="img" aria-label="{column}" viewBox="0 0 760 {24 * len(shown)}">']
    for row, (figure, value, error) in enumerate(zip(shown, values, errors, strict=True)):
        middle, end, half = 24 * row + 12, 360 + scale * value, scale * error
        name = escape(figure.what[1].replace("`", ""))
        lines += [
            f'<text x="350" y="{middle + 5}" text-anchor="end">{name}</text>',
            f'<rect x="360" y="{middle - 8}" width="{scale * value:.1f}" height="16"/>',
            f'<path d="M{end - half:.1f} {middle}H{end + half:.1f}"/>',
            f'<text x="{end + half + 6:.1f}" y="{middle + 5}">{_cell(figure)}</text>',
        ]
    unit = f", {shown[0].unit}" if shown[0].unit else ""
    return "\n".join([*lines, f"</svg><figcaption>{column}{unit}</figcaption></figure>"])


def tables(figures: Iterable[Figure]) -> dict[str, list[Figure]]:
    """Return the figures of each table."""
    grouped: dict[str, list[Figure]] = {}
    for figure in figures:
        grouped.setdefault(figure.what[0], []).append(figure)
    return grouped


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _only(values: set[str]) -> str | None:
    return values.pop() if len(values) == 1 else None


def _with_unit(name: str, unit: str | None) -> str:
    return f"{name}, {unit}" if unit else name


def _list(value: Value | list[Value]) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _cell(figure: Figure) -> str:
    values, errors = _list(figure.value), _list(figure.error)
    errors += [None] * (len(values) - len(errors))
    return ", ".join(
        _shown(value) + ("" if error is None else f" ± {_shown(error)}")
        for value, error in zip(values, errors, strict=True)
    )


def _shown(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int | Decimal) else value or ""


def _sources(figures: Sequence[Figure], listed: bool) -> list[str]:
    """Return where figures come from: a line per command, or one, with commits and machines."""
    sources: dict[str, dict[str, None]] = {}
    for figure in figures:
        commit = f"commit {figure.commit}" if figure.commit else ""
        origin = ", ".join(part for part in (commit, figure.machine) if part)
        sources.setdefault("" if listed else figure.command, {})[origin] = None
    lines = []
    for command, origins in sources.items():
        parts = [f"`{command}`" if command else "", "; ".join(filter(None, origins))]
        if any(parts):
            lines.append(f"<small>{' · '.join(filter(None, parts))}</small>  ")
    return lines
