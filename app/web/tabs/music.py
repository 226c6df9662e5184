"""The widgets of the workspace, among them the form in which `MusicOptions` are chosen."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from app.compose.options import METRES, OPTIONS, MusicOptions, Option, limits, new_seed
from app.compose.tracks import instrument_names
from app.web.assets import SCRIPTS, static
from app.web.cards import CARD_SCRIPT, sentence
from app.web.examples import EXAMPLES, Example
from app.web.refusals import short
from app.web.session import AUTOMATIC
from app.web.tabs.about import model_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gradio.components import Component

    from app.compose.models import Models

NEW_PIECE_VERB = f"Continue\nwrites a new piece of {MusicOptions.bars} bars"
NO_SPEED = "<p>The time is estimated after the model's first piece.</p>"
BEATS = [("As in the file", "file"), ("Estimated", "estimate"), ("120 bpm", "grid")]
"""Sources of beats, offered if the notes do not follow the file's beats."""
CREATIVITY = {"Safe": (0.95, 0.94), "Balanced": (1.0, 0.97), "Wild": (1.1, 0.99)}
"""Temperature and top-p of each choice."""
SECONDS = (5, 240, 30)
"""Least, greatest and initial length in seconds that the page offers."""
MOST_KEY_LETTERS = 40
"""Maximum length of the name of a key."""
_LONG = 1e15
"""Larger numbers are cut in messages."""
_TONICS = ("C", "Db", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")
OVER = tuple(
    name for name, option in OPTIONS.items() if option.widget and option.widget.section == "over"
)
"""The options that are asked for over the piano roll."""
FORM = tuple(name for name, option in OPTIONS.items() if option.widget is not None)
"""The options that have a widget."""


def explanation(option: Option) -> str:
    """Return what an option means, as a sentence."""
    return sentence((option.widget and option.widget.info) or option.help)


TITLES = {
    **{f"option-{name}": explanation(OPTIONS[name]) for name in FORM},
    "dice": "Draws a new seed and keeps it for the following pieces.",
    "fresh": "Draws a new seed for each piece; otherwise the seed stays the same.",
    "go-music": "Writes after the music that is shown, in its selected bars, or a new piece.",
    "again": "Repeats the last request, with another seed.",
    "new-piece": "Shows the empty bars of a piece from nothing.",
    "creativity": "Safe prefers likely notes, Wild allows less likely ones.",
    "stop-keep": "Stops generating and keeps the music so far.",
    "discard": "Stops generating and discards the music so far.",
    "go-study": "Makes all clips of the study.",
    "stop-study": "Stops making the study and discards its clips.",
    **{f"chip-{name}": f"{text[:1].upper()}{text[1:]}." for name, _, text in EXAMPLES},
}
"""Tooltips, by CSS class, of widgets that have no room for a line below them."""
AUTOMATIC_TITLE = "A model that suits your piece and can do what you ask for."
"""Tooltip of the automatic choice."""
ANY = ("any", "")
"""The first choice of a list."""
KEYS = [f"{tonic}{mode}" for mode in ("", "m") for tonic in _TONICS]
"""The keys that are listed; other scales can be typed."""


class UploadWidgets(NamedTuple):
    """Widgets that take a file and describe it."""

    file: gr.File
    examples: list[tuple[Example, gr.Button]]
    new_piece: gr.Button
    card: gr.HTML
    beats: gr.Radio


class Form(NamedTuple):
    """Widgets of the options, in the order of values of `begin` and `fill_form`."""

    unit: gr.Radio
    fresh: gr.Checkbox
    creativity: gr.Radio
    options: dict[str, Any]
    """Components of the options of `FORM` by name; `bars` has the length in either unit, and those
    of `OVER` are not rendered yet."""
    dice: gr.Button

    @property
    def asked(self) -> list[Component]:
        """Inputs of `begin`: unit, whether to draw a new seed, options."""
        return [self.unit, self.fresh, *self.options.values()]

    @property
    def filled(self) -> list[Component]:
        """Widgets that the settings of a piece set: see `widget_values`."""
        return [self.creativity, *self.asked]


class Action(NamedTuple):
    """The buttons that begin and end a job, and the estimate of its duration."""

    go: gr.Button
    again: gr.Button
    stop: gr.Button
    discard: gr.Button
    estimate: gr.HTML


class MusicWidgets(NamedTuple):
    """All widgets of the workspace."""

    upload: UploadWidgets
    model: gr.Radio
    form: Form
    listen: gr.Checkbox
    action: Action


def build_music_tab(models: Models) -> MusicWidgets:
    """Build the tab in which music is continued, written again, or generated from nothing."""
    with gr.Tab("Write", id="write", elem_id="write-tab", render_children=True):
        upload = _upload()
        with gr.Column(elem_classes="length"):
            left = _of_section("left", ["bars"])
            unit = gr.Radio(
                [("bars", "bars"), ("seconds", "seconds")],
                value="bars",
                label="Unit of the length",  # for screen readers
                show_label=False,
                container=False,
                elem_classes=["segments", "unit"],
            )
            gr.HTML(
                elem_classes="length-note",
                apply_default_css=False,
                js_on_load=SCRIPTS.script("length.js"),
            )
        left |= _of_section("left", ["ending"])
        creativity = gr.Radio(
            list(CREATIVITY),
            value="Balanced",
            label="Creativity",
            elem_classes=["segments", "creativity"],
        )
        left |= _of_section("left", ["variations"])
        with gr.Accordion("Expert", open=False, elem_classes="expert"):
            model = _model(models)
            with gr.Row(elem_classes="seed"):
                expert = _of_section("expert", ["seed"])
                dice = gr.Button("Roll the dice", elem_classes="dice")
                fresh = gr.Checkbox(
                    True, label="new each time", container=False, elem_classes="fresh"
                )
            expert |= _of_section("expert", [name for name in FORM if name != "seed"])
        # Gradio leaves out what is folded until it is unfolded, and a recording ticks this one
        listen = gr.Checkbox(
            label="Listen while it is written",
            info="Bars are played as soon as they can be without a gap.",
            elem_id="write-listen",
        )
        over = _of_section("over", FORM, render=False)
        widgets = {**left, **over, **expert}
        options = {name: widgets[name] for name in FORM}
        form = Form(unit, fresh, creativity, options, dice)
        return MusicWidgets(upload, model, form, listen, _action())


def _of_section(section: str, names: Iterable[str], **how: bool) -> dict[str, Component]:
    """Return new widgets of the options in a section that are among `names`."""
    options = [OPTIONS[name] for name in names]
    return {
        one.name: _widget(one, **how)
        for one in options
        if one.widget and one.widget.section == section
    }


def _upload() -> UploadWidgets:
    gr.HTML("<h2>Source</h2>", elem_classes="source", apply_default_css=False)
    file = gr.File(
        label="Your piece (MIDI or MusicXML)",
        elem_classes="upload",
        elem_id="write-upload",
        height=52,
    )
    with gr.Row(elem_classes="sources"):
        with gr.Row(elem_classes="examples"):
            new_piece = gr.Button("New piece", size="sm", elem_classes=["chip", "new-piece"])
            examples = [
                (example, gr.Button(example.label, size="sm", elem_classes=classes))
                for example in EXAMPLES
                for classes in [["chip", f"chip-{example.name}"]]
            ]
        gr.HTML(
            static("play/play.html"),
            elem_id="write-play",
            apply_default_css=False,
            js_on_load=SCRIPTS.script("play/play.js"),
        )
    # above the card, so that its notice is visible at once on a small screen
    beats = gr.Radio(
        BEATS,
        value="file",
        label="Beats",
        info="The source of bars and beats.",
        visible=False,
        elem_classes=["segments", "beats"],
    )
    card = gr.HTML(
        elem_classes="facts",
        elem_id="write-facts",
        apply_default_css=False,
        js_on_load=CARD_SCRIPT,
    )
    return UploadWidgets(file, examples, new_piece, card, beats)


def titles_of(models: Models) -> list[tuple[str, str]]:
    """Return the tooltips of the page, also of the models, by CSS selectors after a dot."""
    titles = [(AUTOMATIC, AUTOMATIC_TITLE), *((n, model_line(models, n)) for n in models.names)]
    of_models = [(f"model label:has([value={json.dumps(name)}])", text) for name, text in titles]
    return [*TITLES.items(), *of_models]


def _model(models: Models) -> gr.Radio:
    """Return the choice of a model; its line says what the model is for, and its size."""
    return gr.Radio(
        [("Automatic", AUTOMATIC), *((name, name) for name in models.names)],
        value=AUTOMATIC,
        label="Model",
        info=AUTOMATIC_TITLE,
        visible=len(models.names) > 1,
        elem_classes=["segments", "model"],
    )


def _action() -> Action:
    with gr.Column(elem_classes="action"):
        go = gr.Button(NEW_PIECE_VERB, variant="primary", elem_classes=["go", "go-music"])
        again = gr.Button("Another try", visible=False, elem_classes="again")
        classes = ["go", "stop-keep"]
        stop = gr.Button("Stop and keep", variant="stop", visible=False, elem_classes=classes)
        discard = gr.Button("Stop and discard", visible=False, elem_classes="discard")
        estimate = gr.HTML(NO_SPEED, elem_classes="estimate", apply_default_css=False)
    return Action(go, again, stop, discard, estimate)


# the form


def _widget(option: Option, *, render: bool = True) -> Component:
    shown, value = option.widget, option.default
    assert shown is not None
    classes = [f"option-{option.name}"]
    # in the left column and over the roll, a tooltip explains
    info = explanation(option) if shown.section == "expert" else None
    how: dict[str, Any] = {"label": shown.label, "info": info, "elem_classes": classes}
    how["render"] = render
    if shown.kind == "text":
        how |= {"placeholder": "any", "max_length": shown.letters}
        return gr.Textbox(value or "", **how)
    if shown.kind == "list":
        choices = {"key": KEYS, "metre": METRES}.get(option.name, [])
        return gr.Dropdown([ANY, *choices], value="", allow_custom_value=True, **how)
    if shown.kind == "several":
        names = ["Drums", *instrument_names()]
        return gr.Dropdown(names, value=[], multiselect=True, **how)
    if shown.kind == "number":
        return gr.Number(new_seed(), precision=0, buttons=[], **how)
    if option.words or shown.kind == "choice":
        classes.append("segments")
    if option.words:
        # values without a label are not on the page
        choices = list(zip(shown.choices, option.words, strict=False))
        return gr.Radio(choices, value=value, **how)
    least, most = limits(option.name).page
    assert most is not None
    if shown.kind == "choice":
        return gr.Radio(list(range(int(least), int(most) + 1)), value=value, **how)
    return gr.Slider(least, most, value=value, step=shown.step, buttons=[], **how)


def form_problem(unit: object, values: Mapping[str, object]) -> str:
    """Return the first field whose value cannot be used, in one sentence; empty if there is none.

    Values are as sent, and may have any type. Lengths may be as long as for scripts.
    """
    if unit not in ("bars", "seconds"):
        return f"Unit of the length is {short(unit)}, expected bars or seconds."
    for name, value in values.items():
        option = OPTIONS[name]
        if option.widget is None:
            continue
        label = option.widget.label
        if option.words:
            if value not in option.words:
                return f"{label} is {short(value)}, expected {' or '.join(option.words)}."
        elif name == "tempo" and tempo_of(value) is None:
            continue
        elif option.kind is str:
            if isinstance(value, list):
                value = text_of(value)
            if not (value is None or (isinstance(value, str) and value.isprintable())):
                return f"{label} is {short(value)}, expected text."
            if name != "key" and (problem := _text_problem(name, value)):
                return problem
        elif problem := _number_problem(name, tempo_of(value) if name == "tempo" else value, unit):
            return f"{label} is {problem}."
    return key_problem(values.get("key"))


def _text_problem(name: str, text: str | None) -> str:
    """Return what is wrong with the text of an option, in one sentence; empty if nothing is."""
    if text is None or not text.strip():
        return ""
    asked: dict[str, Any] = {name: text.strip()}
    try:
        MusicOptions(**asked)
    except ValueError as error:
        return sentence(str(error))
    return ""


def _number_problem(name: str, value: object, unit: object) -> str:
    """Return what is wrong with the value of a field for numbers; empty if nothing is."""
    if value is None or value == "" or value != value:  # NaN
        return "empty; enter a number"
    of_seconds = name == "bars" and unit == "seconds"
    ranges = limits("seconds" if of_seconds else name)
    least, most = ranges.scripts if name == "bars" and not of_seconds else ranges.page
    whole = OPTIONS[name].kind is int and not of_seconds
    if isinstance(value, int | float) and not isinstance(value, bool):
        if least <= value <= (math.inf if most is None else most) and not (whole and value % 1):
            return ""
        text = f"{value:,}" if abs(value) < _LONG else short(value)
    else:
        text = short(value)
    expected = f"{'a whole number' if whole else 'a number'} from {least:,} to {most:,}"
    return f"{text}, expected {expected}; change it"


def options_of(unit: str, values: Mapping[str, Any]) -> MusicOptions:
    """Return the options of a form, from the values of its widgets by name.

    Raises ValueError for a value out of its range.
    """
    options = dict(values)
    length = options.pop("bars")
    for name, value in options.items():
        if OPTIONS[name].kind is int:
            options[name] = int(value)
        elif OPTIONS[name].kind is str and OPTIONS[name].default is None:
            options[name] = text_of(value).strip() or None
        elif name == "tempo":
            options[name] = tempo_of(value)
    options |= {"seconds": length} if unit == "seconds" else {"bars": int(length)}
    return MusicOptions(**options)


def text_of(value: object) -> str:
    """Return the text of a field; the choices of several are separated by commas."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else ""


def tempo_of(value: object) -> Any:  # noqa: ANN401
    """Return the number in the text of a field; None if it is empty, or the text if it is none."""
    try:
        return float(value) if isinstance(value, str) and value.strip() else value or None
    except ValueError:
        return value


def widget_values(options: MusicOptions) -> list[object]:
    """Return the settings of a piece as the values of `Form.filled`."""
    values = {name: getattr(options, name) for name in FORM}
    values |= {name: "" for name, value in values.items() if value is None}
    values["tempo"] = "" if options.tempo is None else f"{options.tempo:g}"
    values["band"] = [one.strip() for one in options.band.split(",")] if options.band else []
    values["bars"] = length_slider(options)
    unit = "seconds" if options.seconds is not None else "bars"
    return [mood_of(options.temperature, options.top_p), unit, False, *values.values()]


def of_unit(unit: str) -> gr.Slider:
    """Return the slider of the length, in bars or seconds."""
    return length_slider(MusicOptions(seconds=SECONDS[2]) if unit == "seconds" else MusicOptions())


def length_slider(options: MusicOptions) -> gr.Slider:
    """Return the slider of the length, with the bars or seconds of the options."""
    if options.seconds is not None:
        least, most, _ = SECONDS
        least, most = min(least, options.seconds), max(most, options.seconds)
        return gr.Slider(minimum=least, maximum=most, value=options.seconds, step=1)
    least, most = limits("bars").page
    most = max(most or 0, options.bars)
    return gr.Slider(minimum=least, maximum=most, value=options.bars, step=1)


def mood_of(temperature: float, top_p: float) -> str | None:
    """Return the choice of creativity with this temperature and top-p; None if there is none."""
    return next((name for name, pair in CREATIVITY.items() if pair == (temperature, top_p)), None)


def roll_dice() -> tuple[int, bool]:
    """Return a random seed, and False for "new each time"."""
    return new_seed(), False


def key_problem(key: object) -> str:
    """Return the problem with the name of a key, in one short sentence; empty if there is none."""
    if not isinstance(key, str) or not key.strip():
        return ""
    try:
        MusicOptions(key=key)
    except ValueError:
        name = key if len(key) <= MOST_KEY_LETTERS else f"{key[:MOST_KEY_LETTERS]} …"
        return f"“{name}” is not a known key or scale; enter one such as C, F#m, Bb or D dorian."
    return ""


def not_of_page(options: MusicOptions) -> str:
    """Return the options beyond the page's ranges, in one sentence; empty if there are none.

    Lengths may be as long as for scripts.
    """
    wrong: list[str] = []
    for name, option in OPTIONS.items():
        value = getattr(options, name)
        if value is None or option.limits is None:
            continue
        least, most = option.limits.scripts if name == "bars" else option.limits.page
        if value < least or (most is not None and value > most):
            words = name.replace("_", "-" if name in ("top_p", "top_k", "min_p") else " ")
            expected = f"{least:g}" if least == most else f"{least:g} to {most:g}"
            wrong.append(f"{words} is {value:g}, expected {expected}")
    if not wrong:
        return ""
    return f"The page cannot use these settings: {'; '.join(wrong)}. Use the command relpe replay."
