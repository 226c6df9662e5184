"""Callbacks of the tab *Study*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence  # Gradio reads the annotations of callbacks
from contextlib import closing
from pathlib import Path
from typing import Any

import gradio as gr

from app.server.studies import StudyFiles, clips_of
from app.web.callbacks.alerts import AlertError, alerting
from app.web.cards import sentence
from app.web.tabs.study import FIELDS, NOTHING, counted, ended, finished, progress, study_of
from app.web.view import View, session_of, user_of

STOPPED = "The study was stopped; nothing was kept."


class StudyCallbacks:
    """Callbacks that make the study of a session, and count its clips."""

    def __init__(self, view: View) -> None:
        self._studies = view.studio.studies

    def count_clips(self, files: list[dict[str, Any]] | None, *values: Any) -> str:  # noqa: ANN401
        """Return the number of clips, as HTML.

        Values are as sent. The text is empty while one cannot be used.
        """
        try:
            study, names = study_of(dict(zip(FIELDS, values, strict=True)), _paths(files))
        except Exception:  # noqa: BLE001 - `make_study` says why
            return ""
        return counted(clips_of(study, len(names)))

    def make_study(
        self,
        files: list[str] | None,
        request: gr.Request,
        *values: Any,  # noqa: ANN401
    ) -> Iterator[tuple[object, ...]]:
        """Make a study; yield the button to make, the button to stop, and the result."""
        running = gr.Button(visible=False), gr.Button(visible=True)
        resting = gr.Button(visible=True), gr.Button(visible=False)
        yield *running, progress(0, 0, "Starting …")
        session = session_of(request)
        message = ended(STOPPED)
        try:
            with alerting():
                paths = _paths(files)
                study, names = study_of(dict(zip(FIELDS, values, strict=True)), paths)
                prompts = list(zip(names, paths, strict=True))
                with closing(
                    self._studies.make(session, study, prompts, user_of(request))
                ) as steps:
                    for step in steps:
                        if isinstance(step, StudyFiles):
                            size = step.zip.stat().st_size / 1e6
                            message = finished(step.zip, size, step.clips, step.config)
                        else:
                            yield *running, progress(step.done, step.total, step.doing)
        except AlertError as alert:
            message = ended(sentence(str(alert)), is_alert=True)
        yield *resting, message

    def stop_study(self, request: gr.Request) -> None:
        """Stop the study of the session."""
        self._studies.stop(session_of(request))

    def refuse_study(self) -> tuple[object, ...]:
        """Return the widgets after a study that could not begin."""
        return gr.Button(visible=True), gr.Button(visible=False), NOTHING


def _paths(files: Sequence[str | dict[str, Any]] | None) -> list[Path]:
    """Return the paths of uploaded files, also as the browser sends them."""
    return [Path(file["path"] if isinstance(file, dict) else file) for file in files or []]
