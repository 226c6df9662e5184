"""The command `relpe inspect`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import add_shared
from app.errors import CommandError
from app.files import read_music_file
from app.text import plural

if TYPE_CHECKING:
    import argparse

    from app.compose.plan.lead_sheet import LeadSheet
    from tokenization.analysis.accidents import Accidents
    from tokenization.score import Score


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `relpe inspect`."""
    parser.add_argument(
        "file", type=Path, metavar="FILE.mid", help="MIDI or MusicXML file to analyse"
    )
    parser.add_argument(
        "--accidents",
        type=int,
        metavar="BARS",
        help="also what listeners may take for mistakes after the first BARS, which are the prompt",
    )
    add_shared(parser, "--beats", "--drums", "--max-file-size", "--json")
    parser.set_defaults(run=inspect_command)


def inspect_command(options: argparse.Namespace) -> None:
    """Print the form, key and chords of a MIDI file."""
    from app.compose.plan.lead_sheet import LeadSheet
    from app.compose.prompt.report import SAY_DRUMS, beats_notice
    from app.compose.prompt.timing import Timing, find_beats
    from app.compose.tracks import mark_drums

    name = options.file.name
    _, score = read_music_file(options.file, options.max_file_size)
    score = mark_drums(score, options.drums, name)
    if score.damage:
        print(f"{name}: {score.damage}; the rest is used", file=sys.stderr)
    if score.guesses:
        print(f"{name}: {score.guesses}; {SAY_DRUMS}", file=sys.stderr)
    choice = find_beats(score, options.beats)
    timing = Timing.of(score, choice.beats)
    if notice := beats_notice(timing, choice):
        print(f"{name}: {notice}", file=sys.stderr)
    counted = timing.counted
    sheet = LeadSheet.of(counted)
    accidents = None
    if options.accidents is not None:
        accidents = _accidents(counted, options.accidents, name)
    print(
        json.dumps(_as_json(name, sheet, accidents))
        if options.json
        else _as_text(name, sheet, accidents)
    )


def _accidents(score: Score, prompt_bars: int, name: str) -> Accidents:
    """Return the accidents after the prompt. Raises CommandError if there is nothing after it."""
    from tokenization.analysis.accidents import FEWEST_PROMPT_BARS, accidents
    from tokenization.analysis.bars import ScoreBars

    bars = ScoreBars.of(score).num_bars
    if not 1 <= prompt_bars < bars:
        expected = f"expected 1 to {bars - 1}" if bars > 1 else "expected a longer piece"
        raise CommandError(
            f"{name}: --accidents is {prompt_bars}, {expected}: the piece has {plural(bars, 'bar')}"
        )
    if prompt_bars < FEWEST_PROMPT_BARS:
        print(
            f"{name}: after a prompt of fewer than {FEWEST_PROMPT_BARS} bars, only empty bars are "
            "recognised as accidents",
            file=sys.stderr,
        )
    return accidents(score, prompt_bars, bars)


def _as_json(name: str, sheet: LeadSheet, accidents: Accidents | None) -> dict[str, object]:
    shown: dict[str, object] = {
        "file": name,
        "bars": len(sheet.chords),
        "key": sheet.key or None,
        "form": [
            {"letter": letter, "first_bar": first + 1, "bars": count}
            for letter, first, count in sheet.phrases
        ],
        "returns": sheet.returns,
        "chords": sheet.chords,
    }
    if accidents is not None:
        shown["accidents"] = [
            {"kind": kind, "what": what, "first_bar": first + 1, "bars": stop - first}
            for kind, (what, first, stop) in zip(accidents.kinds, accidents.places, strict=True)
        ]
    return shown


def _as_text(name: str, sheet: LeadSheet, accidents: Accidents | None) -> str:
    rows = list(sheet.rows())
    width = max((len(bar) for row in rows for bar in row.bars), default=0)
    count = len(str(len(sheet.chords)))
    letters = max((len(row.letter) for row in rows), default=0)
    lines = [
        name,
        f"Bars  {len(sheet.chords):,}",
        f"Key   {sheet.key or 'none: fewer than three pitches'}",
        f"Form  {sheet.form or 'none: the piece is too long'}",
        *([""] if rows else []),
    ]
    for row in rows:
        bars = " | ".join(bar.ljust(width) for bar in row.bars)
        lines.append(f"{row.letter:<{letters}} {row.first_bar:>{count}} | {bars} |")
    if accidents is not None:
        lines += ["", f"Accidents  {accidents.line() or 'none'}"]
    return "\n".join(lines)
