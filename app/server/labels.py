"""What a piece of the page is called: its file name, and the line that says how it was made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from app.compose.options import MusicOptions
from app.files import safe_name
from app.text import plural

if TYPE_CHECKING:
    from app.compose.models import MusicModel
    from app.compose.piece import Piece
    from app.server.uploads import Upload

_BEATS = {"estimate": "beats estimated", "grid": "beats of a clock"}


def file_stem(
    piece: Piece, variation: int, model: MusicModel, upload: Upload | None, options: MusicOptions
) -> str:
    """File name without suffix: what it is, and all that is needed to make it again."""
    before: list[str] = []
    if upload is not None:
        beats = upload.prompt.facts.beats
        before = [safe_name(upload.title), f"a{upload.bars}"]
        before += [beats] if beats != "file" else []
        before += [part for part, _ in _heard(upload, options)]
    parts = [
        *before,
        safe_name(model.name),
        f"b{options.bars}",
        f"s{piece.seed}",
        f"T{_exact(options.temperature)}",
        f"p{_exact(options.top_p)}",
        *(part for part, _ in _steering(options)),
        *([f"v{variation + 1}"] if options.variations > 1 else []),
    ]
    return "_".join(parts)


def how_made(piece: Piece, model: MusicModel, upload: Upload | None, options: MusicOptions) -> str:
    """One line: how a piece was made, and what came of it."""
    what, beats = f"asked for {plural(options.bars, 'bar')}", None
    if upload is not None:
        what += f" after bar {upload.bars}"
        beats = _BEATS.get(upload.prompt.facts.beats)
    parts = [
        f"seed {piece.seed}",
        what,
        *([beats] if beats else []),
        f"T {_exact(options.temperature)}",
        f"top-p {_exact(options.top_p)}",
        *(said for _, said in _heard(upload, options)),
        *(said for _, said in _steering(options)),
        plural(piece.new.num_notes, "new note"),
        f"{piece.tokens_per_second:.0f} tokens/s",
        f"{model.name} on {model.device}",
    ]
    return " · ".join(parts)


def _heard(upload: Upload | None, options: MusicOptions) -> list[tuple[str, str]]:
    """What was chosen of the prompt: in a file name, and in words."""
    if upload is None:
        return []
    prompt, bars = upload.prompt, options.prompt_bars
    chosen: list[tuple[str, str]] = []
    if prompt.first_bar is not None:
        chosen.append((f"h{prompt.first_bar}", f"heard from bar {prompt.first_bar}"))
    elif bars != MusicOptions.prompt_bars:
        chosen.append((f"l{bars}", _last(bars)))
    for letter, numbers, what in (
        ("t", prompt.parts.heard, "heard tracks"),
        ("i", prompt.parts.played, "playing tracks"),
    ):
        if numbers is not None:
            told = ", ".join(str(number + 1) for number in sorted(numbers)[:8])
            more = ", …" if len(numbers) > 8 else ""
            chosen.append((f"{letter}{len(numbers)}", f"{what} {told}{more}"))
    return chosen


def _last(bars: int) -> str:
    return f"heard the last {plural(bars, 'bar')}" if bars else "heard all bars"


def _steering(options: MusicOptions) -> list[tuple[str, str]]:
    """What else was chosen, of which most is left to the model: in a file name, and in words."""
    chosen: list[tuple[str, str]] = []
    if options.top_k:
        chosen.append((f"k{options.top_k}", f"top-k {options.top_k}"))
    for letter, name in (("m", "min_p"), ("d", "density"), ("r", "repetition")):
        if value := getattr(options, name):
            chosen.append((f"{letter}{_exact(value)}", f"{name.replace('_', '-')} {_exact(value)}"))
    for letter, name in (("c", "presence"), ("l", "recall")):
        if (value := getattr(options, name)) != getattr(MusicOptions, name):
            chosen.append((f"{letter}{_exact(value)}", f"{name} {_exact(value)}"))
    if options.key is not None:
        sharp = re.sub("[#♯]", "-sharp-", options.key).replace("♭", "b")
        chosen.append((f"in-{safe_name(sharp)}", f"in {options.key}"))
    if options.ending != "bar":
        chosen.append((options.ending, options.ending))
    return chosen


def _exact(number: float) -> str:
    """With two decimals, or as many more as it has."""
    text = f"{number:.2f}"
    return text if float(text) == number else str(number)
