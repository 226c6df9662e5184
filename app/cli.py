"""The command `relpe`: make music."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from app.arguments import (
    CommandError,
    Parser,
    add_beats,
    add_file_size,
    add_model,
    add_music,
    check_address,
    port,
)
from app.files import check_folder
from app.options import NEW_PIECE_BARS, MusicOptions, with_seed
from app.targets import Targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from app.continuation import Models, MusicModel, PromptFacts, Result, Steps


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0, or 2 where the input cannot be used."""
    # idle threads that spin take the time of those that work, where the machine is shared
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        with _orderly_end():
            options.run(options)
    except KeyboardInterrupt:
        print("relpe: stopped, nothing written", file=sys.stderr)
        return 130
    except CommandError as error:
        return _refused(error)
    except _input_errors() as error:
        return _refused(error)
    return 0


def _refused(error: Exception) -> int:
    print(f"relpe: {' '.join(str(error).split())}", file=sys.stderr)
    return 2


def _input_errors() -> tuple[type[Exception], ...]:
    """Errors that the input causes; any other is a bug and keeps its traceback."""
    from app.errors import INPUT_ERRORS  # of the engine

    return INPUT_ERRORS


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
    page.add_argument("--open", action="store_true", help="open a browser as well")
    page.set_defaults(run=_ui)

    proceed = commands.add_parser("continue", help="continue a MIDI file", allow_abbrev=False)
    proceed.add_argument("prompt", type=Path, metavar="PROMPT.mid", help="MIDI file to continue")
    add_music(proceed, "groove for drums or several instruments, else piano")
    add_beats(proceed)
    add_file_size(proceed)
    proceed.set_defaults(run=_continue)

    generate = commands.add_parser("generate", help="make a piece from nothing", allow_abbrev=False)
    add_music(generate, "piano", without="prompt_bars")
    generate.set_defaults(run=_generate, bars=NEW_PIECE_BARS, prompt_bars=None)
    return parser


def _music_options(options: argparse.Namespace) -> MusicOptions:
    given = {option.name: getattr(options, option.name) for option in fields(MusicOptions)}
    try:
        return with_seed(MusicOptions(**given))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _read(path: Path, most: int) -> bytes:
    """Content of a file of at most `most` bytes; nothing more is read."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    if len(content) > most:
        raise CommandError(
            f"{path}: larger than {most:,} bytes; shorten it or raise --max-file-size"
        )
    return content


def _models(options: argparse.Namespace) -> Models:
    """The models, on one thread: as fast as two for single tokens, and safe on busy cores."""
    import torch

    from app.continuation import Models

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return Models(options.model, options.device)


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
    models = _models(options)
    models.to_generate()  # what is wrong with a model is said before the page opens
    from app.serving import launch

    def announce(address: str) -> None:
        print(f"relpe: {address.rstrip('/')} (Ctrl+C ends it)", file=sys.stderr)

    try:
        launch(
            models,
            host=options.host,
            port=options.port,
            output_folder=folder,
            max_upload_bytes=options.max_file_size,
            open_browser=options.open,
            announce=announce,
        )
    except OSError as error:
        raise CommandError(
            f"--host {options.host} --port {options.port}: the page cannot be served there; choose "
            "another --port"
        ) from error


def _continue(options: argparse.Namespace) -> None:
    from app.continuation import continue_prompt, read_prompt
    from app.new_bars import NewBars
    from app.sound import check_length
    from tokenization.midi import read_midi

    music = _music_options(options)
    targets = Targets.of(options.output, options.audio, music.variations, options.prompt)
    name, data = options.prompt.name, _read(options.prompt, options.max_file_size)
    score = read_midi(data, name=name)
    model = _models(options).to_continue(score)
    prompt = read_prompt(data, name, tokenizer=model.tokenizer, beats=options.beats)
    for notice in prompt.facts.notices:
        print(f"{name}: {notice}", file=sys.stderr)
    if targets.audio:
        end = NewBars.after(prompt, music.bars).end_ticks
        check_length(float(prompt.score.seconds_at(end)))
    _finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt.facts)


def _generate(options: argparse.Namespace) -> None:
    from app.continuation import generate_piece

    music = _music_options(options)
    targets = Targets.of(options.output, options.audio, music.variations, None)
    model = _models(options).to_generate()
    _finish(options, music, targets, model, generate_piece(model, music))


def _finish(
    options: argparse.Namespace,
    music: MusicOptions,
    targets: Targets,
    model: MusicModel,
    steps: Steps,
    facts: PromptFacts | None = None,
) -> None:
    """Shows progress, writes the files, and says what was made."""
    result = _show(steps, music)
    _save(targets, result)
    if options.json:
        print(
            json.dumps(
                {
                    "output": [str(path) for path in targets.midi],
                    "audio": [str(path) for path in targets.audio],
                    "seed": music.seed,
                    "seeds": [piece.seed for piece in result.pieces],
                    "model": options.model or model.name,
                    "backend": model.backend,
                    "bars": result.bars,
                    "notes": sum(piece.notes for piece in result.pieces),
                    "tokens": result.tokens,
                    "tokens_per_second": round(result.tokens_per_second, 1),
                    "seconds": round(result.seconds, 3),
                    "prompt_notes": result.prompt_notes,
                    **({} if facts is None else _prompt_facts(facts)),
                }
            )
        )
    else:
        from app.facts import counted

        names = ", ".join(map(str, [*targets.midi, *targets.audio]))
        seeds = ", ".join(str(piece.seed) for piece in result.pieces)
        what = f"seed{'s' if music.variations > 1 else ''} {seeds}"
        print(f"{names}: {counted(result.bars, 'bar')}, {what}", file=sys.stderr)


def _save(targets: Targets, result: Result) -> None:
    """Writes the files; of a piece that has become too long for sound its MIDI file alone.

    How long a piece from nothing lasts, its model decides.
    """
    from app.sound import SoundError, check_length

    try:
        for piece in result.pieces if targets.audio else ():
            check_length(float(piece.score.seconds_at(piece.score.end_ticks)))
    except SoundError as error:
        replace(targets, audio=()).save(result.pieces)
        names = ", ".join(map(str, targets.midi))
        raise CommandError(f"{names}: written without sound, {error}") from error
    targets.save(result.pieces)


def _prompt_facts(facts: PromptFacts) -> dict[str, object]:
    """What --json says of a prompt's bars and beats."""
    return {
        "beats": facts.beats,
        "on_grid": round(facts.on_grid, 3),
        "bpm": round(facts.bpm, 2),
        "metre": facts.metre,
        "notices": list(facts.notices),
    }


def _show(steps: Steps, music: MusicOptions) -> Result:
    """Runs the steps with a bar of progress on standard error, and returns what they end in."""
    from tqdm import tqdm

    from app.continuation import Result

    with tqdm(total=music.bars, unit="bar", desc=f"seed {music.seed}", leave=False) as bar:
        for step in steps:
            if isinstance(step, Result):
                return step
            bar.set_postfix_str(f"{step.notes} notes" if step.tokens else "reading the prompt")
            bar.update(min(step.bars_done, music.bars) - bar.n)
    raise AssertionError("the steps end with a result")


if __name__ == "__main__":
    sys.exit(main())
