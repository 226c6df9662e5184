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
from app.compose.options import MAX_SECONDS, MAX_WAITING
from app.errors import CommandError
from app.files import check_folder
from app.server.heap import limit_heaps

_log = logging.getLogger(__name__)


def add_ui(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=_port, default=7860, help="port to listen on (default: %(default)s)"
    )
    parser.add_argument(
        "--allow-host",
        type=_host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="another host name under which the page is opened, such as music.example; repeatable "
        "(default: --host, localhost and addresses)",
    )
    add_model(parser, "all released models")
    add_file_size(parser)
    parser.add_argument(
        "--output-dir",
        type=Path,
        help="keep the music in this folder, in one subfolder per start (default: music is removed "
        "after a day at most)",
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
        help="maximum size of --output-dir, such as 10GB; the oldest music is removed first "
        "(default: no limit)",
    )
    parser.add_argument(
        "--max-queue",
        type=_whole,
        default=MAX_WAITING,
        metavar="N",
        help="maximum number of jobs waiting for each model; further jobs are rejected (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--max-seconds",
        type=_seconds,
        default=MAX_SECONDS,
        metavar="N",
        help="maximum generation time of a job in seconds; the music so far is kept (default: "
        "%(default)g; 0: no limit)",
    )
    parser.add_argument(
        "--auth-file",
        type=Path,
        metavar="FILE",
        help="require a login; each line of this file is user:password",
    )
    parser.add_argument(
        "--root-path",
        type=_root_path,
        default="",
        metavar="/PATH",
        help="path of the page behind a reverse proxy, if not the root",
    )
    add_soundfont(parser)
    parser.add_argument("--open", action="store_true", help="also open a browser")
    parser.set_defaults(run=ui_command)


def ui_command(options: argparse.Namespace) -> None:
    """Serves the page until it is interrupted. Raises CommandError if it cannot."""
    limit_heaps()
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
        raise CommandError("--keep-days and --keep-size require --output-dir")
    accounts = _read_accounts(options.auth_file) if options.auth_file else ()
    if options.soundfont is not None:
        from app.audio.synth.soundfont import open_soundfont

        open_soundfont(options.soundfont)  # rejects an unusable file before the page opens
    models = chosen_models(options, options.model)
    models.to_generate()  # reports an unusable model before the page opens
    from app.web.serving import Serving, Sharing, launch

    def announce(address: str) -> None:
        print(f"relpe: {address.rstrip('/')} (press Ctrl+C to stop)", file=sys.stderr)

    serving = Serving(
        host=options.host,
        port=options.port,
        allowed_hosts=tuple(options.allow_host),
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
            f"--host {options.host} --port {options.port}: the page cannot be served at this "
            "address; choose another --port"
        ) from error


def _read_accounts(path: Path) -> tuple[tuple[str, str], ...]:
    """Reads users and passwords from a file of lines `user:password`.

    Empty lines and lines that begin with # are skipped. Logs a warning if other users may read the
    file. Raises CommandError for an unusable file; no message contains a password.
    """
    try:
        text = path.read_text(encoding="utf-8")
        others = os.name == "posix" and path.stat().st_mode & 0o077
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "this is not UTF-8 text"
        raise CommandError(f"--auth-file {path}: {reason}; choose a readable file") from error
    if others:
        _log.warning("%s can be read by other users of this machine; run chmod 600 on it", path)
    accounts: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, password = line.partition(":")
        user = user.strip()
        if not (colon and user and password) or user in accounts:
            what = "repeats a user" if user in accounts else "is not user:password"
            raise CommandError(f"--auth-file {path}: line {number} {what}; correct it")
        accounts[user] = password
    if not accounts:
        raise CommandError(
            f"--auth-file {path}: found no users, expected lines of the form user:password"
        )
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


def _host_name(text: str) -> str:
    """Argument type: the name of a host, without protocol and port."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a host, expected one such as music.example"
        )
    return text


def _port(text: str) -> int:
    """Argument type: a port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected 1 to 65535")
    return int(text)


def _whole(text: str) -> int:
    """Argument type: an integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, expected 0 or more")
    return int(text)


def _positive(text: str) -> float:
    """Argument type: a number above 0."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def _seconds(text: str) -> float | None:
    """Argument type: a number above 0, or 0 for no limit."""
    return None if text == "0" else _positive(text)


def _root_path(text: str) -> str:
    """Argument type: the path or the whole address of a page behind a reverse proxy."""
    if not re.fullmatch(r"((/|https?://)[^\s?#]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path, expected one such as /music")
    return text.rstrip("/")
