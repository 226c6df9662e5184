"""The command `relpe ui`."""

from __future__ import annotations

import argparse
import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import add_model, add_shared, chosen_models, size
from app.compose.options import MAX_SECONDS, MAX_WAITING
from app.errors import CommandError
from app.files import check_folder
from app.server.memory.heap import limit_heaps
from app.web.guard.arguments import accounts_of, add_address, announce, check_address, not_served

if TYPE_CHECKING:
    from app.compose.models import AskedFor


def add_ui(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    add_model(parser, "all released models")
    parser.add_argument(
        "--models",
        type=Path,
        metavar="DIR",
        help="also offer your own models: folder of a model, or of several model folders "
        "(default: none)",
    )
    add_shared(parser, "--max-file-size")
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
    add_shared(parser, "--soundfont")
    parser.add_argument(
        "--mcp",
        action="store_true",
        help="also serve the tools of relpe mcp to agents, at /mcp of the page",
    )
    parser.set_defaults(run=ui_command)


def ui_command(options: argparse.Namespace) -> None:
    """Serve the page until it is interrupted. Raises CommandError if it cannot."""
    limit_heaps()
    folder = options.output_dir
    check_address(options)
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
    accounts = accounts_of(options)
    if options.soundfont is not None:
        from app.audio.synth.soundfont import open_soundfont

        open_soundfont(options.soundfont)  # rejects an unusable file before the page opens
    models = chosen_models(options, _asked_for(options.model, options.models))
    models.to_generate()  # reports an unusable model before the page opens
    from app.web.serving import Serving, Sharing, launch

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
        mcp=options.mcp,
    )
    try:
        launch(models, serving, announce)
    except OSError as error:
        raise not_served(options) from error


def _asked_for(model: str | None, place: Path | None) -> AskedFor:
    """Return the models to offer: the given one or the released ones, then those of one's own.

    Raises CommandError if there is none in the folder `place`.
    """
    if place is None:
        return model
    from app.compose.models import released

    folders = [place] if (place / "model.json").is_file() else []
    folders = folders or sorted(path.parent for path in place.glob("*/model.json"))
    if not folders:
        raise CommandError(
            f"--models {place}: found no model, expected a folder with model.json or a folder of "
            "such folders, as relpe-train tune and export write them"
        )
    return [*(released() if model is None else [model]), *folders]


def _whole(text: str) -> int:
    """Parse an integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, expected 0 or more")
    return int(text)


def _positive(text: str) -> float:
    """Parse a number above 0."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def _seconds(text: str) -> float | None:
    """Parse a number above 0, or 0 for no limit."""
    return None if text == "0" else _positive(text)
