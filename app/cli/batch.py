"""The command `relpe batch`."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.audio.formats import AUDIO_FORMATS
from app.cli.arguments import (
    add_beats,
    add_compute,
    add_file_size,
    add_music_options,
    chosen_models,
    music_options,
    seconds_between_bars,
)
from app.cli.signals import on_signal
from app.compose.options import LARGEST_SEED, NEW_PIECE_BARS
from app.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.batch.run import BatchProgress, BatchResult, BatchSteps

_MOST_CLIPS, _MOST_WIDTH = 100_000, 1024


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Make clips for listening tests: midi/NAME_v01.mid and so on, with --audio also "
        "audio/NAME_v01.flac at -23 LUFS (quieter only where a peak would pass -1 dB), and "
        "manifest.csv. What a clip is hangs on its own prompt, model, options and seed alone."
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR_OR_FILE",
        help="MIDI files to continue, and folders that are searched for .mid and .midi; pieces "
        "from nothing where not given",
    )
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to write to; one that holds a batch is refused without --resume",
    )
    parser.add_argument(
        "--count",
        type=_whole(1, _MOST_CLIPS),
        default=4,
        metavar="N",
        help="clips of each prompt; without prompts, by each model (%(default)s)",
    )
    parser.add_argument(
        "--models",
        type=_names,
        default=(),
        metavar="NAMES",
        help="models to choose from, released ones or folders, with commas between: a prompt has "
        "groove for drums or several instruments and else piano, or the first where that is not "
        "among them; without prompts each of them makes clips. Where not given all released "
        "ones, and without prompts piano alone",
    )
    parser.add_argument(
        "--seed",
        type=_whole(0, LARGEST_SEED),
        default=0,
        metavar="N",
        help="seed of the first clip of each prompt; the next ones count up (%(default)s)",
    )
    add_music_options(parser, ("seed", "variations"))
    add_beats(parser)
    add_file_size(parser)
    parser.add_argument(
        "--audio",
        choices=AUDIO_FORMATS,
        help="make sound as well, by the built-in player: the same on every machine",
    )
    parser.add_argument(
        "--width",
        type=_whole(1, _MOST_WIDTH),
        default=32,
        metavar="N",
        help="clips written at once: changes no clip, but speed and memory, of which each takes up "
        "to 9 MB (%(default)s)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with what is in the folder: clips that are whole stay, the others are made",
    )
    add_compute(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output"
    )
    parser.set_defaults(run=batch_command, bars=NEW_PIECE_BARS)


def batch_command(given: argparse.Namespace) -> None:
    """Makes the clips.

    Raises CommandError if some of them failed, KeyboardInterrupt if it was stopped.
    """
    music = music_options(given)
    from app.batch.run import BatchOptions, make_batch

    options = BatchOptions(
        output=given.output,
        music=music,
        prompts=tuple(given.prompts),
        models=given.models,
        count=given.count,
        beats=given.beats,
        max_file_size=given.max_file_size,
        audio=given.audio,
        width=given.width,
        resume=given.resume,
    )
    with _asked_to_stop() as stop:
        models = chosen_models(given, given.models or None)
        result = _show(make_batch(options, models, stop))
    there = f"{result.made + result.kept:,} of {result.total:,} clips are there"
    if given.json:
        print(json.dumps(_as_json(options.output, result)))
    elif not result.stopped:
        print(
            f"{options.output}: {there}, {result.made:,} made in {result.seconds:.1f} s; "
            f"{result.clips_per_minute:,.0f} clips a minute, "
            f"{result.tokens_per_second:,.0f} tokens/s",
            file=sys.stderr,
        )
    if result.stopped:
        raise KeyboardInterrupt(f"stopped, {there}; --resume makes the others")
    if result.failed:
        raise CommandError(f"{len(result.failed):,} of the prompts or clips failed, as said above")


def _as_json(output: Path, result: BatchResult) -> dict[str, object]:
    return {
        "output": str(output),
        "clips": result.total,
        "made": result.made,
        "kept": result.kept,
        "failed": list(result.failed),
        "stopped": result.stopped,
        "seconds": round(result.seconds, 3),
        "clips_per_minute": round(result.clips_per_minute, 1),
        "tokens": result.tokens,
        "tokens_per_second": round(result.tokens_per_second, 1),
        "real_time_factor": round(result.real_time_factor, 2),
        "models": [
            {
                "model": model.name,
                "model_sha256": model.sha256,
                "backend": model.backend,
                "fell_back": model.steps.fell_back,
            }
            for model in result.models
        ],
    }


def _show(steps: BatchSteps) -> BatchResult:
    """Runs the steps with a progress bar on standard error, and returns their result."""
    from tqdm import tqdm

    from app.batch.run import BatchResult

    pause = seconds_between_bars()
    with tqdm(total=0, smoothing=0, delay=1, leave=False, mininterval=pause, miniters=0) as bar:
        for step in steps:
            if isinstance(step, BatchResult):
                return step
            if step.notice:
                bar.clear()  # it is drawn again later, in its new state
                print(f"relpe: {' '.join(step.notice.split())}", file=sys.stderr)
            bar.total, bar.initial, bar.n = step.total, step.kept, step.done
            bar.bar_format = _shape(step)
            bar.set_postfix_str(step.doing, refresh=False)
            bar.update(0)
    raise AssertionError("the steps end with a result")


def _shape(step: BatchProgress) -> str:
    """Format of the progress bar: parts of clips move it, finished clips are counted."""
    if not step.total:
        return "{elapsed}{postfix}"
    clips = f"{math.floor(step.done)}/{step.total} clips"
    return "{l_bar}{bar}| " + clips + " [{elapsed}<{remaining}{postfix}]"


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl+C or SIGTERM was received; the second one raises KeyboardInterrupt."""
    asked = threading.Event()

    def ask(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt("stopped at once; --resume makes what is missing")
        asked.set()

    with on_signal(ask, signal.SIGINT, signal.SIGTERM):
        yield asked.is_set


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Type of an argument: an integer in a range."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}, expected {least:,} to {most:,}")
        return int(text)

    return number


def _names(text: str) -> tuple[str, ...]:
    """Type of an argument: names separated by commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names no model, expected such as piano,groove")
    return names
