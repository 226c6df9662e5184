"""Callbacks that begin and end jobs."""

from __future__ import annotations

from collections.abc import Iterator  # Gradio reads the annotations of callbacks
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gradio as gr

from app.compose.options import OF_NOTHING, MusicOptions, new_seed
from app.compose.plan.asked import lacks_style
from app.player.frames import Frame
from app.server.studio import waiting
from app.web.callbacks.alerts import BROKEN, BUSY, AlertError, alerting
from app.web.callbacks.fitting import fit
from app.web.cards import said, sentence
from app.web.session import Asked, Session, without_prompt
from app.web.tabs.music import FORM, OVER, form_problem, options_of
from app.web.view import View, session_of, user_of

if TYPE_CHECKING:
    from app.web.callbacks.settings import SettingsCallbacks
    from app.web.callbacks.uploads import UploadCallbacks

NOT_TAKEN = (
    "The job was not accepted: the queue is full or the connection was lost; try again in a minute."
)
NOTHING_ASKED = "There is no result whose request could be repeated; press Continue."
READING = "A file is being read: wait until it is loaded, then try again."


class JobCallbacks:
    """Callbacks of the buttons that begin and end a job."""

    def __init__(self, view: View, settings: SettingsCallbacks, uploads: UploadCallbacks) -> None:
        self._view, self._studio = view, view.studio
        self._settings, self._uploads = settings, uploads

    def begin(
        self,
        request: gr.Request,
        variation: Any,  # noqa: ANN401
        unit: str,
        fresh: bool,
        *values: Any,  # noqa: ANN401
    ) -> tuple[object, ...]:
        """Request a job with the values of a form; return its seed, and `View.show`.

        A result that is shown is continued: its `variation` becomes the prompt. Raises gr.Error,
        which is not shown, if the job cannot begin: the only callback that follows is then
        `refuse`, which shows the reason.
        """
        session = self._view.session(request)
        asked = dict(zip(FORM, values, strict=True))
        if fresh or asked["seed"] is None:
            asked["seed"] = new_seed()
        with self._refusing(session):
            work = session.work
            if work.upload and work.upload.passage and work.frame.get("phase") != "done":
                unit, asked["bars"] = "bars", MusicOptions.bars  # they have a length of their own
            if problem := form_problem(unit, asked):
                raise AlertError(problem)
            options = options_of(unit, asked)
            before, is_result = work.step, work.frame.get("phase") == "done"
            if is_result:
                self._uploads.take_result(session, variation, request)
            with session.lock:
                for name in OVER:
                    setattr(work, name, str(getattr(options, name) or ""))
                work.ending = options.ending
                if work.upload and lacks_style(work.style, work.upload.model.tokenizer):
                    fit(self._studio.models, work)
                upload = work.upload
                if upload is not None:
                    if upload.problem:
                        raise AlertError(upload.problem)
                    options = replace(options, **dict.fromkeys(OF_NOTHING))
                    options = upload.with_length(options)
                else:
                    options = without_prompt(options)
                model = None if upload else self._view.new_model(work)
                if unable := self._view.unable(work, work.style):
                    raise AlertError(unable)
                return self._ask(
                    session, request, Asked(upload, options, model, before), goes=not is_result
                )

    def again(self, request: gr.Request) -> tuple[object, ...]:
        """Repeat the request of the result that is shown, with another seed: see `begin`."""
        session = self._view.session(request)
        with self._refusing(session), session.lock:
            if (last := session.request) is None:
                raise AlertError(NOTHING_ASKED)
            options = replace(last.options, seed=new_seed())
            before = session.work.step
            return self._ask(session, request, last._replace(options=options, before=before))

    @contextmanager
    def _refusing(self, session: Session) -> Iterator[None]:
        """Keep the reason why a job cannot begin for `refuse`."""
        session.alert = ""
        try:
            with alerting():
                _check_free(session)
                yield
        except AlertError as alert:
            session.alert = sentence(str(alert))
            raise gr.Error(str(alert), visible=False, print_exception=False) from alert

    def _ask(
        self,
        session: Session,
        request: gr.Request,
        asked: Asked,
        *,
        goes: bool = True,
    ) -> tuple[object, ...]:
        """Begin a job; it `goes` a step on, unless the step before was made for it."""
        _check_free(session)
        work = session.work
        frame = waiting(asked.upload, asked.options.bars)
        job = self._studio.begin(session_of(request))
        session.asked = asked._replace(job=job)
        session.dropped, session.lost_in = False, None
        work.replay, work.note = None, ""  # no longer waits for its file
        move = work.go if goes else work.set
        move(work.step._replace(frame=frame))
        return asked.options.seed, *self._view.show(session)

    def refuse(self, request: gr.Request) -> tuple[object, ...]:
        """Show why `begin` has failed."""
        session = self._view.session(request)
        alert, session.alert = session.alert, ""  # the next call may fail before `begin`
        return self._view.show(session, alert=alert or BROKEN)

    def compose(self, request: gr.Request, listens: bool = False) -> Iterator[object]:
        """Generate the music of the session's job; yield values of the player.

        With `listens`, it is played while it is written.
        """
        session = self._view.session(request)
        asked = session.asked
        if asked is None:
            yield gr.skip()
            return
        try:
            with alerting():
                for frame in self._studio.compose(
                    session_of(request),
                    asked.upload,
                    asked.options,
                    asked.job,
                    asked.model,
                    user_of(request),
                    listens=listens,
                ):
                    yield self._show(session, asked, frame)
        except AlertError as alert:
            yield self._show(session, asked, asked.before.frame | Frame(alert=str(alert)))

    def _show(self, session: Session, asked: Asked, frame: Frame) -> object:
        """Return a frame of a job that was not discarded."""
        with session.lock:
            if session.dropped or session.asked is not asked:
                return gr.skip()
            session.work.frame = frame
            return session.shown()

    def end(self, request: gr.Request) -> tuple[object, ...]:
        """End the session's job, with or without music."""
        with self._view.locked(request) as session:
            if (asked := session.asked) is None:
                return self._view.show(session)
            never_taken = asked.job is not None and self._studio.end(asked.job)
            frame = session.work.frame
            alert = frame.get("alert", "")
            if session.finish(asked, taken=not never_taken):
                note = self._settings.clear(session, ["form"])  # the result has it
                session.work.note = said(note) if note else ""
                return self._view.show(session)
            if session.dropped:
                return self._view.show(session)
            return self._view.show(session, alert=NOT_TAKEN if never_taken else alert)

    def stop_job(self, request: gr.Request) -> None:
        """Stop the session's job; music that it has generated is kept."""
        self._studio.stop(session_of(request))

    def discard(self, request: gr.Request) -> tuple[object, ...]:
        """Discard the music that is being generated, or the result that is shown."""
        with self._view.locked(request) as session:
            if session.asked is not None:
                session.dropped = True
                self._studio.stop(session_of(request))
                return self._view.unchanged
            if session.work.frame.get("phase") == "done":
                session.discard()
            return self._view.show(session)


def _check_free(session: Session) -> None:
    """Raise AlertError while music is generated or a file is read."""
    if session.asked is not None:
        raise AlertError(BUSY)
    if session.reading:
        raise AlertError(READING)
