"""The commands `relpe continue`, `fill`, `accompany`, `generate` and `replay`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.audio.length import check_length
from app.audio.synth.soundfont import SoundError
from app.cli.arguments import (
    PROMPT,
    add_music_options,
    add_shared,
    add_targets,
    chosen_models,
    music_options,
    parsed_by,
    seconds_between_bars,
)
from app.cli.outputs import Targets
from app.compose import replay
from app.compose.fill.passage import find_instrument, music_like, parse_bars
from app.compose.options import NEW_PIECE_BARS, MusicOptions, only_for
from app.compose.plan.asked import (
    cannot_write,
    chords_met,
    form_bars,
    form_cut,
    form_met,
    heard_before,
)
from app.compose.tracks import with_told_drums
from app.errors import CommandError
from app.files import read_file, read_music_file
from app.text import plural
from tokenization.errors import MidiError, TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.compose.continuation import Result, Steps
    from app.compose.models import Models, MusicModel
    from app.compose.piece import Piece
    from app.compose.plan.asked import Heard
    from app.compose.prompt.prompt import Prompt
    from app.compose.prompt.report import PromptFacts
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
    targets = _targets(options, music)
    name = options.prompt.name
    data, score = _read_prompt_file(options, music)
    targets.check_piano(score)
    model = _automatic(chosen_models(options, options.model), score, music)
    prompt = read_prompt(data, name, tokenizer=model.tokenizer, beats=options.beats, score=score)
    music = in_bars(_as_long_as_the_form(options, music, prompt), prompt)
    _check_prompt(prompt, targets, NewBars.after(prompt, music.bars).end_ticks)
    _finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt)


def fill_command(options: argparse.Namespace) -> None:
    """Write some bars and tracks of a MIDI file, or a new track."""
    from app.compose.continuation import continue_prompt
    from app.compose.fill.passage import Passage, find_tracks
    from app.compose.prompt.prompt import passage_options, read_prompt

    music = music_options(options)
    targets = _targets(options, music)
    name = options.prompt.name
    data, score = _read_prompt_file(options, music)
    targets.check_piano(score)
    first, last = options.bar_range
    numbers: dict[str, frozenset[int]] = {}
    for option, field in (("tracks", "tracks"), ("rest", "rests")):
        if (text := getattr(options, option)) is not None:
            try:
                numbers[field] = find_tracks(text, score.tracks)
            except MidiError as error:
                raise CommandError(f"{name}: --{option}: {error}") from error
    try:
        passage = Passage(
            first_bar=first,
            last_bar=last,
            tracks=numbers.get("tracks"),
            rests=numbers.get("rests", frozenset()),
            instrument=options.instrument,
        )
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from error
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
    _finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt)


def _read_prompt_file(options: argparse.Namespace, music: MusicOptions) -> tuple[bytes, Score]:
    """Return the prompt's file as MIDI, and its score with the drums that the options name."""
    is_strict = getattr(options, "strict", False)
    data, score = read_music_file(options.prompt, options.max_file_size, strict=is_strict)
    return data, with_told_drums(score, music.drums, options.prompt.name)


def _check_prompt(prompt: Prompt, targets: Targets, end_ticks: int) -> None:
    """Print what users should know of a prompt; raise SoundError if its piece is too long."""
    for notice in prompt.facts.notices:
        print(f"{prompt.name}: {notice}", file=sys.stderr)
    if targets.audio:
        check_length(float(prompt.score.seconds_at(end_ticks)))


def _automatic(models: Models, score: Score | None, music: MusicOptions) -> MusicModel:
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

    music = _as_long_as_the_form(options, music_options(options))
    targets = _targets(options, music)
    model = _automatic(chosen_models(options, options.model), None, music)
    _finish(options, music, targets, model, generate_piece(model, music))


