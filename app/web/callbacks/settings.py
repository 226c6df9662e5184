"""Callbacks that fill the form with the settings of a piece, and estimate the time it takes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, cast

import gradio as gr

from app.compose import replay
from app.compose.options import OPTIONS, MusicOptions
from app.compose.plan.growth import Preset, presets
from app.compose.tracks import mark_drums
from app.errors import input_errors
from app.web.callbacks.alerts import AlertError, alerting
from app.web.callbacks.events import values_of
from app.web.callbacks.fitting import fit, for_model, shown, with_drums
from app.web.cards import refused, said
from app.web.session import NEW, Session
from app.web.tabs.music import (
    FORM,
    OVER,
    form_problem,
    length_slider,
    not_of_page,
    text_of,
    widget_values,
)
from tokenization.plan_text import parse_form

if TYPE_CHECKING:
    from collections.abc import Collection

    from app.compose.plan.growth import Growth
    from app.compose.replay import Replay
    from app.web.view import View

NOW_ITS_FILE = "These are the settings of a continuation: now upload its MIDI file."
ALL_SET = "All settings are restored: press Continue to generate the piece again."
ANOTHER_FILE = (
    "These settings were made with another file. They are in the form, but the music will differ; "
    "for the same music, upload that file."
)


class SettingsCallbacks:
    """Callbacks of the form."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._models = view.studio.models

    def take(self, session: Session, path: Path) -> None:
        """Fill a form with settings from a file. Raises AlertError or ReplayError."""
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
                    work.go(NEW)
                work.model, work.note = saved.model, said(ALL_SET)
                session.fill = saved.options
            elif work.upload is not None and saved.fits(work.upload.whole.data):
                self.apply(session, saved)
            else:
                work.replay = saved
                work.note = said(NOW_ITS_FILE)

    def apply(self, session: Session, saved: Replay) -> None:
        """Restore all settings of a piece whose file is uploaded."""
        work = session.work
        assert work.upload is not None
        work.replay = None
        try:
            with alerting():
                upload, job = work.upload, work.frame.get("job", "")
                score = mark_drums(upload.score, saved.options.drums, upload.whole.name)
                if score.tracks != upload.score.tracks:
                    upload = with_drums(self._models, upload, score, saved.model)
                    job = self._view.studio.opened(session.name, upload).id  # it sounds new
                upload = for_model(self._models, upload, saved.model)
                if upload.whole.facts.beats != saved.options.beats:
                    upload = upload.counted_by(saved.options.beats)
                if saved.sections:
                    upload = upload.with_sections(saved.sections)
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
        frame = shown(upload, job)
        work.set(
            work.step._replace(
                upload=upload,
                frame=frame,
                heard=saved.heard,
                played=saved.played,
                model=saved.model,
            )
        )
        work.note = said(ALL_SET)
        session.fill = saved.options

    def bring_to(self, session: Session, saved: Replay) -> None:
        """Apply settings to a file that was uploaded after them; it may be the wrong file."""
        work = session.work
        assert work.upload is not None
        if saved.fits(work.upload.whole.data):
            self.apply(session, saved)
        else:  # the right file may still be uploaded
            work.note = said(ANOTHER_FILE)
            session.fill = saved.options

    def fill_form(self, request: gr.Request) -> tuple[object, ...]:
        """Return the values of the form: see `widget_values`."""
        with self._view.locked(request) as session:
            options, session.fill = session.fill, None
            cleared, session.cleared = session.cleared, ()
        if options is not None:
            return tuple(widget_values(options))
        defaults = widget_values(MusicOptions())
        names = ["creativity", "unit", "fresh", *FORM]  # see `Form.filled`
        return tuple(
            value if name in cleared else gr.skip()
            for name, value in zip(names, defaults, strict=True)
        )

    def clear(self, session: Session, texts: Collection[str] = OVER) -> str:
        """Take back what was asked of a piece, before another one is shown; return a note of it.

        Clears the fields named in `texts`. If a way to continue a loop was asked for, its length,
        distance and ending go as well.
        """
        work = session.work
        plan = work.plan()
        cleared = [name for name in texts if getattr(work, name)]
        for name in texts:
            setattr(work, name, "")
        if plan is not None and plan["growth"] is not None:
            cleared += ["bars", "unit", "distance", "ending"]
            work.length, work.unit = MusicOptions.bars, "bars"
            work.distance, work.ending = MusicOptions.distance, MusicOptions.ending
        session.cleared = tuple(cleared)
        widgets = (OPTIONS[name].widget for name in cleared if name in OPTIONS)
        labels = ", ".join(widget.label for widget in widgets if widget)
        return f"What was asked of the piece before is cleared: {labels}." if labels else ""

    def plan(self, request: gr.Request, *values: object) -> tuple[object, ...]:
        """Call `View.show` with what new bars are asked, after a field has changed; values as sent.

        They are those of `PLANNED`. On an empty page, a text begins a new piece. The length grows
        with the form. If the model does not have the style, and the choice is automatic, another
        one is taken.
        """
        sent = dict(zip(PLANNED, values, strict=True))
        unit = sent["unit"]
        numbers = {name: sent[name] for name in PLANNED if name not in ("unit", *OVER)}
        with self._view.locked(request) as session:
            work = session.work
            before = {name: getattr(work, name) for name in OVER}
            for name in OVER:
                setattr(work, name, _text(name, sent[name]))
            if form_problem(unit, numbers):
                work.length = None
            else:
                work.length, work.unit = float(cast("float", sent["bars"])), str(unit)
                work.distance = float(cast("float", sent["distance"]))
                work.ending = cast("Any", sent["ending"])
                work.variations = int(cast("int", sent["variations"]))
                work.study = float(cast("float", sent["study"]))
            if session.asked is not None:
                return self._view.unchanged
            is_empty = work.frame.get("phase") == "empty"
            if is_empty and any(getattr(work, name) for name in OVER):
                work.go(NEW._replace(model=work.model))
            if work.asked_style != before["style"].strip() or work.band != before["band"]:
                with suppress(*input_errors()):  # otherwise `begin` says why
                    fit(self._models, work)
                return self._view.show(session)
            bars = None
            is_gap = work.upload is not None and work.upload.passage is not None
            if work.form != before["form"] and not is_gap:
                with suppress(ValueError):
                    bars = len(parse_form(work.form, ascii_uppercase))
                if bars is not None and work.unit == "bars" and bars <= (work.length or 0):
                    bars = None
            if bars is not None:
                work.length, work.unit = float(bars), "bars"
            return self._view.planned(session, bars)

    def ask(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Return the values of `ASKED_BY_ROWS` after they were changed in the player.

        The player sends the new form, the new chords, or the name of a way to continue.
        """
        sent = values_of(event)
        fields: dict[str, object] = {}
        with self._view.locked(request) as session:
            upload, plan = session.work.upload, session.shown().get("plan")
            if plan is None or session.asked is not None:
                return (gr.skip(),) * len(ASKED_BY_ROWS)
            if upload is not None and (way := sent.get("growth")) is not None:
                ways = presets(upload.sheet, upload.bars)
                if way in ways:
                    preset = ways[cast("Growth", way)]
                    if way == plan["growth"]:  # pressed again
                        preset = Preset(MusicOptions.bars, MusicOptions.distance)
                    fields |= preset._asdict() | {"form": preset.form or "", "unit": "bars"}
            for name in ("form", "chords"):
                if name in sent:
                    fields[name] = _text(name, sent[name])
        if "bars" in fields:
            length = MusicOptions(bars=cast("int", fields["bars"]))
            fields["bars"] = length_slider(length)
        return tuple(fields.get(name, gr.skip()) for name in ASKED_BY_ROWS)


ASKED_BY_ROWS = ("bars", "unit", "form", "chords", "distance", "ending")
"""Widgets that the player's rows change, and that its rows show."""
_OTHERS = (name for name in OVER if name not in ASKED_BY_ROWS)
PLANNED = (*ASKED_BY_ROWS, "variations", "study", *_OTHERS)
"""Inputs of `plan`."""


def _text(name: str, value: object) -> str:
    """Return a text that was sent for an option; empty if it is none, or too long."""
    widget = OPTIONS[name].widget
    most = widget.letters if widget else 0
    value = text_of(value)
    return value if len(value) <= most and value.isprintable() else ""
