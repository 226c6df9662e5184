"""What the page calls for uploads: reading, changing and continuing them, and bringing settings."""

from __future__ import annotations

from collections.abc import Callable  # Gradio reads the annotations of callbacks
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr

from app import replay
from app.choices import widget_values
from app.examples import example_file, finished_example
from app.history import AUTOMATIC, EXAMPLE_OF_TAB, UPLOADING, Session, Step
from app.options import BeatSource, MusicOptions
from app.player import Frame
from app.upload import Upload, read_apart, read_upload
from app.upload_card import refused, said
from app.view import BUSY, AlertError, View, alerting, session_of, track_numbers, whole_number

if TYPE_CHECKING:
    from app.continuation import MusicModel
    from app.replay import Replay


class UploadCalls(View):
    """Callbacks that change what a tab continues; each returns the view."""

    def reading(self, name: str, path: str, request: gr.Request) -> tuple[object, ...]:
        """A file has come and is being read."""
        session = self.session(request)
        with session.lock:
            session.tabs[name].note = said(f"Reading {Path(path).name} …")
            return self.view(session)

    def read(self, name: str, path: str, request: gr.Request) -> tuple[object, ...]:
        """Looks at an uploaded file; the box is empty again for the next: the first value."""
        return None, *self._take(name, Path(path), request)

    def take_example(self, name: str, example: str, request: gr.Request) -> tuple[object, ...]:
        """Shows an example as if it had been uploaded."""
        return self._take(name, example_file(example), request)

    def _take(self, name: str, path: Path, request: gr.Request) -> tuple[object, ...]:
        session = self.session(request)
        tab = session.tabs[name]
        try:
            with alerting():
                if session.asked is not None:
                    raise AlertError(BUSY)
                if path.suffix.lower() == ".json":
                    return self._take_settings(session, name, path)
                upload = read_upload(path, self.max_upload_bytes, self.studio.models)
                upload = self._by_choice(upload, tab.model)
        except AlertError as alert:
            with session.lock:
                tab.note = refused(str(alert))
                return self.view(session)
        with session.lock:
            tab.note = ""
            tab.go(upload, self._heard(upload, request))
            if tab.replay is not None and tab.replay.fits(upload.whole.data):
                return self._apply(session, name, tab.replay)
            return self.view(session)

    def _heard(self, upload: Upload, request: gr.Request) -> Frame:
        """The player with an upload, which can be played at once."""
        job = self.studio.opened(session_of(request), upload)
        return _again(upload.frame(), Frame(job=job.id))

    def _take_settings(self, session: Session, name: str, path: Path) -> tuple[object, ...]:
        """Settings of a piece were brought, to make it again."""
        told = replay.read(path.read_bytes()[: replay.MOST_BYTES + 1])
        if told.model not in self.studio.models.names:
            raise AlertError(
                f"The settings are of the model {told.model}, expected one of "
                f"{', '.join(self.studio.models.names)}; start the page with that --model."
            )
        with session.lock:
            tab = session.tabs[name]
            if told.prompt_sha256 is None:
                name, session.tab = "piano", "piano"
                session.tabs[name].model = told.model
                session.fill[name] = told.options
                return self.view(session, moved=True)
            if tab.upload is not None and told.fits(tab.upload.whole.data):
                return self._apply(session, name, told)
            tab.replay = told
            tab.note = said("These are the settings of a continuation: now bring its MIDI file.")
            return self.view(session)

    def _apply(self, session: Session, name: str, told: Replay) -> tuple[object, ...]:
        """Sets all as it was for a piece; its file is there."""
        tab = session.tabs[name]
        assert tab.upload is not None
        tab.replay, tab.model = None, told.model
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
            return self.view(session)
        frame = _again(upload.frame(), tab.frame)
        tab.set(Step(upload, frame, told.heard, told.played))
        tab.note = said("All is set as it was: press Continue to make the piece again.")
        session.fill[name] = told.options
        return self.view(session)

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
                tab.go(None, finished_example(EXAMPLE_OF_TAB[name]))
            return self.view(session)

    def count_anew(self, name: str, beats: BeatSource, request: gr.Request) -> tuple[object, ...]:
        """Counts bars and beats in another way."""
        return self._change(name, request, lambda upload: upload.counted_by(beats))

    def choose_model(self, name: str, model: str, request: gr.Request) -> tuple[object, ...]:
        """Another model is to continue the file of a tab, or to write the new piece."""
        session = self.session(request)
        with session.lock:
            if model not in (AUTOMATIC, *self.studio.models.names):
                return self.view(session)
            session.tabs[name].model = model
        if session.tabs[name].upload is None:
            return self.view(session)
        return self._change(name, request, lambda upload: self._by_choice(upload, model))

    def choose_region(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The model is to hear other bars: the player's region was moved."""
        session = self.session(request)
        upload = session.current.upload
        if upload is None:
            return self.view(session)
        first = whole_number(event, "first", upload.whole.bars)
        last = whole_number(event, "last", upload.whole.bars)
        if first is None or last is None or not 1 <= first <= last:
            return self.view(session)
        heard, played = session.current.heard, session.current.played
        change = lambda upload: upload.choose(first, last, heard, played)  # noqa: E731
        return self._change(session.tab, request, change)

    def choose_tracks(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """The model is to hear other tracks, or others are to play in the new music."""
        session = self.session(request)
        tab = session.current
        if tab.upload is None:
            return self.view(session)
        heard, played = track_numbers(event, "heard"), track_numbers(event, "played")
        first, last = tab.upload.prompt.first_bar, tab.upload.bars

        def change(upload: Upload) -> Upload:
            changed = upload.choose(first, last, heard, played)
            tab.heard, tab.played = heard, played
            return changed

        return self._change(session.tab, request, change)

    def _change(
        self, name: str, request: gr.Request, change: Callable[[Upload], Upload]
    ) -> tuple[object, ...]:
        """Changes the upload of a tab, and shows it; where that cannot be, the reason."""
        session = self.session(request)
        tab = session.tabs[name]
        try:
            with session.lock, alerting():
                if tab.upload is None:
                    return self.view(session)
                if session.asked is not None:
                    raise AlertError(BUSY)
                upload = change(tab.upload)
                if (
                    tab.frame.get("phase") == "prompt"
                ):  # small changes of it are no steps of their own
                    tab.upload, tab.frame = upload, _again(upload.frame(), tab.frame)
                else:
                    tab.go(upload, self._heard(upload, request), tab.heard, tab.played)
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
        frame = session.current.frame
        index = whole_number(event, "variation", len(frame.get("variations", [])) - 1)
        if index is None or session.asked is not None or frame.get("phase") != "done":
            return self.view(session, alert=BUSY if session.asked else "")
        try:
            with alerting():
                before = session.current.upload
                path = self.studio.file(frame.get("job", ""), index, "midi")
                beats: BeatSource = before.whole.facts.beats if before else "file"
                upload = read_upload(path, 10 * self.max_upload_bytes, self.studio.models, beats)
                upload = _called(upload, f"{frame.get('title', 'music')}.mid")
                if session.current.upload is not None:
                    upload = self._by_choice(upload, session.current.upload.model.name)
        except AlertError as alert:
            return self.view(session, alert=str(alert))
        with session.lock:
            moved = session.tab not in UPLOADING
            session.tab = UPLOADING[0] if moved else session.tab
            tab = session.current
            tab.note = ""
            tab.go(upload, self._heard(upload, request))
            return self.view(session, moved=moved)


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
