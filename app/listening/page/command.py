"""The command `relpe listen`."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.text import plural
from app.web.guard.arguments import accounts_of, add_address, announce, check_address, not_served

if TYPE_CHECKING:
    from app.web.guard import Guard


def add_listen(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Serve a page on which listeners judge the clips of a study. Each answer is written to "
        "answers.sqlite in the folder of the study at once; when the command ends, all answers are "
        "exported to answers.csv, and the listeners to listeners.csv."
    )
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="folder of a study, made by relpe batch STUDY.yaml. The section listening of the file "
        "study.yaml in it has the settings, described in docs/pages/how-to/listening.md",
    )
    parser.add_argument(
        "--export",
        action="store_true",
        help="only export the answers so far; also possible while the page is served",
    )
    add_address(parser)
    parser.set_defaults(run=listen_command)


def listen_command(options: argparse.Namespace) -> None:
    """Serve the page until it is interrupted. Raises CommandError if it cannot be served."""
    if not options.export:
        check_address(options)
    accounts = accounts_of(options)
    from app.listening.page.clips import read_material
    from app.listening.page.server import guarded
    from app.listening.page.store import Store
    from app.web.guard import Hosts

    material = read_material(options.folder)
    with closing(Store(options.folder)) as store:
        if not options.export:
            hosts = Hosts.of(options.host, options.allow_host, options.root_path)
            root = options.root_path
            page = guarded(material, store, hosts=hosts, accounts=accounts, root_path=root)
            _serve(page, options)
        listeners, completed = store.counts()
        store.export()
        print(
            f"{options.folder}: {plural(listeners, 'listener')}, of whom {completed:,} completed "
            "the test; see answers.csv and listeners.csv",
            file=sys.stderr,
        )


def _serve(page: Guard, options: argparse.Namespace) -> None:
    """Serve a page until it is interrupted."""
    from app.web.guard.port import served, wait_for_interruption

    try:
        with suppress(KeyboardInterrupt), served(page, options.host, options.port) as address:
            announce(address)
            if options.open:
                import webbrowser

                webbrowser.open(address)
            wait_for_interruption()
    except OSError as error:
        raise not_served(options) from error
