"""The commands `relpe continue`, `fill`, `accompany`, `generate` and `replay`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.audio.length import check_length
from app.cli.arguments import (
    PROMPT,
    add_music_options,
    add_shared,
    add_targets,
    chosen_models,
    music_options,
    parsed_by,
)
from app.cli.outputs import Targets
from app.cli.results import bars_before, finish
from app.compose import replay
from app.compose.fill.passage import find_instrument, music_like, parse_bars
from app.compose.options import NEW_PIECE_BARS, MusicOptions, only_for
from app.compose.plan.asked import cannot_write, form_bars
from app.compose.tracks import mark_drums
from app.errors import CommandError
from app.files import read_file, read_music_file
from tokenization.errors import MidiError, TokenizerError

if TYPE_CHECKING:
    from app.compose.fill.passage import Passage
    from app.compose.models import Models, MusicModel
    from app.compose.prompt.prompt import Prompt
    from app.compose.replay import Replay
    from tokenization.score import Score

AS_BEFORE = "as in the settings"
"""Default of device, backend and precision in `relpe replay`."""


def add_continue(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe continue`."""
    parser.add_argument(
        "prompt", type=Path, metavar="PROMPT.mid", help="MIDI or MusicXML file to continue"
    )
    add_targets(parser, "groove for drums or several instruments, otherwise piano")
    add_music_options(parser, without=only_for("nothing"), usual_bars=MusicOptions.bars)
    add_shared(parser, *PROMPT)
    parser.set_defaults(run=continue_command)


