"""The command `relpe batch`."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from app.audio.formats import AUDIO_FORMATS
from app.batch.excerpt import ClipKind
from app.cli.arguments import (
    COMPUTE,
    PROMPT,
    add_music_options,
    add_shared,
    chosen_models,
    music_options,
    seconds_between_bars,
    whole,
)
from app.cli.signals import on_signal
from app.compose.options import LARGEST_SEED, NEW_PIECE_BARS, STUDYING
from app.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from app.batch.clips import BatchOptions
    from app.batch.run import BatchProgress, BatchResult, BatchSteps

_BESIDES_CLIPS = ("strict", "max_file_size", "width", "resume", "shard")
"""Options that do not affect the clips."""
_WITH_STUDY = {"config", "output", "json", "run", "device", "backend", "precision", *_BESIDES_CLIPS}
"""Options that can be used with a study."""
_MOST_CLIPS, _MOST_WIDTH, _MOST_SHARDS = 100_000, 1024, 1000


def add_batch(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Generate clips for listening tests: MIDI files such as midi/NAME_v01.mid, a table of all "
        "clips in manifest.csv, and, with --audio, files such as audio/NAME_v01.flac. The loudness "
        "is -23 LUFS, or lower if the true peak would exceed -1 dB. A clip depends only on its own "
        "prompt, model, options and seed."
    )
    parser.add_argument(
        "config",
        type=Path,
        nargs="?",
        metavar="CONFIG.yaml",
        help="a listening study: conditions, prompts and repetitions, described in "
        "docs/pages/how-to/listening.md. It determines the clips; the options for clips cannot be "
        "used with it",
    )
    _add_music(parser)
    _add_clips(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="output folder; a folder that already contains a batch requires --resume",
    )
    parser.add_argument(
        "--width",
        type=whole(1, _MOST_WIDTH),
        default=32,
        metavar="N",
        help="number of clips generated at once; affects speed and memory (up to 9 MB per clip), "
        "not the music (default: %(default)s)",
    )
    parser.add_argument(
        "--shard",
        type=_parse_shard,
        default=(1, 1),
        metavar="I/N",
        help="make only part I of N of the clips, for several processes or machines; when all N "
        "parts are in the folder, the last one merges them",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="resume the batch in the folder: keep intact clips and generate the others",
    )
    add_shared(parser, *COMPUTE, "--json")
    parser.set_defaults(run=batch_command, bars=NEW_PIECE_BARS)


def _add_music(parser: argparse.ArgumentParser) -> None:
    """Add prompts, models and the options of the music."""
    parser.add_argument(
        "--prompts",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR_OR_FILE",
        help="MIDI and MusicXML files to continue, and folders to search for them (default: "
        "none; pieces are generated from nothing)",
    )
    parser.add_argument(
        "--count",
        type=whole(1, _MOST_CLIPS),
        default=4,
        metavar="N",
        help="clips per prompt or, without prompts, per model (default: %(default)s)",
    )
    parser.add_argument(
        "--models",
        type=_parse_names,
        nargs="+",
        default=(),
        metavar="NAME_OR_DIR",
        help="names or folders of models. Prompts with drums or several "
        "instruments are continued by groove, others by piano; if that model is not listed, the "
        "first one is used. Without prompts, each listed model generates clips (default: all "
        "released models with prompts, piano without)",
    )
    parser.add_argument(
        "--seed",
        type=whole(0, LARGEST_SEED),
        default=0,
        metavar="N",
        help="seed of the first clip of each prompt; further clips add 1, 2, ... (default: "
        "%(default)s)",
    )
    add_music_options(parser, ("seed", "variations", *STUDYING))
    add_shared(parser, *PROMPT)


def _add_clips(parser: argparse.ArgumentParser) -> None:
    """Add what a clip contains, and its sound."""
    parser.add_argument(
        "--audio",
        choices=AUDIO_FORMATS,
        help="also render audio in this format, with the built-in player, which gives the same "
        "samples on every machine",
    )
    add_shared(parser, "--soundfont")
    parser.add_argument(
        "--clip",
        choices=get_args(ClipKind),
        help="what a clip contains: tail, the last bars of the prompt and the new music; new, only "
        "the new music; or whole, the whole piece (default: tail with --audio, otherwise whole)",
    )
    parser.add_argument(
        "--clip-bars",
        type=whole(1, 4096),
        default=4,
        metavar="N",
        help="bars of the prompt in a clip, with --clip tail (default: %(default)s)",
    )


def batch_command(given: argparse.Namespace) -> None:
    """Generate the clips.

    Raises CommandError if some clips failed, KeyboardInterrupt if the command was stopped.
    """
    options, models = _read_options(given) if given.config is None else _read_study(given)
    from app.batch.run import make_batch

    with _watch_for_stop() as is_stopped:
        result = _run(make_batch(options, chosen_models(given, models or None), is_stopped))
    complete = f"{result.made + result.kept:,} of {result.total:,} clips are complete"
    if given.json:
        print(json.dumps(_as_json(options.output, result)))
    elif not result.stopped:
        print(
            f"{options.output}: {complete}, {result.made:,} generated in {result.seconds:.1f} s; "
            f"{result.clips_per_minute:,.0f} clips per minute, "
            f"{result.tokens_per_second:,.0f} tokens/s",
            file=sys.stderr,
        )
    if result.stopped:
        raise KeyboardInterrupt(f"stopped: {complete}; use --resume to generate the others")
    if result.failed:
        raise CommandError(f"{len(result.failed):,} of the prompts or clips failed; see above")


def _read_options(given: argparse.Namespace) -> tuple[BatchOptions, tuple[str, ...]]:
    """Return the clips that the options of the command describe, and the models to choose from."""
    music = music_options(given)
    from app.batch.clips import BatchOptions

    if given.soundfont is not None and given.audio is None:
        raise CommandError(
            f"--soundfont {given.soundfont}: no audio was requested; add --audio flac, or leave "
            "out --soundfont"
        )
    models = tuple(itertools.chain(*given.models))
    options = BatchOptions(
        output=given.output,
        music=music,
        prompts=tuple(given.prompts),
        models=models,
        count=given.count,
        audio=given.audio,
        soundfont=given.soundfont,
        clip=given.clip,
        clip_bars=given.clip_bars,
        **_besides_clips(given),
    )
    return options, models


def _read_study(given: argparse.Namespace) -> tuple[BatchOptions, tuple[str, ...]]:
    """Return the clips of a study, and its models.

    Raises CommandError if options describe clips too.
    """
    parser = argparse.ArgumentParser()
    add_batch(parser)
    defaults = vars(parser.parse_args(["--output", "."]))
    for name, value in vars(given).items():
        if name not in _WITH_STUDY and value != defaults[name]:
            raise CommandError(
                f"--{name.replace('_', '-')} cannot be used with {given.config}; set it in that "
                "file, or leave it out"
            )
    from app.batch.study import models_of, options_of, read_study

    study, folder = read_study(given.config), given.config.parent
    try:
        options = options_of(study, folder, given.output, **_besides_clips(given))
    except CommandError as error:
        raise CommandError(f"{given.config}: {error}") from error
    return options, models_of(study, folder)


def _besides_clips(given: argparse.Namespace) -> dict[str, Any]:
    """Return the options that do not affect the clips."""
    return {name: getattr(given, name) for name in _BESIDES_CLIPS}


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


def _run(steps: BatchSteps) -> BatchResult:
    """Run the steps with a progress bar on standard error and return their result."""
    from tqdm import tqdm

    from app.batch.run import BatchResult

    interval = seconds_between_bars()
    with tqdm(total=0, smoothing=0, delay=1, leave=False, mininterval=interval, miniters=0) as bar:
        for step in steps:
            if isinstance(step, BatchResult):
                return step
            if step.notice:
                bar.clear()  # it is redrawn below
                print(f"relpe: {' '.join(step.notice.split())}", file=sys.stderr)
            bar.total, bar.initial, bar.n = step.total, step.kept, step.done
            bar.bar_format = _bar_format(step)
            bar.set_postfix_str(step.doing, refresh=False)
            bar.update(0)
    raise AssertionError("the steps end with a result")


def _bar_format(step: BatchProgress) -> str:
    """Return the format of the bar, which includes unfinished clips; the count does not."""
    if not step.total:
        return "{elapsed}{postfix}"
    clips = f"{math.floor(step.done)}/{step.total} clips"
    return "{l_bar}{bar}| " + clips + " [{elapsed}<{remaining}{postfix}]"


@contextmanager
def _watch_for_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl+C or SIGTERM was received.

    A second signal raises KeyboardInterrupt; further ones are ignored, as the command is ending.
    """
    asked, ending = threading.Event(), threading.Event()

    def ask(*_: object) -> None:
        if asked.is_set() and not ending.is_set():
            ending.set()
            raise KeyboardInterrupt(
                "stopped immediately; use --resume to generate the missing clips"
            )
        asked.set()

    with on_signal(ask, signal.SIGINT, signal.SIGTERM):
        yield asked.is_set


def _parse_shard(text: str) -> tuple[int, int]:
    """Parse a part and the number of parts, such as 1/4."""
    shard, slash, shards = text.partition("/")
    if not (slash and shard.isdecimal() and shards.isdecimal()) or not (
        1 <= int(shard) <= int(shards) <= _MOST_SHARDS
    ):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a part, expected one such as 1/4, of at most {_MOST_SHARDS:,}"
        )
    return int(shard), int(shards)


def _parse_names(text: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError(
            f"{text!r} contains no model names, expected for example piano groove"
        )
    return names
