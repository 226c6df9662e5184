"""The command `relpe`: make music."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from app.arguments import Parser, add_beats, add_file_size, add_model, add_music, port
from app.options import MusicOptions, with_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.continuation import Models, MusicModel, Piece, PromptFacts, Result, Steps

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")


class CommandError(Exception):
    """What the user asked for cannot be done; the message is one sentence."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0, or 2 where the input cannot be used."""
    # idle threads that spin take the time of those that work, where the machine is shared
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        _check(options)
        options.run(options)
    except _input_errors() as error:
        print(f"relpe: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("relpe: stopped, nothing written", file=sys.stderr)
        return 130
    return 0


def _input_errors() -> tuple[type[Exception], ...]:
    """Errors that the input causes; any other is a bug and keeps its traceback."""
    from app.sound import SoundError
    from relpe.checkpoint import CheckpointError
    from tokenization.errors import MidiError, TokenizerError

    return (CommandError, MidiError, TokenizerError, CheckpointError, SoundError)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="relpe", description="Make and continue music.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    page = commands.add_parser("ui", help="open the page", allow_abbrev=False)
    page.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    page.add_argument("--port", type=port, default=7860, help="port to listen on (%(default)s)")
    add_model(page)
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
    add_music(proceed)
    add_beats(proceed)
    add_file_size(proceed)
    proceed.set_defaults(run=_continue)

    generate = commands.add_parser("generate", help="make a piece from nothing", allow_abbrev=False)
    add_music(generate, without="prompt_bars")
    generate.set_defaults(run=_generate, bars=32, prompt_bars=None)
    return parser


def _check(options: argparse.Namespace) -> None:
    """Refuses what can be refused before any work is done."""
    output, audio = getattr(options, "output", None), getattr(options, "audio", None)
    if output is not None and output.suffix.lower() not in (".mid", ".midi"):
        raise CommandError(f"--output {output}: expected a file name that ends in .mid")
    if audio is not None and audio.suffix.lower() not in AUDIO_SUFFIXES:
        raise CommandError(
            f"--audio {audio}: expected a file name that ends in {', '.join(AUDIO_SUFFIXES)}"
        )
    for path in filter(None, (output, audio)):
        if not path.resolve().parent.is_dir():
            raise CommandError(f"{path}: there is no folder {path.parent}; make it first")
        if path.is_dir():
            raise CommandError(f"{path} is a folder, expected the name of a file")
    prompt = getattr(options, "prompt", None)
    count = max(getattr(options, "variations", 1), 1)
    for row in range(min(count, 64)):
        path = output and _numbered(output, row, count)
        if prompt is not None and path is not None and path.resolve() == prompt.resolve():
            raise CommandError(f"--output {output} would overwrite the prompt; choose another name")


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
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass  # it can be written to
        except OSError as error:
            raise CommandError(
                f"--output-dir {folder}: {error.strerror or error}; choose another folder"
            ) from error
    models = _models(options)
    models.to_generate()  # what is wrong with a model is said before the page opens
    from app.page import launch

    print(f"relpe: http://{options.host}:{options.port} (Ctrl+C ends it)", file=sys.stderr)
    try:
        launch(
            models,
            host=options.host,
            port=options.port,
            output_folder=folder,
            max_upload_bytes=options.max_file_size,
            open_browser=options.open,
        )
    except OSError as error:
        raise CommandError(
            f"{options.host}:{options.port}: {error}; choose another --port"
        ) from error


def _continue(options: argparse.Namespace) -> None:
    from app.continuation import continue_prompt, read_prompt
    from tokenization.midi import read_midi

    music = _music_options(options)
    name, data = options.prompt.name, _read(options.prompt, options.max_file_size)
    score = read_midi(data, name=name)
    model = _models(options).to_continue(score)
    prompt = read_prompt(data, name, tokenizer=model.tokenizer, beats=options.beats)
    for notice in prompt.facts.notices:
        print(f"{name}: {notice}", file=sys.stderr)
    _finish(options, music, model, continue_prompt(model, prompt, music), prompt.facts)


def _generate(options: argparse.Namespace) -> None:
    from app.continuation import generate_piece

    music = _music_options(options)
    model = _models(options).to_generate()
    _finish(options, music, model, generate_piece(model, music))


def _finish(
    options: argparse.Namespace,
    music: MusicOptions,
    model: MusicModel,
    steps: Steps,
    facts: PromptFacts | None = None,
) -> None:
    """Shows progress, writes the files, and says what was made."""
    result = _show(steps, music)
    paths = [_numbered(options.output, row, music.variations) for row in range(music.variations)]
    audio: list[Path] = []
    if options.audio is not None:
        audio = [_numbered(options.audio, row, music.variations) for row in range(music.variations)]
    _save(result.pieces, paths, audio)
    if options.json:
        print(
            json.dumps(
                {
                    "output": [str(path) for path in paths],
                    "audio": [str(path) for path in audio],
                    "seed": music.seed,
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
        names = ", ".join(map(str, [*paths, *audio]))
        print(f"{names}: {result.bars} bars, seed {music.seed}", file=sys.stderr)


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


def _numbered(path: Path, row: int, count: int) -> Path:
    """OUT.mid, or OUT.1.mid to OUT.K.mid where there are several."""
    return path if count == 1 else path.with_name(f"{path.stem}.{row + 1}{path.suffix}")


def _save(pieces: Sequence[Piece], paths: Sequence[Path], audio: Sequence[Path]) -> None:
    """Writes MIDI files, and sound where `audio` names files: all of them, or none on an error.

    Of the sound, which is large, one piece is in memory at a time.
    """
    from app.files import appearing

    try:
        with ExitStack() as stack:
            for piece, path in zip(pieces, paths, strict=True):
                stack.enter_context(appearing(path)).write_bytes(piece.midi)
            for piece, path in zip(pieces, audio, strict=False):
                from app.sound import render, save_audio

                save_audio(render(piece.score), stack.enter_context(appearing(path)))
    except OSError as error:
        folder = Path(error.filename or paths[0]).parent
        raise CommandError(f"{folder}: {error.strerror or error}") from error


if __name__ == "__main__":
    sys.exit(main())
