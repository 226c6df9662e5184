"""The values of all widgets that callbacks change, for a session."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from gradio.components import Component

from app.compose.fill.passage import music_like
from app.compose.new_bars import in_bars
from app.compose.options import OF_NOTHING, OF_PROMPT, OPTIONS, MusicOptions
from app.compose.plan.asked import cannot_write, lacks_style, not_a_style, styles_of
from app.player.frames import Frame
from app.player.plan import no_chords
from app.server.studio import Studio
from app.text import duration, plural
from app.web.cards import card, results_value, sentence
from app.web.guard.hosts import LOCAL
from app.web.guard.limits import address_of
from app.web.session import AUTOMATIC, Session, Sessions, Workspace
from app.web.tabs.about import model_line
from app.web.tabs.music import ANY, NO_SPEED, OVER, explanation, key_problem, length_slider

READING_NOW = "<p>The file is being read.</p>"
ONLY_PROMPT = tuple(name for name in OF_PROMPT if OPTIONS[name].widget)
"""The options with a widget that are of use beside a piece only."""
WITHOUT_PIECE = "Of use beside a piece that is continued."
OF_THE_SELECTION = "As many as are selected."


def session_of(request: gr.Request) -> str:
    """Return the name of the caller's session. Raises gr.Error if the request has none."""
    if request.session_hash is None:
        raise gr.Error(
            "found no session_hash in the request, expected that of the session; call through the "
            "queue, as gradio_client does",
            print_exception=False,
        )
    return request.session_hash


def user_of(request: gr.Request) -> str:
    """Return the caller's account, or address; empty on this machine, where pages are told apart.

    So are the users of a proxy on this machine that does not send X-Forwarded-For.
    """
    if request.username:
        return f"account {request.username}"
    client = request.client
    address = address_of((client.host, client.port) if client else None)
    return "" if address in LOCAL else address


