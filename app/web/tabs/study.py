"""The tab *Study*: a form for the configuration of a listening study, as `relpe batch` reads it."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from app.batch.clips import unique_names
from app.batch.study import (
    ModelConfig,
    RealConfig,
    ShuffledBarsConfig,
    ShuffledNotesConfig,
    StudyConfig,
)
from app.errors import CommandError
from app.server.studies import MOST_CLIPS, PROMPTS
from app.text import plural
from app.web.assets import SCRIPTS
from app.web.tabs.music import CREATIVITY

if TYPE_CHECKING:
    from collections.abc import Sequence

REAL = {
    "Real continuation": RealConfig,
    "Shuffled bars": ShuffledBarsConfig,
    "Shuffled notes": ShuffledNotesConfig,
}
"""Conditions that are made of the bars after the prompt in its file, by their labels."""
MOST_BARS, MOST_REPETITIONS, MOST_CLIP_BARS = 32, 10, 8
SOUNDS = {"WAV": "wav", "FLAC": "flac", "MIDI only": None}
CLIPS = {"With the prompt": "tail", "New music only": "new"}
LEAD = (
    "Makes the clips of a listening test: every condition continues every prompt, under names that "
    "do not reveal the condition. The result is a ZIP file for <code>relpe listen</code> and for "
    "webMUSHRA."
)
NOTHING = (
    "<p>The study and its configuration appear here. The command <code>relpe batch</code> makes "
    "the same clips from this configuration.</p>"
)


FIELDS = (
    *("name", "last_bar", "models", "moods", "real", "bars", "repetitions", "clip", "clip_bars"),
    *("audio", "seed"),
)
"""Names of the values of the form, in the order of its widgets."""


class StudyForm(NamedTuple):
    """Widgets of the tab."""

    files: gr.File
    asked: list[Any]
    """The widgets of `FIELDS`."""
    go: gr.Button
    stop: gr.Button
    size: gr.HTML
    result: gr.HTML


def build_study_tab(models: Sequence[str]) -> StudyForm:
    """Build the tab; `models` are the names that can be chosen."""
    with (
        gr.Tab("Study", id="study", elem_id="study-tab", render_children=True),
        gr.Row(elem_id="study"),
    ):
        with gr.Column(elem_classes="study-form"):
            gr.HTML(f"<p class='lead'>{LEAD}</p>", apply_default_css=False)
            asked: dict[str, Any] = {
                "name": gr.Textbox(
                    "A listening study",
                    label="Title",
                    max_length=100,
                    info="Seeds and names of clips depend on it.",
                ),
            }
            files = gr.File(
                label="Prompts (MIDI)",
                file_count="multiple",
                elem_classes=["upload", "prompts"],
                elem_id="study-upload",
                height=84,
            )
            asked["last_bar"] = _number(
                "Last bar of the prompts",
                "Later bars are the real continuation. 0: the whole file is the prompt.",
            )
            asked["models"] = _several(models, models[:1], "Models", "Each generates clips.")
            asked["moods"] = _several(
                list(CREATIVITY),
                ["Balanced"],
                "Creativity",
                "Settings of the models; each choice is a condition of its own.",
            )
            asked["real"] = _several(
                list(REAL),
                [],
                "Other conditions",
                "Real music, and low anchors made of it. They need the last bar of the prompts.",
            )
            asked["bars"] = _slider(MOST_BARS, 8, "Length", "Bars of new music.")
            of_each = "Clips of each prompt and condition; real music has one."
            asked["repetitions"] = _slider(MOST_REPETITIONS, 1, "Repetitions", of_each)
            asked["clip"] = _one(
                list(CLIPS.items()),
                "Clips",
                "The last bars of the prompt and the new music, or only the new music.",
            )
            at_start = "At the start of each clip with the prompt."
            asked["clip_bars"] = _slider(MOST_CLIP_BARS, 4, "Bars of the prompt", at_start)
            equally_loud = "All clips of a prompt are equally loud. webMUSHRA needs WAV."
            asked["audio"] = _one([(name, name) for name in SOUNDS], "Sound", equally_loud)
            asked["seed"] = _number("Seed", "The same seed and form give the same clips.")
            with gr.Column(elem_classes="action"):
                go = gr.Button("Make the study", variant="primary", elem_classes=["go", "go-study"])
                stop = gr.Button(
                    "Stop", variant="stop", visible=False, elem_classes=["go", "stop-study"]
                )
                count = gr.HTML(elem_classes="estimate", apply_default_css=False)
        result = gr.HTML(
            NOTHING,
            elem_id="study-result",
            apply_default_css=False,
            js_on_load=SCRIPTS.script("study.js"),
        )
    return StudyForm(files, [asked[name] for name in FIELDS], go, stop, count, result)


def _number(label: str, info: str) -> gr.Number:
    """Return a whole number that is not negative, at first 0."""
    return gr.Number(0, label=label, info=info, precision=0, minimum=0, buttons=[])


def _slider(most: int, value: int, label: str, info: str) -> gr.Slider:
    """Return a number from 1 to `most`."""
    return gr.Slider(1, most, value=value, step=1, label=label, info=info, buttons=[])


def _one(choices: Sequence[tuple[str, str]], label: str, info: str) -> gr.Radio:
    """Return one of some choices, at first the first one."""
    first = choices[0][1]
    return gr.Radio(list(choices), value=first, label=label, info=info, elem_classes="segments")


def _several(
    names: Sequence[str], selected: Sequence[str], label: str, info: str
) -> gr.CheckboxGroup:
    return gr.CheckboxGroup(
        list(names), value=list(selected), label=label, info=info, elem_classes="several"
    )


def study_of(values: dict[str, Any], files: Sequence[Path]) -> tuple[StudyConfig, list[str]]:
    """Return the configuration of a form, and the names of its prompts in the order of `files`.

    Raises CommandError, in one sentence, if a value cannot be used.
    """
    names = [f"{name}.mid" for name in unique_names(path.stem for path in files)]
    has_one_mood = len(values["moods"]) == 1
    try:
        conditions: list[Any] = []
        for model in values["models"]:
            for mood in values["moods"]:
                temperature, top_p = CREATIVITY[mood]
                is_default = mood == "Balanced"
                options = {} if is_default else {"temperature": temperature, "top_p": top_p}
                name = model if has_one_mood else f"{model}, {mood.lower()}"
                conditions.append(ModelConfig(name=name, model=model, options=options))
        conditions += [REAL[name]() for name in values["real"]]
        if not conditions:
            raise ValueError("Choose at least one model with a creativity, or another condition")
        if values["real"] and not files:
            raise ValueError(f"Upload the prompts: {values['real'][0]!r} is made of their bars")
        if values["real"] and not values["last_bar"]:
            raise ValueError(
                f"Enter the last bar of the prompts: {values['real'][0]!r} is made of the bars "
                "after it"
            )
        for name, label in (("bars", "Length"), ("repetitions", "Repetitions"), ("seed", "Seed")):
            if values[name] is None:
                raise ValueError(f"{label} is empty; enter a number")
        study = StudyConfig(
            name=values["name"].strip(),
            seed=int(values["seed"]),
            prompts=tuple(Path(PROMPTS) / name for name in names),
            last_bar=int(values["last_bar"] or 0) or None,
            conditions=tuple(conditions),
            bars=int(values["bars"]),
            repetitions=int(values["repetitions"]),
            clip=values["clip"],
            clip_bars=int(values["clip_bars"]),
            audio=SOUNDS[values["audio"]],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise CommandError(str(error)) from error
    for label, number, most in (
        ("Length", study.bars, MOST_BARS),
        ("Repetitions", study.repetitions, MOST_REPETITIONS),
        ("Bars of the prompt", study.clip_bars, MOST_CLIP_BARS),
    ):
        if number > most:
            raise CommandError(f"{label} is {number:,}, expected at most {most}")
    return study, names


def counted(clips: int) -> str:
    """Return the HTML of the number of clips."""
    text = f"<b>{clips:,}</b> clip{'' if clips == 1 else 's'}"
    too_many = clips > MOST_CLIPS
    return f"<p>{text}{f', more than the {MOST_CLIPS} that this page makes' * too_many}</p>"


def progress(done: float, total: int, doing: str) -> str:
    """Return the HTML of the progress of a study."""
    share = f"{100 * done / total:.0f}" if total else "0"
    clips = f"{int(done)} of {total} clips · " if total else ""
    return (
        f"<div class='study-bar' role='progressbar' aria-label='Progress' aria-valuemin='0' "
        f"aria-valuemax='100' aria-valuenow='{share}'><span style='width:{share}%'></span></div>"
        f"<p role='status'>{clips}{html.escape(doing)}</p>"
    )


def ended(text: str, *, is_alert: bool = False) -> str:
    """Return the HTML of one sentence about a study without result."""
    kind = "class='refused' role='alert'" if is_alert else "role='status'"
    return f"<p {kind}>{html.escape(text)}</p>"


def finished(packed: Path, megabytes: float, clips: int, config: str) -> str:
    """Return the HTML of a study ready to be downloaded; a script sets the address of the file."""
    path, name = html.escape(packed.as_posix()), html.escape(packed.name)
    return (
        f"<p class='study-ready' role='status'><b>Ready: {plural(clips, 'clip')}.</b> Keep "
        "<code>study/key.csv</code> from the listeners: it names the condition of each clip.</p>"
        f"<p><a class='study-zip' data-path='{path}' download='{name}'>"
        f"Download {name} ({megabytes:,.1f} MB)</a></p>"
        "<p>In the folder of the extracted ZIP file, the first command serves the page for "
        "listeners; the second makes the same clips again:</p>"
        "<pre tabindex='0'>relpe listen study\nrelpe batch config.yaml --output again</pre>"
        "<details open><summary>config.yaml</summary>"
        f"<pre tabindex='0'>{html.escape(config)}</pre></details>"
    )
