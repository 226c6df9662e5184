"""Arguments of the commands that serve a page."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import re
import socket
import sys
from pathlib import Path

from app.errors import CommandError

_log = logging.getLogger(__name__)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Add --host, --port, --allow-host, --auth-file, --root-path and --open."""
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
    parser.add_argument("--open", action="store_true", help="also open a browser")


def announce(address: str) -> None:
    """Print the address of a page that is ready."""
    print(f"relpe: {address.rstrip('/')} (press Ctrl+C to stop)", file=sys.stderr)


def not_served(options: argparse.Namespace) -> CommandError:
    """Return the error of a page that cannot be served, although its address was free before."""
    return CommandError(
        f"--host {options.host} --port {options.port}: the page cannot be served at this "
        "address; choose another --port"
    )


def accounts_of(options: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return the users and passwords of --auth-file, a file of lines `user:password`; or none.

    Empty lines and lines that begin with # are skipped. Logs a warning if other users may read the
    file. Raises CommandError for an unusable file; no message contains a password.
    """
    path: Path | None = options.auth_file
    if path is None:
        return ()
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


def check_address(options: argparse.Namespace) -> None:
    """Raise CommandError for an address that this machine cannot listen on."""
    host, port = options.host, options.port
    address = f"--host {host} --port {port}"
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = addresses[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except (OSError, UnicodeError) as error:
        is_port = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES)
        what = "another --port" if is_port else "a --host of this machine, such as 127.0.0.1"
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{address}: {reason}; choose {what}") from error


def _host_name(text: str) -> str:
    """Parse the name of a host, without protocol and port."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a host, expected one such as music.example"
        )
    return text


def _port(text: str) -> int:
    """Parse a port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, expected 1 to 65535")
    return int(text)


def _root_path(text: str) -> str:
    """Parse the path or the whole address of a page behind a reverse proxy."""
    if not re.fullmatch(r"((/|https?://)[^\s?#]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a path, expected one such as /music")
    return text.rstrip("/")
