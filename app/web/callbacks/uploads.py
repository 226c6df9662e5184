"""Callbacks that read uploads, and choose the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gradio as gr

from app.compose.options import BeatSource
from app.player.edits import Edit, drums_after_edits
from app.player.frames import Frame
from app.server.job import PROMPT_ALONE
from app.server.uploads import Upload, read_upload, upload_of
from app.web.callbacks.alerts import BUSY, AlertError, alerting
from app.web.callbacks.events import chosen_passage, track_numbers, values_of, whole_number
from app.web.callbacks.fitting import (
    fitted,
    for_model,
    shown,
    to_write,
    with_drums,
    with_tracks,
)
from app.web.callbacks.settings import SettingsCallbacks
from app.web.cards import refused, said, sentence
from app.web.examples import example_file, label_of
from app.web.session import AUTOMATIC, NEW, Session, Step
from app.web.view import View, session_of
from tokenization.analysis.form import Phrase
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi.drums import switch_drums

MOST_LETTERS = 200
"""Maximum length of a file name in a message."""
GONE = "This music cannot be continued because its files were removed; generate it again."
REGION_ANEW = "The bars have changed: choose again which of them the model reads."
NO_EDIT = Edit()
PASSAGE_ANEW = "The bars have changed: select again which of them are to be written."


class UploadCallbacks:
    """Callbacks that change the piece that is worked on; each returns `View.show`."""

    def __init__(self, view: View, settings: SettingsCallbacks, max_upload_bytes: int) -> None:
        self._view, self._settings = view, settings
        self._studio, self._models = view.studio, view.studio.models
        self._max_bytes = max_upload_bytes

    def reading(self, path: str, request: gr.Request) -> tuple[object, ...]:
        """Show that a file is being read."""
        with self._view.locked(request) as session:
            session.work.note = said(f"Reading {Path(path).name} …")
            return self._view.show(session, reading=True)

    def read(self, path: str, request: gr.Request) -> tuple[object, ...]:
        """Read an uploaded file; the first value empties the box for the next one."""
        return None, *self._take(Path(path), request)

    def take_example(self, example: str, request: gr.Request) -> tuple[object, ...]:
        """Show an example as if it had been uploaded, with its label as its name."""
        return self._take(example_file(example), request, label_of(example))

    def too_large(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Refuse a file that is too large, which the browser has not sent."""
        session = self._view.session(request)
        size = whole_number(event, "size", 2**53)
        if size is not None:
            file = str(values_of(event).get("name", ""))[:MOST_LETTERS] or "the file"
            with session.lock:
                session.work.note = refused(
                    f"{file}: found {size:,} bytes, expected at most {self._max_bytes:,}; "
                    "export a shorter part",
                    session.work.upload,
                )
        return self._view.show(session)

    def _take(self, path: Path, request: gr.Request, title: str = "") -> tuple[object, ...]:
        session = self._view.session(request)
        work = session.work
        try:
            with alerting(), _reading(session):
                if path.suffix.lower() == ".json":
                    self._settings.take(session, path)
                else:
                    upload = read_upload(path, self._max_bytes, self._models)
                    upload = upload.named(title) if title else upload
                    with session.lock:
                        note = self._settings.clear(session)
                    upload = for_model(self._models, upload, work.model)
                    with session.lock:
                        work.note = said(note) if note else ""
                        work.go(Step(upload, self._opened(upload, request), model=work.model))
                        if work.replay is not None:
                            self._settings.bring_to(session, work.replay)
        except AlertError as alert:
            with session.lock:
                work.note = refused(str(alert), work.upload)
        return self._view.show(session)

    def _opened(self, upload: Upload, request: gr.Request) -> Frame:
        """Return the frame of an upload, with a new job that plays it."""
        return shown(upload, self._studio.opened(session_of(request), upload).id)

    def new_piece(self, request: gr.Request) -> tuple[object, ...]:
        """Show the bars of a piece from nothing instead of the file or result."""
        with self._view.locked(request) as session:
            if session.asked is not None:
                return self._view.show(session, alert=BUSY)
            work = session.work
            note = self._settings.clear(session) if work.upload is not None else ""
            work.note = said(note) if note else ""
            if work.step[:2] != NEW[:2]:
                work.go(NEW._replace(model=work.model))
            return self._view.show(session)

    def count_anew(self, beats: BeatSource, request: gr.Request) -> tuple[object, ...]:
        """Take beats from another source, which changes the bars but not the tracks."""

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            counted = upload.counted_by(beats)
            following, note = with_tracks(step, counted, None, counted.whole.bars)
            is_part = upload.prompt.first_bar is not None or upload.bars < upload.whole.bars
            if upload.passage is not None:
                return following, PASSAGE_ANEW
            return following, note or (REGION_ANEW if is_part else "")

        return self._change(request, change)

    def choose_drums(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Take a track, and those that share its channel, for drums or for a melody."""

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            number = whole_number(event, "track", len(upload.score.tracks) - 1)
            if number is None:
                return step, ""
            is_drum = values_of(event).get("drums") is True
            score = switch_drums(upload.score, number, is_drum=is_drum)
            style = self._view.session(request).work.asked_style
            changed = with_drums(self._models, upload, score, step.model, style)
            if upload.passage is not None:
                changed = to_write(self._models, changed, step.model, upload.passage, style)
                return step._replace(upload=changed), ""
            return _chosen_as(step._replace(upload=changed), changed, upload, step), ""

        return self._change(request, change, sounds_new=True)

    def choose_model(self, model: str, request: gr.Request) -> tuple[object, ...]:
        """Choose the model that continues the file, or that generates a new piece."""

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            return fitted(self._models, step._replace(model=model), session.work.asked_style)

        with self._view.locked(request) as session:
            if model in (AUTOMATIC, *self._models.names):
                if session.work.upload is not None:
                    return self._change(request, change)
                session.work.model = model
            return self._view.show(session)

    def choose_region(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Choose the bars that the model reads, after the player's region was moved."""

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            first = whole_number(event, "first", upload.whole.bars)
            last = whole_number(event, "last", upload.whole.bars)
            if first is None or last is None or not 1 <= first <= last:
                return step, ""
            # from bar 1: all bars, as by default
            part = upload.choose(first if first > 1 else None, last, step.heard, step.played)
            return step._replace(upload=part), ""

        return self._change(request, change)

    def choose_passage(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Choose the bars and tracks to write, after they were selected in the player.

        Without bars, new music follows at the end. If a result is shown, they belong to its
        `variation`, which becomes the piece.
        """
        passage = chosen_passage(event)

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            style = self._view.session(request).work.asked_style
            if passage is not None:
                changed = to_write(self._models, upload, step.model, passage, style)
            else:
                upload = for_model(self._models, upload, step.model, style)
                changed = upload.choose(None, upload.whole.bars, step.heard, step.played)
            return step._replace(upload=changed), ""

        session = self._view.session(request)
        if session.work.frame.get("phase") == "done":
            try:
                with alerting():
                    self.take_result(session, values_of(event).get("variation"), request)
            except AlertError as alert:
                return self._view.show(session, alert=sentence(str(alert)))
        return self._change(request, change)

    def choose_tracks(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Choose the tracks that the model reads, and those that play in the new music."""
        heard, played = track_numbers(event, "heard"), track_numbers(event, "played")

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            part = upload.choose(upload.prompt.first_bar, upload.bars, heard, played)
            return step._replace(upload=part, heard=heard, played=played), ""

        return self._change(request, change)

    def _change(
        self,
        request: gr.Request,
        change: Callable[[Step, Upload], tuple[Step, str]],
        *,
        sounds_new: bool = False,
    ) -> tuple[object, ...]:
        """Change the upload, or show why it cannot.

        `change` returns the next step, without its frame, and a note for the card, which replaces
        the note that is there. If the file `sounds_new`, its sound is made again.
        """
        session = self._view.session(request)
        work = session.work
        try:
            with session.lock, alerting():
                if work.upload is None:
                    return self._view.show(session)
                if session.asked is not None:
                    raise AlertError(BUSY)
                before = work.step
                step, note = change(before, work.upload)
                if step is before or step.upload is None:
                    return self._view.show(session)
                # settings that wait for their file keep their note
                if note or work.replay is None:
                    work.note = said(note) if note else ""
                if work.frame.get("phase") == "prompt" and not sounds_new:
                    # changing the prompt again is not a separate step
                    frame = shown(step.upload, work.frame.get("job", ""))
                    work.set(step._replace(frame=frame))
                else:
                    work.go(step._replace(frame=self._opened(step.upload, request)))
                return self._view.show(session)
        except AlertError as alert:
            return self._view.show(session, alert=str(alert))

    def edit(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Edit the piece that is shown, a result or the prompt; undo takes the edit back."""
        edit = Edit.of(values_of(event))
        session = self._view.session(request)
        phase, index = session.work.frame.get("phase"), PROMPT_ALONE
        if phase == "done":
            index = values_of(event).get("variation")
        if edit is None or phase not in ("done", "prompt"):
            return self._view.show(session, alert=BUSY if session.asked else "")
        try:
            with alerting():
                self.take_result(session, index, request, edit)
        except AlertError as alert:
            return self._view.show(session, alert=sentence(str(alert)))
        return self._view.show(session)

    def take_result(
        self, session: Session, index: object, request: gr.Request, edit: Edit = NO_EDIT
    ) -> None:
        """Make an edited piece of the session the prompt of the next job.

        `index` is the number of a variation, or PROMPT_ALONE, as it was sent. Raises AlertError.
        """
        work = session.work
        before, frame = work.upload, work.frame
        is_result = frame.get("phase") == "done"
        places = range(len(frame.get("variations", []))) if is_result else (PROMPT_ALONE,)
        with _reading(session):
            try:
                if not isinstance(index, int) or isinstance(index, bool) or index not in places:
                    raise LookupError
                piece = self._studio.shown(frame.get("job", ""), index)
            except LookupError as error:
                raise AlertError(GONE) from error
            beats: BeatSource = before.whole.facts.beats if before else "file"
            title = frame.get("title", "music")
            data, sections = edit.apply(*piece), _sections_of(frame, index)
            drums = drums_after_edits(piece[1])
            upload = upload_of(data, f"{title}.mid", self._models, beats, sections, drums)
            name = before.model.name if before else work.model
            upload = for_model(self._models, upload, name, work.asked_style)
            step = Step(upload, frame, model=work.model)
            if before is not None and not is_result:
                step = _chosen_as(step, upload, before, work.step)
            with session.lock:
                work.go(step._replace(frame=self._opened(step.upload or upload, request)))


def _sections_of(frame: Frame, index: int) -> tuple[Phrase, ...]:
    """Return the sections over the roll, of a variation or the prompt; they keep their letters."""
    shown = frame.get("prompt") if index == PROMPT_ALONE else frame.get("variations", [])[index]
    sheet = shown.get("sheet") if shown else None
    if sheet is None:
        return ()
    return tuple(Phrase(letter, first - 1, count) for letter, first, count in sheet["sections"])


def _chosen_as(step: Step, upload: Upload, before: Upload, present: Step) -> Step:
    """Return a step with an edited upload, and the bars and tracks chosen, if it has them."""
    if len(upload.whole.facts.rows) != len(before.whole.facts.rows):
        return step
    try:
        if before.passage is not None and not before.problem:
            return step._replace(upload=upload.writing(before.passage))
        is_whole = before.bars == before.whole.bars
        last = upload.whole.bars if is_whole else min(before.bars, upload.whole.bars)
        picked = upload.choose(before.prompt.first_bar, last, present.heard, present.played)
        return step._replace(upload=picked, heard=present.heard, played=present.played)
    except (MidiError, TokenizerError):
        return step


@contextmanager
def _reading(session: Session) -> Iterator[None]:
    """Prevent jobs from beginning while a file is read; raise AlertError if a job is running."""
    with session.lock:
        if session.asked is not None:
            raise AlertError(BUSY)
        session.reading += 1
    try:
        yield
    finally:
        with session.lock:
            session.reading -= 1
