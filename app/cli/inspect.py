"""The command `relpe inspect`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.cli.arguments import add_shared
from app.files import read_music_file

if TYPE_CHECKING:
    import argparse

    from app.compose.plan.lead_sheet import LeadSheet


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `relpe inspect`."""
    parser.add_argument(
        "file", type=Path, metavar="FILE.mid", help="MIDI or MusicXML file to analyse"
    )
    add_shared(parser, "--beats", "--drums", "--max-file-size", "--json")
    parser.set_defaults(run=inspect_command)


def inspect_command(options: argparse.Namespace) -> None:
    """Prints the form, key and chords of a MIDI file."""
    from app.compose.plan.lead_sheet import LeadSheet
    from app.compose.prompt_report import SAY_DRUMS
    from app.compose.timing import Timing, find_beats
    from app.compose.tracks import with_told_drums

    name = options.file.name
    _, score = read_music_file(options.file, options.max_file_size)
    score = with_told_drums(score, options.drums, name)
    if score.damage:
        print(f"{name}: {score.damage}; the rest is used", file=sys.stderr)
    if score.guesses:
        print(f"{name}: {score.guesses}; {SAY_DRUMS}", file=sys.stderr)
    beats = find_beats(score, options.beats).beats
    sheet = LeadSheet.of(Timing.of(score, beats).counted)
    print(json.dumps(_as_json(name, sheet)) if options.json else _as_text(name, sheet))


def _as_json(name: str, sheet: LeadSheet) -> dict[str, object]:
    return {
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


def _as_text(name: str, sheet: LeadSheet) -> str:
    rows = list(sheet.rows())
    width = max((len(bar) for row in rows for bar in row.bars), default=0)
    count = len(str(len(sheet.chords)))
    letters = max((len(row.letter) for row in rows), default=0)
    lines = [
        name,
        f"Bars  {len(sheet.chords):,}",
        f"Key   {sheet.key or 'none: no pitched notes'}",
        f"Form  {sheet.form or 'none: the piece is too long'}",
        *([""] if rows else []),
    ]
    for row in rows:
        bars = " | ".join(bar.ljust(width) for bar in row.bars)
        lines.append(f"{row.letter:<{letters}} {row.first_bar:>{count}} | {bars} |")
    return "\n".join(lines)