def add_fill(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe fill`."""
    _add_piece(parser)
    _add_bars(parser, required=True)
    parser.add_argument(
        "--tracks",
        metavar="LIST",
        help="tracks to write, by number, name or instrument, such as bass,drums (default: all "
        "that the model reads)",
    )
    parser.add_argument(
        "--rest",
        metavar="LIST",
        help="tracks that rest in these bars, in the same way: their notes are removed (default: "
        "none)",
    )
    parser.set_defaults(run=fill_command, instrument=None)


def add_accompany(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe accompany`."""
    _add_piece(parser)
    parser.add_argument(
        "--instrument",
        required=True,
        type=parsed_by(find_instrument),
        metavar="NAME",
        help='instrument of the new track in General MIDI, such as "Acoustic Bass", or Drums',
    )
    _add_bars(parser, required=False)
    parser.set_defaults(run=fill_command, tracks=None, rest=None)


def _add_piece(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both commands that write a part of a piece."""
    parser.add_argument(
        "prompt",
        type=Path,
        metavar="PIECE.mid",
        help="MIDI or MusicXML file of which a part is written",
    )
    add_targets(parser, "groove for drums or several instruments, otherwise piano")
    add_music_options(parser, without=(*only_for("nothing"), "bars", "seconds", "ending"))
    add_shared(parser, *PROMPT)


def _add_bars(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add --bars; without it, all bars are written."""
    default = "" if required else " (default: all)"
    parser.add_argument(
        "--bars",
        dest="bar_range",
        type=parsed_by(parse_bars),
        required=required,
        default=(1, None),
        metavar="FIRST-LAST",
        help=f"bars to write, counted from 1, such as 9-16{default}",
    )


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe generate`."""
    add_targets(parser, "piano")
    add_music_options(parser, without=only_for("prompt"), usual_bars=NEW_PIECE_BARS)
    parser.set_defaults(run=generate_command)


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe replay`."""
    parser.add_argument(
        "settings",
        type=Path,
        metavar="SETTINGS",
        help="settings that --json printed or the page saved, or the manifest of a batch",
    )
    parser.add_argument(
        "--clip", metavar="NAME", help="name of a clip in the manifest, such as ballad_v01"
    )
    parser.add_argument(
        "--prompt",
        type=Path,
        metavar="PROMPT.mid",
        help="MIDI or MusicXML file that the piece continues, if any",
    )
    add_targets(parser, AS_BEFORE)
    add_shared(parser, "--max-file-size")
    parser.set_defaults(**dict.fromkeys(("device", "backend", "precision"), AS_BEFORE))
    parser.set_defaults(run=replay_command)


def continue_command(options: argparse.Namespace) -> None:
    """Continue a MIDI file."""
    from app.compose.continuation import continue_prompt
    from app.compose.new_bars import NewBars, in_bars
    from app.compose.prompt.prompt import read_prompt

    music = music_options(options)
    targets = _check_targets(options, music)
    name = options.prompt.name
    data, score = _read_prompt_file(options, music)
    targets.check_piano(score)
    model = _load_model(chosen_models(options, options.model), score, music)
    prompt = read_prompt(data, name, tokenizer=model.tokenizer, beats=options.beats, score=score)
    music = in_bars(_set_length_of_form(options, music, prompt), prompt)
    _check_prompt(prompt, targets, NewBars.after(prompt, music.bars).end_ticks)
    finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt)


def fill_command(options: argparse.Namespace) -> None:
    """Write some bars and tracks of a MIDI file, or a new track."""
    from app.compose.continuation import continue_prompt
    from app.compose.prompt.prompt import passage_options, read_prompt

    music = music_options(options)
    targets = _check_targets(options, music)
    name = options.prompt.name
    data, score = _read_prompt_file(options, music)
    targets.check_piano(score)
    passage = _read_passage(options, score)
    models, style = chosen_models(options, options.model), music.style or ""
    model = models.to_continue(score, style)
    read = partial(read_prompt, data, name, beats=options.beats, score=score, passage=passage)
    try:
        prompt = read(tokenizer=model.tokenizer)
    except TokenizerError:
        other = models.to_fill(score, passage, style)
        if other is model:
            raise
        model, prompt = other, read(tokenizer=other.tokenizer)
    music = passage_options(music, passage, prompt)
    _check_prompt(prompt, targets, prompt.score.end_ticks)
    finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt)


def _read_passage(options: argparse.Namespace, score: Score) -> Passage:
    """Return the bars and tracks that are to be written."""
    from app.compose.fill.passage import Passage, find_tracks

    name = options.prompt.name
    first, last = options.bar_range
    numbers: dict[str, frozenset[int] | None] = {}
    for option in ("tracks", "rest"):
        text = getattr(options, option)
        try:
            numbers[option] = None if text is None else find_tracks(text, score.tracks)
        except MidiError as error:
            raise CommandError(f"{name}: --{option}: {error}") from error
    try:
        return Passage(
            first_bar=first,
            last_bar=last,
            tracks=numbers["tracks"],
            rests=numbers["rest"] or frozenset(),
            instrument=options.instrument,
        )
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from error


def _read_prompt_file(options: argparse.Namespace, music: MusicOptions) -> tuple[bytes, Score]:
    """Return the prompt's file as MIDI, and its score with the drums that the options name."""
    is_strict = getattr(options, "strict", False)
    data, score = read_music_file(options.prompt, options.max_file_size, strict=is_strict)
    return data, mark_drums(score, music.drums, options.prompt.name)


def _check_prompt(prompt: Prompt, targets: Targets, end_ticks: int) -> None:
    """Print what users should know of a prompt; raise SoundError if its piece is too long."""
    for notice in prompt.facts.notices:
        print(f"{prompt.name}: {notice}", file=sys.stderr)
    if targets.audio:
        check_length(float(prompt.score.seconds_at(end_ticks)))


def _load_model(models: Models, score: Score | None, music: MusicOptions) -> MusicModel:
    """Return the model for a prompt or for music without one.

    Print why, if it is not the usual one.
    """
    style = music.style or ""
    score = score or music_like(music.band)
    usual, name = models.suited(score), models.suited(score, style)
    if name != usual:
        print(f"model {name}: {cannot_write(style, usual)}", file=sys.stderr)
    return models.load(name)


def generate_command(options: argparse.Namespace) -> None:
    """Generate a piece from nothing."""
    from app.compose.continuation import generate_piece

    music = _set_length_of_form(options, music_options(options))
    targets = _check_targets(options, music)
    model = _load_model(chosen_models(options, options.model), None, music)
    finish(options, music, targets, model, generate_piece(model, music))


def _set_length_of_form(
    options: argparse.Namespace, music: MusicOptions, prompt: Prompt | None = None
) -> MusicOptions:
    """Return the options with the bars of the form, if there is one and no length was given."""
    if options.bars is not None or music.seconds is not None or music.form is None:
        return music
    try:
        bars = form_bars(music.form, bars_before(prompt))
    except ValueError as error:  # a letter that has not occurred needs a number of bars
        raise CommandError(f"--form: {error}") from error
    return replace(music, bars=bars)


def replay_command(options: argparse.Namespace) -> None:
    """Generate a piece again from its settings or from a manifest."""
    from app.compose.continuation import continue_prompt, generate_piece
    from app.compose.prompt.prompt import read_prompt

    settings = _read_settings(options)
    music = settings.options
    if (options.prompt is None) != (settings.prompt_sha256 is None):
        problem = (
            "the piece continues a MIDI file; give that file with --prompt"
            if options.prompt is None
            else "the piece was generated from nothing; leave out --prompt"
        )
        raise CommandError(f"{options.settings}: {problem}")
    targets = _check_targets(options, music)
    model = _load_replayed_model(options, settings)
    if differences := settings.differences(model):
        print(
            f"{options.settings}: generated with {', with '.join(differences)}; the music may "
            "differ",
            file=sys.stderr,
        )
    if options.prompt is None:
        finish(options, music, targets, model, generate_piece(model, music))
        return
    name = options.prompt.name
    data, score = _read_prompt_file(options, music)
    if not settings.fits(data):
        raise CommandError(
            f"{name}: not the file that was continued, since its content differs; give that file "
            "with --prompt, or continue this one with relpe continue"
        )
    prompt = read_prompt(
        data,
        name,
        settings.last_bar,
        tokenizer=model.tokenizer,
        beats=music.beats,
        first_bar=settings.first_bar,
        heard=settings.heard,
        played=settings.played,
        score=score,
        passage=settings.passage,
    )
    prompt = replace(prompt, sections=settings.sections)
    finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt)


def _read_settings(options: argparse.Namespace) -> Replay:
    """Return the settings, from JSON or a manifest."""
    if options.clip is not None:
        return replay.replay_of_clip(options.settings, options.clip)
    if options.settings.suffix.lower() == ".csv":
        raise CommandError(
            f"{options.settings}: a manifest has several clips; choose one with --clip"
        )
    return replay.read(read_file(options.settings, replay.MOST_BYTES))


def _load_replayed_model(options: argparse.Namespace, settings: Replay) -> MusicModel:
    """Return the model of a piece, computed as before unless options override it."""
    from app.compose.models import find_model
    from relpe.models.checkpoint import CheckpointError

    for name, before in settings.compute.items():
        if getattr(options, name) == AS_BEFORE:
            setattr(options, name, before)
    try:
        folder = options.model or find_model(settings.model, settings.model_sha256)
    except CheckpointError as error:
        raise CommandError(
            f"{options.settings}: {error}; give the folder of its model with --model DIR"
        ) from error
    try:
        return chosen_models(options, folder).to_generate()
    except CheckpointError as error:
        raise CommandError(f"{options.settings}: {error}") from error


def _check_targets(options: argparse.Namespace, music: MusicOptions) -> Targets:
    """Return the files to write.

    An unusable SoundFont is rejected before any music is generated.
    """
    if options.soundfont is not None and options.audio is None:
        raise CommandError(
            f"--soundfont {options.soundfont}: no audio was requested; add --audio FILE, or leave "
            "out --soundfont"
        )
    if options.soundfont is not None:
        from app.audio.synth.soundfont import open_soundfont

        open_soundfont(options.soundfont)
    prompt = getattr(options, "prompt", None)
    return Targets.of(options.output, options.audio, options.score, music.variations, prompt)
