"""The options of the command `relpe`, those of the music from `MusicOptions`; loads no engine."""

from __future__ import annotations

import argparse
import ast
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Which model, and where it computes."""
    parser.add_argument(
        "--model",
        default="piano",
        metavar="NAME_OR_DIR",
        help="released model or folder (%(default)s)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to compute (%(default)s)",
    )


def add_file_size(parser: argparse.ArgumentParser) -> None:
    """How large a MIDI file may be."""
    parser.add_argument(
        "--max-file-size",
        type=_bytes,
        default=10_000_000,
        metavar="SIZE",
        help="largest MIDI file read, such as 500KB or 10MB (10MB)",
    )


def add_music(parser: argparse.ArgumentParser, without: str = "") -> None:
    """What is made and written; `without` names a field of MusicOptions that is left out."""
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="OUT.mid",
        help="MIDI file to write; OUT.1.mid and so on for several variations",
    )
    add_model(parser)
    for field in music_fields():
        if field.name != without:
            parser.add_argument(
                f"--{field.name.replace('_', '-')}",
                type=field.kind,
                default=field.default,
                metavar="X" if field.kind is float else "N",
                help=field.help if field.default is None else f"{field.help} (%(default)s)",
            )
    parser.add_argument(
        "--audio", type=Path, metavar="FILE", help="write sound as well: .wav, .flac or .ogg"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output"
    )


class _Field(NamedTuple):
    """A field of MusicOptions as an option of the command."""

    name: str
    kind: type
    default: float | None
    help: str


def music_fields() -> list[_Field]:
    """The fields of MusicOptions, read from its source: to import it would load the engine."""
    source = Path(__file__).with_name("continuation.py").read_text(encoding="utf-8")
    body = next(
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == "MusicOptions"
    )
    found = []
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and field.value and isinstance(below, ast.Expr):
            kind = float if ast.unparse(field.annotation) == "float" else int
            text = ast.literal_eval(below.value).rstrip(".").replace("`", "").replace("%", "%%")
            name, default = ast.unparse(field.target), ast.literal_eval(field.value)
            found.append(_Field(name, kind, default, " ".join(text.split())))
    return found


def port(text: str) -> int:
    """Type of an option: a port."""
    if not text.isdecimal() or not 0 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, expected 0 to 65535")
    return int(text)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected one such as 500KB or 10MB")
    return math.ceil(float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " "))
