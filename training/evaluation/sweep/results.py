"""Results of the finished cells of a sweep, and their table."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from relpe.files import atomic_write, write_text
from training.evaluation.sweep.comparisons import (
    LEVEL,
    POWER,
    Comparison,
    compared,
    detectable,
    pooled_deviation,
    seeds_needed,
)
from training.evaluation.sweep.config import Cell, PlannedSweep
from training.evaluation.sweep.kept import CellResult, write_results
from training.evaluation.sweep.measures import measures
from training.evaluation.sweep.plots import draw_rows, draw_sizes
from training.evaluation.sweep.processes import is_done
from training.files import markdown, read_json


@dataclass(frozen=True)
class Table:
    """Results of a config: values by measure and row, a value for each seed that is finished."""

    config: str
    baseline: str
    units: Mapping[str, str]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    results: Mapping[str, Sequence[CellResult]]
    """By row."""

    def comparisons(self, measure: str) -> list[Comparison]:
        """Return the comparisons of all other rows with the baseline."""
        return compared(self.values[measure], self.baseline)

    def deviation(self, measure: str) -> float:
        """Return the standard deviation over seeds, pooled over rows."""
        return pooled_deviation([*self.values[measure].values()])


def read_result(cell: Cell) -> CellResult:
    """Read the results of a finished cell."""
    remedy = f"delete {cell.folder} to train it again"
    record = read_json(cell.record, (), remedy)
    if "result" in record:  # of another machine, see `kept.py`
        return CellResult.from_plain(cell, record["result"])
    plain = read_json(cell.record.with_name("results.json"), (), remedy)
    run = read_json(cell.folder / "run.json", ("parameters",), remedy)
    with (cell.folder / "metrics.csv").open(newline="") as stream:
        seconds = [float(row["seconds"]) for row in csv.DictReader(stream) if row["seconds"]]
    minutes = max(seconds, default=0.0) / 60
    flops = [v for k, v in plain.get("costs", {}).items() if k.startswith("flops_per_")]
    megaflops = sum(flops) / 1e6 if flops else math.nan
    chance = 100 * plain["chance"] if "chance" in plain else None
    return CellResult(cell, measures(plain), run["parameters"], minutes, megaflops, chance)


def tables_of(sweep: PlannedSweep, cells: Sequence[Cell]) -> list[Table]:
    """Return a table for each config of which cells are finished."""
    results = [read_result(cell) for cell in cells if is_done(cell)]
    tables: list[Table] = []
    for config in dict.fromkeys(result.cell.config for result in results):
        rows: dict[str, list[CellResult]] = {cell.row: [] for cell in cells}
        for result in results:
            if result.cell.config == config:
                rows[result.cell.row].append(result)
        rows = {row: row_results for row, row_results in rows.items() if row_results}
        units = {
            name: measure.unit
            for row_results in rows.values()
            for result in row_results
            for name, measure in result.measures.items()
        }
        values = {
            name: {
                row: [r.measures[name].value for r in row_results if name in r.measures]
                for row, row_results in rows.items()
            }
            for name in units
        }
        tables.append(Table(config, sweep.baseline, units, values, rows))
    return tables


def write_tables(sweep: PlannedSweep, cells: Sequence[Cell], failures: Mapping[str, str]) -> Path:
    """Write report.md, results.csv, cells.csv and .jsonl, and plots to `results` beside the runs.

    Returns the path of report.md.
    """
    folder = sweep.runs / "results"
    folder.mkdir(parents=True, exist_ok=True)
    tables = tables_of(sweep, cells)
    results = [result for table in tables for rows in table.results.values() for result in rows]
    write_results(folder / "cells.jsonl", results)
    _write_csv(folder / "cells.csv", _cell_rows(tables))
    _write_csv(folder / "results.csv", _summary_rows(tables))
    lines = [f"# {sweep.name}", "", f"{len(results)} of {len(cells)} runs are finished.", ""]
    lines += [f"- failed: {name}: {why}" for name, why in failures.items()] + [""] * bool(failures)
    for table in tables:
        lines += _table_lines(table)
        for measure in chosen_measures(sweep, table):
            lines += _comparison_lines(table, measure, sweep.config.difference)
            name = f"{table.config}_{''.join(c if c.isalnum() else '_' for c in measure)}.png"
            label = _with_unit(measure, table.units[measure])
            draw_rows(table.values[measure], label, folder / name)
            lines += [f"![{measure} of {table.config}]({name})", ""]
        for kind, values in by_size(table).items():
            name = f"{table.config}_{kind.replace(' ', '_')}_by_size.png"
            unit = table.units[f"{kind}, {next(iter(values))}"]
            draw_sizes(values, _with_unit(kind, unit), folder / name)
            lines += [f"![{kind} of {table.config} by size]({name})", ""]
    write_text(folder / "report.md", "\n".join(lines))
    return folder / "report.md"


def chosen_measures(sweep: PlannedSweep, table: Table) -> list[str]:
    """Return the measures of a config that are compared."""
    patterns = sweep.config.compare
    names = [name for name in table.units if any(fnmatchcase(name, p) for p in patterns)]
    return names or [*table.units][:1]


def by_size(table: Table) -> dict[str, dict[int, Mapping[str, Sequence[float]]]]:
    """Return values of measures whose names end with a size, by the other words and by size."""
    kinds: dict[str, dict[int, Mapping[str, Sequence[float]]]] = {}
    for name, rows in table.values.items():
        kind, _, size = name.rpartition(", ")
        if kind and size.isdecimal():
            kinds.setdefault(kind, {})[int(size)] = rows
    return {kind: dict(sorted(sizes.items())) for kind, sizes in kinds.items() if len(sizes) > 1}


def _write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    columns = [*dict.fromkeys(key for row in rows for key in row)]
    with atomic_write(path) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(
            {k: f"{v:.8g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows
        )


def _cell_rows(tables: Sequence[Table]) -> list[dict[str, object]]:
    """Return a row for each finished run."""
    return [
        {
            **{"config": table.config, "row": row, "seed": result.cell.seed},
            **{"parameters": result.parameters, "minutes": result.minutes},
            **{"megaflops": result.megaflops},
            **{n + f" ({m.unit})" * bool(m.unit): m.value for n, m in result.measures.items()},
        }
        for table in tables
        for row, results in table.results.items()
        for result in results
    ]


def _summary_rows(tables: Sequence[Table]) -> list[dict[str, object]]:
    """Return a row for each row and measure, with its comparison."""
    summaries: list[dict[str, object]] = []
    for table in tables:
        for measure, rows in table.values.items():
            tested = {one.row: one for one in table.comparisons(measure)}
            pooled = table.deviation(measure)
            for row, values in rows.items():
                summary = {
                    **{"config": table.config, "row": row, "measure": measure},
                    **{"unit": table.units[measure], "seeds": len(values)},
                    "mean": statistics.mean(values) if values else math.nan,
                    "deviation": statistics.stdev(values) if len(values) > 1 else math.nan,
                    "pooled_deviation": pooled,
                }
                of_row = tested[row]._asdict() if row in tested else {}
                summaries.append(summary | {k: v for k, v in of_row.items() if k != "row"})
    return summaries


def _table_lines(table: Table) -> list[str]:
    heads = [_with_unit(name, unit) for name, unit in table.units.items()]
    chance = next(iter(table.results.values()))[0].chance
    lines = [f"## {table.config}" + ("" if chance is None else f", chance {chance:.1f} %"), ""]
    rows = [["", *heads, "parameters", "MFLOPs", "minutes", "seeds"]]
    for row, results in table.results.items():
        cells = [mean_text(table.values[name][row], table.units[name]) for name in table.units]
        minutes = statistics.mean(result.minutes for result in results)
        flops = "" if math.isnan(results[0].megaflops) else f"{results[0].megaflops:,.2f}"
        cells += [f"{results[0].parameters:,}", flops, f"{minutes:.1f}", str(len(results))]
        rows.append([row, *cells])
    return [
        *lines,
        *markdown(rows),
        "",
        "Means and standard deviations (n - 1) over seeds; MFLOPs are those of evaluation.",
        "",
    ]


def mean_text(values: Sequence[float], unit: str) -> str:
    """Return the mean and standard deviation as text; "" without values."""
    if not values:
        return ""
    digits = _digits(unit)
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def _with_unit(text: str, unit: str, between: str = ", ") -> str:
    """Return a text and its unit, if there is one: a perplexity has none."""
    return f"{text}{between}{unit}" if unit else text


def _digits(unit: str) -> int:
    """Return the decimal places of a measure."""
    return 1 if unit == "%" else 3


def _comparison_lines(table: Table, measure: str, difference: float | None) -> Iterator[str]:
    unit, comparisons = table.units[measure], table.comparisons(measure)
    digits, deviation = _digits(unit), table.deviation(measure)
    points = "points" if unit == "%" else unit
    yield from (f"### {table.config}: {measure}, compared with {table.baseline}", "")
    if not comparisons:
        yield from (f"Tests need two seeds of {table.baseline} and of another row.", "")
        return
    head = "", _with_unit("difference", points), "95 % interval", "p", "p, corrected"
    rows: list[tuple[str, ...]] = [head]
    for one in comparisons:
        rest = "no deviation", "", ""
        if not math.isnan(one.p):
            interval = f"{one.low:+.{digits}f} to {one.high:+.{digits}f}"
            strong = "**" if one.p_holm < LEVEL else ""
            rest = interval, _p_text(one.p), f"{strong}{_p_text(one.p_holm)}{strong}"
        rows.append((one.row, f"{one.difference:+.{digits}f}", *rest))
    yield from markdown(rows)
    seeds = min(len(values) for values in table.values[measure].values() if len(values) > 1)
    least = detectable(deviation, seeds, len(comparisons))
    pooled = _with_unit(f"{deviation:.{digits + 1}f}", points, " ")
    found_from = _with_unit(f"{least:.{digits + 1}f}", points, " ")
    yield ""
    yield (
        f"Welch's test, two-sided, corrected for {len(comparisons)} comparisons (Holm); intervals "
        f"are not corrected. The pooled deviation is {pooled}; with {seeds} seeds of each row, a "
        f"difference of {found_from} is found with a power of {100 * POWER:.0f} %."
    )
    if difference is not None:
        needed = seeds_needed(difference, deviation, len(comparisons))
        many = "more than 1,000" if needed is None else f"{needed:,}"
        difference_text = _with_unit(f"{difference:g}", points, " ")
        yield f"A difference of {difference_text} needs {many} seeds of each row."
    yield ""


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
