"""What the commands that make music show and write: progress, files and the result."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from app.audio.length import check_length
from app.audio.synth.soundfont import SoundError
from app.cli.arguments import seconds_between_bars
from app.compose import replay
from app.compose.plan.asked import chords_met, form_cut, form_met, heard_before
from app.errors import CommandError
from app.text import plural

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from app.cli.outputs import Targets
    from app.compose.continuation import Result, Steps
    from app.compose.models import MusicModel
    from app.compose.options import MusicOptions
    from app.compose.piece import Piece
    from app.compose.plan.asked import Heard
    from app.compose.prompt.prompt import Prompt


def finish(
    options: argparse.Namespace,
    music: MusicOptions,
    targets: Targets,
    model: MusicModel,
    steps: Steps,
    prompt: Prompt | None = None,
) -> None:
    """Run the steps of a command, write its files and print the result."""
    result = _run(steps, music)
    studied = result.pieces[0].studied
    if studied is not None:
        music = studied.settled(music)
        print(f"the {model.name} model {studied.line}", file=sys.stderr)
    _save(targets, result.pieces, options.soundfont)
    if not options.json:
        _print_lines(targets, music, model, result, prompt)
        return
    print(
        json.dumps(
            {
                "output": [str(path) for path in targets.midi],
                "audio": [str(path) for path in targets.audio],
                "score": [str(path) for path in targets.scores],
                "seed": music.seed,
                "seeds": [piece.seed for piece in result.pieces],
                **_choices(music, result.pieces),
                "model": options.model or model.name,
                "backend": model.backend,
                "fell_back": model.steps.fell_back,
                **_figures(result),
                **_prompt_facts(prompt),
                "replay": replay.settings(music, model, prompt),
            }
        )
    )


def _run(steps: Steps, music: MusicOptions) -> Result:
    """Run the steps with a progress bar on standard error and return their result."""
    from tqdm import tqdm

    from app.compose.continuation import Result
    from app.compose.models import PREPARING_NOTICE

    total = music.bars if music.seconds is None else None  # unknown: the model chooses the tempo
    with tqdm(
        total=total,
        unit="bar",
        desc=f"seed {music.seed}",
        leave=False,
        mininterval=seconds_between_bars(),
        disable=None,  # only on terminals
    ) as bar:
        for step in steps:
            if isinstance(step, Result):
                return step
            if step.tokens:
                doing = f"{step.notes} notes"
            elif step.studying is not None:
                doing = f"studying the piece, {step.studying:.0%}"
            else:
                doing = PREPARING_NOTICE if step.preparing else "reading the prompt"
            bar.set_postfix_str(doing, refresh=False)
            done = step.bars_done if total is None else min(step.bars_done, total)
            bar.update(done - bar.n)
    raise AssertionError("the steps end with a result")


def _save(targets: Targets, pieces: Sequence[Piece], soundfont: Path | None) -> None:
    """Write the files, without audio or sheet music that cannot be made of a piece.

    The duration and the instruments of a piece may not be known before it has been generated.
    """
    if targets.audio:
        try:
            for piece in pieces:
                check_length(float(piece.score.seconds_at(piece.score.end_ticks)))
        except SoundError as error:
            replace(targets, audio=(), scores=()).save(pieces)
            names = ", ".join(map(str, targets.midi))
            raise CommandError(f"{names}: written without audio: {error}") from error
    try:
        for piece in pieces:
            targets.check_piano(piece.score)
    except CommandError as error:
        targets = replace(targets, scores=())
        targets.save(pieces, soundfont)
        names = ", ".join(map(str, targets.paths))
        raise CommandError(f"{names}: written without sheet music: {error}") from error
    targets.save(pieces, soundfont)


def _choices(music: MusicOptions, pieces: Sequence[Piece]) -> dict[str, object]:
    """Return the chosen take of each piece, from 1, and what came of a study, for --json."""
    choices: dict[str, object] = {}
    if music.takes > 1:
        choices["takes"] = [
            {"take": choice.best + 1, "scores": [round(score, 2) for score in choice.likenesses]}
            for choice in (piece.choice for piece in pieces)
            if choice is not None
        ]
    if (studied := pieces[0].studied) is not None:
        choices["study"] = asdict(studied)
    return choices


def _figures(result: Result) -> dict[str, object]:
    """Return what was generated, and how fast, for --json."""
    from tokenization.analysis.keys import key_name

    figures: dict[str, object] = {}
    if (key := result.pieces[0].key) is not None:
        figures["key"] = key_name(key)
    return figures | {
        "bars": result.bars,
        "notes": sum(piece.notes for piece in result.pieces),
        "tokens": result.tokens,
        "tokens_per_second": round(result.tokens_per_second, 1),
        "bars_per_second": round(result.bars_per_second, 2),
        "real_time_factor": round(result.real_time_factor, 2),
        "seconds": round(result.seconds, 3),
        "prompt_notes": result.prompt_notes,
    }


def _prompt_facts(prompt: Prompt | None) -> dict[str, object]:
    """Return a prompt's bars and beats for --json."""
    if prompt is None:
        return {}
    facts = prompt.facts
    return {
        "beats": facts.beats,
        "beats_confidence": round(facts.confidence, 3),
        "file_bars": round(facts.file_bars, 3),
        "bpm": round(facts.bpm, 2),
        "metre": facts.metre,
        "notices": list(facts.notices),
    }


def _print_lines(
    targets: Targets, music: MusicOptions, model: MusicModel, result: Result, prompt: Prompt | None
) -> None:
    """Print a line for each remark about a piece, and one about the files."""
    from tokenization.analysis.keys import key_name

    assert music.seed is not None  # the arguments have given it one
    seeds = range(music.seed, music.seed + len(result.pieces))
    for seed, piece in zip(seeds, result.pieces, strict=True):
        for remark in _remarks(piece, music, prompt):
            print(f"seed {seed}: {remark}", file=sys.stderr)
    names = ", ".join(map(str, targets.paths))
    word = "seeds" if music.variations > 1 else "seed"
    line = f"{names}: {plural(result.bars, 'bar')}, {word} {', '.join(map(str, seeds))}"
    line += f", model {model.name}"
    if (key := result.pieces[0].key) is not None:
        line += f", closes in {key_name(key)}"
    print(line, file=sys.stderr)


def _remarks(piece: Piece, music: MusicOptions, prompt: Prompt | None) -> Iterator[str]:
    """Yield why a piece was chosen, and how it meets the chords and the form that were asked."""
    from app.compose.plan.lead_sheet import LeadSheet

    if piece.choice is not None:
        alone = "" if music.rank_every else f"; --seed {piece.seed} --takes 1 writes it again"
        yield f"{piece.choice.line()}{alone}"
    if music.chords is None and music.form is None:
        return
    sheet, first_new_bar = LeadSheet.of(piece.score), prompt.bars_before if prompt else 0
    if chords := chords_met(music, sheet, first_new_bar, piece.bars):
        yield str(chords)
    bars = bars_before(prompt) if music.form else []
    if form := form_met(music, sheet, bars, piece.bars):
        yield str(form)
    first_read = prompt.first_bar_heard(music.prompt_bars) if prompt else 1
    if cut := form_cut(music, bars, piece.bars, first_read):
        yield cut


def bars_before(prompt: Prompt | None) -> list[Heard]:
    """Return the bars of the prompt, as its form is analysed."""
    if prompt is None:
        return []
    from app.compose.plan.lead_sheet import plan_of

    return heard_before(plan_of(prompt.timing.counted), prompt.bars_before, prompt.sections)
