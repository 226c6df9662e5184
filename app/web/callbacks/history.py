"""Callbacks that open pages, and go back to earlier steps and results."""

from __future__ import annotations

import gradio as gr

from app.web.callbacks.alerts import BUSY
from app.web.callbacks.events import values_of
from app.web.session import NEW, RESTARTED
from app.web.view import View, session_of


class HistoryCallbacks:
    """Callbacks that choose the result or step of a session; each returns `View.show`."""

    def __init__(self, view: View) -> None:
        self._view = view

    def go_back(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Show one of the session's results again."""
        with self._view.locked(request) as session:
            job = values_of(event).get("job")
            result = next((r for r in session.results if r.step.frame.get("job") == job), None)
            if result is None or session.asked is not None:
                return self._view.show(session, alert=BUSY if session.asked else "")
            session.discarded.discard(job)
            if session.work.frame.get("job", "") != job:
                session.work.go(result.step)
            return self._view.show(session)

    def clear(self, request: gr.Request) -> tuple[object, ...]:
        """Forget all results and steps, and show a new piece."""
        with self._view.locked(request) as session:
            if session.asked is not None:
                return self._view.show(session, alert=BUSY)
            session.results, session.work.past, session.work.future = [], [], []
            session.work.set(NEW)
            return self._view.show(session)

    def undo(self, request: gr.Request) -> tuple[object, ...]:
        """Undo the last step."""
        with self._view.locked(request) as session:
            if session.work.past and session.asked is None:
                session.undo()
            return self._view.show(session)

    def redo(self, request: gr.Request) -> tuple[object, ...]:
        """Take back the last undo."""
        with self._view.locked(request) as session:
            if session.work.future and session.asked is None:
                session.redo()
            return self._view.show(session)

    def adopt(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Open a page, with a new `token` for its browser tab.

        The page takes over the session of the page with the token `before`, which the browser tab
        showed earlier, if that one is closed: the server has noticed it, or `is_gone` says so.
        Gradio also reloads a page after a short loss of the connection.
        """
        values, sessions = values_of(event), self._view.sessions
        before, token = (str(values.get(name, "")) for name in ("before", "token"))
        earlier = sessions.known_by(before)
        if values.get("is_gone") is True and earlier is not None:
            self._leave(earlier)
        session = sessions.adopt(session_of(request), before, token)
        if session is None:
            alert = RESTARTED if before and earlier is None else ""
            return self._view.show(self._view.session(request), alert=alert)
        with session.lock:
            session.opened_anew()
            asked = session.asked
            if asked is not None and not session.finish(asked, taken=True):
                session.lost_in = None if session.dropped else session.work.frame
            return self._view.show(session)

    def leave(self, request: gr.Request) -> None:
        """End a page: its browser tab was closed, or the connection was lost."""
        self._leave(session_of(request))

    def _leave(self, name: str) -> None:
        self._view.sessions.leave(name)
        self._view.studio.leave(name)
