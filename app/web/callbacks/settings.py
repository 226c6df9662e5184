"""Callbacks that fill the form with the settings of a piece, and estimate the time it takes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, cast

import gradio as gr

from app.compose import replay
from app.compose.options import OPTIONS, MusicOptions
from app.compose.plan.growth import presets
from app.errors import input_errors
from app.player.frames import Frame
from app.server.downloads import SOUND_KINDS
from app.server.uploads import Upload
from app.web.callbacks.alerts import AlertError, alerting
from app.web.callbacks.events import values_of, whole_number
from app.web.cards import refused, said, sentence
from app.web.examples import finished_example
from app.web.session import AUTOMATIC, FIRST_EXAMPLE, NEW, Session, Step
from app.web.tabs.music import form_problem, length_slider, not_of_page, widget_values
from tokenization.plan_text import parse_form

if TYPE_CHECKING:
    from app.compose.fill.passage import Passage
    from app.compose.models import Models
    from app.compose.plan.growth import Growth
    from app.compose.replay import Replay
    from app.web.view import View

NOW_ITS_FILE = "These are the settings of a continuation: now upload its MIDI file."
ALL_SET = "All settings are restored: press Continue to generate the piece again."
ALL_SET_NEW = "All settings are restored: press Generate to generate the piece again."
ANOTHER_FILE = (
    "These settings were made with another file. They are in the form, but the music will differ; "
    "for the same music, upload that file."
)
NO_TRACK = "Choose Write for at least one track, or the instrument of a new track."


class SettingsCallbacks:
    """Callbacks of the form."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._models = view.studio.models

    def take(self, session: Session, path: Path) -> None:
        """Fills a form with settings from a file. Raises AlertError or ReplayError."""
        saved = replay.read(path.read_bytes()[: replay.MOST_BYTES + 1])
        if saved.model not in self._models.names:
            raise AlertError(
                f"The settings are for the model {saved.model}, expected one of "
                f"{', '.join(self._models.names)}; start the page with --model {saved.model}."
            )
        if saved.model_sha256 not in ("", self._models.load(saved.model).sha256):
            raise AlertError(
                f"The settings are for another model named {saved.model}, whose weights differ "
                "from those of this page; start the page with --model and the folder of that model."
            )
        if problem := not_of_page(saved.options):
            raise AlertError(problem)
        with session.lock:
            work = session.work
            if saved.prompt_sha256 is None:
                if work.upload is not None:
                    work.go(Step(None, finished_example(FIRST_EXAMPLE)))
                work.model, work.note = saved.model, said(ALL_SET_NEW)
                session.fill = saved.options
            elif work.upload is not None and saved.fits(work.upload.whole.data):
                self.apply(session, saved)
            else:
                work.replay = saved
                work.note = said(NOW_ITS_FILE)

    def apply(self, session: Session, saved: Replay) -> None:
        """Restores all settings of a piece whose file is uploaded."""
        work = session.work
        assert work.upload is not None
        work.replay = None
        try:
            with alerting():
                upload = for_model(self._models, work.upload, saved.model)
                if upload.whole.facts.beats != saved.beats:
                    upload = upload.counted_by(saved.beats)
                last = saved.last_bar or upload.whole.bars
                first, heard = saved.first_bar, saved.options.prompt_bars
                if first is None and 0 < heard < last:
                    first = last - heard + 1
                if saved.passage is not None:
                    upload = upload.writing(saved.passage)
                else:
                    upload = upload.choose(first, last, saved.heard, saved.played)
        except AlertError as alert:
            work.note = refused(str(alert))
            return
        frame = shown(upload, work.frame.get("job", ""))
        work.set(Step(upload, frame, saved.heard, saved.played, saved.model))
        work.note = said(ALL_SET)
        session.fill = saved.options

    def bring_to(self, session: Session, saved: Replay) -> None:
        """Applies settings to a file that was uploaded after them; it may be the wrong file."""
        work = session.work
        assert work.upload is not None
        if saved.fits(work.upload.whole.data):
            self.apply(session, saved)
        else:  # the right file may still be uploaded
            work.note = said(ANOTHER_FILE)
            session.fill = saved.options

    def use_settings(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Fills the form with the settings of a variation of the result that is shown."""
        with self._view.locked(request) as session:
            frame = session.work.frame
            options = session.options.get(frame.get("job", ""), [])
            index = whole_number(event, "variation", len(options) - 1)
            if index is not None:
                session.fill = options[index]
            return self._view.show(session)

    def fill_form(self, request: gr.Request) -> tuple[object, ...]:
        """The values of the form: see `widget_values`."""
        with self._view.locked(request) as session:
            wanted, session.fill = session.fill, None
        if wanted is None:
            return (gr.skip(),) * len(widget_values(MusicOptions()))
        return tuple(widget_values(wanted))

    def estimate(
        self, length: object, unit: object, variations: object, request: gr.Request
    ) -> str:
        """The estimated time to generate the music, as HTML; values are as sent."""
        with self._view.locked(request) as session:
            work = session.work
            work.length = None
            if not form_problem(unit, {"bars": length, "variations": variations}):
                work.length, work.unit = float(cast("float", length)), str(unit)
                work.variations = int(cast("int", variations))
            return self._view.estimate(work)

    def plan(
        self,
        length: object,
        unit: object,
        form: object,
        chords: object,
        distance: object,
        ending: object,
        request: gr.Request,
    ) -> object:
        """The player with what is asked of new bars, after a field has changed; values as sent.

        On an empty page, a form or chords begin a new piece.
        """
        numbers = {"bars": length, "distance": distance, "ending": ending}
        with self._view.locked(request) as session:
            work = session.work
            work.form, work.chords = _text("form", form), _text("chords", chords)
            if form_problem(unit, numbers):
                work.length = None
            else:
                work.length, work.unit = float(cast("float", length)), str(unit)
                work.distance = float(cast("float", distance))
                work.ending = cast("Any", ending)
            is_empty = work.frame.get("phase") == "empty"
            if session.asked is None and is_empty and (work.form or work.chords):
                work.go(NEW._replace(model=work.model))
            if session.asked is not None or work.frame.get("phase") != "prompt":
                return gr.skip()
            return self._view.player(session)

    def ask(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The values of `ASKED_BY_ROWS` after they were changed in the player.

        The player sends the new form, the new chords, or the name of a way to continue. The length
        grows with the form.
        """
        sent = values_of(event)
        fields: dict[str, object] = {}
        with self._view.locked(request) as session:
            upload, plan = session.work.upload, self._view.frame(session).get("plan")
            if plan is None or session.asked is not None:
                return (gr.skip(),) * len(ASKED_BY_ROWS)
            if upload is not None and (way := sent.get("growth")) is not None:
                has_plans = not plan["no_form"]
                ways = presets(upload.sheet, upload.bars, has_plans=has_plans)
                if way in ways:
                    preset = ways[cast("Growth", way)]
                    fields |= preset._asdict() | {"form": preset.form or "", "unit": "bars"}
            for name in ("form", "chords"):
                if name in sent:
                    fields[name] = _text(name, sent[name])
            with suppress(ValueError):
                total = len(parse_form(str(fields.get("form", "")), ascii_uppercase))
                is_gap = upload is not None and upload.passage is not None
                if not is_gap and total > plan["bars"] and "bars" not in fields:
                    fields |= {"bars": total, "unit": "bars"}
        if "bars" in fields:
            length = MusicOptions(bars=cast("int", fields["bars"]))
            fields["bars"] = length_slider(length)
        return tuple(fields.get(name, gr.skip()) for name in ASKED_BY_ROWS)


ASKED_BY_ROWS = ("bars", "unit", "form", "chords", "distance", "ending")
"""Widgets that the player's rows change, and that its rows show."""


def _text(name: str, value: object) -> str:
    """A text that was sent for an option; empty if it is none, or too long."""
    widget = OPTIONS[name].widget
    most = widget.letters if widget else 0
    return value if isinstance(value, str) and len(value) <= most and value.isprintable() else ""


def shown(upload: Upload, job: str) -> Frame:
    """The frame of an upload, with the id of the job that plays it."""
    frame = upload.frame() | Frame(job=job)
    if "prompt" not in frame:
        return frame
    prompt = frame["prompt"].copy()
    prompt["sound"], prompt["files"] = "ready", ["midi", *SOUND_KINDS]
    return frame | Frame(prompt=prompt)


def for_model(models: Models, upload: Upload, name: str) -> Upload:
    """The whole file for the model of this name, or for the one that suits it."""
    score = upload.whole.score
    model = models.to_continue(score) if name == AUTOMATIC else models.load(name)
    return upload if model is upload.model else upload.for_model(model)


def to_write(models: Models, upload: Upload, name: str, passage: Passage) -> Upload:
    """The same file, of which a passage is to be written, or with the reason why it cannot be.

    The model is that of this name. By default, it is the one that continues the file, or another
    one if only that one can fill gaps.
    """
    try:
        upload = for_model(models, upload, name)
        if passage.tracks is not None and not passage.tracks and passage.instrument is None:
            return upload.unable(passage, NO_TRACK)
        if name != AUTOMATIC:
            return upload.writing(passage)
        return upload.writing_by_any(passage, models)
    except input_errors() as error:
        text = str(error).removeprefix(f"{upload.whole.name}: ")
        return upload.unable(passage, sentence(text))
