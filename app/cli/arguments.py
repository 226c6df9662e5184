"""The options of the command `relpe`, those of the music from `MusicOptions`."""

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
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from app.compose.options import MAX_FILE_BYTES, BeatSource, MusicOptions, with_seed
from app.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Collection

    from app.compose.models import AskedFor, Models

_log = logging.getLogger(__name__)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, each by the command that was given the option."""

    # any types: what argparse declares hangs on the namespace, which is its own here
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        args: Any = None,  # noqa: ANN401
        namespace: Any = None,  # noqa: ANN401
    ) -> tuple[Any, list[str]]:
        """Refuses what is unknown, which a command would leave to the parser above it."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class CommandError(UserError):
    """What the user asked for cannot be done; the message is one sentence."""


def add_model(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Which model, `otherwise` where none is named, and where it computes."""
    parser.add_argument(
        "--model",
        metavar="NAME_OR_DIR",
        help=f"released model, or folder of one; {otherwise} where not given",
    )
    add_compute(parser)


def add_compute(parser: argparse.ArgumentParser) -> None:
    """Where and how the model computes; defaults of the parser's own may be set afterwards."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to compute (%(default)s)",
    )
    parser.add_argument(
        "--backend",
        choices=("auto", "compiled", "torch"),
        default="auto",
        help="what writes the tokens: compiled code where that can be, or torch (%(default)s); the "
        "same seed may make other music with another",
    )
    parser.add_argument(
        "--precision",
        choices=("int8", "float32"),
        default="int8",
        help="of the weights in compiled code (%(default)s)",
    )


def add_soundfont(parser: argparse.ArgumentParser) -> None:
    """What plays the music."""
    parser.add_argument(
        "--soundfont",
        type=Path,
        metavar="FILE.sf2",
        help="SoundFont that plays the music; a General MIDI one where not given",
    )


def add_file_size(parser: argparse.ArgumentParser) -> None:
    """How large a MIDI file may be."""
    parser.add_argument(
        "--max-file-size",
        type=size,
        default=MAX_FILE_BYTES,
        metavar="SIZE",
        help=f"largest MIDI file read, such as 500KB or 10MB ({MAX_FILE_BYTES // 1_000_000}MB)",
    )


def add_beats(parser: argparse.ArgumentParser) -> None:
    """What bars and beats of a prompt are counted by."""
    parser.add_argument(
        "--beats",
        choices=get_args(BeatSource),
        default="file",
        help="where the prompt's bars and beats come from: its file; an estimate from the notes, "
        "for recordings of someone who plays; or a grid of 120 beats a minute (%(default)s)",
    )


def add_music(parser: argparse.ArgumentParser, model: str, without: Collection[str] = ()) -> None:
    """What is made and written, with `model` where none is named.

    `without` names fields of MusicOptions that are left out.
    """
    add_targets(parser, model)
    add_music_options(parser, without)


def add_targets(parser: argparse.ArgumentParser, model: str) -> None:
    """What is written, and by which model, with `model` where none is named."""
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="OUT.mid",
        help="MIDI file to write; OUT.1.mid and so on for several variations",
    )
    add_model(parser, model)
    parser.add_argument(
        "--audio", type=Path, metavar="FILE", help="write sound as well: .wav, .flac or .ogg"
    )
    add_soundfont(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output"
    )


def add_music_options(parser: argparse.ArgumentParser, without: Collection[str]) -> None:
    """The fields of MusicOptions, but for those named in `without`."""
    hints = get_type_hints(MusicOptions)
    length = parser.add_mutually_exclusive_group()
    for option in fields(MusicOptions):
        if option.name in without:
            continue
        hint = hints[option.name]
        choices = get_args(hint) if get_origin(hint) is Literal else None
        kind = next((k for k in (int, float) if k in (hint, *get_args(hint))), str)
        letter = {int: "N", float: "X"}.get(kind, option.name.upper())
        text = option.metadata["help"]
        place = length if option.name in ("bars", "seconds") else parser
        place.add_argument(
            f"--{option.name.replace('_', '-')}",
            type=kind,
            choices=choices,
            default=option.default,
            metavar=None if choices else letter,
            help=text if option.default is None else f"{text} (%(default)s)",
        )


def music_options(given: argparse.Namespace) -> MusicOptions:
    """What was given for the fields of MusicOptions, with a seed. Raises CommandError."""
    values = {option.name: getattr(given, option.name) for option in fields(MusicOptions)}
    try:
        return with_seed(MusicOptions(**values))
    except ValueError as error:
        raise CommandError(str(error)) from error


def chosen_models(given: argparse.Namespace, asked_for: AskedFor) -> Models:
    """The models, on one thread: as fast as two for single tokens, and safe on busy cores."""
    import torch

    from app.compose.models import ComputeOptions, Models

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    compute = ComputeOptions(
        device=given.device,
        backend=given.backend,
        precision=given.precision,
    )
    return Models(asked_for, compute)


def seconds_between_bars() -> float:
    """Of progress: often on a terminal, now and then in a log, which keeps them all."""
    return 0.1 if sys.stderr.isatty() else 20.0


def port(text: str) -> int:
    """Type of an option: a port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, expected 1 to 65535")
    return int(text)


def whole(text: str) -> int:
    """Type of an option: a whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number, expected 0 or more")
    return int(text)


def positive(text: str) -> float:
    """Type of an option: a number above 0."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")


def root_path(text: str) -> str:
    """Type of an option: the path of a page behind a proxy, or its whole address."""
    if not re.fullmatch(r"((/|https?://)[^\s?#]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no path, expected one such as /music")
    return text.rstrip("/")


def read_accounts(path: Path) -> tuple[tuple[str, str], ...]:
    """Users and passwords of a file of lines user:password, without empty lines and those with #.

    Warns where others may read the file. Raises CommandError for a file that cannot be used; no
    message has a password in it.
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


def check_address(host: str, port: int) -> None:
    """Refuses an address at which this machine cannot listen."""
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


def size(text: str) -> int:
    """Type of an option: bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected one such as 500KB or 10MB")
    return math.ceil(float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " "))