class View:
    """All sessions, and what each of them shows."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        self.sessions = Sessions()
        self._serial = itertools.count()

    def session(self, request: gr.Request) -> Session:
        """Return the caller's session."""
        return self.sessions.of(session_of(request))

    @contextmanager
    def locked(self, request: gr.Request) -> Iterator[Session]:
        """Return the caller's session, which no other callback changes meanwhile."""
        session = self.session(request)
        with session.lock:
            yield session

    def show(
        self, session: Session, *, alert: str = "", reading: bool = False
    ) -> tuple[object, ...]:
        """Return the values of all widgets that may change, in the order of `build_page`'s `view`.

        Player and list of results; card and beats of the upload; model, buttons and estimate; the
        fields over the roll; length and its unit; options of use beside a piece. While a file is
        `reading`, no job can begin.
        """
        with session.lock:
            self.sessions.trim(session)
            work, running = session.work, session.asked is not None
            able = not (work.upload and work.upload.problem)
            return (
                self.player(session, alert),
                results_value(session),
                *self._of_upload(work),
                self._model_choice(work),
                gr.Button(
                    self.verb(work),
                    visible=not running,
                    interactive=able and not (reading or session.reading),
                ),
                gr.Button(visible=not running and session.request is not None),
                gr.Button(visible=running),
                gr.Button(visible=running),
                "" if running else self.estimate(work, reading=bool(reading or session.reading)),
                *self._over(work),
                *self._length(work),
                *self._only_prompt(work),
            )

    def verb(self, work: Workspace) -> str:
        """Return the text of the button that begins a job, with what it writes in a second line."""
        upload, frame, length = work.upload, work.frame, work.length
        if upload is not None and upload.passage and frame.get("phase") != "done":
            return f"Continue\nwrites {upload.written}"
        many = "new music"
        if length is not None:
            many = plural(int(length), "bar" if work.unit == "bars" else "second")
        after = upload.bars if upload is not None else 0
        if frame.get("phase") == "done":  # the result that is shown
            lines = frame.get("variations", [])[0].get("timeline") or frame.get("timeline")
            after = lines["bars"].count(";") - 1 if lines else after
        return (
            f"Continue\nwrites {many} after bar {after}"
            if after
            else (
                f"Continue\nwrites a new piece of {many}"
                if length
                else "Continue\nwrites a new piece"
            )
        )

    @property
    def unchanged(self) -> tuple[object, ...]:
        """Values of `show` that change nothing."""
        return (gr.skip(),) * (12 + len(OVER) + len(ONLY_PROMPT))

    def planned(self, session: Session, bars: int | None = None) -> tuple[object, ...]:
        """Return the values that depend on what is asked.

        They are the player, the button that begins a job, the time that it takes, and the fields
        over the roll. With `bars`, also the length, which has grown to them.
        """
        length: list[object] = [gr.skip(), gr.skip()]
        if bars is not None:
            length = [length_slider(MusicOptions(bars=bars)), gr.Radio(value="bars")]
        work, skip = session.work, gr.skip()
        action = gr.Button(self.verb(work)), skip, skip, skip, self.estimate(work)
        before, after = [self.player(session), *[skip] * 4], [skip] * len(ONLY_PROMPT)
        return *before, *action, *self._over(work), *length, *after

    def player(self, session: Session, alert: str = "") -> dict[str, object]:
        """Return the value of the player."""
        frame = session.shown() | (Frame(alert=alert) if alert else Frame())
        # Gradio sends only values that have changed, but repeated alerts must also be sent
        return {**frame, "serial": next(self._serial)}

    def _over(self, work: Workspace) -> Iterator[Component]:
        """Yield the fields over the roll, with what is wrong with them: grey if they are of no use.

        A field with a text can be emptied.
        """
        models = self.studio.models
        names = models.names if work.model == AUTOMATIC else (work.model,)
        styles = sorted({one for name in names for one in styles_of(models.tokenizer(name))})
        useless = {"chords": no_chords(work.upload.sheet) if work.upload else ""}
        wrong = {"key": key_problem(work.key), "style": ""}
        if styles:
            wrong["style"] = not_a_style(work.asked_style, styles)
        has_result = work.frame.get("phase") == "done"
        for name in OVER:
            why, text = useless.get(name, ""), getattr(work, name)
            how: dict[str, Any] = {
                "info": why or wrong.get(name) or None,
                "interactive": not why or bool(text),
            }
            if name in OF_NOTHING:
                how = {"visible": work.upload is None and not has_result}
            if name == "style":
                yield gr.Dropdown([ANY, *styles], visible=bool(styles), **how)
            elif name in ("key", "metre", "band"):
                yield gr.Dropdown(**how)
            else:
                yield gr.Textbox(**how)

    def _only_prompt(self, work: Workspace) -> Iterator[gr.Slider]:
        """Yield the options that are of use beside a piece only: grey without one."""
        has_piece = work.upload is not None or work.frame.get("phase") == "done"
        for name in ONLY_PROMPT:
            info = explanation(OPTIONS[name]) if has_piece else WITHOUT_PIECE
            yield gr.Slider(info=info, interactive=has_piece)

    def _length(self, work: Workspace) -> tuple[gr.Slider, gr.Radio]:
        """Return length and unit: grey, with the reason, while selected bars are written."""
        is_gap = work.upload is not None and work.upload.passage is not None
        info = OF_THE_SELECTION if is_gap else None
        return gr.Slider(info=info, interactive=not is_gap), gr.Radio(interactive=not is_gap)

    def _model(self, work: Workspace) -> str:
        """Return the name of the model that will be used."""
        return work.upload.model.name if work.upload else self.new_model(work)

    def unable(self, work: Workspace, style: str) -> str:
        """Return why a style cannot be asked for, as sentences; empty if it can.

        If the choice of the model is automatic, any suitable one will do.
        """
        models, upload = self.studio.models, work.upload
        score = upload.whole.score if upload else music_like(work.band)
        name = self._model(work)
        if work.model == AUTOMATIC and upload is not None and upload.passage is not None:
            name = models.to_fill(upload.whole.score, upload.passage, style).name
        elif work.model == AUTOMATIC:
            name = models.suited(score, style)
        if not lacks_style(style, models.tokenizer(name)):
            return ""
        every = {one for each in models.names for one in styles_of(models.tokenizer(each))}
        if every and style not in every:
            return not_a_style(style, sorted(every))
        able = models.with_style(score, style)
        remedy = f"Choose {' or '.join(able)}, or clear Style" if able else "Clear Style"
        return f"{sentence(cannot_write(style, name))} {remedy}."

    def _model_choice(self, work: Workspace) -> gr.Radio:
        """Return the chosen model, and a line about the model that will be used."""
        models, name = self.studio.models, self._model(work)
        info = model_line(models, name)
        if work.model == AUTOMATIC:
            why = self._why_not_usual(work, name)
            info = f"{name}, because {why}." if why else f"{name}: {info}"
        return gr.Radio(value=work.model, info=info)

    def _why_not_usual(self, work: Workspace, name: str) -> str:
        """Return why the usual model is not the automatic choice; empty if it is."""
        models, upload = self.studio.models, work.upload
        usual = models.suited(upload.whole.score if upload else music_like(work.band))
        if name == usual:
            return ""
        if lacks_style(work.asked_style, models.tokenizer(usual)):
            return cannot_write(work.asked_style, usual)
        is_part = upload is not None and upload.passage is not None
        return f"the {usual} model cannot write these bars" if is_part else ""

    def _of_upload(self, work: Workspace) -> tuple[object, ...]:
        """Return the values of the card and of the beats."""
        if work.upload is None:
            return work.note, gr.Radio(value="file", visible=False)
        facts = work.upload.whole.facts
        about = facts.beats_notice  # the card leaves it out
        beats = gr.Radio(value=facts.beats, visible=bool(about), info=sentence(about))
        return work.note + card(work.upload), beats

    def estimate(self, work: Workspace, *, reading: bool = False) -> str:
        """Return how long the music will take, or why it cannot be generated, as HTML."""
        if reading:
            return READING_NOW
        if work.upload is not None and work.upload.problem:
            return f"<p>{html.escape(work.upload.problem)}</p>"
        is_gap = work.upload is not None and work.upload.passage is not None
        if work.length is None and not is_gap:
            return ""
        seconds = self.seconds_needed(work, work.length or 0)
        if seconds is None:
            return NO_SPEED
        return f"<p>about <b>{duration(seconds)}</b></p>"

    def seconds_needed(self, work: Workspace, length: float) -> float | None:
        """Return the estimated time to generate the music; None if nothing is known."""
        model = self._model(work)
        prompt = work.upload.prompt if work.upload else None
        bars = length
        if work.upload is not None and work.upload.passage is not None:
            bars = work.upload.with_length(MusicOptions()).bars
        elif work.unit == "seconds" and prompt is not None:
            bars = in_bars(MusicOptions(seconds=length), prompt).bars
        elif work.unit == "seconds":
            bars = length / self.studio.scheduler.bar_seconds(model, None)
        seconds = self.studio.seconds_needed(model, prompt, bars, work.variations)
        return None if seconds is None else seconds + work.study * (prompt is not None)

    def new_model(self, work: Workspace) -> str:
        """Return the name of the model that generates a piece from nothing."""
        models = self.studio.models
        return (
            work.model
            if work.model in models.names
            else models.suited(music_like(work.band), work.asked_style)
        )
