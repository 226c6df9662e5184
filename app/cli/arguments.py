"""Arguments that several commands of `relpe` share."""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from app.compose.options import MAX_FILE_BYTES, OPTIONS, BeatSource, MusicOptions, with_seed
from app.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Collection

    from app.compose.models import AskedFor, Models

_log = logging.getLogger(__name__)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line that names the command."""

    # Any: the types that argparse declares depend on the namespace
    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        args: Any = None,  # noqa: ANN401
        namespace: Any = None,  # noqa: ANN401
    ) -> tuple[Any, list[str]]:
        """Refuses unknown arguments here; argparse would pass them on to the parent parser."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def add_model(parser: argparse.ArgumentParser, otherwise: str) -> None:
    """Adds the model, by default the one that `otherwise` describes, and its compute options."""
    parser.add_argument(
        "--model",
        metavar="NAME_OR_DIR",
        help=f"released model, or folder of one; {otherwise} where not given",
    )
    add_compute(parser)


def add_compute(parser: argparse.ArgumentParser) -> None:
    """Adds the options device, backend and precision; a parser may change the defaults later."""
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
    """Adds the option for the SoundFont."""
    parser.add_argument(
        "--soundfont",
        type=Path,
        metavar="FILE.sf2",
        help="SoundFont that plays the music; a General MIDI one where not given",
    )


def add_file_size(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the size of the largest MIDI file."""
    parser.add_argument(
        "--max-file-size",
        type=size,
        default=MAX_FILE_BYTES,
        metavar="SIZE",
        help=f"largest MIDI file read, such as 500KB or 10MB ({MAX_FILE_BYTES // 1_000_000}MB)",
    )


def add_beats(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the source of a prompt's beats."""
    parser.add_argument(
        "--beats",
        choices=get_args(BeatSource),
        default="file",
        help="where the prompt's bars and beats come from: its file; an estimate from the notes, "
        "for recordings of someone who plays; or a grid of 120 beats a minute (%(default)s)",
    )


def add_targets(parser: argparse.ArgumentParser, model: str) -> None:
    """Adds options for the output files and the model, by default the one `model` describes."""
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


def add_music_options(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Adds an option for each field of MusicOptions except those named in `without`."""
    length = parser.add_mutually_exclusive_group()
    for name, option in OPTIONS.items():
        if name in without:
            continue
        letter = {int: "N", float: "X"}.get(option.kind, name.upper())
        place = length if name in ("bars", "seconds") else parser
        place.add_argument(
            f"--{name.replace('_', '-')}",
            type=option.kind,
            choices=option.words or None,
            default=option.default,
            metavar=None if option.words else letter,
            help=option.help if option.default is None else f"{option.help} (%(default)s)",
        )


def music_options(given: argparse.Namespace) -> MusicOptions:
    """The options of the music that were given, with a seed; others have their defaults.

    Raises CommandError for a value out of its range.
    """
    values = {name: value for name, value in vars(given).items() if name in OPTIONS}
    try:
        return with_seed(MusicOptions(**values))
    except ValueError as error:
        raise CommandError(str(error)) from error


def chosen_models(given: argparse.Namespace, asked_for: AskedFor) -> Models:
    """The models to use; torch computes on one thread unless OMP_NUM_THREADS is set.

    For single tokens, one thread is as fast as two, and loses less time on busy cores.
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
    """Interval of a progress bar: short on a terminal, long in a log, which keeps every line."""
    return 0.1 if sys.stderr.isatty() else 20.0


def size(text: str) -> int:
    """Type of an argument: a number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected one such as 500KB or 10MB")
    return math.ceil(float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " "))
