"""The music options, declared once for the command line, scripts and the page.

To add an option, add a field to `MusicOptions` and the code that applies it. Arguments, script
endpoints, widgets and file names are built from `OPTIONS`. This module does not import PyTorch.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, fields, replace
from string import ascii_uppercase
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from app.compose.fill.passage import find_band
from tokenization.analysis.keys import pitch_classes
from tokenization.midi.drums import parse_drums
from tokenization.plan_text import parse_chart, parse_form

LARGEST_SEED = 2**31 - 1

BeatSource = Literal["auto", "file", "estimate", "grid"]
"""Source of a prompt's beats: its file, an estimate from its notes, or 120 beats a minute.

`auto` is the file, unless its notes do not follow its beats, as in a recording: then an estimate.
"""

Ending = Literal["auto", "bar", "cadence", "natural"]
"""How new music ends; `with_ending` decides what `auto` is."""

MAX_FILE_BYTES = 10_000_000
"""Default maximum size of a MIDI file."""
NEW_PIECE_BARS = 32
"""Default length of a piece from nothing."""
MAX_SECONDS = 600.0
"""Maximum generation time of a job of the page."""
MAX_WAITING = 8
"""Default maximum number of jobs in the queue of a model on the page."""

METRES = ("2/4", "3/4", "4/4", "5/4", "6/4", "7/8", "9/8", "12/8")
"""Metres that can be asked for, of different lengths: the tokens do not tell 6/8 from 3/4."""

Range = tuple[float, float | None]
"""Least and greatest value, or None for no upper bound; integers if the option is an integer."""


MOST_ROWS = 32
"""Most sequences for one result: variations times takes."""


class Limits(NamedTuple):
    """Ranges of an option that is a number."""

    most: Range
    """Range of the command line: all values that can be computed."""
    scripts: Range
    """Range of the script endpoints. If the default is None, the least value means None."""
    page: Range
    """Range of the widget on the page."""


def within(most: Range, scripts: Range | None = None, page: Range | None = None) -> Limits:
    """Build `Limits`; a range that is not given equals the next wider one."""
    return Limits(most, scripts or most, page or scripts or most)


class Widget(NamedTuple):
    """How the page shows an option."""

    kind: Literal["slider", "choice", "number", "text", "list", "several"]
    """A `list` can be searched, and so can one of which `several` are chosen."""
    label: str
    section: Literal["left", "over", "expert"]
    """In the left column, over the piano roll, or under *Expert*."""
    info: str = ""
    """Text below the label; if empty, the option's help."""
    step: float = 1
    """Step of a slider."""
    letters: int = 40
    """Maximum length of a text."""
    choices: tuple[str, ...] = ()
    """Labels of the values of a choice; the page does not have the last ones without a label."""


class Option(NamedTuple):
    """A field of `MusicOptions`, from which arguments, endpoints and widgets are built."""

    name: str
    kind: type[int | float | str]
    words: tuple[str, ...]
    """The values of a choice; empty for other options."""
    default: Any
    help: str
    limits: Limits | None
    widget: Widget | None
    only: Literal["prompt", "nothing"] | None
    """Set if it applies only to continuations, or only to pieces from nothing."""
    letter: str
    """Letter before its value in the names of the page's files; a, b, h, i, p, s, T, t and v are
    taken."""


