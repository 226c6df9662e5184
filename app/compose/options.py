"""The options of music, declared once for command line, scripts and page.

A new option needs a field of `MusicOptions` and code where it takes effect: arguments, script
endpoints, widgets and names of files are built from `OPTIONS`. Importing it loads no PyTorch.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from tokenization.analysis.keys import pitch_classes

LARGEST_SEED = 2**31 - 1

BeatSource = Literal["file", "estimate", "grid"]
"""Source of a prompt's beats: its file, an estimate from its notes, or 120 beats a minute."""

MAX_FILE_BYTES = 10_000_000
"""Size of the largest MIDI file that is read by default."""
NEW_PIECE_BARS = 32
"""Default length of a piece from nothing."""
MAX_WAITING = 8
"""Default number of jobs that may wait for a model of the page."""

Range = tuple[float, float | None]
"""Least and greatest value, None for no bound; integers for options that are integers."""


class Limits(NamedTuple):
    """Ranges of a number."""

    most: Range
    """Everything that can be computed: the range of the command line."""
    scripts: Range
    """Range of the page's endpoints; where the default is None, the least value stands for None."""
    page: Range
    """Range of the page's widgets."""


def within(most: Range, scripts: Range | None = None, page: Range | None = None) -> Limits:
    """Limits; a range that is not given equals the next wider one."""
    return Limits(most, scripts or most, page or scripts or most)


class Widget(NamedTuple):
    """How the page shows an option."""

    kind: Literal["slider", "choice", "number", "text"]
    label: str
    section: Literal["length", "main", "seed", "creativity", "key", "steering", "cutoff"]
    """The last four are the parts of Advanced, in their order."""
    info: str = ""
    """Line below the label; the option's help if empty."""
    step: float = 1
    """Step of a slider."""
    choices: tuple[str, ...] = ()
    """Labels of an option's words."""


class Option(NamedTuple):
    """A field of `MusicOptions`, as command line, scripts and page are built from it."""

    name: str
    kind: type[int | float | str]
    words: tuple[str, ...]
    """All values, if the option is a choice among words; else empty."""
    default: Any
    help: str
    limits: Limits | None
    widget: Widget | None
    only: Literal["prompt", "nothing"] | None
    """Which music it applies to, if not all: continuations, or pieces from nothing."""
    letter: str
    """Marks its value in the names of the page's files, where a, b, s, T, p and v are taken."""


