"""Sessions of the page: the state of the workspace, undo, and results."""

from __future__ import annotations

import hmac
import re
import threading
import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from app.compose.options import OF_PROMPT, OPTIONS, Ending, MusicOptions
from app.compose.plan.lead_sheet import LeadSheet
from app.compose.replay import Replay
from app.player.frames import Frame, PromptFrame, blank_timeline
from app.player.plan import PlanFrame, plan_frame
from app.server.job import NEW_PIECE
from app.server.memory.sizes import size_of
from app.server.studio import EMPTY
from app.server.uploads import Upload
from app.web.examples import finished_example

FIRST_EXAMPLE = "ballad"
"""The example that an empty page shows."""
AUTOMATIC = "auto"
"""Choice of the model that suits the file."""
OPENED_ANEW = (
    "The page was reloaded, which stopped the music that was being generated; your earlier results "
    "are still here."
)
RESTARTED = (
    "The server was restarted and has lost what this page showed. The results below are kept in "
    "this browser: press one to go on from it."
)
MOST_STEPS = 30
"""Number of steps that can be undone."""
MOST_RESULTS = 40
"""Number of results that a session keeps, the newest ones."""
MOST_BYTES = 512 << 20
"""Memory of the music of all sessions."""
MOST_BYTES_OF_SESSION = 64 << 20
"""Memory of the music of a session; its earliest steps are dropped. What it shows is kept."""
LEFT_SECONDS = 3600.0
"""How long a session is kept after its page was closed, or has lost its connection."""
MOST_SESSIONS = 1000
"""Number of sessions that are kept: clients can open any number of them."""


class Step(NamedTuple):
    """The state of the workspace, as undo and redo restore it."""

    upload: Upload | None
    frame: Frame
    heard: frozenset[int] | None = None
    """Tracks that the model reads; None: all."""
    played: frozenset[int] | None = None
    """Tracks that may play in the new music; None: all."""
    model: str = AUTOMATIC
    """The choice of the model."""
    discards: str = ""
    """Job whose result was discarded by this step."""


class Asked(NamedTuple):
    """A waiting or running job, and the state of the workspace before the job."""

    upload: Upload | None
    options: MusicOptions
    model: str | None
    before: Step
    job: threading.Event | None = None
    """Set once it has begun; it stops the job."""


class FinishedJob(NamedTuple):
    """A finished job."""

    step: Step
    asked: Asked
    """The request, which can be repeated."""


@dataclass
class Workspace:
    """The piece that is worked on, the choices of the form, and earlier states."""

    upload: Upload | None
    """None: the next piece is generated from nothing."""
    frame: Frame
    length: float | None = MusicOptions.bars
    """None while its field is empty."""
    past: list[Step] = field(default_factory=list)
    future: list[Step] = field(default_factory=list)
    """Steps that were undone, the next one last."""
    note: str = ""
    """HTML after the card of the upload: a refusal, or a message."""
    model: str = AUTOMATIC
    """The choice of the model."""
    heard: frozenset[int] | None = None
    played: frozenset[int] | None = None
    discards: str = ""
    replay: Replay | None = None
    """Settings whose file is not uploaded yet."""
    unit: str = "bars"
    """Unit of `length`: bars or seconds."""
    variations: int = 1
    study: float = MusicOptions.study
    form: str = ""
    """The text of its field; so are the chords."""
    chords: str = ""
    style: str = ""
    key: str = ""
    metre: str = ""
    band: str = ""
    tempo: str = ""
    distance: float = MusicOptions.distance
    ending: Ending = MusicOptions.ending

    @property
    def step(self) -> Step:
        """The present state."""
        return Step(self.upload, self.frame, self.heard, self.played, self.model, self.discards)

    @property
    def asked_style(self) -> str:
        """The style that is asked, which only some models have; empty: none."""
        return self.style.strip()

    def plan(self) -> PlanFrame | None:
        """Return what is asked of the new bars by the form; None if there is nothing to ask of."""
        upload = self.upload
        if upload is not None and upload.problem:
            return None
        options = MusicOptions(distance=self.distance, ending=self.ending)
        if upload is None or upload.passage is None:  # a passage has a length of its own
            if self.length is None:
                return None
            if self.unit == "seconds":
                options = replace(options, seconds=self.length)
            else:
                options = replace(options, bars=int(self.length))
        options = upload.with_length(options) if upload else without_prompt(options)
        return _plan(upload, options, (self.form, self.chords))

    def go(self, step: Step) -> None:
        """Move to another state; undo restores the present one, unless it is empty."""
        if self.frame.get("phase") != "empty":
            self.past = [*self.past, self.step][-MOST_STEPS:]
        self.future = []
        self.set(step._replace(discards=""))

    def set(self, step: Step) -> None:
        """Replace the present state."""
        self.upload, self.frame, self.heard, self.played, self.model, self.discards = step


