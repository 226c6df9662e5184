"""The command `relpe ui`."""

from __future__ import annotations

import argparse
import errno
import logging
import math
import os
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path

from app.cli.arguments import add_file_size, add_model, add_soundfont, chosen_models, size
from app.compose.options import MAX_WAITING
from app.errors import CommandError
from app.files import check_folder

_log = logging.getLogger(__name__)


def add_ui(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=_port, default=7860, help="port to listen on (%(default)s)")
    add_model(parser, "all released ones")
    add_file_size(parser)
    parser.add_argument(
        "--output-dir",
        type=Path,
        help="folder where music is kept, in one per start; without it nothing is kept for long",
    )
    parser.add_argument(
        "--keep-days",
        type=_positive,
        metavar="N",
        help="remove music in --output-dir after N days (default: never)",
    )
    parser.add_argument(
        "--keep-size",
        type=size,
        metavar="SIZE",
        help="keep so much in --output-dir, such as 10GB, and remove the oldest music beyond it",
    )
    parser.add_argument(
        "--max-queue",
        type=_whole,
        default=MAX_WAITING,
        metavar="N",
        help="jobs that may wait for each model; more are refused (%(default)s)",
    )
    parser.add_argument(
        "--max-seconds",
        type=_positive,
        metavar="N",
        help="longest time that a job is written for; what is there then is kept",
    )
    parser.add_argument(
        "--auth-file",
        type=Path,
        metavar="FILE",
        help="let in only who knows a line of this file, user:password",
    )
    parser.add_argument(
        "--root-path",
        type=_root_path,
        default="",
        metavar="/PATH",
        help="where a proxy shows the page, if not at its root",
    )
    add_soundfont(parser)
    parser.add_argument("--open", action="store_true", help="open a browser as well")
    parser.set_defaults(run=ui_command)


def ui_command(options: argparse.Namespace) -> None:
    """Serves the page until it is interrupted. Raises CommandError if it cannot."""
    folder = options.output_dir
    _check_address(options.host, options.port)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            check_folder(folder)
        except OSError as error:
            raise CommandError(
                f"--output-dir {folder}: {error.strerror or error}; choose another folder"
            ) from error
    if folder is None and (options.keep_days or options.keep_size):
        raise CommandError("--keep-days and --keep-size are for --output-dir; name a folder there")
    accounts = _read_accounts(options.auth_file) if options.auth_file else ()
    if options.soundfont is not None:
        from app.audio.synth.soundfont import open_soundfont

        open_soundfont(options.soundfont)  # raises SoundError for an unusable file
    models = chosen_models(options, options.model)
    models.to_generate()  # reports errors of a model before the page opens
    from app.web.serving import Serving, Sharing, launch

    def announce(address: str) -> None:
        print(f"relpe: {address.rstrip('/')} (Ctrl+C ends it)", file=sys.stderr)

    serving = Serving(
        host=options.host,
        port=options.port,
        root_path=options.root_path,
        accounts=accounts,
        output_folder=folder,
        keep_days=options.keep_days,
        keep_bytes=options.keep_size,
        max_upload_bytes=options.max_file_size,
        soundfont=options.soundfont,
        sharing=Sharing(max_waiting=options.max_queue, max_seconds=options.max_seconds),
        open_browser=options.open,
    )
    try:
        launch(models, serving, announce)
    except OSError as error:
        raise CommandError(
            f"--host {options.host} --port {options.port}: the page cannot be served there; choose "
            "another --port"
        ) from error


def _read_accounts(path: Path) -> tuple[tuple[str, str], ...]:
    """Users and passwords from a file of lines user:password; empty lines and # are skipped.

    Warns if other users may read the file. Raises CommandError for an unusable file; no message
    contains a password.
    """
    try:
        text = path.read_text(encoding="utf-8")
        others = os.name == "posix" and path.stat().st_mode & 0o077
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CommandError(f"--auth-file {path}: {reason}; name a readable file") from error
    if others:
        _log.warning("%s can be read by others on this machine; chmod 600 ends that", path)
    accounts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        user = user.strip()
        if not (colon and user and password) or user in accounts:
            what = "a second line of one user" if user in accounts else "no user:password"
            raise CommandError(f"--auth-file {path}: line {number} is {what}; correct it")
        accounts[user] = password
    if not accounts:
        raise CommandError(f"--auth-file {path}: found no user, expected lines user:password")
    return tuple(accounts.items())


def _check_address(host: str, port: int) -> None:
    """Raises CommandError for an address that this machine cannot listen on."""
    address = f"--host {host} --port {port}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except (OSError, UnicodeError) as error:
        is_port = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
        what = "another --port" if is_port else "a --host of this machine, such as 127.0.0.1"
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{address}: {reason}; choose {what}") from error


def _port(text: str) -> int:
    """Type of an argument: a port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, expected 1 to 65535")
    return int(text)


def _whole(text: str) -> int:
    """Type of an argument: an integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, expected 0 or more")
    return int(text)


def _positive(text: str) -> float:
    """Type of an argument: a number above 0."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def _root_path(text: str) -> str:
    """Type of an argument: the path of a page behind a proxy, or its whole address."""
    if not re.fullmatch(r"((/|https?://)[^\s?#]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no path, expected one such as /music")
    return text.rstrip("/")
