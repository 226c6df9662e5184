"""What each session of the page has before it: its tabs, and all that was made in them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from app.examples import PIECE, finished_example
from app.files import LEFT_SECONDS
from app.options import NEW_PIECE_BARS, MusicOptions
from app.player import Frame

if TYPE_CHECKING:
    from app.replay import Replay
    from app.upload import Upload

EXAMPLE_OF_TAB = {"continue": "ballad", "groove": "groove", "piano": PIECE}
"""What each tab shows as long as nothing was done in it."""
AUTOMATIC = "auto"
"""The choice of a model by the file."""
UPLOADING = ("continue", "groove")
"""Tabs that take a file."""
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
        return Step(self.upload, self.frame, self.heard, self.played)

    def go(
        self,
        upload: Upload | None,
        frame: Frame,
        heard: frozenset[int] | None = None,
        played: frozenset[int] | None = None,
    ) -> None:
        """Shows something else; what was shown can be had again, unless it was nothing."""
        if self.frame.get("phase") != "empty":
            self.past = [*self.past, self.step][-MOST_STEPS:]
        self.set(Step(upload, frame, heard, played))

    def set(self, step: Step) -> None:
        """Shows something else in its place."""
        self.upload, self.frame, self.heard, self.played = step


class Session:
    """One open page: calls of its widgets come one after the other, those of a job beside them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tab = UPLOADING[0]
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
        return tab.frame | Frame(
            busy=busy,
            can_undo=bool(tab.past) and not busy,
            can_discard=here or (done and not busy),
            table=(name or self.tab) == "groove",
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

    A lost connection looks like a closed tab.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._left: dict[str, float] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> Session:
        """A session; a new one where there is none of this name."""
        with self._lock:
            self._left.pop(name, None)
            session = self._sessions.pop(name, None) or Session()
            self._sessions[name] = session  # the last one that was asked for
            while len(self._sessions) > MOST_SESSIONS:
                oldest = next(iter(self._sessions))
                self._left.pop(oldest, None)
                del self._sessions[oldest]
            return session

    def leave(self, name: str) -> None:
        """The session is over, as far as is known."""
        with self._lock:
            now = time.time()
            self._left[name] = now
            for old, when in list(self._left.items()):
                if when < now - LEFT_SECONDS:
                    del self._left[old]
                    self._sessions.pop(old, None)
