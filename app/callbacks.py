"""What the widgets of the page call: arguments and results are widget values."""

from __future__ import annotations

import html
import logging
import threading
from collections.abc import Iterator  # Gradio reads the annotations of callbacks
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import gradio as gr

from app.errors import INPUT_ERRORS
from app.facts import PromptFacts
from app.options import LARGEST_SEED, BeatSource, MusicOptions, new_seed
from app.player import Frame
from app.studio import EMPTY, Studio, waiting
from app.upload import Upload, read_upload
from tokenization.beats import ON_GRID

_log = logging.getLogger(__name__)

CREATIVITY = {"Safe": (0.9, 0.90), "Balanced": (1.0, 0.95), "Wild": (1.1, 0.98)}
"""Temperature and top-p of each choice."""

NOT_TAKEN = (
    "The model has not taken this job: too many wait for it already, or the connection was lost; "
    "try again in a minute."
)

BROKEN = "This did not work; the program's log says why."


class _AlertError(Exception):
    """What went wrong, in one sentence for the user."""


@contextmanager
def _told() -> Iterator[None]:
    """Makes an alert of every error; one that the input has not caused is logged."""
    try:
        yield
    except INPUT_ERRORS as error:
        raise _AlertError(str(error)) from error
    except Exception as error:
        _log.exception("a callback of the page failed")
        raise _AlertError(BROKEN) from error


def session_of(request: gr.Request) -> str:
    """Who asks. Raises gr.Error where a request does not say so: nobody shares a session."""
    if request.session_hash is None:
        raise gr.Error(
            "found no session_hash in the request, expected that of the caller; join the queue, as "
            "gradio_client does",
            print_exception=False,
        )
    return request.session_hash


def mood_of(temperature: float, top_p: float) -> str | None:
    """The name of a temperature and top-p; None for those without."""
    return next((name for name, pair in CREATIVITY.items() if pair == (temperature, top_p)), None)


def roll_dice() -> tuple[int, bool]:
    """A seed, and that it is to be kept."""
    return new_seed(), False


def facts_table(facts: PromptFacts, model: str) -> str:
    """What an accepted file holds, and what the user should know about it, as HTML."""
    seconds = round(facts.seconds)
    rows = {
        "Length": f"{seconds // 60}:{seconds % 60:02d}",
        "Bars": f"{facts.bars:,}",
        "Metre": facts.metre,
        "Tempo": f"{facts.bpm:.0f} bpm",
        "Notes": f"{facts.notes:,}",
        "Tracks": f"{facts.tracks}",
    }
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{html.escape(text)}</dd></div>" for name, text in rows.items()
    )
    notices = "".join(f"<li>{html.escape(notice)}</li>" for notice in facts.notices)
    return f"<dl>{cells}</dl><p>continued by the {html.escape(model)} model</p>" + (
        f"<ul>{notices}</ul>" if notices else ""
    )


