"""Arguments shared by several commands of `relpe`."""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.compose.options import MAX_FILE_BYTES, OPTIONS, MusicOptions, with_seed
from app.errors import CommandError
from tokenization.midi.chunks import MAX_FILE_BYTES as LARGEST_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from app.compose.models import AskedFor, Models

_log = logging.getLogger(__name__)


Parsed = TypeVar("Parsed")


def parsed_by(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Return an argument type: what a function returns, its ValueErrors as messages."""

    def parsed(text: str) -> Parsed:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return an argument type: an integer in a range."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:,} to {most:,}")
        return int(text)

    return number


def size(text: str, most: float = math.inf) -> int:
    """Parse a size in bytes; `most` is that of MIDI files that can be read."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size, expected one such as 500KB or 10MB"
        )
    num_bytes = math.ceil(float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " "))
    if num_bytes > most:
        raise argparse.ArgumentTypeError(
            f"{text!r} is above {most // 1_000_000}MB, the largest MIDI file that can be read"
        )
    return num_bytes


SHARED: dict[str, dict[str, Any]] = {
    "--device": {
        "choices": ("auto", "cpu", "cuda"),
        "default": "auto",
        "help": "device that runs the model (default: %(default)s)",
    },
    "--backend": {
        "choices": ("auto", "compiled", "torch"),
        "default": "auto",
        "help": "how tokens are generated: by compiled code or by PyTorch; auto uses compiled code "
        "where possible. The same seed may give different music on another backend (default: "
        "%(default)s)",
    },
    "--precision": {
        "choices": ("int8", "float32"),
        "default": "int8",
        "help": "precision of the weights in compiled code (default: %(default)s)",
    },
    "--soundfont": {
        "type": Path,
        "metavar": "FILE.sf2",
        "help": "SoundFont for the audio (default: a General MIDI SoundFont)",
    },
    "--max-file-size": {
        "type": partial(size, most=LARGEST_FILE),
        "default": MAX_FILE_BYTES,
        "metavar": "SIZE",
        "help": "maximum size of a MIDI file, such as 500KB or 10MB, at most "
        f"{LARGEST_FILE // 1_000_000}MB (default: {MAX_FILE_BYTES // 1_000_000}MB)",
    },
    "--strict": {
        "action": "store_true",
        "help": "refuse damaged MIDI files; by default, all of them that can be understood is read",
    },
    "--beats": {
        "choices": OPTIONS["beats"].words,
        "default": OPTIONS["beats"].default,
        "help": f"{OPTIONS['beats'].help} (default: %(default)s)",
    },
    "--drums": {
        "type": parsed_by(lambda text: MusicOptions(drums=text).drums),
        "metavar": "DRUMS",
        "help": OPTIONS["drums"].help,
    },
    "--json": {
        "action": "store_true",
        "help": "print the result as a JSON object on standard output",
    },
}
"""Options that several commands have; a parser may change their defaults."""
COMPUTE = ("--device", "--backend", "--precision")
PROMPT = ("--max-file-size", "--strict")


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add some of the options that several commands have."""
    for name in names:
        parser.add_argument(name, **SHARED[name])


def add_model(parser: argparse.ArgumentParser, default: str) -> None:
    """Add --model and the compute options; `default` describes the default model."""
    parser.add_argument(
        "--model",
        metavar="NAME_OR_DIR",
        help=f"name of a released model, or folder of a model (default: {default})",
    )
    add_shared(parser, *COMPUTE)


def add_targets(parser: argparse.ArgumentParser, model: str) -> None:
    """Add options for the output files and the model; `model` describes the default model."""
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="OUT.mid",
        help="MIDI file to write; several variations are written to OUT.1.mid, OUT.2.mid, ...",
    )
    add_model(parser, model)
    parser.add_argument(
        "--audio", type=Path, metavar="FILE", help="also write audio: a .wav, .flac or .ogg file"
    )
    add_shared(parser, "--soundfont")
    parser.add_argument(
        "--score",
        type=Path,
        metavar="FILE",
        help="also write sheet music, if the piece is for the piano: a .musicxml file",
    )
    add_shared(parser, "--json")


def add_music_options(
    parser: argparse.ArgumentParser, without: Collection[str] = (), usual_bars: int | None = None
) -> None:
    """Add an option for each field of `MusicOptions` except those in `without`.

    With `usual_bars`, --bars is None unless it is given: the length is then that of the form, or,
    without a form, `usual_bars`.
    """
    lengths = {"bars", "seconds"}.difference(without)
    length = parser.add_mutually_exclusive_group() if lengths else parser
    for name, option in OPTIONS.items():
        if name in without:
            continue
        letter = {int: "N", float: "X"}.get(option.kind, name.upper())
        place = length if name in lengths else parser
        added = place.add_argument(
            f"--{name.replace('_', '-')}",
            type=option.kind,
            choices=option.words or None,
            default=option.default,
            metavar=None if option.words else letter,
            help=option.help if option.default is None else f"{option.help} (default: %(default)s)",
        )
        if name == "bars" and usual_bars is not None:
            added.default = None
            added.help = (
                f"{option.help} (default: the length of --form; without a form, {usual_bars})"
            )
            parser.set_defaults(usual_bars=usual_bars)


def music_options(given: argparse.Namespace) -> MusicOptions:
    """Return the music options of a command, with a random seed if none was given.

    Raises CommandError for a value outside its range.
    """
    values = {name: value for name, value in vars(given).items() if name in OPTIONS}
    if "bars" in values and values["bars"] is None:
        values["bars"] = given.usual_bars
    try:
        return with_seed(MusicOptions(**values))
    except ValueError as error:
        raise CommandError(_with_option(str(error))) from error


def _with_option(problem: str) -> str:
    """Return a problem that begins with the name of an option, which gets its dashes."""
    for name in OPTIONS:
        if problem.startswith(f"{name.replace('_', ' ')} is "):
            return f"--{name.replace('_', '-')}{problem.removeprefix(name.replace('_', ' '))}"
    return problem


def chosen_models(given: argparse.Namespace, asked_for: AskedFor) -> Models:
    """Return the models to use. PyTorch is limited to one thread unless OMP_NUM_THREADS is set.

    For single tokens, one thread is as fast as two, and slows down less on busy cores.
    """
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
    """Return the seconds between updates of a progress bar: few on terminals, many in log files."""
    return 0.1 if sys.stderr.isatty() else 20.0
