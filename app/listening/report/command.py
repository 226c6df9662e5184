"""The command `relpe listen-report`."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import CommandError
from app.files import check_folder
from app.listening.report.options import OptionError, ReportOptions, Thresholds
from relpe.files import write_text

if TYPE_CHECKING:
    import argparse

PAGE, TABLE, EVERYTHING = "report.html", "results.csv", "results.json"


def add_listen_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe listen-report`."""
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="folder of the study, with the answers"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help=f"folder for {PAGE}, {TABLE} and {EVERYTHING} (default: report, in the folder of the "
        "study)",
    )
    for title, kind in (("screening of listeners", Thresholds), ("analysis", ReportOptions)):
        group = parser.add_argument_group(title)
        for item in fields(kind):
            if not item.metadata:
                continue
            flag, text = f"--{item.name.replace('_', '-')}", item.metadata["help"]
            if isinstance(item.default, bool):
                group.add_argument(flag, action="store_true", help=text)
                continue
            group.add_argument(
                flag,
                type=type(item.default),
                default=item.default,
                metavar="N" if isinstance(item.default, int) else "X",
                help=f"{text} (default: %(default)s)",
            )
    parser.add_argument(
        "--anchor",
        action="append",
        metavar="CONDITION",
        help="a low anchor; may be repeated (default: the shuffled conditions of the study)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the results as a JSON object on standard output"
    )
    parser.set_defaults(run=listen_report_command)


def listen_report_command(options: argparse.Namespace) -> None:
    """Write the report on a listening test, and print what was found."""
    from tqdm import tqdm

    from app.listening.report.judgements import read_test
    from app.listening.report.pages.page import as_page
    from app.listening.report.report import make_report
    from app.listening.report.results import as_json, as_table, summary

    settings = _chosen(vars(options))
    folder = options.output or options.folder / "report"
    test = read_test(options.folder, options.anchor)
    with tqdm(total=5, desc="Reading answers", leave=False, disable=None, delay=1) as bar:

        def step(name: str) -> None:
            bar.set_description(name.capitalize())
            bar.update()

        report = make_report(test, settings, step)
        step("page")
        results = as_json(report)
        files = {PAGE: as_page(report), TABLE: as_table(report), EVERYTHING: results}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_folder(folder)
        for name, text in files.items():
            write_text(folder / name, text)
    except OSError as error:
        raise CommandError(f"{folder}: {error.strerror or error}") from error
    if options.json:
        print(json.dumps(json.loads(results)))
    else:
        print(summary(report))
        print(f"{folder / PAGE}")


def _chosen(given: dict[str, Any]) -> ReportOptions:
    def values(kind: type[Thresholds | ReportOptions]) -> dict[str, Any]:
        return {item.name: given[item.name] for item in fields(kind) if item.metadata}

    try:
        return ReportOptions(thresholds=Thresholds(**values(Thresholds)), **values(ReportOptions))
    except OptionError as error:
        option = error.name.replace("_", "-")
        raise CommandError(f"--{option} {error.problem}") from error
