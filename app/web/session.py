"""What each session of the page has before it: its tabs, and all that was made in them."""

from __future__ import annotations

import hmac
import re
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from app.compose.options import NEW_PIECE_BARS, MusicOptions
from app.player.frames import Frame
from app.server.store import LEFT_SECONDS
from app.web.examples import PIECE, finished_example

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.compose.replay import Replay
    from app.server.uploads import Upload

EXAMPLE_OF_TAB = {"continue": "ballad", "groove": "groove", "piano": PIECE}
"""What each tab shows as long as nothing was done in it."""
AUTOMATIC = "auto"
"""The choice of a model by the file."""
UPLOADING = ("continue", "groove")
"""Tabs that take a file."""
OPENED_ANEW = (
    "The page was opened anew, and the music that was being written has ended with the one before; "
    "what was finished is here again."
)
FIRST_TAB = UPLOADING[0]
"""The one that Gradio opens by itself."""
MOST_STEPS = 30
"""Steps that can be undone in each tab."""
MOST_RESULTS = 40
"""Results that a session keeps; the oldest go first."""
MOST_SESSIONS = 1000
"""Pages that are remembered: names come from whoever calls, so that there could be any number."""


class Step(NamedTuple):
    """What a tab showed at one time."""

    upload: Upload | None
    frame: Frame
    heard: frozenset[int] | None = None
    """Tracks that the model hears; None: all."""
    played: frozenset[int] | None = None
    """Tracks that may play in the new music; None: all."""
    model: str = AUTOMATIC
    """Which one was chosen."""


class Result(NamedTuple):
    """What one job has made."""

    tab: str
    step: Step
    made: float
    """When, in seconds since the epoch."""


class Asked(NamedTuple):
    """A job that was asked for, in a tab."""

    tab: str
    upload: Upload | None
    options: MusicOptions
    model: str | None
    job: threading.Event
    before: Step


@dataclass
class Tab:
    """What a tab shows, and what it showed before."""

    upload: Upload | None
    frame: Frame
    length: float
    past: list[Step] = field(default_factory=list)
    note: str = ""
    """What its card says beside the upload, as HTML: a refusal, or what is going on."""
    model: str = AUTOMATIC
    """Which one was chosen."""
    heard: frozenset[int] | None = None
    played: frozenset[int] | None = None
    replay: Replay | None = None
    """Settings whose file is not there yet."""
    unit: str = "bars"
    """Of `length`: bars or seconds."""
    variations: int = 1

    @property
    def step(self) -> Step:
        """What it shows now."""
        return Step(self.upload, self.frame, self.heard, self.played, self.model)

    def go(self, step: Step) -> None:
        """Shows something else; what was shown can be had again, unless it was nothing."""
        if self.frame.get("phase") != "empty":
            self.past = [*self.past, self.step][-MOST_STEPS:]
        self.set(step)

    def set(self, step: Step) -> None:
        """Shows something else in its place."""
        self.upload, self.frame, self.heard, self.played, self.model = step


