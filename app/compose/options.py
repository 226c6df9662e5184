"""How music is made: what page, commands and scripts can choose. Loads no engine."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from tokenization.analysis.keys import pitch_classes

LARGEST_SEED = 2**31 - 1

BeatSource = Literal["file", "estimate", "grid"]
"""Where the beats of a prompt come from: its file, its notes, or a clock of 120 beats a minute."""

MAX_FILE_BYTES = 10_000_000
"""Largest MIDI file taken, unless the caller says otherwise."""
NEW_PIECE_BARS = 32
"""Length of a piece from nothing, unless the caller says otherwise."""
MAX_WAITING = 8
"""Jobs of the page that may wait for a model until others have ended."""

Range = tuple[float, float | None]
"""Least and greatest value; None: there is none. Of whole numbers, whole numbers."""


class Limits(NamedTuple):
    """How far a number may be chosen: by whoever owns the machine, by scripts, and on the page."""

    most: Range
    """What can be done at all: the range of the commands."""
    scripts: Range
    """What the page does for scripts."""
    page: Range
    """What its widgets offer."""


def _option(
    default: Any,  # noqa: ANN401 - a field of any type
    text: str,
    most: Range | None = None,
    scripts: Range | None = None,
    page: Range | None = None,
) -> Any:  # noqa: ANN401
    limits = most and Limits(most, scripts or most, page or scripts or most)
    return field(default=default, metadata={"limits": limits, "help": text})


@dataclass(frozen=True, kw_only=True)
class MusicOptions:
    """How music is made: the same defaults for page, commands and other callers.

    Raises ValueError for a value out of its range.
    """

    bars: int = _option(16, "bars of new music", (1, 4096), (1, 256), (1, 64))
    seconds: float | None = _option(
        None,
        "length of the new music in seconds, in place of bars: it ends with the bar in which they "
        "are over",
        (1, 3600),
    )
    prompt_bars: int = _option(
        8,
        "bars of the prompt's end that the model hears; 0: as many as 16,384 tokens hold",
        (0, None),
    )
    seed: int | None = _option(
        None,
        "seed of the draws; a random one, which the result names, where not given",
        (0, LARGEST_SEED),
    )
    temperature: float = _option(
        1.0, "below 1 safer, above 1 wilder", (0.01, 10), (0.1, 2.0), (0.5, 1.5)
    )
    top_p: float = _option(
        0.95,
        "draw from the likeliest tokens that hold this share of probability",
        (0, 1),
        (0.05, 1.0),
        (0.5, 1.0),
    )
    top_k: int = _option(
        0, "draw from so many of the likeliest tokens; 0: from all", (0, 1000), page=(0, 100)
    )
    min_p: float = _option(
        0.0,
        "draw from tokens at least this share as likely as the likeliest; 0: from all",
        (0.0, 1.0),
        page=(0.0, 0.3),
    )
    key: str | None = _option(
        None,
        "key or scale that the notes keep to, drums apart, such as C, F#m, Bb, D dorian or A minor "
        "pentatonic; as the model likes where not given",
    )
    density: float = _option(
        0.0,
        "notes that a bar is to have, of all instruments together; 0: as the model likes",
        (0.0, 200.0),
        page=(0.0, 60.0),
    )
    repetition: float = _option(
        0.0,
        "how strongly to leave bars that repeat note for note, the more the oftener they were "
        "heard, up to 1; 0: as the model likes",
        (0.0, 1.0),
    )
    presence: float = _option(
        1.0,
        "how strongly instruments that have rested longer than in the prompt, or than two bars, "
        "are brought back in; 0: as the model likes",
        (0.0, 1.0),
    )
    recall: float = _option(
        1.0,
        "how strongly new music of several instruments takes up what they play in the prompt; "
        "0: as the model likes",
        (0.0, 1.0),
    )
    ending: Literal["bar", "cadence"] = _option(
        "bar",
        "bar: all notes are cut at the last bar line; cadence: the last bar comes to rest, and "
        "rings over it",
    )
    variations: int = _option(
        1, "pieces made at once, with seeds that count up from the first", (1, 64), (1, 4)
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value, within = getattr(self, option.name), option.metadata["limits"]
            if value is None or within is None:
                continue
            least, most = within.most
            if not (least <= value and (most is None or value <= most)):
                expected = f"at least {least}" if most is None else f"{least} to {most}"
                name = option.name.replace("_", " ")
                raise ValueError(f"{name} is {value}, expected {expected}")
        if self.seed is not None and self.seed + self.variations - 1 > LARGEST_SEED:
            raise ValueError(
                f"seed is {self.seed}, expected at most {LARGEST_SEED - self.variations + 1} for "
                f"{self.variations} variations, whose seeds count up"
            )
        if self.key is not None:
            pitch_classes(self.key)
        if self.ending not in ENDINGS:
            raise ValueError(f"ending is {self.ending!r}, expected {' or '.join(ENDINGS)}")


OF_PROMPT = ("prompt_bars", "presence", "recall")
"""Fields that mean nothing for a piece from nothing."""
ENDINGS: tuple[str, ...] = get_args(get_type_hints(MusicOptions)["ending"])


def limits(name: str) -> Limits:
    """Those of a field of MusicOptions that is a number."""
    return next(f.metadata["limits"] for f in fields(MusicOptions) if f.name == name)


def explained(name: str) -> str:
    """What a field of MusicOptions means, as a sentence without its stop."""
    text: str = next(f.metadata["help"] for f in fields(MusicOptions) if f.name == name)
    return text[0].upper() + text[1:]


def new_seed() -> int:
    """A seed drawn by the machine, with room behind it for those of all variations."""
    return secrets.randbelow(LARGEST_SEED - int(limits("variations").most[1] or 0))


def with_seed(options: MusicOptions) -> MusicOptions:
    """The same options with a seed: a random one where there is none."""
    if options.seed is not None:
        return options
    return replace(options, seed=new_seed())
