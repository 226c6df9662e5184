"""The page's calls for scripts: /continue, /generate and /stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import gradio as gr
from gradio import events

from app.continuation import MusicOptions
from app.sound import SoundError
from app.studio import MOST_VARIATIONS, Studio, new_seed
from app.upload import Upload, read_upload
from tokenization.errors import MidiError

if TYPE_CHECKING:
    from app.player import Frame

MODEL_QUEUE = "model"
"""Name of the queue of all that needs the model, in which one job runs at a time."""

Answer = tuple[list[str], dict[str, object]]
"""Paths of the files of all variations (MIDI, new part, sound), and the seed with other facts."""


def add(studio: Studio, max_upload_bytes: int) -> None:
    """Adds the endpoints to the blocks that are being built.

    Widgets that nobody sees give them their types, and let Gradio check that an upload is one.
    """

    def continue_piece(
        prompt: str,
        bars: int,
        last_bar: int,
        variations: int,
        temperature: float,
        top_p: float,
        seed: int,
        request: gr.Request,
    ) -> Answer:
        """Continues a MIDI file. last_bar 0: after its end; seed -1: a new one."""
        options = _options(bars, variations, temperature, top_p, seed)
        try:
            upload = read_upload(Path(prompt), max_upload_bytes)
            if last_bar > 0:
                upload = upload.until(last_bar)
        except MidiError as error:
            raise gr.Error(str(error)) from error
        return _run(studio, str(request.session_hash), upload, options)

    def generate(
        bars: int,
        variations: int,
        temperature: float,
        top_p: float,
        seed: int,
        request: gr.Request,
    ) -> Answer:
        """Makes a piano piece from nothing. seed -1: a new one."""
        options = _options(bars, variations, temperature, top_p, seed)
        return _run(studio, str(request.session_hash), None, options)

    def stop(request: gr.Request) -> bool:
        """Ends this client's job at the next note; what is written stays. False: there was none."""
        return studio.stop(str(request.session_hash))

    with gr.Group(visible=False):
        prompt = gr.File(label="prompt")
        bars = gr.Number(16, label="bars", precision=0, minimum=1, maximum=256)
        last_bar = gr.Number(0, label="last_bar", precision=0, minimum=0)
        variations = gr.Number(
            1, label="variations", precision=0, minimum=1, maximum=MOST_VARIATIONS
        )
        temperature = gr.Number(1.0, label="temperature", minimum=0.1, maximum=2)
        top_p = gr.Number(0.95, label="top_p", minimum=0.05, maximum=1)
        seed = gr.Number(-1, label="seed", precision=0)
        answer = [gr.File(label="files", file_count="multiple"), gr.JSON(label="facts")]
        trigger = gr.Button()
    drawing = [variations, temperature, top_p, seed]
    trigger.click(
        continue_piece,
        [prompt, bars, last_bar, *drawing],
        answer,
        api_name="continue",
        concurrency_limit=1,
        concurrency_id=MODEL_QUEUE,
    )
    trigger.click(
        generate,
        [bars, *drawing],
        answer,
        api_name="generate",
        concurrency_limit=1,
        concurrency_id=MODEL_QUEUE,
    )
    events.api(stop, api_name="stop", queue=False)


def _options(
    bars: int, variations: int, temperature: float, top_p: float, seed: int
) -> MusicOptions:
    return MusicOptions(
        bars=bars,
        seed=seed if seed >= 0 else new_seed(),
        temperature=temperature,
        top_p=top_p,
        variations=variations,
    )


def _run(studio: Studio, session: str, upload: Upload | None, options: MusicOptions) -> Answer:
    frame: Frame = {}
    try:
        for newest in studio.compose(session, upload, options):
            frame = newest
    except (MidiError, SoundError) as error:
        raise gr.Error(str(error)) from error
    variations = frame.get("variations", [])
    files = ((row.get("midi"), row.get("new_midi"), row.get("audio")) for row in variations)
    paths = [path for row in files for path in row if path]
    return paths, {"seed": options.seed, "settings": [row.get("settings") for row in variations]}
