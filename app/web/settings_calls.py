"""What the page calls for settings: those of a file or of a result go into a form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr

from app.compose import replay
from app.compose.options import MusicOptions
from app.player.frames import Frame
from app.server.uploads import Upload
from app.web.choices import not_of_page, widget_values
from app.web.session import AUTOMATIC, Session, Step
from app.web.upload_card import refused, said
from app.web.view import AlertError, View, alerting, whole_number

if TYPE_CHECKING:
    from app.compose.replay import Replay

NOW_ITS_FILE = "These are the settings of a continuation: now bring its MIDI file."
ALL_SET = "All is set as it was: press Continue to make the piece again."
ANOTHER_FILE = (
    "This is not the file that the settings were made with: they are in the form all the same, but "
    "the music will be another; for the same music bring its own file."
)


class SettingsCalls(View):
    """Callbacks that change what is set in the form of a tab."""

    def take_settings(self, session: Session, name: str, path: Path) -> None:
        """Settings of a piece were brought, to make it again: they go into a form."""
        told = replay.read(path.read_bytes()[: replay.MOST_BYTES + 1])
        if told.model not in self.studio.models.names:
            raise AlertError(
                f"The settings are of the model {told.model}, expected one of "
                f"{', '.join(self.studio.models.names)}; start the page with that --model."
            )
        if problem := not_of_page(told.options):
            raise AlertError(problem)
        with session.lock:
            tab = session.tabs[name]
            if told.prompt_sha256 is None:
                session.tab, tab.note = "piano", ""
                session.tabs["piano"].model = told.model
                session.fill["piano"] = told.options
            elif tab.upload is not None and told.fits(tab.upload.whole.data):
                self.apply(session, name, told)
            else:
                tab.replay = told
                tab.note = said(NOW_ITS_FILE)

    def apply(self, session: Session, name: str, told: Replay) -> None:
        """Sets all as it was for a piece; its file is there."""
        tab = session.tabs[name]
        assert tab.upload is not None
        tab.replay = None
        try:
            with alerting():
                upload = self.by_choice(tab.upload, told.model)
                if upload.whole.facts.beats != told.beats:
                    upload = upload.counted_by(told.beats)
                last = told.last_bar or upload.whole.bars
                first, usual = told.first_bar, MusicOptions.prompt_bars
                if first is None and (heard := told.options.prompt_bars) != usual:
                    first = max(last - heard, 0) + 1 if heard else 1
                upload = upload.choose(first, last, told.heard, told.played)
        except AlertError as alert:
            tab.note = refused(str(alert))
            return
        frame = again(upload.frame(), tab.frame)
        tab.set(Step(upload, frame, told.heard, told.played, told.model))
        tab.note = said(ALL_SET)
        session.fill[name] = told.options

    def bring_to(self, session: Session, name: str, told: Replay) -> None:
        """The file that settings have waited for has come, or another one."""
        tab = session.tabs[name]
        assert tab.upload is not None
        if told.fits(tab.upload.whole.data):
            self.apply(session, name, told)
        else:  # they go on waiting for theirs
            tab.note = said(ANOTHER_FILE)
            session.fill[name] = told.options

    def use_settings(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The settings of the variation in sight go into the form."""
        session = self.session(request)
        with session.lock:
            frame = session.current.frame
            index = whole_number(event, "variation", len(frame.get("variations", [])) - 1)
            options = session.options.get(frame.get("job", ""))
            if index is not None and options is not None and options.seed is not None:
                seed = options.seed + index
                session.fill[session.tab] = replace(options, seed=seed, variations=1)
            return self.view(session)

    def fill(self, request: gr.Request) -> tuple[object, ...]:
        """What goes into the forms of all tabs: see `widget_values`."""
        session = self.session(request)
        with session.lock:
            wanted, session.fill = session.fill, {}
        none = (gr.skip(),) * len(widget_values(MusicOptions()))
        return tuple(
            value
            for name in session.tabs
            for value in (widget_values(wanted[name]) if name in wanted else none)
        )

    def by_choice(self, upload: Upload, model: str) -> Upload:
        """The same file for the model that was chosen, or that suits it."""
        if model == AUTOMATIC:
            wanted = self.studio.models.to_continue(upload.whole.score)
        else:
            wanted = self.studio.models.load(model)
        return upload if wanted is upload.model else upload.for_model(wanted)


def again(frame: Frame, before: Frame) -> Frame:
    """An upload as it is now, with the job that plays it."""
    job = Frame(job=before.get("job", ""))
    if "prompt" not in frame:
        return frame | job
    prompt = frame["prompt"].copy()
    prompt["sound"] = "ready"
    return frame | job | Frame(prompt=prompt)
