"""The command `relpe`: make music."""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import re
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.continuation import MusicModel, MusicOptions, Result, Steps

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg")


class CommandError(Exception):
    """What the user asked for cannot be done; the message is one sentence."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


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
    parser = _Parser(prog="relpe", description="Make and continue music.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    page = commands.add_parser("ui", help="open the page", allow_abbrev=False)
    page.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    page.add_argument("--port", type=_port, default=7860, help="port to listen on (%(default)s)")
    _add_model(page)
    _add_file_size(page)
    page.add_argument(
        "--output-dir", type=Path, help="where music is kept; a temporary folder if not given"
    )
    page.add_argument("--open", action="store_true", help="open a browser as well")
    page.set_defaults(run=_ui)

    proceed = commands.add_parser("continue", help="continue a MIDI file", allow_abbrev=False)
    proceed.add_argument("prompt", type=Path, metavar="PROMPT.mid", help="MIDI file to continue")
    _add_music(proceed, bars=16)
    proceed.add_argument(
        "--prompt-bars",
        type=int,
        metavar="N",
        help="the model hears the last N bars only (all it can)",
    )
    _add_file_size(proceed)
    proceed.set_defaults(run=_continue)

    generate = commands.add_parser("generate", help="make a piece from nothing", allow_abbrev=False)
    _add_music(generate, bars=32)
    generate.set_defaults(run=_generate, prompt_bars=None)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
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


def _add_file_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-file-size",
        type=_bytes,
        default=10_000_000,
        metavar="SIZE",
        help="largest MIDI file read, such as 500KB or 10MB (10MB)",
    )


def _add_music(parser: argparse.ArgumentParser, bars: int) -> None:
    parser.add_argument(
        "--output", type=Path, required=True, metavar="OUT.mid", help="MIDI file to write"
    )
    _add_model(parser)
    parser.add_argument("--bars", type=int, default=bars, help="bars of new music (%(default)s)")
    parser.add_argument("--seed", type=int, help="seed of the draws (random, and printed)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="below 1 safer, above wilder (%(default)s)"
    )
    parser.add_argument(
        "--top-p", type=float, default=0.95, help="share of probability drawn from (%(default)s)"
    )
    parser.add_argument(
        "--variations", type=int, default=1, metavar="K", help="write OUT.1.mid to OUT.K.mid"
    )
    parser.add_argument(
        "--audio", type=Path, metavar="FILE", help="write sound as well: .wav, .flac or .ogg"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output"
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, expected 0 to 65535")
    return int(text)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, expected one such as 500KB or 10MB")
    return math.ceil(float(match[1]) * 1000 ** " KMG".index(match[2].upper() or " "))


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
    from app.continuation import MusicOptions, with_seed

    names = [f.name for f in fields(MusicOptions) if f.default is not MISSING]
    try:
        return with_seed(MusicOptions(**{name: getattr(options, name) for name in names}))
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


def _load(options: argparse.Namespace) -> MusicModel:
    """The model, on one thread: as fast as two for single tokens, and safe on busy cores."""
    import torch

    from app.continuation import load_music_model

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return load_music_model(options.model, options.device)


def _ui(options: argparse.Namespace) -> None:
    from app.page import launch

    model = _load(options)
    print(f"relpe: http://{options.host}:{options.port} (Ctrl+C ends it)", file=sys.stderr)
    try:
        launch(
            model,
            host=options.host,
            port=options.port,
            output_folder=options.output_dir,
            max_upload_bytes=options.max_file_size,
            open_browser=options.open,
        )
    except OSError as error:
        raise CommandError(
            f"{options.host}:{options.port}: {error}; choose another --port"
        ) from error


def _continue(options: argparse.Namespace) -> None:
    from app.continuation import continue_prompt, read_prompt

    music = _music_options(options)
    prompt = read_prompt(_read(options.prompt, options.max_file_size), options.prompt.name)
    model = _load(options)
    for notice in prompt.facts.notices:
        print(f"{options.prompt.name}: {notice}", file=sys.stderr)
    _finish(options, music, model.backend, continue_prompt(model, prompt, music))


def _generate(options: argparse.Namespace) -> None:
    from app.continuation import generate_piece

    music = _music_options(options)
    model = _load(options)
    _finish(options, music, model.backend, generate_piece(model, music))


def _finish(options: argparse.Namespace, music: MusicOptions, backend: str, steps: Steps) -> None:
    """Shows progress, writes the files, and says what was made."""
    result = _show(steps, music)
    paths = [_numbered(options.output, row, music.variations) for row in range(music.variations)]
    audio: list[Path] = []
    # sound is made before anything is written, so that an error leaves nothing half done
    sounds = []
    if options.audio is not None:
        from app.sound import render

        sounds = [render(piece.score) for piece in result.pieces]
        audio = [_numbered(options.audio, row, music.variations) for row in range(music.variations)]
    for path, piece in zip(paths, result.pieces, strict=True):
        _write(path, piece.midi)
    for path, sound in zip(audio, sounds, strict=True):
        from app.sound import save_audio

        save_audio(sound, path)
    if options.json:
        print(
            json.dumps(
                {
                    "output": [str(path) for path in paths],
                    "audio": [str(path) for path in audio],
                    "seed": music.seed,
                    "model": options.model,
                    "backend": backend,
                    "bars": result.bars,
                    "notes": sum(piece.notes for piece in result.pieces),
                    "tokens": result.tokens,
                    "tokens_per_second": round(result.tokens_per_second, 1),
                    "seconds": round(result.seconds, 3),
                    "prompt_notes": result.prompt_notes,
                }
            )
        )
    else:
        names = ", ".join(map(str, [*paths, *audio]))
        print(f"{names}: {result.bars} bars, seed {music.seed}", file=sys.stderr)


def _show(steps: Steps, music: MusicOptions) -> Result:
    """Runs the steps with a bar of progress on standard error, and returns what they end in."""
    from tqdm import tqdm

    from app.continuation import Result

    with tqdm(total=music.bars, unit="bar", desc=f"seed {music.seed}", leave=False) as bar:
        for step in steps:
            if isinstance(step, Result):
                return step
            bar.set_postfix_str(f"{step.notes} notes")
            bar.update(min(step.bars_done, music.bars) - bar.n)
    raise AssertionError("the steps end with a result")


def _numbered(path: Path, row: int, count: int) -> Path:
    """OUT.mid, or OUT.1.mid to OUT.K.mid where there are several."""
    return path if count == 1 else path.with_name(f"{path.stem}.{row + 1}{path.suffix}")


def _write(path: Path, content: bytes) -> None:
    """Writes beside, then renames: no file is ever half written."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CommandError(f"{path}: {error.strerror or error}") from error


if __name__ == "__main__":
    sys.exit(main())