def option(
    default: Any,  # noqa: ANN401 - a field of any type
    text: str,
    limits: Limits | None = None,
    *,
    widget: Widget | None = None,
    only: Literal["prompt", "nothing"] | None = None,
    letter: str = "",
) -> Any:  # noqa: ANN401
    """Declare a field of `MusicOptions`; `Option` describes the arguments."""
    metadata = {"help": text, "limits": limits, "widget": widget, "only": only, "letter": letter}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class MusicOptions:
    """Music options, with the defaults of the command line, scripts and the page.

    Raises ValueError for a value outside its range.
    """

    bars: int = option(
        16,
        "bars of new music",
        within((1, 4096), scripts=(1, 256), page=(1, 64)),
        widget=Widget("slider", "Length", "left"),
    )
    seconds: float | None = option(
        None,
        "length of the new music in seconds instead of bars; the last bar is completed",
        within((1, 3600), scripts=(0.0, 600.0), page=(1, 3600)),
    )
    prompt_bars: int = option(
        0,
        "number of bars that the model reads before the new music, and if a part of a piece is "
        "written, also after it; 0: all, or as many as fit into 16,384 tokens",
        within((0, None), scripts=(0, 1_000_000), page=(0, None)),
        only="prompt",
    )
    beats: Literal["auto", "file", "estimate", "grid"] = option(
        "auto",
        "source of the prompt's bars and beats: its file; an estimate from the notes, for recorded "
        "performances; a grid of 120 beats per minute; or auto, the file unless its notes do not "
        "follow its beats, in which case they are estimated",
        only="prompt",
    )
    drums: str | None = option(
        None,
        "tracks that are drums, by their numbers from 1, such as 2,5, or none; all others are "
        "melodies (default: what the file says, else by names and notes)",
        only="prompt",
    )
    seed: int | None = option(
        None,
        "random seed (default: a new seed, which is reported)",
        within((0, LARGEST_SEED), scripts=(-1, LARGEST_SEED), page=(0, LARGEST_SEED)),
        widget=Widget(
            "number", "Seed", "expert", "The same seed and settings give the same music."
        ),
    )
    distance: float = option(
        0.0,
        "how far the new music is from the prompt: the share of its bars, from 0 to 1, that must "
        "not have the notes of a bar of the prompt; 0.25: every fourth bar, 0: chosen by the model",
        within((0.0, 1.0)),
        only="prompt",
        widget=Widget(
            "slider",
            "How far from the prompt",
            "expert",
            "The share of the new bars that must not copy a whole bar of your piece: 0.25 is every "
            "fourth bar, 1 all of them. 0: the model chooses.",
            step=0.125,
        ),
        letter="f",
    )
    temperature: float = option(
        1.0,
        "sampling temperature; lower is more predictable, higher more varied",
        within((0.01, 10), scripts=(0.1, 2.0), page=(0.5, 1.5)),
        widget=Widget(
            "slider",
            "Temperature",
            "expert",
            "Lower is more predictable, higher more varied.",
            step=0.01,
        ),
    )
    top_p: float = option(
        0.97,
        "sample only from the most likely tokens that together have this probability",
        within((0, 1), scripts=(0.05, 1.0), page=(0.5, 1.0)),
        widget=Widget(
            "slider",
            "Top-p",
            "expert",
            "Sample only from the most likely notes that together have this probability.",
            step=0.01,
        ),
    )
    top_k: int = option(
        0,
        "sample only from the N most likely tokens; 0: from all",
        within((0, 1000), page=(0, 100)),
        widget=Widget("slider", "Top-k", "expert"),
        letter="k",
    )
    min_p: float = option(
        0.0,
        "sample only from tokens at least this fraction as likely as the most likely one; 0: from "
        "all",
        within((0.0, 1.0), page=(0.0, 0.3)),
        widget=Widget("slider", "Min-p", "expert", step=0.01),
        letter="m",
    )
    key: str | None = option(
        None,
        "key or scale of the new notes except drums, such as C, F#m, Bb, D dorian or A minor "
        "pentatonic (default: chosen by the model)",
        widget=Widget(
            "list",
            "Key",
            "over",
            "Key or scale of the new notes, such as C, F#m or D dorian.",
        ),
    )
    form: str | None = option(
        None,
        "sections of the new music with their numbers of bars, such as A8 B8 A8; letters of a "
        "piece that is continued (see relpe inspect) bring its sections back "
        "(default: chosen by the model)",
        widget=Widget(
            "text",
            "Form",
            "over",
            "Sections with their bars, such as B8 A8. A letter of your piece brings its section "
            "back.",
            letters=200,
        ),
    )
    chords: str | None = option(
        None,
        "chords of the new music, bars separated by |, such as 'Am | F | C | G7 E7'; %% repeats "
        "the bar before, ? leaves a bar to the model, and a shorter chart repeats "
        "(default: chosen by the model)",
        widget=Widget(
            "text",
            "Chords",
            "over",
            "One or two a bar, such as Am | F | C | G7 E7; fewer bars repeat, and ? leaves a bar "
            "to the model.",
            letters=2000,
        ),
    )
    style: str | None = option(
        None,
        "style of the new music, one of those of the model, such as waltz "
        "(default: chosen by the model)",
        widget=Widget("list", "Style", "over"),
    )
    tempo: float | None = option(
        None,
        "tempo of the piece in quarter notes per minute (default: chosen by the model)",
        within((20, 300), scripts=(0, 300), page=(20, 300)),
        only="nothing",
        widget=Widget("text", "Tempo", "over", letters=6),
        letter="q",
    )
    metre: str | None = option(
        None,
        f"metre of the piece, one of {', '.join(METRES)} (default: chosen by the model)",
        only="nothing",
        widget=Widget("list", "Metre", "over"),
    )
    band: str | None = option(
        None,
        "instruments that play, separated by commas, such as 'drums, acoustic bass, "
        "electric piano 1': names of General MIDI (default: chosen by the model)",
        only="nothing",
        widget=Widget("several", "Band", "over", letters=400),
    )
    density: float = option(
        0.0,
        "approximate number of notes per bar, all instruments together; 0: chosen by the model",
        within((0.0, 200.0), page=(0.0, 60.0)),
        widget=Widget("slider", "Density (notes per bar)", "expert"),
        letter="d",
    )
    repetition: float = option(
        0.0,
        "how strongly to avoid repeating bars note for note, from 0 (off) to 1; the effect grows "
        "with each repetition",
        within((0.0, 1.0), page=(0.0, 0.0)),
        letter="r",
    )
    presence: float = option(
        1.0,
        "how strongly to bring back instruments that rest longer than they do in the prompt, or "
        "longer than two bars, from 0 (off) to 1",
        within((0.0, 1.0)),
        only="prompt",
        widget=Widget("slider", "Keep instruments playing", "expert", step=0.05),
        letter="c",
    )
    recall: float = option(
        1.0,
        "how strongly instruments reuse what they play in the prompt, from 0 (off) to 1; applies "
        "to several instruments only",
        within((0.0, 1.0), page=(1.0, 1.0)),
        only="prompt",
        letter="l",
    )
    memory: float = option(
        1.0,
        "how strongly earlier bars of the piece come back, from 0 (off) to 1 (as in real music); "
        "models without a pointer ignore it",
        within((0.0, 1.0)),
        widget=Widget(
            "slider",
            "How much comes back",
            "expert",
            "How strongly earlier bars of the piece come back, from 0 (off) to 1 (as in real "
            "music).",
            step=0.05,
        ),
        letter="e",
    )
    ending: Literal["auto", "bar", "cadence", "natural"] = option(
        "auto",
        "bar: all notes end at the last bar line; cadence: the music comes to rest in the last bar "
        "on the tonic, and may ring beyond it; natural: the model ends the piece in the last bar; "
        "auto: bar after a piece, cadence in a piece from nothing",
        widget=Widget(
            "choice",
            "Ending",
            "left",
            "End all notes at the last bar line, come to rest on the tonic in the last bar, or let "
            "the model end the piece. Auto: a cadence without a prompt, otherwise bar line.",
            choices=("Auto", "Bar line", "Cadence", "Natural"),
        ),
    )
    variations: int = option(
        1,
        "number of pieces to generate at once, with consecutive seeds",
        within((1, 64), scripts=(1, 4)),
        widget=Widget(
            "choice",
            "Variations",
            "left",
            "Number of pieces to choose from; each has its own seed.",
        ),
    )

    takes: int = option(
        8,
        "number of takes of each piece, with seeds of their own, of which the one most like real "
        "music is kept; fewer if variations times takes are over 32",
        within((1, 32), page=(1, 8)),
        widget=Widget(
            "slider",
            "Takes",
            "expert",
            "Number of versions generated for each variation; the one most like real music is "
            "kept.",
        ),
        letter="n",
    )
    rank_every: int = option(
        0,
        "bars after which the takes so far are ranked and all go on from the best; 0: they are "
        "ranked at the end only",
        within((0, 4096), scripts=(0, 256), page=(0, 0)),
        letter="g",
    )
    study: float = option(
        0.0,
        "seconds, from 0 (off) to 60, in which the model studies the prompt before it writes; what "
        "it learns is for this piece only",
        within((0.0, 60.0)),
        only="prompt",
        widget=Widget(
            "slider",
            "Study the piece first",
            "expert",
            "Seconds in which the model learns your piece before it writes; 0: none.",
        ),
        letter="u",
    )
    study_steps: int = option(
        0,
        "number of steps of this study instead of seconds, as in saved settings; 0: as many as "
        "help in the seconds",
        within((0, 1000), page=(0, 0)),
        only="prompt",
    )

    @property
    def num_takes(self) -> int:
        """Number of takes of each piece: `takes`, or as many as `MOST_ROWS` allow."""
        return max(min(self.takes, MOST_ROWS // self.variations), 1)

    def __post_init__(self) -> None:
        for name, entry in OPTIONS.items():
            value = getattr(self, name)
            if entry.words and value not in entry.words:
                *others, last = entry.words
                expected = f"{', '.join(others)} or {last}"
                raise ValueError(f"{name} is {value!r}, expected {expected}")
            if value is None or entry.limits is None:
                continue
            least, most = entry.limits.most
            if not (least <= value and (most is None or value <= most)):
                expected = f"at least {least}" if most is None else f"{least} to {most}"
                raise ValueError(f"{name.replace('_', ' ')} is {value}, expected {expected}")
        if self.seed is not None and self.seed + self.variations - 1 > LARGEST_SEED:
            raise ValueError(
                f"seed is {self.seed}, expected at most {LARGEST_SEED - self.variations + 1}: "
                f"{self.variations} variations have consecutive seeds"
            )
        if self.drums is not None:
            parse_drums(self.drums)
        if self.key is not None:
            pitch_classes(self.key)
        if self.metre is not None and self.metre not in METRES:
            raise ValueError(f"metre is {self.metre!r}, expected one of {', '.join(METRES)}")
        if self.band is not None:
            find_band(self.band)
        if self.chords is not None:
            parse_chart(self.chords)
        if self.form is not None:
            parse_form(self.form, ascii_uppercase)  # letters may be those of the prompt


def described(options: type[MusicOptions]) -> dict[str, Option]:
    """Return the fields of an options class by name, in order of declaration."""
    options_by_name: dict[str, Option] = {}
    hints = get_type_hints(options)
    for one in fields(options):
        hint = hints[one.name]
        words = get_args(hint) if get_origin(hint) is Literal else ()
        kind = next((kind for kind in (int, float) if kind in (hint, *get_args(hint))), str)
        options_by_name[one.name] = Option(one.name, kind, words, one.default, **one.metadata)
    return options_by_name


OPTIONS = described(MusicOptions)


def only_for(music: Literal["prompt", "nothing"]) -> tuple[str, ...]:
    """Return the options that only apply to continuations, or to pieces from nothing."""
    return tuple(name for name, entry in OPTIONS.items() if entry.only == music)


OF_PROMPT = only_for("prompt")
"""Options that only apply to continuations."""
OF_NOTHING = only_for("nothing")
"""Options that only apply to pieces from nothing."""


STUDYING = ("study", "study_steps")
"""Options that batches lack: a model that studies a piece writes that piece alone."""


def limits(name: str) -> Limits:
    """Return the ranges of an option that is a number."""
    ranges = OPTIONS[name].limits
    assert ranges is not None
    return ranges


def new_seed() -> int:
    """Return a random seed, small enough for consecutive seeds of all variations."""
    return secrets.randbelow(LARGEST_SEED - int(limits("variations").most[1] or 0))


def with_ending(options: MusicOptions, *, from_nothing: bool) -> MusicOptions:
    """Return the options, in which the ending is not `auto`."""
    if options.ending != "auto":
        return options
    return replace(options, ending="cadence" if from_nothing else "bar")


def with_seed(options: MusicOptions) -> MusicOptions:
    """Return the options, with a random seed if they have none."""
    if options.seed is not None:
        return options
    return replace(options, seed=new_seed())
