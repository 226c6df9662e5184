"""What the page shows of a session: the view, the values of all widgets that may change."""

from __future__ import annotations

import itertools

import gradio as gr

from app.compose.new_bars import in_bars
from app.compose.options import MusicOptions
from app.player.frames import Frame
from app.server.studio import Studio
from app.web.about import model_line
from app.web.cards import card, results_list
from app.web.session import AUTOMATIC, UPLOADING, Session, Sessions, Tab
from tokenization.analysis.beats import ON_GRID

BY_FILE = "The one that hears all of your file."
NO_SPEED = "<p>How long it takes is known after the first piece.</p>"


def session_of(request: gr.Request) -> str:
    """Who asks. Raises gr.Error where a request does not say so: nobody shares a session."""
    if request.session_hash is None:
        raise gr.Error(
            "found no session_hash in the request, expected that of the caller; join the queue, as "
            "gradio_client does",
            print_exception=False,
        )
    return request.session_hash


class View:
    """Sessions, and what each of them shows."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.sessions = Sessions(studio.back)
        self._serial = itertools.count()

    def session(self, request: gr.Request) -> Session:
        """What the caller has before it."""
        return self.sessions.of(session_of(request))

    def show(
        self, session: Session, *, alert: str = "", moved: bool = False, reading: bool = False
    ) -> tuple[object, ...]:
        """All that may change on the page, in the order of `build_page`'s `view`.

        Player, list of results; of each tab that takes a file its card and beats; of all tabs their
        model, their buttons and what they say of the time. Where it `moved`, another tab opens.
        Where a file is to be read next, nothing can be begun.
        """
        with session.lock:
            frame = session.shown() | (Frame(alert=alert) if alert else Frame())
            # the browser is told of what is new alone: a second refusal has to reach the player too
            numbered = {**frame, "serial": next(self._serial)}
            uploads = [part for name in UPLOADING for part in self._of_upload(session.tabs[name])]
            running = session.asked is not None
            buttons: list[object] = []
            for name, tab in session.tabs.items():
                ready = name not in UPLOADING or tab.upload is not None
                buttons += [
                    self._model_choice(name, tab),
                    gr.Button(
                        visible=not running, interactive=ready and not (reading or session.reading)
                    ),
                    gr.Button(visible=running),
                    gr.Button(visible=running),
                    "" if running else self.estimate(tab),
                ]
            return numbered, results_list(session, moved=moved), *uploads, *buttons

    def _model_choice(self, name: str, tab: Tab) -> gr.Radio:
        """Which model was chosen, and what is said of the one that will write."""
        value = tab.model if name in UPLOADING else self.new_model(tab)
        model = tab.upload.model.name if tab.upload else value
        info = BY_FILE if model == AUTOMATIC else model_line(self.studio.models, model)
        return gr.Radio(value=value, info=info)

    def _of_upload(self, tab: Tab) -> tuple[object, ...]:
        """Card, beats."""
        if tab.upload is None:
            return tab.note, gr.Radio(value="file", visible=False)
        facts = tab.upload.whole.facts
        off_grid = facts.on_grid < ON_GRID or facts.beats != "file"
        beats = gr.Radio(value=facts.beats, visible=off_grid)
        return card(tab.upload, self._why(tab)) + tab.note, beats

    def _why(self, tab: Tab) -> str:
        """Why this model continues an upload."""
        if tab.upload is None:
            return ""
        name = tab.upload.model.name
        if tab.model != AUTOMATIC:
            return f"The {name} model continues it, as chosen."
        if len(self.studio.models.names) < 2:
            return f"The {name} model continues it."
        reasons = {"piano": "as only pianos play", "groove": "as drums or several instruments play"}
        reason = reasons.get(name)
        return f"The {name} model continues it" + (f", {reason}." if reason else ".")

    def estimate(self, tab: Tab) -> str:
        """What stands below the button of a tab."""
        model = tab.upload.model.name if tab.upload else self.new_model(tab)
        bars = tab.length if tab.unit == "bars" else tab.length / 2
        if tab.upload is not None and tab.unit == "seconds":
            bars = in_bars(MusicOptions(seconds=tab.length), tab.upload.prompt).bars
        speed = self.studio.desk.bars_per_second(model, tab.variations)
        if not speed:
            return NO_SPEED
        return f"<p>about <b>{_duration(bars / speed)}</b> to write</p>"

    def new_model(self, tab: Tab) -> str:
        """Name of the model that generates a piece from nothing."""
        names = self.studio.models.names
        return tab.model if tab.model in names else names[0]


def _duration(seconds: float) -> str:
    """About how long: `6 s`, `2 min`."""
    seconds = max(1, round(seconds))
    return f"{seconds} s" if seconds < 90 else f"{round(seconds / 60)} min"