def _as_long_as_the_form(
    options: argparse.Namespace, music: MusicOptions, prompt: Prompt | None = None
) -> MusicOptions:
    """Return the options with the bars of the form, if there is one and no length was given."""
    if options.bars is not None or music.seconds is not None or music.form is None:
        return music
    try:
        bars = form_bars(music.form, _heard_before(prompt))
    except ValueError as error:  # a letter that has not occurred needs a number of bars
        raise CommandError(f"--form: {error}") from error
    return replace(music, bars=bars)


def _heard_before(prompt: Prompt | None) -> list[Heard]:
    """Return the bars of the prompt, as its form is analysed."""
    if prompt is None:
        return []
    from app.compose.plan.lead_sheet import plan_of

    return heard_before(plan_of(prompt.timing.counted), prompt.bars_before, prompt.sections)


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
    targets = _targets(options, music)
    model = _model_of(options, settings)
    if differences := settings.differences(model):
        print(
            f"{options.settings}: generated with {', with '.join(differences)}; the music may "
            "differ",
            file=sys.stderr,
        )
    if options.prompt is None:
        _finish(options, music, targets, model, generate_piece(model, music))
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
    _finish(options, music, targets, model, continue_prompt(model, prompt, music), prompt)


def _read_settings(options: argparse.Namespace) -> Replay:
    """Return the settings, from JSON or a manifest."""
    if options.clip is not None:
        return replay.replay_of_clip(options.settings, options.clip)
    if options.settings.suffix.lower() == ".csv":
        raise CommandError(
            f"{options.settings}: a manifest has several clips; choose one with --clip"
        )
    return replay.read(read_file(options.settings, replay.MOST_BYTES))


def _model_of(options: argparse.Namespace, settings: Replay) -> MusicModel:
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


def _targets(options: argparse.Namespace, music: MusicOptions) -> Targets:
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


def _finish(
    options: argparse.Namespace,
    music: MusicOptions,
    targets: Targets,
    model: MusicModel,
    steps: Steps,
    prompt: Prompt | None = None,
) -> None:
    """Show progress, write the files and print the result."""
    from tokenization.analysis.keys import key_name

    result = _show(steps, music)
    studied = result.pieces[0].studied
    if studied is not None:
        music = studied.settled(music)
        print(f"the {model.name} model {studied.line}", file=sys.stderr)
    key = result.pieces[0].key
    _save(targets, result, options.soundfont)
    if options.json:
        print(
            json.dumps(
                {
                    "output": [str(path) for path in targets.midi],
                    "audio": [str(path) for path in targets.audio],
                    "score": [str(path) for path in targets.scores],
                    "seed": music.seed,
                    "seeds": [piece.seed for piece in result.pieces],
                    **({} if music.takes == 1 else {"takes": _takes(result)}),
                    **({} if studied is None else {"study": asdict(studied)}),
                    "model": options.model or model.name,
                    "backend": model.backend,
                    "fell_back": model.steps.fell_back,
                    **({} if key is None else {"key": key_name(key)}),
                    "bars": result.bars,
                    "notes": sum(piece.notes for piece in result.pieces),
                    "tokens": result.tokens,
                    "tokens_per_second": round(result.tokens_per_second, 1),
                    "bars_per_second": round(result.bars_per_second, 2),
                    "real_time_factor": round(result.real_time_factor, 2),
                    "seconds": round(result.seconds, 3),
                    "prompt_notes": result.prompt_notes,
                    **({} if prompt is None else _prompt_facts(prompt.facts)),
                    "replay": replay.settings(music, model, prompt),
                }
            )
        )
    else:
        assert music.seed is not None  # the arguments have given it one
        seeds = range(music.seed, music.seed + len(result.pieces))
        for seed, piece in zip(seeds, result.pieces, strict=True):
            for line in _about_piece(piece, music, prompt):
                print(f"seed {seed}: {line}", file=sys.stderr)
        what = f"seed{'s' if music.variations > 1 else ''} {', '.join(map(str, seeds))}"
        what += f", model {model.name}"
        if key is not None:
            what += f", closes in {key_name(key)}"
        names = ", ".join(map(str, targets.paths))
        print(f"{names}: {plural(result.bars, 'bar')}, {what}", file=sys.stderr)


