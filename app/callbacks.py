"""What the widgets of the page call: arguments and results are widget values."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator  # Gradio reads the annotations of callbacks
from pathlib import Path

import gradio as gr

from app.facts import PromptFacts
from app.options import BeatSource, MusicOptions
from app.player import Frame
from app.sound import SoundError
from app.studio import EMPTY, Studio, new_seed, waiting
from app.upload import Upload, read_upload
from relpe.checkpoint import CheckpointError
from tokenization.beats import ON_GRID
from tokenization.errors import MidiError

CREATIVITY = {"Safe": (0.9, 0.90), "Balanced": (1.0, 0.95), "Wild": (1.1, 0.98)}
"""Temperature and top-p of each choice."""

NOT_TAKEN = (
    "The model has not taken this job: too many wait for it already, or the connection was lost; "
    "try again in a minute."
)


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
            upload = read_upload(Path(path), self.max_upload_bytes, self.studio.models)
        except (MidiError, CheckpointError) as error:
            refused = f"<p class='refused' role='alert'>{html.escape(str(error))}</p>"
            return None, refused, *_NO_CHOICES, EMPTY
        off_grid = upload.whole.facts.on_grid < ON_GRID
        return *_accepted(upload), gr.Radio(value="file", visible=off_grid), *_go_on(upload)

    def count_anew(self, upload: Upload | None, beats: BeatSource) -> tuple[object, ...]:
        """Counts bars and beats in another way: upload, facts, last bar, button, player."""
        if upload is None:
            return (gr.skip(),) * 5
        try:
            upload = upload.counted_by(beats)
        except MidiError as error:
            return (
                *_accepted(upload),
                *_go_on(upload)[:-1],
                upload.frame() | Frame(alert=str(error)),
            )
        return *_accepted(upload), *_go_on(upload)

    def forget(self) -> tuple[object, ...]:
        """The file was taken away: the same values as `read`."""
        return None, "", *_NO_CHOICES, EMPTY

    def move_joint(self, upload: Upload | None, last_bar: float) -> tuple[object, object]:
        """Ends the prompt at another bar: upload and player."""
        if upload is None:
            return gr.skip(), gr.skip()
        try:
            moved = upload.until(int(last_bar))
        except MidiError as error:
            return upload, upload.frame() | Frame(alert=str(error))
        return moved, moved.frame()

    def begin(
        self, upload: Upload | None, seed: float | None, fresh: bool, request: gr.Request
    ) -> tuple[object, ...]:
        """A job is asked for: the job, the seed it will use, the player, the buttons."""
        job = self.studio.begin(str(request.session_hash))
        if fresh or seed is None:
            seed = new_seed()
        return (job, int(seed), waiting(upload), *_buttons(running=True))

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
    ) -> Iterator[Frame]:
        """Writes music: the player, again and again."""
        options = MusicOptions(
            bars=int(bars),
            seed=int(seed),
            temperature=temperature,
            top_p=top_p,
            variations=int(variations),
        )
        frame = waiting(upload)
        try:
            session = str(request.session_hash)
            for frame in self.studio.compose(session, upload, options, job, model_name):
                yield frame
        except (MidiError, CheckpointError, SoundError) as error:
            yield frame | Frame(phase="done", alert=str(error))
        except Exception:
            yield frame | Frame(
                phase="done", alert="This did not work; the program's log says why."
            )
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
        self.studio.stop(str(request.session_hash))

    def leave(self, request: gr.Request) -> None:
        """The tab was closed."""
        self.studio.leave(str(request.session_hash))


_NO_CHOICES = (
    gr.Radio(value="file", visible=False),
    gr.Slider(visible=False),
    gr.Button(interactive=False),
)
"""Beats, last bar and button where there is no file."""


def _accepted(upload: Upload) -> tuple[object, object]:
    """Upload and facts."""
    return upload, facts_table(upload.whole.facts, upload.model.name)


def _go_on(upload: Upload) -> tuple[object, object, object]:
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
