"""What the page shows of a session: the view, the values of all widgets that may change."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator  # Gradio reads the annotations of callbacks
from contextlib import contextmanager

import gradio as gr

from app.compose.new_bars import in_bars
from app.compose.options import MusicOptions
from app.errors import input_errors
from app.player.frames import Frame
from app.server.studio import Studio
from app.web.about import model_line
from app.web.choices import duration
from app.web.results import results_list
from app.web.session import AUTOMATIC, FIRST_TAB, UPLOADING, Session, Sessions, Tab
from app.web.upload_card import card
from tokenization.analysis.beats import ON_GRID

_log = logging.getLogger(__name__)

BY_FILE = "The one that hears all of your file."
NO_SPEED = "<p>How long it takes is known after the first piece.</p>"
BROKEN = "This did not work; the program's log says why."
BUSY = "Music is being written: let it end, or stop it first."
READING = "A file is being read: press again when it is there."


class AlertError(Exception):
    """What went wrong, in one sentence for the user."""


@contextmanager
def alerting() -> Iterator[None]:
    """Makes an alert of every error; one that the input has not caused is logged."""
    try:
        yield
    except AlertError:
        raise
    except input_errors() as error:
        raise AlertError(str(error)) from error
    except Exception as error:
        _log.exception("a callback of the page failed")
        raise AlertError(BROKEN) from error


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

    def __init__(self, studio: Studio, max_upload_bytes: int) -> None:
        self.studio = studio
        self.max_upload_bytes = max_upload_bytes
        self.sessions = Sessions(studio.back)
        self._serial = itertools.count()

    def session(self, request: gr.Request) -> Session:
        """What the caller has before it."""
        return self.sessions.of(session_of(request))

    @contextmanager
    def reading_file(self, session: Session) -> Iterator[None]:
        """While a file is read, which takes its time: no job begins, and none may be under way.

        Raises AlertError where one is.
        """
        with session.lock:
            if session.asked is not None:
                raise AlertError(BUSY)
            session.reading += 1
        try:
            yield
        finally:
            with session.lock:
                session.reading -= 1

    def view(
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
                    "" if running else self.estimate_of(tab),
                ]
            return numbered, results_list(session, moved=moved), *uploads, *buttons

    def _model_choice(self, name: str, tab: Tab) -> gr.Radio:
        """Which model was chosen, and what is said of the one that will write."""
        value = tab.model if name in UPLOADING else self._model_of(tab)
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

    # tabs and what they show

    def open_tab(self, name: str, request: gr.Request) -> tuple[object, ...]:
        """A tab was chosen: the player follows."""
        session = self.session(request)
        with session.lock:
            if name in session.tabs and not (session.is_opening and name == FIRST_TAB):
                session.tab = name
            session.is_opening = False
            return self.view(session)

    def go_back(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """One of the session's results is wanted again."""
        session = self.session(request)
        with session.lock:
            index = whole_number(event, "index", len(session.results) - 1)
            if index is None or session.asked is not None:
                return self.view(session, alert=BUSY if session.asked else "")
            result = session.results[index]
            tab = session.tabs[result.tab]
            session.tab = result.tab
            if tab.frame.get("job", "") != result.step.frame.get("job", ""):
                tab.go(result.step)
            return self.view(session, moved=True)

    def undo(self, request: gr.Request) -> tuple[object, ...]:
        """One step back in this tab."""
        session = self.session(request)
        with session.lock:
            tab = session.current
            if tab.past and session.asked is None:
                tab.set(tab.past.pop())
                tab.note = ""
            return self.view(session)

    # what is said beside the widgets

    def estimate(
        self, name: str, length: float, unit: str, variations: float, request: gr.Request
    ) -> str:
        """How long the music of a tab will take, as it is set now."""
        session = self.session(request)
        with session.lock:
            tab = session.tabs[name]
            tab.length, tab.unit, tab.variations = length, unit, int(variations)
            return self.estimate_of(tab)

    def estimate_of(self, tab: Tab) -> str:
        """What stands below the button of a tab."""
        model = tab.upload.model.name if tab.upload else self._model_of(tab)
        bars = tab.length if tab.unit == "bars" else tab.length / 2
        if tab.upload is not None and tab.unit == "seconds":
            bars = in_bars(MusicOptions(seconds=tab.length), tab.upload.prompt).bars
        speed = self.studio.scheduler.bars_per_second(model, tab.variations)
        if not speed:
            return NO_SPEED
        return f"<p>about <b>{duration(bars / speed)}</b> to write</p>"

    def _model_of(self, tab: Tab) -> str:
        names = self.studio.models.names
        return tab.model if tab.model in names else names[0]


def whole_number(event: gr.EventData, name: str, most: int) -> int | None:
    """A whole number from 0 that an event brings; None where it does not."""
    data = event._data if isinstance(event._data, dict) else {}
    value = data.get(name)
    inside = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    return value if inside else None


def track_numbers(event: gr.EventData, name: str) -> frozenset[int] | None:
    """Numbers of tracks that an event brings; None: all."""
    data = event._data if isinstance(event._data, dict) else {}
    value = data.get(name)
    if not isinstance(value, list) or len(value) > 10_000:
        return None
    return frozenset(number for number in value if isinstance(number, int))
