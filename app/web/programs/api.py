"""The page's endpoints for scripts: /continue, /fill, /generate, /inspect, /render and /stop.

Most arguments of /continue, /fill and /generate are those of `MusicOptions`. All arguments are
received as sent and checked here, since Gradio's own checks end in tracebacks.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, get_args

import gradio as gr
from gradio import events
from gradio.components import Component
from gradio.components.api_component import Api
from gradio.data_classes import FileData
from gradio_client.utils import is_file_obj_with_meta

from app.audio.synth.soundfont import SoundError
from app.compose.fill.passage import Passage, find_instrument, find_tracks, music_like
from app.compose.models import Models
from app.compose.options import (
    NEW_PIECE_BARS,
    OPTIONS,
    BeatSource,
    MusicOptions,
    Option,
    Range,
    limits,
    only_for,
    with_seed,
)
from app.compose.prompt.prompt import passage_options
from app.errors import BusyError, DiskError, input_errors
from app.server.studio import Studio
from app.server.uploads import Upload, read_upload
from app.web.refusals import refusal, short
from app.web.view import session_of, user_of

HEALTH = "health"
"""Name of the endpoint behind /healthz."""
Answer = tuple[list[str], dict[str, object]]
"""Paths of the files of all variations (MIDI, new part, sound), and facts: the `seed`; lists of
`settings` (a line of text) and `replay` (JSON) by variation; an `alert` if there is no sound."""


def _and_later(first: tuple[str, ...], without: tuple[str, ...]) -> tuple[str, ...]:
    """Return the `first` arguments, followed by all other options except `without`."""
    return *first, *(name for name in OPTIONS if name not in first + without)


_CONTINUE = (
    *("prompt", "bars", "last_bar", "variations", "temperature", "top_p", "seed", "beats"),
    *("top_k", "min_p", "key", "density", "repetition", "ending", "seconds", "prompt_bars"),
    *("model", "presence", "recall"),
)
"""Arguments of /continue in the order that scripts rely on; later options follow them."""
_GENERATE = (
    *("bars", "variations", "temperature", "top_p", "seed", "model"),
    *("top_k", "min_p", "key", "density", "repetition", "ending", "seconds"),
)
"""Arguments of /generate, in the same way."""
_FILL = ("prompt", "first_bar", "last_bar", "tracks", "instrument", "beats", "model", "rest")
"""The first arguments of /fill."""
_NOT_IN_FILL = ("bars", "seconds", "ending")
"""Options that /fill does not have."""
CONTINUE = _and_later(_CONTINUE, only_for("nothing"))
"""All arguments of /continue in their order, and so on."""
FILL = _and_later(_FILL, (*_NOT_IN_FILL, *only_for("nothing")))
GENERATE = _and_later(_GENERATE, only_for("prompt"))
_LAST_BAR: Range = (0, 1_000_000)


class Calls:
    """The calls of scripts; the API documentation shows the docstrings of those without `_`."""

    def __init__(self, studio: Studio, max_upload_bytes: int, *, has_sound: bool = True) -> None:
        """Without `has_sound`, new music is not rendered."""
        self.studio, self.max_upload_bytes, self._has_sound = studio, max_upload_bytes, has_sound

    def asked(self, request: gr.Request, *arguments: object) -> list[object]:
        """Begin a job when it joins the queue, so that it can be stopped while it waits."""
        if request.session_hash is not None and request.request is not None:
            request.request.state.job = self.studio.begin(request.session_hash)
        return [gr.validate(True, "")] * len(arguments)

    @contextmanager
    def _job_of(self, request: gr.Request) -> Iterator[threading.Event]:
        """End the job of a request after the block, and turn input errors into refusals."""
        current = getattr(request.request.state, "job", None) if request.request else None
        job = current or self.studio.begin(session_of(request))
        try:
            with _refused():
                yield job
        finally:
            self.studio.end(job)

    def _compose(
        self,
        upload: Upload | None,
        options: MusicOptions,
        job: threading.Event,
        request: gr.Request,
        model: str | None = None,
    ) -> Answer:
        frames = self.studio.compose(
            session_of(request), upload, options, job, model, user_of(request)
        )
        (frame,) = deque(frames, maxlen=1)  # each frame contains all notes so far
        variations, alert = frame.get("variations", []), frame.get("alert")
        if not variations:
            raise refusal(alert or "")
        name, paths = frame.get("job", ""), list[str]()
        for number, row in enumerate(variations):
            paths += [path for path in (row.get("midi"), row.get("new_midi")) if path]
            if not self._has_sound:
                continue
            try:
                paths.append(self.studio.file(name, number, "flac").as_posix())
            except (BusyError, DiskError, LookupError, SoundError) as error:  # MIDI files are kept
                alert = alert or str(error)
        settings = [row.get("settings") for row in variations]
        again = [self.studio.file(name, number, "replay") for number in range(len(variations))]
        facts: dict[str, object] = {
            "seed": options.seed,
            "settings": settings,
            "replay": [json.loads(path.read_text("utf-8")) for path in again],
        }
        return paths, facts | ({"alert": alert} if alert else {})

    def continue_piece(self, request: gr.Request, sent: Mapping[str, object]) -> Answer:
        """Continue a MIDI file.

        last_bar: the last bar before the new music, 0 for the end of the file; seed: -1 or null for
        a new one; beats: auto, file, estimate or grid; drums: numbers of tracks from 1, none, or
        empty for what the file says; key: such as C, F#m or D dorian, or empty;
        ending: auto, bar, cadence or natural; seconds: the length instead of bars, if not 0;
        prompt_bars: how many of the last bars the model reads, 0 for as many as it can read; model:
        one of the page's models, or empty for one that suits the file and the options.
        """
        with self._job_of(request) as job:
            options = options_of(sent)
            last = int(number_of("last_bar", sent["last_bar"], _LAST_BAR))
            upload = self._read(sent, options)
            upload = upload.choose(None, last, None, None) if last else upload
            return self._compose(upload, options, job, request)

    def fill(self, request: gr.Request, sent: Mapping[str, object]) -> Answer:
        """Write some bars and tracks of a MIDI file again, or add a track.

        first_bar, last_bar: from 1, 0 for the last bar of the file; tracks: numbers from 1, names
        or instruments, separated by commas, or empty for all; rest: tracks whose notes are removed,
        in the same way; instrument: General MIDI name of a track to add instead, or empty; beats,
        model and the options: as in /continue.
        """
        with self._job_of(request) as job:
            options = options_of(sent)
            upload = self._read(sent, options)
            passage = passage_of(sent, upload)
            automatic = sent["model"] in (None, "")
            upload = (
                upload.writing_by_any(passage, self.studio.models, options.style or "")
                if automatic
                else upload.writing(passage)
            )
            options = passage_options(options, passage, upload.prompt)
            number_of("bars", options.bars)
            return self._compose(upload, options, job, request)

    def generate(self, request: gr.Request, sent: Mapping[str, object]) -> Answer:
        """Generate a piece from nothing.

        seed: -1 or null for a new one; key, ending, seconds, model: as in /continue.
        """
        with self._job_of(request) as job:
            options = options_of(sent)
            models = self._models_of(sent)
            name = models.suited(music_like(options.band), options.style or "")
            return self._compose(None, options, job, request, name)

    def _models_of(self, sent: Mapping[str, object]) -> Models:
        """Return the named model, or all."""
        models, name = self.studio.models, sent["model"]
        if name is None or name == "":
            return models
        return Models.only(models.load(choice_of("model", name, models.names)))

    def _read(self, sent: Mapping[str, object], options: MusicOptions) -> Upload:
        """Read the prompt of a call for the named model, or for the one that suits it."""
        path, beats = file_of("prompt", sent["prompt"]), beats_of(sent["beats"])
        models, style = self._models_of(sent), options.style or ""
        return read_upload(path, self.max_upload_bytes, models, beats, style, options.drums)

    def inspect(self, midi: object, beats: object) -> dict[str, object]:
        """Describe a MIDI file: tempo, metre, bars, notes, tracks, and the model that suits it."""
        with _refused():
            path = file_of("midi", midi)
            upload = read_upload(path, self.max_upload_bytes, self.studio.models, beats_of(beats))
            return {"model": upload.model.name, **asdict(upload.whole.facts)}

    def render(self, midi: object, request: gr.Request) -> str:
        """Render the sound of a MIDI file, as FLAC."""
        with _refused():
            upload = read_upload(file_of("midi", midi), self.max_upload_bytes, self.studio.models)
            return self.studio.render(session_of(request), upload).as_posix()

    def health(self) -> dict[str, object]:
        """Return the state of the page: its models, and the numbers of running and waiting jobs."""
        return self.studio.health()

    def stop(self, request: gr.Request) -> bool:
        """Stop this client's running and waiting jobs; the music so far is kept.

        Returns false if there were none. If the queue is full, POST {"data": [], "session_hash": …}
        to /gradio_api/run/stop instead.
        """
        return self.studio.stop(session_of(request))


@contextmanager
def _refused() -> Iterator[None]:
    """Turn input errors into refusals."""
    try:
        yield
    except input_errors() as error:
        raise refusal(str(error)) from error


def add(studio: Studio, max_upload_bytes: int) -> None:
    """Add the endpoints to the page that is being built; hidden widgets declare their types."""
    calls = Calls(studio, max_upload_bytes)
    with gr.Group(visible=False):
        inputs: dict[str, Component] = {
            "prompt": Api(None, FileData.model_json_schema(), label="prompt"),
            **{name: _input(option) for name, option in OPTIONS.items()},
        }
        for name in ("tracks", "rest", "instrument", "model"):
            inputs[name] = gr.Textbox("", label=name)
        for name, value in (("first_bar", 1), ("last_bar", 0)):
            inputs[name] = gr.Number(value, label=name, precision=0)
        for_new = {"bars": gr.Number(NEW_PIECE_BARS, label="bars", precision=0)}
        midi = Api(None, FileData.model_json_schema(), label="midi")
        facts = gr.JSON(label="facts")
        sound = gr.File(label="sound")
        answer = [gr.File(label="files", file_count="multiple"), gr.JSON(label="facts")]
        trigger = gr.Button()
    for call, name, names, widgets in (
        (calls.continue_piece, "continue", CONTINUE, inputs),
        (calls.fill, "fill", FILL, inputs),
        (calls.generate, "generate", GENERATE, inputs | for_new),
    ):
        trigger.click(
            _with_parameters(names, call),
            [widgets[argument] for argument in names],
            answer,
            api_name=name,
            preprocess=False,
            validator=calls.asked,
            concurrency_limit=None,  # the studio limits the number of jobs
            concurrency_id="jobs",
        )
    for call, name, widgets, output in (
        (calls.inspect, "inspect", [midi, inputs["beats"]], facts),
        (calls.render, "render", [midi], sound),
    ):
        trigger.click(call, widgets, output, api_name=name, preprocess=False, concurrency_limit=2)
    events.api(calls.health, api_name=HEALTH, queue=False)
    events.api(calls.stop, api_name="stop", queue=False)


def calls_of(page: gr.Blocks) -> Calls:
    """Return the calls behind the endpoints of a page."""
    health = next(fn.fn for fn in page.fns.values() if fn.api_name == HEALTH)
    calls = getattr(health, "__self__", None)
    assert isinstance(calls, Calls)
    return calls


def _input(option: Option) -> Component:
    """Return the hidden widget whose type and value are those of an argument."""
    if option.limits is None:
        return gr.Textbox(option.default or "", label=option.name)
    value = int(option.limits.scripts[0]) if option.default is None else option.default
    return gr.Number(value, label=option.name, precision=0 if option.kind is int else None)


def _with_parameters(
    names: tuple[str, ...], call: Callable[[gr.Request, Mapping[str, object]], Answer]
) -> Callable[..., Answer]:
    """Return a callback with a parameter for each name, as Gradio reads them from its signature."""

    def called(request: gr.Request, *values: object) -> Answer:
        return call(request, dict(zip(names, values, strict=True)))

    parameters = (Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("request", *names))
    setattr(called, "__signature__", Signature(list(parameters)))  # noqa: B010 - not declared
    called.__doc__ = call.__doc__
    return called


# arguments, checked: each function raises gr.Error with one sentence


def beats_of(value: object) -> BeatSource:
    """Return the source of bars and beats."""
    return choice_of("beats", value, get_args(BeatSource))


def options_of(sent: Mapping[str, object]) -> MusicOptions:
    """Return the options among the arguments of a call, with a seed."""
    values = {name: _value(OPTIONS[name], sent[name]) for name in OPTIONS if name in sent}
    try:
        return with_seed(MusicOptions(**values))
    except ValueError as error:
        raise refusal(str(error)) from error


def passage_of(sent: Mapping[str, object], upload: Upload) -> Passage:
    """Return the passage of an upload that a call names. Raises MidiError for unknown tracks."""
    first, last = (
        int(number_of(name, sent[name], (least, _LAST_BAR[1])))
        for name, least in (("first_bar", 1), ("last_bar", 0))
    )
    tracks, rest, instrument = (
        str(sent.get(name) or "") for name in ("tracks", "rest", "instrument")
    )
    try:
        return Passage(
            first_bar=first,
            last_bar=last or None,
            tracks=find_tracks(tracks, upload.score.tracks) if tracks else None,
            rests=find_tracks(rest, upload.score.tracks) if rest else frozenset(),
            instrument=find_instrument(instrument) if instrument else None,
        )
    except ValueError as error:
        raise refusal(str(error)) from error


def _value(option: Option, sent: object) -> Any:  # noqa: ANN401
    """Return the value of an option; None if an option whose default is None is left out."""
    if option.words:
        return choice_of(option.name, sent, option.words)
    if option.default is None and (sent is None or sent == ""):
        return None
    if option.limits is None:
        return str(sent)
    number = number_of(option.name, sent, option.limits.scripts)
    if option.default is None:
        if number == option.limits.scripts[0]:
            return None
        number = max(number, option.limits.most[0])
    return int(number) if option.kind is int else number


def number_of(name: str, value: object, within: Range | None = None) -> float:
    """Return a number in a range, by default that of the option of this name."""
    least, most = within or limits(name).scripts
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    whole = isinstance(least, int)
    inside = number is not None and least <= number and (most is None or number <= most)
    if number is None or not inside or (whole and number % 1):
        kind = "a whole number" if whole else "a number"
        raise refusal(f"{name} is {short(value)}, expected {kind} from {least} to {most}")
    return number


def choice_of(name: str, value: object, choices: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return the value, which must be one of `choices`."""
    if value not in choices:
        raise refusal(f"{name} is {short(value)}, expected one of {', '.join(choices)}")
    return value


def file_of(name: str, value: object) -> Path:
    """Return the path of an uploaded file; Gradio has checked that it is among the uploads."""
    if not isinstance(value, dict) or not is_file_obj_with_meta(value):
        raise refusal(
            f"{name} is {short(value)}, expected an uploaded MIDI file; upload it first, as "
            "gradio_client's handle_file does"
        )
    return Path(value["path"])
