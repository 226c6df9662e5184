"""What the page calls for uploads: reading, changing and continuing them, and bringing settings."""

from __future__ import annotations

from collections.abc import Callable  # Gradio reads the annotations of callbacks
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr

from app import replay
from app.choices import not_of_page, widget_values
from app.examples import example_file, finished_example
from app.history import AUTOMATIC, EXAMPLE_OF_TAB, UPLOADING, Session, Step
from app.options import BeatSource, MusicOptions
from app.player import Frame
from app.upload import Upload, read_apart, read_upload
from app.upload_card import refused, said
from app.view import BUSY, AlertError, View, alerting, session_of, track_numbers, whole_number
from tokenization.errors import MidiError

if TYPE_CHECKING:
    from app.continuation import MusicModel
    from app.replay import Replay

GONE = "This music cannot be continued: its files are not kept any more; make it again."
REGION_ANEW = "Its bars are others now: choose again which of them the model hears."
TRACKS_ANEW = (
    "The tracks that you chose cannot be continued so: all are chosen again, as far as can be."
)


class UploadCalls(View):
    """Callbacks that change what a tab continues; each returns the view."""

    def reading(self, name: str, path: str, request: gr.Request) -> tuple[object, ...]:
        """A file has come and is being read."""
        session = self.session(request)
        with session.lock:
            session.tabs[name].note = said(f"Reading {Path(path).name} …")
            return self.view(session, reading=True)

    def read(self, name: str, path: str, request: gr.Request) -> tuple[object, ...]:
        """Looks at an uploaded file; the box is empty again for the next: the first value."""
        return None, *self._take(name, Path(path), request)

    def take_example(self, name: str, example: str, request: gr.Request) -> tuple[object, ...]:
        """Shows an example as if it had been uploaded."""
        return self._take(name, example_file(example), request)

    def _take(self, name: str, path: Path, request: gr.Request) -> tuple[object, ...]:
        session = self.session(request)
        tab = session.tabs[name]
        moved = False
        try:
            with alerting(), self.reading_file(session):
                if path.suffix.lower() == ".json":
                    self._take_settings(session, name, path)
                    moved = session.tab != name
                else:
                    upload = read_upload(path, self.max_upload_bytes, self.studio.models)
                    self._take_upload(session, name, self._by_choice(upload, tab.model), request)
        except AlertError as alert:
            with session.lock:
                tab.note = refused(str(alert))
        return self.view(session, moved=moved)

    def _take_upload(
        self, session: Session, name: str, upload: Upload, request: gr.Request
    ) -> None:
        """Shows a file that was read, set as it was where its settings came before."""
        with session.lock:
            tab = session.tabs[name]
            tab.note = ""
            tab.go(Step(upload, self._heard(upload, request), model=tab.model))
            if tab.replay is not None and tab.replay.fits(upload.whole.data):
                self._apply(session, name, tab.replay)

    def _heard(self, upload: Upload, request: gr.Request) -> Frame:
        """The player with an upload, which can be played at once."""
        job = self.studio.opened(session_of(request), upload)
        return _again(upload.frame(), Frame(job=job.id))

    def _take_settings(self, session: Session, name: str, path: Path) -> None:
        """Settings of a piece were brought, to make it again: they go into a form."""
        told = replay.read(path.read_bytes()[: replay.MOST_BYTES + 1])
        if told.model not in self.studio.models.names:
            raise AlertError(
                f"The settings are of the model {told.model}, expected one of "
                f"{', '.join(self.studio.models.names)}; start the page with that --model."
            )
        if problem := not_of_page(told.options):
            raise AlertError(problem)
        with session.lock:
            tab = session.tabs[name]
            if told.prompt_sha256 is None:
                session.tab, tab.note = "piano", ""
                session.tabs["piano"].model = told.model
                session.fill["piano"] = told.options
            elif tab.upload is not None and told.fits(tab.upload.whole.data):
                self._apply(session, name, told)
            else:
                tab.replay = told
                tab.note = said(
                    "These are the settings of a continuation: now bring its MIDI file."
                )

    def _apply(self, session: Session, name: str, told: Replay) -> None:
        """Sets all as it was for a piece; its file is there."""
        tab = session.tabs[name]
        assert tab.upload is not None
        tab.replay = None
        try:
            with alerting():
                upload = self._by_choice(tab.upload, told.model)
                if upload.whole.facts.beats != told.beats:
                    upload = upload.counted_by(told.beats)
                last = told.last_bar or upload.whole.bars
                first, usual = told.first_bar, MusicOptions.prompt_bars
                if first is None and (heard := told.options.prompt_bars) != usual:
                    first = max(last - heard, 0) + 1 if heard else 1
                upload = upload.choose(first, last, told.heard, told.played)
        except AlertError as alert:
            tab.note = refused(str(alert))
            return
        frame = _again(upload.frame(), tab.frame)
        tab.set(Step(upload, frame, told.heard, told.played, told.model))
        tab.note = said("All is set as it was: press Continue to make the piece again.")
        session.fill[name] = told.options

    def use_settings(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The settings of the variation in sight go into the form."""
        session = self.session(request)
        with session.lock:
            frame = session.current.frame
            index = whole_number(event, "variation", len(frame.get("variations", [])) - 1)
            options = session.options.get(frame.get("job", ""))
            if index is not None and options is not None and options.seed is not None:
                seed = options.seed + index
                session.fill[session.tab] = replace(options, seed=seed, variations=1)
            return self.view(session)

    def fill(self, request: gr.Request) -> tuple[object, ...]:
        """What goes into the forms of all tabs: see `widget_values`."""
        session = self.session(request)
        with session.lock:
            wanted, session.fill = session.fill, {}
        none = (gr.skip(),) * len(widget_values(MusicOptions()))
        return tuple(
            value
            for name in session.tabs
            for value in (widget_values(wanted[name]) if name in wanted else none)
        )

    def forget(self, name: str, request: gr.Request) -> tuple[object, ...]:
        """The file is not wanted any more."""
        session = self.session(request)
        with session.lock:
            tab = session.tabs[name]
            if session.asked is not None:
                return self.view(session, alert=BUSY)
            tab.note = ""
            if tab.upload is not None:
                tab.go(Step(None, finished_example(EXAMPLE_OF_TAB[name]), model=tab.model))
            return self.view(session)

    def count_anew(self, name: str, beats: BeatSource, request: gr.Request) -> tuple[object, ...]:
        """Counts bars and beats in another way: bars are others then, tracks are the same."""

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            counted = upload.counted_by(beats)
            chosen, note = _with_tracks(step, counted, None, counted.whole.bars)
            is_part = upload.prompt.first_bar is not None or upload.bars < upload.whole.bars
            return chosen, note or (REGION_ANEW if is_part else "")

        return self._change(name, request, change)

    def choose_model(self, name: str, model: str, request: gr.Request) -> tuple[object, ...]:
        """Another model is to continue the file of a tab, or to write the new piece."""
        session = self.session(request)

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            first, last = upload.prompt.first_bar, upload.bars
            step = step._replace(model=model)
            return _with_tracks(step, self._by_choice(upload, model), first, last)

        with session.lock:
            tab = session.tabs[name]
            if model not in (AUTOMATIC, *self.studio.models.names):
                return self.view(session)
            if tab.upload is not None:
                return self._change(name, request, change)
            tab.model = model
            return self.view(session)

    def choose_region(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The model is to hear other bars: the player's region was moved."""
        session = self.session(request)

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            first = whole_number(event, "first", upload.whole.bars)
            last = whole_number(event, "last", upload.whole.bars)
            if first is None or last is None or not 1 <= first <= last:
                return step, ""
            chosen = upload.choose(first, last, step.heard, step.played)
            return step._replace(upload=chosen), ""

        return self._change(session.tab, request, change)

    def choose_tracks(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The model is to hear other tracks, or others are to play in the new music."""
        session = self.session(request)
        heard, played = track_numbers(event, "heard"), track_numbers(event, "played")

        def change(step: Step, upload: Upload) -> tuple[Step, str]:
            chosen = upload.choose(upload.prompt.first_bar, upload.bars, heard, played)
            return step._replace(upload=chosen, heard=heard, played=played), ""

        return self._change(session.tab, request, change)

    def _change(
        self,
        name: str,
        request: gr.Request,
        change: Callable[[Step, Upload], tuple[Step, str]],
    ) -> tuple[object, ...]:
        """Changes the upload of a tab, and shows it; where that cannot be, the reason.

        `change` gives the step after it, but for its frame, and what the card says of it.
        """
        session = self.session(request)
        tab = session.tabs[name]
        try:
            with session.lock, alerting():
                if tab.upload is None:
                    return self.view(session)
                if session.asked is not None:
                    raise AlertError(BUSY)
                before = tab.step
                step, note = change(before, tab.upload)
                if step is before or step.upload is None:
                    return self.view(session)
                if note or tab.replay is None:  # else it waits for its file
                    tab.note = said(note) if note else ""
                if tab.frame.get("phase") == "prompt":
                    # small changes of it are no steps of their own
                    tab.set(step._replace(frame=_again(step.upload.frame(), tab.frame)))
                else:
                    tab.go(step._replace(frame=self._heard(step.upload, request)))
                return self.view(session)
        except AlertError as alert:
            return self.view(session, alert=str(alert))

    def _by_choice(self, upload: Upload, model: str) -> Upload:
        """The same file for the model that was chosen, or that suits it."""
        if model == AUTOMATIC:
            wanted = self.studio.models.to_continue(upload.whole.score)
        else:
            wanted = self.studio.models.load(model)
        return upload if wanted is upload.model else _for_model(upload, wanted)

    def continue_this(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """A variation becomes the prompt of what comes next."""
        session = self.session(request)
        with session.lock:
            before, frame = session.current.upload, session.current.frame
            goes_to = session.tab if session.tab in UPLOADING else UPLOADING[0]
            moved = session.tab != goes_to
        index = whole_number(event, "variation", len(frame.get("variations", [])) - 1)
        if index is None or frame.get("phase") != "done":
            return self.view(session, alert=BUSY if session.asked else "")
        try:
            with alerting(), self.reading_file(session):
                path = self._midi(frame.get("job", ""), index)
                beats: BeatSource = before.whole.facts.beats if before else "file"
                upload = read_upload(path, 10 * self.max_upload_bytes, self.studio.models, beats)
                upload = _called(upload, f"{frame.get('title', 'music')}.mid")
                wanted = before.model.name if before else session.tabs[goes_to].model
                upload = self._by_choice(upload, wanted)
                with session.lock:
                    session.tab, tab = goes_to, session.tabs[goes_to]
                    tab.note = ""
                    tab.go(Step(upload, self._heard(upload, request), model=tab.model))
        except AlertError as alert:
            return self.view(session, alert=str(alert))
        return self.view(session, moved=moved)

    def _midi(self, job: str, variation: int) -> Path:
        """The MIDI file of a result. Raises AlertError where it is not kept any more."""
        try:
            return self.studio.file(job, variation, "midi")
        except LookupError as error:
            raise AlertError(GONE) from error


def _with_tracks(step: Step, upload: Upload, first: int | None, last: int) -> tuple[Step, str]:
    """The choice of bars and tracks, of an upload that was read in another way.

    And what is to be said of it: where these tracks cannot be had so, all are chosen.
    """
    try:
        chosen = upload.choose(first, last, step.heard, step.played)
        return step._replace(upload=chosen), ""
    except MidiError:
        if step.heard is None and step.played is None:
            raise
    chosen = upload.choose(first, last, None, None)
    return step._replace(upload=chosen, heard=None, played=None), TRACKS_ANEW


def _again(frame: Frame, before: Frame) -> Frame:
    """An upload as it is now, with the job that plays it."""
    job = Frame(job=before.get("job", ""))
    if "prompt" not in frame:
        return frame | job
    prompt = frame["prompt"].copy()
    prompt["sound"] = "ready"
    return frame | job | Frame(prompt=prompt)


def _for_model(upload: Upload, model: MusicModel) -> Upload:
    """The same file as another model hears it, up to its end."""
    whole = read_apart(
        upload.whole.data,
        upload.whole.name,
        tokenizer=model.tokenizer,
        beats=upload.whole.facts.beats,
    )
    return replace(upload, whole=whole, prompt=whole, model=model)


def _called(upload: Upload, name: str) -> Upload:
    """The same file by another name."""
    whole = replace(upload.whole, name=name)
    return replace(upload, whole=whole, prompt=whole)