class Callbacks:
    """The page's callbacks: they turn widget values into calls of the studio."""

    def __init__(self, studio: Studio, max_upload_bytes: int) -> None:
        self.studio = studio
        self.max_upload_bytes = max_upload_bytes

    def read(self, path: str) -> tuple[object, ...]:
        """Looks at an uploaded file: upload, facts, beats, last bar, button, player."""
        try:
            with _told():
                upload = read_upload(Path(path), self.max_upload_bytes, self.studio.models)
                off_grid = upload.whole.facts.on_grid < ON_GRID
                beats = gr.Radio(value="file", visible=off_grid)
                return *_accepted(upload), beats, *_go_on(upload)
        except _AlertError as alert:
            refused = f"<p class='refused' role='alert'>{html.escape(str(alert))}</p>"
            return None, refused, *_NO_CHOICES, EMPTY

    def count_anew(self, upload: Upload | None, beats: BeatSource) -> tuple[object, ...]:
        """Counts bars and beats in another way: upload, facts, last bar, button, player."""
        if upload is None:
            return (gr.skip(),) * 5
        try:
            with _told():
                anew = upload.counted_by(beats)
                return *_accepted(anew), *_go_on(anew)
        except _AlertError as alert:
            slider, button, frame = _go_on(upload)
            return *_accepted(upload), slider, button, frame | Frame(alert=str(alert))

    def forget(self) -> tuple[object, ...]:
        """The file was taken away: the same values as `read`."""
        return None, "", *_NO_CHOICES, EMPTY

    def move_joint(self, upload: Upload | None, last_bar: float) -> tuple[object, object]:
        """Ends the prompt at another bar: upload and player."""
        if upload is None:
            return gr.skip(), gr.skip()
        try:
            with _told():
                moved = upload.until(int(last_bar))
                return moved, moved.frame()
        except _AlertError as alert:
            return upload, upload.frame() | Frame(alert=str(alert))

    def begin(
        self,
        upload: Upload | None,
        seed: float | None,
        fresh: bool,
        bars: float,
        request: gr.Request,
    ) -> tuple[object, ...]:
        """A job is asked for: the job, the seed it will use, the player, the buttons.

        Raises gr.Error, which nobody sees but `refuse`, where it cannot be begun: what comes after
        must not happen then.
        """
        if fresh or seed is None:
            seed = new_seed()
        if problem := _problem(seed):
            raise _unseen(problem)
        session = session_of(request)
        try:
            with _told():
                frame = waiting(upload, int(bars))
                job = self.studio.begin(session)
                return (job, int(seed), frame, *_buttons(running=True))
        except _AlertError as alert:
            raise _unseen(str(alert)) from alert

    def refuse(self, seed: float | None, fresh: bool, shown: Frame) -> Frame:
        """`begin` has failed: the player as it is, with the reason."""
        problem = None if fresh or seed is None else _problem(seed)
        return shown | Frame(alert=problem or BROKEN)

    def compose(
        self,
        upload: Upload | None,
        bars: float,
        variations: float,
        temperature: float,
        top_p: float,
        seed: float,
        job: threading.Event | None,
        model_name: str | None,
        request: gr.Request,
        top_k: float = MusicOptions.top_k,
        min_p: float = MusicOptions.min_p,
        key: str = "",
        density: float = MusicOptions.density,
        repetition: float = MusicOptions.repetition,
        ending: Literal["bar", "cadence"] = MusicOptions.ending,
    ) -> Iterator[Frame]:
        """Writes music: the player, again and again."""
        frame = EMPTY
        try:
            frame = waiting(upload, int(bars))
            try:
                options = MusicOptions(
                    bars=int(bars),
                    seed=int(seed),
                    temperature=temperature,
                    top_p=top_p,
                    top_k=int(top_k),
                    min_p=min_p,
                    key=key.strip() or None,
                    density=density,
                    repetition=repetition,
                    ending=ending,
                    variations=int(variations),
                )
            except ValueError as error:  # of a key, which is written by hand
                if job is not None:
                    self.studio.end(job)  # it was taken, and is over
                yield frame | Frame(phase="done", alert=f"The {error}; change it.")
                return
            session = session_of(request)
            for frame in self.studio.compose(session, upload, options, job, model_name):
                yield frame
        except INPUT_ERRORS as error:
            yield frame | Frame(phase="done", alert=str(error))
        except Exception:
            yield frame | Frame(phase="done", alert=BROKEN)
            raise

    def end(self, upload: Upload | None, job: threading.Event | None) -> tuple[object, ...]:
        """The job is over, however it ended: the player, the buttons."""
        buttons = _buttons(running=False, can_continue=upload is not None)
        if job is None or not self.studio.end(job):
            return (gr.skip(), *buttons)
        frame = upload.frame() if upload else EMPTY
        return (frame | Frame(alert=NOT_TAKEN), *buttons)

    def stop_job(self, request: gr.Request) -> None:
        """Ends the job of this session; what is written stays."""
        self.studio.stop(session_of(request))

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.studio.leave(session_of(request))


def _unseen(message: str) -> gr.Error:
    """Ends a callback; the player says why, not Gradio."""
    return gr.Error(message, visible=False, print_exception=False)


def _problem(seed: float) -> str | None:
    """What is wrong with a seed."""
    if 0 <= seed <= LARGEST_SEED and seed % 1 == 0:
        return None
    return f"The seed is {seed:,}, expected a whole number from 0 to {LARGEST_SEED:,}; change it."


_NO_CHOICES = (
    gr.Radio(value="file", visible=False),
    gr.Slider(visible=False),
    gr.Button(interactive=False),
)
"""Beats, last bar and button where there is no file."""


def _accepted(upload: Upload) -> tuple[object, object]:
    """Upload and facts."""
    return upload, facts_table(upload.whole.facts, upload.model.name)


def _go_on(upload: Upload) -> tuple[object, object, Frame]:
    """Slider of the last bar, button, player."""
    bars = upload.bars
    slider = gr.Slider(minimum=1, maximum=max(2, bars), value=bars, visible=bars > 1)
    return slider, gr.Button(interactive=True), upload.frame()


def _buttons(*, running: bool, can_continue: bool = True) -> list[gr.Button]:
    """Continue, its Stop, Generate, its Stop."""
    return [
        gr.Button(visible=not running, interactive=can_continue),
        gr.Button(visible=running),
        gr.Button(visible=not running),
        gr.Button(visible=running),
    ]
