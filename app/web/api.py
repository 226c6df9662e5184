"""The page's calls for scripts: /continue, /generate, /inspect, /render and /stop."""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, get_args

import gradio as gr
from gradio import events
from gradio.components.api_component import Api
from gradio.data_classes import FileData

from app.compose.models import Models
from app.compose.options import NEW_PIECE_BARS, BeatSource, MusicOptions
from app.errors import input_errors
from app.server.studio import Studio
from app.server.uploads import Upload, read_upload
from app.web.call_values import choice_of, file_of, number_of, options_of, refusal
from app.web.callbacks import session_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

HEALTH = "health"
"""Name of the call behind /healthz."""
Answer = tuple[list[str], dict[str, object]]
"""Paths of the files of all variations (MIDI, new part, sound), and the seed with other facts: the
settings of each in a line, as `replay` all that makes it again, and as `alert` why there is no
sound where there is none."""


def add(studio: Studio, max_upload_bytes: int) -> None:
    """Adds the endpoints to the blocks that are being built.

    Widgets that nobody sees give them their types. Arguments come as they were sent and are checked
    here, since Gradio's own checks end in tracebacks.
    """

    def asked(request: gr.Request, *arguments: object) -> list[object]:
        """Called when a job joins the queue: it can be stopped from then on."""
        if request.session_hash is not None and request.request is not None:
            request.request.state.job = studio.begin(request.session_hash)
        return [gr.validate(True, "")] * len(arguments)

    @contextmanager
    def job_of(request: gr.Request) -> Iterator[threading.Event]:
        """The job of a request, which is over at the end; errors of the input are refusals."""
        known = getattr(request.request.state, "job", None) if request.request else None
        job = known or studio.begin(session_of(request))
        try:
            with refused():
                yield job
        finally:
            studio.end(job)

    @contextmanager
    def refused() -> Iterator[None]:
        try:
            yield
        except input_errors() as error:
            raise refusal(str(error)) from error

    def write(
        upload: Upload | None,
        options: MusicOptions,
        job: threading.Event,
        request: gr.Request,
        model: str | None = None,
    ) -> Answer:
        frames = studio.compose(session_of(request), upload, options, job, model)
        (frame,) = deque(frames, maxlen=1)  # each has all notes so far
        variations, alert = frame.get("variations", []), frame.get("alert")
        if not variations:
            raise refusal(alert or "")
        files = ((row.get("midi"), row.get("new_midi"), row.get("audio")) for row in variations)
        paths = [path for row in files for path in row if path]
        settings = [row.get("settings") for row in variations]
        made = frame.get("job", "")
        again = [studio.file(made, number, "replay") for number in range(len(variations))]
        facts: dict[str, object] = {
            "seed": options.seed,
            "settings": settings,
            "replay": [json.loads(path.read_text()) for path in again],
        }
        return paths, facts | ({"alert": alert} if alert else {})

    def continue_piece(
        prompt: object,
        bars: object,
        last_bar: object,
        variations: object,
        temperature: object,
        top_p: object,
        seed: object,
        beats: object,
        top_k: object,
        min_p: object,
        key: object,
        density: object,
        repetition: object,
        ending: object,
        seconds: object,
        prompt_bars: object,
        model: object,
        presence: object,
        recall: object,
        request: gr.Request,
    ) -> Answer:
        """Continues a MIDI file.

        last_bar 0: after its end; seed -1 or null: a new one; beats: file, estimate or grid; key:
        such as C, F#m or D dorian, or empty; ending: bar or cadence; seconds: a length in place of
        bars, if not 0; prompt_bars 0: all that the model can hear; model: one of the page's, or
        empty for the one that suits the file.
        """
        with job_of(request) as job:
            drawing = (bars, variations, temperature, top_p, seed)
            steering = (top_k, min_p, key, density, repetition, ending)
            options = options_of(*drawing, *steering, seconds, prompt_bars, presence, recall)
            last = int(number_of("last_bar", last_bar))
            how = choice_of("beats", beats, get_args(BeatSource))
            upload = read_upload(
                file_of("prompt", prompt), max_upload_bytes, models_for(model), how
            )
            return write(upload.until(last) if last else upload, options, job, request)

    def generate(
        bars: object,
        variations: object,
        temperature: object,
        top_p: object,
        seed: object,
        model: object,
        top_k: object,
        min_p: object,
        key: object,
        density: object,
        repetition: object,
        ending: object,
        seconds: object,
        request: gr.Request,
    ) -> Answer:
        """Makes a piece from nothing.

        seed -1 or null: a new one; model: one of the page's; key, ending, seconds as in /continue.
        """
        with job_of(request) as job:
            drawing = (bars, variations, temperature, top_p, seed)
            steering = (top_k, min_p, key, density, repetition, ending)
            options = options_of(*drawing, *steering, seconds)
            name = choice_of("model", model, studio.models.names)
            return write(None, options, job, request, name)

    def models_for(model: object) -> Models:
        """Those that a file may be continued by: the one that was named, or all."""
        if model is None or model == "":
            return studio.models
        name = choice_of("model", model, studio.models.names)
        return Models.only(studio.models.load(name))

    def inspect(midi: object, beats: object) -> dict[str, object]:
        """What a MIDI file holds: tempo, metre, bars, notes, tracks, and who would continue it."""
        with refused():
            how = choice_of("beats", beats, get_args(BeatSource))
            upload = read_upload(file_of("midi", midi), max_upload_bytes, studio.models, how)
            return {"model": upload.model.name, **asdict(upload.whole.facts)}

    def render(midi: object, request: gr.Request) -> str:
        """The sound of a MIDI file, as FLAC."""
        with refused():
            upload = read_upload(file_of("midi", midi), max_upload_bytes, studio.models)
            return studio.render(session_of(request), upload).as_posix()

    def health() -> dict[str, object]:
        """How the page is: its models, the jobs at work and those that wait."""
        return studio.health()

    def stop(request: gr.Request) -> bool:
        """Ends this client's jobs, also those that wait; what is written stays.

        False: there were none. Where the queue is full, POST {"data": [], "session_hash": …} to
        /gradio_api/run/stop.
        """
        return studio.stop(session_of(request))

    defaults = MusicOptions()
    with gr.Group(visible=False):
        prompt = Api(None, FileData.model_json_schema(), label="prompt")
        bars = gr.Number(defaults.bars, label="bars", precision=0)
        last_bar = gr.Number(0, label="last_bar", precision=0)
        variations = gr.Number(defaults.variations, label="variations", precision=0)
        temperature = gr.Number(defaults.temperature, label="temperature")
        top_p = gr.Number(defaults.top_p, label="top_p")
        seed = gr.Number(-1, label="seed", precision=0)
        beats = gr.Textbox("file", label="beats")
        model = gr.Textbox(studio.models.names[0], label="model")
        steering = [
            gr.Number(defaults.top_k, label="top_k", precision=0),
            gr.Number(defaults.min_p, label="min_p"),
            gr.Textbox("", label="key"),
            gr.Number(defaults.density, label="density"),
            gr.Number(defaults.repetition, label="repetition"),
            gr.Textbox(defaults.ending, label="ending"),
        ]
        presence = gr.Number(defaults.presence, label="presence")
        recall = gr.Number(defaults.recall, label="recall")
        new_bars = gr.Number(NEW_PIECE_BARS, label="bars", precision=0)
        seconds = gr.Number(0, label="seconds")
        prompt_bars = gr.Number(defaults.prompt_bars, label="prompt_bars", precision=0)
        any_model = gr.Textbox("", label="model")
        midi = Api(None, FileData.model_json_schema(), label="midi")
        facts = gr.JSON(label="facts")
        sound = gr.File(label="sound")
        answer = [gr.File(label="files", file_count="multiple"), gr.JSON(label="facts")]
        trigger = gr.Button()
    drawing = [variations, temperature, top_p, seed]
    asked_first = [prompt, bars, last_bar, *drawing, beats, *steering]
    asked_last = [seconds, prompt_bars, any_model, presence, recall]
    for call, name, inputs in (
        (
            continue_piece,
            "continue",
            [*asked_first, *asked_last],
        ),
        (generate, "generate", [new_bars, *drawing, model, *steering, seconds]),
    ):
        trigger.click(
            call,
            inputs,
            answer,
            api_name=name,
            preprocess=False,
            validator=asked,
            concurrency_limit=None,  # the studio refuses what is too much
            concurrency_id="jobs",
        )
    for call, name, inputs, output in (
        (inspect, "inspect", [midi, beats], facts),
        (render, "render", [midi], sound),
    ):
        trigger.click(call, inputs, output, api_name=name, preprocess=False, concurrency_limit=2)
    events.api(health, api_name=HEALTH, queue=False)
    events.api(stop, api_name="stop", queue=False)


def health_of(page: gr.Blocks) -> Callable[[], dict[str, object]]:
    """What says how a page is that has these endpoints."""
    call = next(fn.fn for fn in page.fns.values() if fn.api_name == HEALTH)
    assert call is not None
    return call
