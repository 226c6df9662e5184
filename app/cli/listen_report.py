"""The command `relpe listen-report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import CommandError
from app.files import check_folder
from relpe.files import write_text

if TYPE_CHECKING:
    import argparse

    from app.listening.report.report import ReportOptions

PAGE, TABLE, EVERYTHING = "report.html", "results.csv", "results.json"


def add_listen_report(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `relpe listen-report`."""
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
    screening = parser.add_argument_group("screening of listeners")
    for option, default, text in (
        ("least-attention", 0.75, "lowest share of attention trials answered as expected"),
        ("least-agreement", 0.25, "lowest share of repeated pairs with the same choice"),
        ("most-difference", 1.25, "highest mean difference of repeated ratings, in points"),
        ("most-anchor-wins", 0.5, "highest share of comparisons that low anchors win"),
        ("least-heard", 0.5, "lowest median share of a clip played before the answer"),
    ):
        screening.add_argument(
            f"--{option}",
            type=float,
            default=default,
            metavar="X",
            help=f"{text} (default: %(default)s)",
        )
    screening.add_argument(
        "--anchor",
        action="append",
        metavar="CONDITION",
        help="a low anchor; may be repeated (default: the shuffled conditions of the study)",
    )
    analysis = parser.add_argument_group("analysis")
    analysis.add_argument(
        "--weigh-by-confidence",
        action="store_true",
        help="preferences count as much as their confidence in the strengths of conditions",
    )
    analysis.add_argument(
        "--points-of-interest",
        type=float,
        default=0.5,
        metavar="X",
        help="smallest difference of ratings worth finding, for power (default: %(default)s)",
    )
    analysis.add_argument(
        "--preference-of-interest",
        type=float,
        default=0.65,
        metavar="X",
        help="smallest probability of a preference worth finding, for power (default: %(default)s)",
    )
    analysis.add_argument(
        "--draws",
        type=int,
        default=1000,
        metavar="N",
        help="samples of each bootstrap (default: %(default)s)",
    )
    analysis.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the bootstrap (default: %(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the results as a JSON object on standard output"
    )
    parser.set_defaults(run=listen_report_command)


def listen_report_command(options: argparse.Namespace) -> None:
    """Writes the report on a listening test, and prints what was found."""
    from tqdm import tqdm

    from app.listening.report.judgements import read_test
    from app.listening.report.pages.page import as_page
    from app.listening.report.report import make_report
    from app.listening.report.results import as_json, as_table, summary

    chosen = _chosen(options)
    folder = options.output or options.folder / "report"
    test = read_test(options.folder, options.anchor)
    with tqdm(total=5, desc="Reading answers", leave=False, disable=None, delay=1) as bar:

        def step(name: str) -> None:
            bar.set_description(name.capitalize())
            bar.update()

        report = make_report(test, chosen, step)
        step("page")
        told = as_json(report)
        files = {PAGE: as_page(report), TABLE: as_table(report), EVERYTHING: told}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_folder(folder)
        for name, text in files.items():
            write_text(folder / name, text)
    except OSError as error:
        raise CommandError(f"{folder}: {error.strerror or error}") from error
    if options.json:
        print(json.dumps(json.loads(told)))
    else:
        print(summary(report))
        print(f"{folder / PAGE}")


def _chosen(options: argparse.Namespace) -> ReportOptions:
    from app.listening.report.report import ReportOptions
    from app.listening.report.screening import Thresholds

    given = vars(options)
    try:
        thresholds = Thresholds(**{name: given[name] for name in Thresholds.__dataclass_fields__})
        names = set(ReportOptions.__dataclass_fields__) & set(given)
        return ReportOptions(thresholds=thresholds, **{name: given[name] for name in names})
    except ValueError as error:
        name, _, rest = str(error).partition(" is ")
        option = name.replace(" ", "-").replace("_", "-")
        raise CommandError(f"--{option} is {rest}") from error