class Session:
    """One open page: calls of its widgets come one after the other, those of a job beside them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.names: list[str] = []
        """Of all pages that had it, one after the other: files are known by them."""
        self.token = ""
        """What only its tab of the browser knows."""
        self.reading = 0
        """Files that are being read: no job begins meanwhile."""
        self.tab = FIRST_TAB
        self.is_opening = False
        """Whether its page, opened anew, has still to open another tab than the first."""
        self.tabs = {
            name: Tab(
                None,
                finished_example(example),
                MusicOptions.bars if name in UPLOADING else NEW_PIECE_BARS,
            )
            for name, example in EXAMPLE_OF_TAB.items()
        }
        self.results: list[Result] = []
        self.asked: Asked | None = None
        """The job that waits or runs."""
        self.dropped = False
        """Whether what it makes is not wanted any more."""
        self.options: dict[str, MusicOptions] = {}
        """How each result was made, by the names of their jobs."""
        self.fill: dict[str, MusicOptions] = {}
        """What is to go into the form of a tab."""
        self.alert = ""
        """Why the last job could not be begun."""
        self.lost_in: Frame | None = None
        """What is shown in the place of music that has ended with its page."""

    def give_back(self, asked: Asked) -> None:
        """Shows what was there before a job of which nothing is kept."""
        tab = self.tabs[asked.tab]
        tab.set(asked.before)
        if tab.past and tab.past[-1].frame is asked.before.frame:
            tab.past.pop()

    def opened_anew(self) -> None:
        """Its page has come back with a form in which nothing is set yet."""
        for name, tab in Session().tabs.items():
            mine = self.tabs[name]
            mine.length, mine.unit, mine.variations = tab.length, tab.unit, tab.variations

    @property
    def current(self) -> Tab:
        """The tab in sight."""
        return self.tabs[self.tab]

    def shown(self, name: str | None = None) -> Frame:
        """What the player shows in a tab, with what can be done there."""
        tab = self.tabs[name or self.tab]
        busy = self.asked is not None
        done = tab.frame.get("phase") == "done"
        here = self.asked is not None and self.asked.tab == (name or self.tab)
        lost = Frame(alert=OPENED_ANEW) if tab.frame is self.lost_in else Frame()
        return (
            tab.frame
            | lost
            | Frame(
                busy=busy,
                can_undo=bool(tab.past) and not busy,
                can_discard=here or (done and not busy),
                table=(name or self.tab) == "groove",
            )
        )

    def keep(self, result: Result) -> None:
        """Remembers what was made."""
        self.results = [*self.results, result][-MOST_RESULTS:]

    def forget(self, step: Step) -> None:
        """Drops a result."""
        self.results = [
            r for r in self.results if r.step.frame.get("job", "") != step.frame.get("job", "")
        ]


class Sessions:
    """All open pages, by the names that Gradio gives them; those that were left stay for a while.

    A lost connection looks like a closed tab. A page that comes back under the same name goes on;
    one that was opened again in its tab of the browser is known by the token of that tab.
    """

    def __init__(self, back: Callable[[str], object]) -> None:
        """`back` is told the names of those that come back."""
        self._back = back
        self._sessions: dict[str, Session] = {}
        self._left: dict[str, float] = {}
        self._lock = threading.RLock()

    def of(self, name: str) -> Session:
        """A session; a new one where there is none of this name."""
        with self._lock:
            session = self._sessions.pop(name, None) or Session()
            if name not in session.names:
                session.names.append(name)
            self._sessions[name] = session  # the last one that was asked for
            if self._left.pop(name, None) is not None:
                self._come_back(session)
            while len(self._sessions) > MOST_SESSIONS:
                oldest = next(iter(self._sessions))
                self._left.pop(oldest, None)
                del self._sessions[oldest]
            return session

    def leave(self, name: str) -> list[str]:
        """The session is over, as far as is known: the names by which its files are known.

        Not those of a page with which another one goes on.
        """
        with self._lock:
            session = self._sessions.get(name)
            others = {n for one in self._sessions.values() if one is not session for n in one.names}
            if session is not None:
                self._left[name] = time.time()
            self._forget()
            return [n for n in (session.names if session else [name]) if n not in others]

    def known_by(self, token: str) -> str | None:
        """The name of the page with this token."""
        if not _TOKEN.fullmatch(token):
            return None
        with self._lock:
            for name, session in self._sessions.items():
                if hmac.compare_digest(session.token, token):
                    return name
        return None

    def adopt(self, name: str, before: str, token: str) -> Session | None:
        """Gives the page `name`, whose token is new, the session that is known by that of `before`.

        None: there is none, or it is not left: nobody gets what another page still shows, as where
        a tab of the browser was duplicated.
        """
        with self._lock:
            self._forget()
            old = self.known_by(before)
            if old is None or old == name or old not in self._left:
                self.of(name).token = token if _TOKEN.fullmatch(token) else ""
                return None
            del self._left[old]
            session = self._sessions.pop(old)
            session.token = token if _TOKEN.fullmatch(token) else ""
            session.names.append(name)
            session.is_opening = session.tab != FIRST_TAB
            self._sessions[name] = session
            self._come_back(session)
            return session

    def _come_back(self, session: Session) -> None:
        for name in session.names:
            self._back(name)

    def _forget(self) -> None:
        """Those that were left long ago."""
        before = time.time() - LEFT_SECONDS
        for name, when in list(self._left.items()):
            if when < before:
                del self._left[name]
                self._sessions.pop(name, None)


_TOKEN = re.compile("[0-9a-f]{32}")
"""Of a tab of the browser: 128 bits that it has drawn, given to nobody but the server."""
