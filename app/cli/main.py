"""The command `relpe`: make music."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import (
    CommandError,
    Parser,
    add_beats,
    add_file_size,
    add_model,
    add_music,
    add_soundfont,
    add_targets,
    check_address,
    chosen_models,
    port,
    positive,
    read_accounts,
    root_path,
    size,
    whole,
)
from app.cli.batch import add_batch
from app.cli.music import AS_BEFORE, again, generate, proceed
from app.compose.options import MAX_WAITING, NEW_PIECE_BARS, OF_PROMPT
from app.errors import UserError, input_errors
from app.files import check_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0, or 2 where the input cannot be used.

    130 where Ctrl+C or SIGTERM has ended it.
    """
    # idle threads that spin take the time of those that work, where the machine is shared
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="relpe: %(message)s")
    try:
        with _orderly_end():
            options.run(options)
    except KeyboardInterrupt as stopped:
        print(f"relpe: {str(stopped) or 'stopped, nothing written'}", file=sys.stderr)
        return 130
    except UserError as error:
        return _refused(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("app", "relpe", "tokenization"):
            raise
        print(f"relpe: found no {error.name}; pip install 'relpe[app]'", file=sys.stderr)
        return 2
    except input_errors() as error:
        return _refused(error)
    return 0


def _refused(error: Exception) -> int:
    print(f"relpe: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Ends at SIGTERM as at Ctrl+C: temporary files and folders go."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="relpe", description="Make and continue music.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"relpe {version('relpe')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    page = commands.add_parser("ui", help="open the page", allow_abbrev=False)
    page.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    page.add_argument("--port", type=port, default=7860, help="port to listen on (%(default)s)")
    add_model(page, "all released ones")
    add_file_size(page)
    page.add_argument(
        "--output-dir",
        type=Path,
        help="folder where music is kept, in one per start; without it nothing is kept for long",
    )
    page.add_argument(
        "--keep-days",
        type=positive,
        metavar="N",
        help="remove music in --output-dir after so many days; without it it stays",
    )
    page.add_argument(
        "--keep-size",
        type=size,
        metavar="SIZE",
        help="keep so much in --output-dir, such as 10GB, and remove the oldest music beyond it",
    )
    page.add_argument(
        "--max-queue",
        type=whole,
        default=MAX_WAITING,
        metavar="N",
        help="jobs that may wait for each model; more are refused (%(default)s)",
    )
    page.add_argument(
        "--max-seconds",
        type=positive,
        metavar="N",
        help="longest time that a job is written for; what is there then is kept",
    )
    page.add_argument(
        "--auth-file",
        type=Path,
        metavar="FILE",
        help="let in only who knows a line of this file, user:password",
    )
    page.add_argument(
        "--root-path",
        type=root_path,
        default="",
        metavar="/PATH",
        help="where a proxy shows the page, if not at its root",
    )
    add_soundfont(page)
    page.add_argument("--open", action="store_true", help="open a browser as well")
    page.set_defaults(run=_ui)

    after = commands.add_parser("continue", help="continue a MIDI file", allow_abbrev=False)
    after.add_argument("prompt", type=Path, metavar="PROMPT.mid", help="MIDI file to continue")
    add_music(after, "groove for drums or several instruments, else piano")
    add_beats(after)
    add_file_size(after)
    after.set_defaults(run=proceed)

    new = commands.add_parser("generate", help="make a piece from nothing", allow_abbrev=False)
    add_music(new, "piano", without=OF_PROMPT)
    new.set_defaults(run=generate, bars=NEW_PIECE_BARS, prompt_bars=0, presence=0.0, recall=0.0)

    same = commands.add_parser("replay", help="make a piece again", allow_abbrev=False)
    same.add_argument(
        "settings",
        type=Path,
        metavar="SETTINGS",
        help="its settings, from the page or from --json; or the manifest of a batch",
    )
    same.add_argument(
        "--clip", metavar="NAME", help="the clip of a manifest that is made again, as ballad_v01"
    )
    same.add_argument(
        "--prompt", type=Path, metavar="PROMPT.mid", help="MIDI file that it continues, if one"
    )
    add_targets(same, "that of the settings")
    add_file_size(same)
    same.set_defaults(run=again, device=AS_BEFORE, backend=AS_BEFORE, precision=AS_BEFORE)

    many = commands.add_parser("batch", help="make clips for listening tests", allow_abbrev=False)
    add_batch(many)
    return parser


def _ui(options: argparse.Namespace) -> None:
    folder = options.output_dir
    check_address(options.host, options.port)
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
    accounts = read_accounts(options.auth_file) if options.auth_file else ()
    if options.soundfont is not None:
        from app.audio.synth.soundfont import open_soundfont

        open_soundfont(options.soundfont)  # refuses what it cannot read
    models = chosen_models(options, options.model)
    models.to_generate()  # what is wrong with a model is said before the page opens
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


if __name__ == "__main__":
    sys.exit(main())