NEW = Step(
    None,
    Frame(
        job="",
        phase="prompt",
        title=NEW_PIECE,
        subtitle="Ask for sections and chords of its bars, or leave them to the model",
        prompt=PromptFrame(tracks=[], splice=0.0, first=0.0),
        variations=[],
    ),
)
"""A piece from nothing before it is written: `Session.shown` adds its bars."""


def without_prompt(options: MusicOptions) -> MusicOptions:
    """Return the options for a piece from nothing, with defaults for those that only suit a prompt.

    For a length in seconds, bars are what the player shows at first, at two seconds each.
    """
    defaults = {name: OPTIONS[name].default for name in OF_PROMPT}
    if options.seconds:
        return replace(options, bars=max(1, round(options.seconds / 2)), **defaults)
    return replace(options, **defaults)


def _plan(upload: Upload | None, options: MusicOptions, texts: tuple[str, str]) -> PlanFrame:
    """Return what is asked of new bars: after an upload, in its selected bars, or from nothing."""
    if upload is None:
        return plan_frame(_NO_SHEET, 0, options, texts)
    first = upload.passage.first_bar - 1 if upload.passage else upload.bars
    return plan_frame(upload.sheet, first, options, texts)


_NO_SHEET = LeadSheet("", (), (), ())


class Session:
    """The state of an open page; callbacks take turns by its lock, jobs run concurrently."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.name = ""
        """Name of the page that shows it."""
        self.token = ""
        """Secret token of its browser tab."""
        self.reading = 0
        """Number of files that are being read; no job begins meanwhile."""
        self.work = Workspace(None, finished_example(FIRST_EXAMPLE))
        self.results: list[FinishedJob] = []
        self.discarded: set[str] = set()
        """Jobs whose results are not listed, until undo brings them back."""
        self.asked: Asked | None = None
        """The waiting or running job, if any."""
        self.dropped = False
        """Whether the job was discarded."""
        self.fill: MusicOptions | None = None
        """Options to fill the form with."""
        self.cleared: tuple[str, ...] = ()
        """Fields of the form to set to their defaults."""
        self.alert = ""
        """Why the last job could not begin."""
        self.size = 0
        """Bytes of memory of its music, an estimate of `trim`."""
        self.lost_in: Frame | None = None
        """Frame that is shown instead of music that was lost when its page closed."""

    def finish(self, asked: Asked, *, taken: bool) -> bool:
        """End the job; return whether its music is kept as a result.

        If not, or if no model has `taken` it, the workspace goes back to its state before.
        """
        self.asked, work = None, self.work
        frame = work.frame
        has_music = frame.get("phase") == "done" and bool(frame.get("variations"))
        if not has_music or self.dropped or not taken:
            work.set(asked.before)
            if work.past and work.past[-1].frame is asked.before.frame:
                work.past.pop()
            return False
        result = FinishedJob(work.step, asked)
        self.results = [*self.results, result][-MOST_RESULTS:]
        return True

    def opened_anew(self) -> None:
        """Reset the values of the form, as a reloaded page shows the defaults."""
        self.work.length, self.work.unit = MusicOptions.bars, "bars"
        self.work.variations, self.work.study = MusicOptions.variations, MusicOptions.study
        for name in ("form", "chords", "style", "key", "metre", "band", "tempo"):
            setattr(self.work, name, "")
        self.work.distance, self.work.ending = MusicOptions.distance, MusicOptions.ending

    def shown(self) -> Frame:
        """Return the frame that the player shows, with the actions that are possible."""
        work, busy = self.work, self.asked is not None
        lost = Frame(alert=OPENED_ANEW) if work.frame is self.lost_in else Frame()
        state = Frame(
            busy=busy,
            can_undo=bool(work.past) and not busy,
            can_redo=bool(work.future) and not busy,
        )
        if self.asked is not None:
            asked, options = self.asked.upload, self.asked.options
            texts = options.form or "", options.chords or ""
            plan = _plan(asked, options, texts)
        else:
            plan = work.plan() if work.frame.get("phase") == "prompt" else None
        if plan is not None:
            state["plan"] = plan
        if "timeline" not in work.frame and work.frame.get("phase") == "prompt":
            state["timeline"] = blank_timeline(plan["bars"] if plan else MusicOptions.bars)
        return work.frame | lost | state

    @property
    def request(self) -> Asked | None:
        """The request of the result that is shown; None if none is, or if it is not known."""
        if self.work.frame.get("phase") != "done":
            return None
        job = self.work.frame.get("job", "")
        return next((one.asked for one in self.results if one.step.frame.get("job") == job), None)

    def discard(self) -> None:
        """Discard the result that is shown; undo brings it back."""
        work = self.work
        job = work.frame.get("job", "")
        work.go(work.past[-1] if work.past else work.step._replace(frame=EMPTY))
        work.discards = job
        self.discarded.add(job)

    def undo(self) -> None:
        """Go back a step."""
        work = self.work
        work.future.append(work.step)
        work.set(work.past.pop())
        work.note = ""
        self.discarded.discard(work.frame.get("job", ""))

    def redo(self) -> None:
        """Go forward a step that was undone."""
        work = self.work
        work.past.append(work.step)
        work.set(work.future.pop())
        work.note = ""
        if work.discards:
            self.discarded.add(work.discards)

    def trim(self, most_bytes: int) -> None:
        """Drop music until it takes less memory: undone steps, the earliest steps and results.

        Updates `size`.
        """
        while True:
            steps = [self.work.step, self.work.past, self.work.future]
            self.size = size_of([steps, self.results, self.asked])
            if self.size <= most_bytes:
                return
            if self.work.future:
                del self.work.future[0]
            elif self.work.past:
                del self.work.past[0]
            elif self.results:
                del self.results[0]
            else:
                return


class Sessions:
    """All sessions, by the names that Gradio gives to pages; closed ones are kept for a while.

    A lost connection looks like a closed tab. A page that comes back under the same name continues
    its session; a reloaded page is recognised by the token of its browser tab.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._left: dict[str, float] = {}
        self._lock = threading.RLock()

    def of(self, name: str) -> Session:
        """Return the session of this name, or a new one."""
        with self._lock:
            session = self._sessions.pop(name, None) or Session()
            session.name = name
            self._sessions[name] = session  # the one that was used last
            self._left.pop(name, None)
            while len(self._sessions) > MOST_SESSIONS:
                oldest = next(iter(self._sessions))
                self._left.pop(oldest, None)
                del self._sessions[oldest]
            return session

    def trim(self, session: Session) -> None:
        """Limit the memory of a session that has changed, and of all sessions.

        If all take too much, others drop their earlier steps, and then go away, beginning with the
        one that was used least recently. A session with a job stays.
        """
        with session.lock:
            session.trim(MOST_BYTES_OF_SESSION)
        with self._lock:
            others = {name: one for name, one in self._sessions.items() if one is not session}
            total = session.size + sum(one.size for one in others.values())
            for is_last_resort in (False, True):
                for name, other in others.items():
                    if total <= MOST_BYTES:
                        return
                    if other.size and other.lock.acquire(blocking=False):  # else it is in use
                        try:
                            total -= other.size
                            other.trim(0)
                            if is_last_resort and other.asked is None:
                                other.size = 0
                                self._left.pop(name, None)
                                del self._sessions[name]
                            total += other.size
                        finally:
                            other.lock.release()

    def leave(self, name: str) -> None:
        """Mark a session as closed."""
        with self._lock:
            if name in self._sessions:
                self._left[name] = time.time()
            self._forget()

    def known_by(self, token: str) -> str | None:
        """Return the name of the page with this token, if there is one."""
        if not _TOKEN.fullmatch(token):
            return None
        with self._lock:
            for name, session in self._sessions.items():
                if hmac.compare_digest(session.token, token):
                    return name
        return None

    def adopt(self, name: str, before: str, token: str) -> Session | None:
        """Move the session of the page with the token `before` to the page `name` with `token`.

        Returns None if there is no such session, or if another page still shows it, as after a
        browser tab was duplicated.
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
            session.name = name
            self._sessions[name] = session
            return session

    def _forget(self) -> None:
        """Drop sessions that were closed long ago."""
        before = time.time() - LEFT_SECONDS
        for name, when in list(self._left.items()):
            if when < before:
                del self._left[name]
                self._sessions.pop(name, None)


_TOKEN = re.compile("[0-9a-f]{32}")
"""128 random bits, known only to a browser tab and the server."""