def _about_piece(piece: Piece, music: MusicOptions, prompt: Prompt | None) -> Iterator[str]:
    """Yield why a piece was chosen, and how it meets the chords and the form that were asked."""
    from app.compose.plan.lead_sheet import LeadSheet

    if piece.choice is not None:
        alone = "" if music.rank_every else f"; --seed {piece.seed} --takes 1 writes it again"
        yield f"{piece.choice.line()}{alone}"
    if music.chords is None and music.form is None:
        return
    sheet, first = LeadSheet.of(piece.score), prompt.bars_before if prompt else 0
    before = _heard_before(prompt) if music.form else []
    met = chords_met(music, sheet, first, piece.bars), form_met(music, sheet, before, piece.bars)
    yield from map(str, filter(None, met))
    first_read = prompt.first_bar_heard(music.prompt_bars) if prompt else 1
    if cut := form_cut(music, before, piece.bars, first_read):
        yield cut


def _takes(result: Result) -> list[dict[str, object]]:
    """Return the chosen take of each piece, from 1, and the scores of all of them, for --json."""
    return [
        {"take": piece.choice.best + 1, "scores": [round(x, 2) for x in piece.choice.likenesses]}
        for piece in result.pieces
        if piece.choice is not None
    ]


def _save(targets: Targets, result: Result, soundfont: Path | None) -> None:
    """Write the files, without audio or sheet music that cannot be made of a piece.

    The duration and the instruments of a piece may not be known before it has been generated.
    """
    try:
        for piece in result.pieces if targets.audio else ():
            check_length(float(piece.score.seconds_at(piece.score.end_ticks)))
    except SoundError as error:
        replace(targets, audio=(), scores=()).save(result.pieces)
        names = ", ".join(map(str, targets.midi))
        raise CommandError(f"{names}: written without audio: {error}") from error
    try:
        for piece in result.pieces:
            targets.check_piano(piece.score)
    except CommandError as error:
        targets = replace(targets, scores=())
        targets.save(result.pieces, soundfont)
        names = ", ".join(map(str, targets.paths))
        raise CommandError(f"{names}: written without sheet music: {error}") from error
    targets.save(result.pieces, soundfont)


def _prompt_facts(facts: PromptFacts) -> dict[str, object]:
    """Return a prompt's bars and beats for --json."""
    return {
        "beats": facts.beats,
        "beats_confidence": round(facts.confidence, 3),
        "file_bars": round(facts.file_bars, 3),
        "bpm": round(facts.bpm, 2),
        "metre": facts.metre,
        "notices": list(facts.notices),
    }


def _show(steps: Steps, music: MusicOptions) -> Result:
    """Run the steps with a progress bar on standard error and return their result."""
    from tqdm import tqdm

    from app.compose.continuation import Result
    from app.compose.models import PREPARING_TOLD

    bars = music.bars if music.seconds is None else None  # unknown: the model chooses the tempo
    pause = seconds_between_bars()
    with tqdm(
        total=bars,
        unit="bar",
        desc=f"seed {music.seed}",
        leave=False,
        mininterval=pause,
        disable=None,  # only on terminals
    ) as bar:
        for step in steps:
            if isinstance(step, Result):
                return step
            reading = PREPARING_TOLD if step.preparing else "reading the prompt"
            if step.studying is not None:
                reading = f"studying the piece, {step.studying:.0%}"
            bar.set_postfix_str(f"{step.notes} notes" if step.tokens else reading, refresh=False)
            bar.update(min(step.bars_done, bars or step.bars_done) - bar.n)
    raise AssertionError("the steps end with a result")
