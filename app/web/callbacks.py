"""What the page calls: arguments and results are widget values.

Each session's tabs, uploads and results are in `app.web.session`; calls change them and return the
view of `app.web.view`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator  # Gradio reads the annotations of callbacks
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import gradio as gr

from app.audio.synth.soundfont import SoundError
from app.compose.new_bars import in_bars
from app.compose.options import LARGEST_SEED, MAX_FILE_BYTES, MusicOptions, new_seed
from app.player.frames import Frame, VariationFrame
from app.server.studio import EMPTY, Studio, waiting
from app.server.uploads import read_upload
from app.web.choices import key_problem
from app.web.examples import finished_file
from app.web.session import UPLOADING, Asked, Result, Session
from app.web.upload_calls import UploadCalls
from app.web.view import BROKEN, BUSY, READING, AlertError, alerting, session_of

__all__ = ["Callbacks", "session_of"]

_log = logging.getLogger(__name__)

NOT_TAKEN = (
    "The model has not taken this job: too many wait for it already, or the connection was lost; "
    "try again in a minute."
)


class Callbacks(UploadCalls):
    """All callbacks of the page."""

    def __init__(self, studio: Studio, max_upload_bytes: int) -> None:
        super().__init__(studio, max_upload_bytes)
        self._examples: dict[str, str] = {}  # the jobs that play them
        self._opening = threading.Lock()

    def begin(
        self,
        name: str,
        length: float,
        unit: str,
        variations: float,
        temperature: float,
        top_p: float,
        seed: float | None,
        fresh: bool,
        top_k: float,
        min_p: float,
        key: str,
        density: float,
        repetition: float,
        presence: float,
        recall: float,
        ending: Literal["bar", "cadence"],
        request: gr.Request,
    ) -> tuple[object, ...]:
        """A job is asked for: the seed it will use, and the view.

        Raises gr.Error, which nobody sees, where it cannot be begun: what comes after must not
        happen then, but for `refuse`, which says why.
        """
        session = self.session(request)
        session.alert = ""
        if fresh or seed is None:
            seed = new_seed()
        try:
            with session.lock, alerting():
                if session.asked is not None:
                    raise AlertError(BUSY)
                if session.reading:
                    raise AlertError(READING)
                tab = session.tabs[name]
                if name in UPLOADING and tab.upload is None:
                    raise AlertError("There is nothing to continue: bring a MIDI file first.")
                if problem := _problem(seed) or key_problem(key):
                    raise AlertError(problem)
                options = MusicOptions(
                    bars=int(length) if unit == "bars" else MusicOptions.bars,
                    seconds=length if unit == "seconds" else None,
                    seed=int(seed),
                    temperature=temperature,
                    top_p=top_p,
                    top_k=int(top_k),
                    min_p=min_p,
                    key=(key or "").strip() or None,
                    density=density,
                    repetition=repetition,
                    presence=presence,
                    recall=recall,
                    ending=ending,
                    variations=int(variations),
                )
                if tab.upload is not None:
                    options = in_bars(options, tab.upload.prompt)
                elif options.seconds:  # what the player draws at first, at two beats a second
                    options = replace(options, bars=max(1, round(options.seconds / 2)))
                upload = tab.upload if name in UPLOADING else None
                model = None if upload else self._model_of(tab)
                job = self.studio.begin(session_of(request))
                session.asked = Asked(name, upload, options, model, job, tab.step)
                session.dropped, session.lost_in = False, None
                tab.replay = None  # nobody waits for its file any more
                tab.go(tab.step._replace(frame=waiting(upload, options.bars)))
                return int(seed), *self.view(session)
        except AlertError as alert:
            session.alert = str(alert)
            raise _unseen(str(alert)) from alert

    def refuse(self, request: gr.Request) -> tuple[object, ...]:
        """`begin` has failed: the view as it is, with the reason."""
        session = self.session(request)
        alert, session.alert = session.alert, ""  # the next may fail before it gets to `begin`
        return self.view(session, alert=alert or BROKEN)

    def compose(self, request: gr.Request) -> Iterator[object]:
        """Writes the music that was asked for: the player, again and again."""
        session = self.session(request)
        asked = session.asked
        if asked is None:
            yield gr.skip()
            return
        try:
            with alerting():
                for frame in self.studio.compose(
                    session_of(request), asked.upload, asked.options, asked.job, asked.model
                ):
                    yield self._show(session, asked, frame)
        except AlertError as alert:
            yield self._show(session, asked, asked.before.frame | Frame(alert=str(alert)))

    def _show(self, session: Session, asked: Asked, frame: Frame) -> object:
        """A frame of a job, where its tab is in sight and it is still wanted."""
        with session.lock:
            if session.dropped or session.asked is not asked:
                return gr.skip()
            session.tabs[asked.tab].frame = frame
            return session.shown() if session.tab == asked.tab else gr.skip()

    def end(self, request: gr.Request) -> tuple[object, ...]:
        """The job is over, however it ended."""
        session = self.session(request)
        with session.lock:
            if (asked := session.asked) is None:
                return self.view(session)
            never_taken = self.studio.end(asked.job)
            alert = session.tabs[asked.tab].frame.get("alert", "")
            if self._kept(session, asked, taken=not never_taken) or session.dropped:
                return self.view(session)
            return self.view(session, alert=NOT_TAKEN if never_taken else alert)

    def _kept(self, session: Session, asked: Asked, *, taken: bool) -> bool:
        """The job of a session is over; whether something of it is kept as a result."""
        session.asked, tab = None, session.tabs[asked.tab]
        frame = tab.frame
        made = frame.get("phase") in ("rendering", "done") and bool(frame.get("variations"))
        if not made or session.dropped or not taken:
            session.give_back(asked)
            return False
        variations = [
            # made when it is asked for, where the connection was lost before
            row | VariationFrame(sound="ready") if row.get("sound") == "making" else row
            for row in frame.get("variations", [])
        ]
        tab.frame = frame | Frame(phase="done", variations=variations)
        session.options[frame.get("job", "")] = asked.options
        session.keep(Result(asked.tab, tab.step, time.time()))
        return True

    def stop_job(self, request: gr.Request) -> None:
        """Ends the job of this session; what is written stays."""
        self.studio.stop(session_of(request))

    def discard(self, request: gr.Request) -> tuple[object, ...]:
        """Drops what is being written, or the result in sight."""
        session = self.session(request)
        with session.lock:
            if session.asked is not None:
                session.dropped = True
                self.studio.stop(session_of(request))
                return (gr.skip(),) * len(self.view(session))
            tab = session.current
            if tab.frame.get("phase") == "done":
                session.forget(tab.step)
                tab.set(tab.past.pop() if tab.past else tab.step._replace(frame=EMPTY))
            return self.view(session)

    def leave(self, request: gr.Request) -> None:
        """The tab of the browser was closed, or the connection was lost."""
        self._leave(session_of(request))

    def _leave(self, name: str) -> None:
        for known in self.sessions.leave(name):
            self.studio.leave(known)

    def adopt(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """A page was opened, with the `token` of its tab of the browser.

        It goes on with what was shown `before` in that tab, if that page is no more: the server has
        noticed, or it said itself that it `is_gone`. Gradio opens a page anew where the connection
        was lost for a moment.
        """
        told: dict[str, object] = event._data if isinstance(event._data, dict) else {}
        before, token = (str(told.get(name, "")) for name in ("before", "token"))
        if told.get("is_gone") is True and (gone := self.sessions.known_by(before)):
            self._leave(gone)
        session = self.sessions.adopt(session_of(request), before, token)
        if session is None:
            return (gr.skip(),) * len(self.view(self.session(request)))
        with session.lock:
            session.opened_anew()
            asked = session.asked
            if asked is not None and not self._kept(session, asked, taken=True):
                session.lost_in = None if session.dropped else session.tabs[asked.tab].frame
            return self.view(session, moved=True)

    def file(self, request: object) -> dict[str, str]:
        """Path of a file of a job, `{job, variation, kind}`; or the error, as a sentence."""
        with _answered() as answer:
            job, variation, asked = _request(request)
            kind = asked.get("kind")
            if not isinstance(kind, str):
                raise LookupError(f"kind is {_short(kind)}, expected one such as midi")
            answer["path"] = self.studio.file(job, variation, kind).as_posix()
        return answer

    def mix(self, request: object) -> dict[str, str]:
        """Path of the sound without some tracks, `{job, variation, without}`; or the error."""
        with _answered() as answer:
            job, variation, asked = _request(request)
            without = asked.get("without") or []
            if not isinstance(without, list) or not all(isinstance(n, int) for n in without):
                raise LookupError(f"without is {_short(without)}, expected a list of tracks")
            job = self._opened(job)
            answer["path"] = self.studio.mix(job, variation, frozenset(without)).as_posix()
        return answer

    def _opened(self, job: str) -> str:
        """The id of a job; an example of the empty page becomes one when it is played."""
        path = finished_file(job)
        if path is None:
            return job
        with self._opening:
            if not self.studio.knows(self._examples.get(job, "")):
                upload = read_upload(path, MAX_FILE_BYTES, self.studio.models)
                self._examples[job] = self.studio.opened(job, upload).id
            return self._examples[job]


@contextmanager
def _answered() -> Iterator[dict[str, str]]:
    """An answer to the player: what fails becomes its error, in one sentence."""
    answer: dict[str, str] = {}
    try:
        yield answer
    except (LookupError, SoundError) as error:
        text = str(error.args[0]) if error.args else "there is nothing of that name"
        answer["error"] = f"The file cannot be had: {text}."
    except Exception:  # noqa: BLE001 - the player shows it, the log has it
        _log.exception("a file could not be made")
        answer["error"] = BROKEN


def _request(request: object) -> tuple[str, int, dict[str, Any]]:
    """Job and variation that the player asks for, and all that it says; raises LookupError."""
    if not isinstance(request, dict):
        raise LookupError(f"found {_short(request)}, expected job and variation")
    asked: dict[str, Any] = request
    job, variation = asked.get("job"), asked.get("variation")
    if not isinstance(job, str) or not isinstance(variation, int) or isinstance(variation, bool):
        raise LookupError(f"found {_short(asked)}, expected job and variation")
    return job, variation, asked


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]} …"


def _unseen(message: str) -> gr.Error:
    """Ends a callback; the player says why, not Gradio."""
    return gr.Error(message, visible=False, print_exception=False)


def _problem(seed: float) -> str | None:
    """What is wrong with a seed."""
    if 0 <= seed <= LARGEST_SEED and seed % 1 == 0:
        return None
    return f"The seed is {seed:,}, expected a whole number from 0 to {LARGEST_SEED:,}; change it."
