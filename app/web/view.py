"""The values of all widgets that callbacks change, for a session."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr

from app.compose.new_bars import in_bars
from app.compose.options import MusicOptions
from app.player.frames import Frame
from app.server.studio import Studio
from app.text import duration
from app.web.cards import card, results_list, sentence
from app.web.guard.hosts import LOCAL
from app.web.guard.limits import address_of
from app.web.session import AUTOMATIC, UPLOADING, Session, Sessions, Tab
from app.web.tabs.about import model_line

BY_FILE = "The model that suits your file."
NO_FILE = "<p>Choose a MIDI file or an example first.</p>"
NO_SPEED = "<p>The time it takes is estimated after the first piece.</p>"


def action(name: str, tab: Tab) -> str:
    """The text of the button that begins a job of a tab."""
    if name not in UPLOADING:
        return "Generate"
    return "Write here" if tab.upload is not None and tab.upload.passage else "Continue"


def session_of(request: gr.Request) -> str:
    """Name of the caller's session. Raises gr.Error if the request has none."""
    if request.session_hash is None:
        raise gr.Error(
            "found no session_hash in the request, expected that of the session; call through the "
            "queue, as gradio_client does",
            print_exception=False,
        )
    return request.session_hash


def user_of(request: gr.Request) -> str:
    """The caller's account, or address; empty on this machine, where pages are told apart.

    So are the users of a proxy on this machine that does not send X-Forwarded-For.
    """
    if request.username:
        return f"account {request.username}"
    client = request.client
    address = address_of((client.host, client.port) if client else None)
    return "" if address in LOCAL else address


class View:
    """All sessions, and what each of them shows."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.sessions = Sessions(studio.back)
        self._serial = itertools.count()

    def session(self, request: gr.Request) -> Session:
        """The caller's session."""
        return self.sessions.of(session_of(request))

    @contextmanager
    def locked(self, request: gr.Request) -> Iterator[Session]:
        """The caller's session, which no other callback changes meanwhile."""
        session = self.session(request)
        with session.lock:
            yield session

    def show(
        self, session: Session, *, alert: str = "", moved: bool = False, reading: bool = False
    ) -> tuple[object, ...]:
        """The values of all widgets that may change, in the order of `build_page`'s `view`.

        Player and list of results; card and beats of each tab that takes a file; model, buttons and
        estimate of each tab. If the session has `moved`, its tab opens. While a file is `reading`,
        no job can begin.
        """
        with session.lock:
            self.sessions.trim(session)
            frame = session.shown() | (Frame(alert=alert) if alert else Frame())
            # Gradio sends only values that have changed, but repeated alerts must also be sent
            numbered = {**frame, "serial": next(self._serial)}
            uploads = [part for name in UPLOADING for part in self._of_upload(session.tabs[name])]
            running = session.asked is not None
            buttons: list[object] = []
            for name, tab in session.tabs.items():
                ready = name not in UPLOADING or tab.upload is not None
                able = ready and not (tab.upload and tab.upload.problem)
                buttons += [
                    self._model_choice(name, tab),
                    gr.Button(
                        action(name, tab),
                        visible=not running,
                        interactive=able and not (reading or session.reading),
                    ),
                    gr.Button(visible=running),
                    gr.Button(visible=running),
                    "" if running else self.estimate(name, tab),
                ]
            return numbered, results_list(session, moved=moved), *uploads, *buttons

    def _model_choice(self, name: str, tab: Tab) -> gr.Radio:
        """The chosen model, and a line about the model that will be used."""
        value = tab.model if name in UPLOADING else self.new_model(tab)
        model = tab.upload.model.name if tab.upload else value
        info = BY_FILE if model == AUTOMATIC else model_line(self.studio.models, model)
        return gr.Radio(value=value, info=info)

    def _of_upload(self, tab: Tab) -> tuple[object, ...]:
        """Values of the card and of the beats."""
        if tab.upload is None:
            return tab.note, gr.Radio(value="file", visible=False)
        facts = tab.upload.whole.facts
        about = facts.beats_notice  # the card leaves it out
        beats = gr.Radio(value=facts.beats, visible=bool(about), info=sentence(about))
        return tab.note + card(tab.upload, self._why(tab)), beats

    def _why(self, tab: Tab) -> str:
        """Why this model continues an upload."""
        if tab.upload is None or tab.upload.passage is not None:
            return ""
        name = tab.upload.model.name
        if tab.model != AUTOMATIC:
            return f"The {name} model continues it, as you chose."
        if len(self.studio.models.names) < 2:
            return f"The {name} model continues it."
        reasons = {"piano": "only pianos play", "groove": "drums or several instruments play"}
        reason = reasons.get(name)
        return f"The {name} model continues it" + (f", because {reason}." if reason else ".")

    def estimate(self, name: str, tab: Tab) -> str:
        """How long the music of a tab will take, or why it cannot be generated, as HTML."""
        if name in UPLOADING and tab.upload is None:
            return NO_FILE
        if tab.upload is not None and tab.upload.problem:
            return f"<p>{html.escape(tab.upload.problem)}</p>"
        if tab.length is None:
            return ""
        seconds = self.seconds_needed(tab, tab.length)
        if seconds is None:
            return NO_SPEED
        return f"<p>about <b>{duration(seconds)}</b>, sound included</p>"

    def seconds_needed(self, tab: Tab, length: float) -> float | None:
        """Estimated time to generate the music of a tab; None if nothing is known."""
        model = tab.upload.model.name if tab.upload else self.new_model(tab)
        prompt = tab.upload.prompt if tab.upload else None
        bars = length
        if tab.upload is not None and tab.upload.passage is not None:
            bars = tab.upload.with_length(MusicOptions()).bars
        elif tab.unit == "seconds" and prompt is not None:
            bars = in_bars(MusicOptions(seconds=length), prompt).bars
        elif tab.unit == "seconds":
            bars = length / self.studio.scheduler.bar_seconds(model, None)
        return self.studio.seconds_needed(model, prompt, bars, tab.variations)

    def new_model(self, tab: Tab) -> str:
        """Name of the model that generates a piece from nothing."""
        names = self.studio.models.names
        return tab.model if tab.model in names else names[0]