def option(
    default: Any,  # noqa: ANN401 - a field of any type
    text: str,
    limits: Limits | None = None,
    *,
    widget: Widget | None = None,
    only: Literal["prompt", "nothing"] | None = None,
    letter: str = "",
) -> Any:  # noqa: ANN401
    """Declares a field of `MusicOptions`: see `Option`."""
    metadata = {"help": text, "limits": limits, "widget": widget, "only": only, "letter": letter}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class MusicOptions:
    """The options of music, with the defaults of command line, scripts and page.

    Raises ValueError for a value out of its range.
    """

    bars: int = option(
        16,
        "bars of new music",
        within((1, 4096), scripts=(1, 256), page=(1, 64)),
        widget=Widget("slider", "Length", "length", "How much new music is written."),
    )
    seconds: float | None = option(
        None,
        "length of the new music in seconds, in place of bars: it ends with the bar in which they "
        "are over",
        within((1, 3600), scripts=(0.0, 600.0), page=(1, 3600)),
    )
    prompt_bars: int = option(
        8,
        "bars of the prompt's end that the model hears; 0: as many as 16,384 tokens hold",
        within((0, None), scripts=(0, 1_000_000), page=(0, None)),
        only="prompt",
    )
    seed: int | None = option(
        None,
        "seed of the draws; a random one, which the result names, where not given",
        within((0, LARGEST_SEED), scripts=(-1, LARGEST_SEED), page=(0, LARGEST_SEED)),
        widget=Widget(
            "number", "Seed", "seed", "The same seed with the same settings makes the same music."
        ),
    )
    temperature: float = option(
        1.0,
        "below 1 safer, above 1 wilder",
        within((0.01, 10), scripts=(0.1, 2.0), page=(0.5, 1.5)),
        widget=Widget(
            "slider",
            "Temperature",
            "creativity",
            "Evens out how likely notes are: below 1 safer, above 1 wilder.",
            step=0.01,
        ),
    )
    top_p: float = option(
        0.95,
        "draw from the likeliest tokens that hold this share of probability",
        within((0, 1), scripts=(0.05, 1.0), page=(0.5, 1.0)),
        widget=Widget(
            "slider",
            "Top-p",
            "creativity",
            "Draws from the likeliest notes that hold this share of probability.",
            step=0.01,
        ),
    )
    top_k: int = option(
        0,
        "sample from this many of the most likely tokens; 0: from all",
        within((0, 1000), page=(0, 100)),
        widget=Widget("slider", "Top-k", "cutoff"),
        letter="k",
    )
    min_p: float = option(
        0.0,
        "draw from tokens at least this share as likely as the likeliest; 0: from all",
        within((0.0, 1.0), page=(0.0, 0.3)),
        widget=Widget("slider", "Min-p", "cutoff", step=0.01),
        letter="m",
    )
    key: str | None = option(
        None,
        "key or scale that the notes keep to, drums apart, such as C, F#m, Bb, D dorian or A minor "
        "pentatonic; as the model likes where not given",
        widget=Widget(
            "text",
            "Key",
            "key",
            "Key or scale that the notes keep to, such as C, F#m or D dorian.",
        ),
    )
    density: float = option(
        0.0,
        "notes per bar, all instruments together; 0: left to the model",
        within((0.0, 200.0), page=(0.0, 60.0)),
        widget=Widget("slider", "Density (notes in a bar)", "steering"),
        letter="d",
    )
    repetition: float = option(
        0.0,
        "how strongly to avoid bars that repeat note for note, more so the more often they were "
        "heard, up to 1; 0: left to the model",
        within((0.0, 1.0)),
        widget=Widget("slider", "Against repetition", "steering", step=0.05),
        letter="r",
    )
    presence: float = option(
        1.0,
        "how strongly instruments that have rested longer than in the prompt, or than two bars, "
        "are brought back in; 0: as the model likes",
        within((0.0, 1.0)),
        only="prompt",
        widget=Widget("slider", "Instruments go on playing", "steering", step=0.05),
        letter="c",
    )
    recall: float = option(
        1.0,
        "how strongly new music of several instruments takes up what they play in the prompt; "
        "0: as the model likes",
        within((0.0, 1.0)),
        only="prompt",
        widget=Widget("slider", "Like the prompt", "steering", step=0.05),
        letter="l",
    )
    ending: Literal["bar", "cadence"] = option(
        "bar",
        "bar: all notes are cut at the last bar line; cadence: the last bar comes to rest, and "
        "rings over it",
        widget=Widget(
            "choice",
            "Ending",
            "steering",
            "Cut at the last bar line, or a last bar that comes to rest.",
            choices=("Bar line", "Cadence"),
        ),
    )
    variations: int = option(
        1,
        "pieces made at once, with seeds that count up from the first",
        within((1, 64), scripts=(1, 4)),
        widget=Widget(
            "choice",
            "Variations",
            "main",
            "Pieces written at once, to choose from; each has its own seed.",
        ),
    )

    def __post_init__(self) -> None:
        for name, known in OPTIONS.items():
            value = getattr(self, name)
            if known.words and value not in known.words:
                raise ValueError(f"{name} is {value!r}, expected {' or '.join(known.words)}")
            if value is None or known.limits is None:
                continue
            least, most = known.limits.most
            if not (least <= value and (most is None or value <= most)):
                expected = f"at least {least}" if most is None else f"{least} to {most}"
                raise ValueError(f"{name.replace('_', ' ')} is {value}, expected {expected}")
        if self.seed is not None and self.seed + self.variations - 1 > LARGEST_SEED:
            raise ValueError(
                f"seed is {self.seed}, expected at most {LARGEST_SEED - self.variations + 1} for "
                f"{self.variations} variations, whose seeds count up"
            )
        if self.key is not None:
            pitch_classes(self.key)


def described(options: type[MusicOptions]) -> dict[str, Option]:
    """The fields of a class of options by name, in their order."""
    found: dict[str, Option] = {}
    hints = get_type_hints(options)
    for one in fields(options):
        hint = hints[one.name]
        words = get_args(hint) if get_origin(hint) is Literal else ()
        kind = next((kind for kind in (int, float) if kind in (hint, *get_args(hint))), str)
        found[one.name] = Option(one.name, kind, words, one.default, **one.metadata)
    return found


OPTIONS = described(MusicOptions)


def only_for(music: Literal["prompt", "nothing"]) -> tuple[str, ...]:
    """The options that only apply to continuations, or to pieces from nothing."""
    return tuple(name for name, known in OPTIONS.items() if known.only == music)


OF_PROMPT = only_for("prompt")
"""Fields without a meaning for pieces from nothing."""


def limits(name: str) -> Limits:
    """Ranges of an option that is a number."""
    found = OPTIONS[name].limits
    assert found is not None
    return found


def new_seed() -> int:
    """A random seed that leaves room for those of all variations."""
    return secrets.randbelow(LARGEST_SEED - int(limits("variations").most[1] or 0))


def with_seed(options: MusicOptions) -> MusicOptions:
    """The same options, with a random seed if they have none."""
    if options.seed is not None:
        return options
    return replace(options, seed=new_seed())
