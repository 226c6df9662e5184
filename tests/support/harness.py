"""The player on a page of its own, with artificial frames and a fake server.

The function `harness` serves the page and seekable sounds. The object `harness` in the browser
shows frames, and records events and requests of the player.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import soundfile

from app.player import assets
from app.player.frames import Frame, PromptFrame, VariationFrame, pack_tracks, timeline
from app.server.downloads import MENU
from app.web.assets import PAGE_STYLE
from tokenization.score import Score, Tempo, Track

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--autoplay-policy=no-user-gesture-required",
]
BPM = 120.0
KINDS = ["midi", "new_midi", "flac", "wav", "ogg", "stems", "replay"]

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>player</title>
<style>:root {{ --font: system-ui, sans-serif; }} {css}
body {{ margin: 0; padding: 16px; font: 14px system-ui, sans-serif; box-sizing: border-box; }}
.gradio-container {{ padding: 0 !important; }}
</style>
<body class="{scheme}"><div class="gradio-container"><input id="text" aria-label="text">
<button id="before">before</button><div id="player">{template}</div></div>
<script>
window.gradio_config = {{ root: "", api_prefix: "/gradio_api" }};
window.harness = {{
  events: [], asked: [], refuse: null, delay: 0, props: {{ value: null }}, watcher: null,
  async show(frame) {{ this.props.value = frame; await this.ready; this.watcher(); }},
}};
const answer = (name) => async (request) => {{
  harness.asked.push([name, request]);
  await new Promise((resolve) => setTimeout(resolve, harness.delay));
  if (harness.refuse) return {{ error: harness.refuse }};
  const {{ kind, variation, without }} = request;
  const mixed = without && `sound_v${{variation}}_${{without.join("-")}}.wav`;
  return {{ path: `/music/${{mixed ?? `${{kind}}_v${{variation}}.bin`}}` }};
}};
const server = {{ file: answer("file") }};
harness.ready = new Promise((resolve) => {{
  new Function("element", "props", "watch", "trigger", "server", {script})(
    document.getElementById("player"), harness.props,
    (name, call) => {{ harness.watcher = call; resolve(); }},
    (name, data) => {{ harness.events.push([name, data ?? null]); }}, server);
}});
</script></body></html>"""


def harness_page(scheme: str = "") -> str:
    """The page as HTML; `scheme` may be "dark"."""
    css = "\n".join(
        path.read_text(encoding="utf-8") for path in (assets.COLOURS, assets.STYLE, PAGE_STYLE)
    )
    script = json.dumps(assets.script(assets.sound_bank(None))).replace("</", "<\\/")
    return _PAGE.format(css=css, template=assets.template(MENU), script=script, scheme=scheme)


def silence(seconds: float) -> bytes:
    """A quiet tone of `seconds`, as WAV."""
    file = io.BytesIO()
    times = np.arange(int(seconds * 8000)) / 8000
    soundfile.write(file, 0.05 * np.sin(2 * np.pi * 220 * times), 8000, format="WAV")
    return file.getvalue()


class _Handler(BaseHTTPRequestHandler):
    """Serves the page, the modules of the player, and the sound (below /gradio_api/file=).

    Answers range requests, so that the browser can seek.
    """

    sound = b""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name there
        """Logs nothing."""

    def do_HEAD(self) -> None:
        self._send(body=False)

    def do_GET(self) -> None:
        self._send(body=True)

    def _send(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        if module := assets.MODULES.at(url.path):
            content, kind = module, "text/javascript"
        elif bank := assets.sound_bank(None).at(url.path):
            content, kind = bank, "application/octet-stream"
        elif url.path.startswith("/gradio_api"):
            content, kind = self.sound, "audio/wav"
        else:
            content, kind = harness_page(url.query).encode(), "text/html; charset=utf-8"
        begin, end = 0, len(content) - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked:
            begin, end = int(asked[1]), int(asked[2] or end)
        if "missing" in unquote(url.path):
            self.send_error(404)
            return
        self.send_response(206 if asked else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - begin + 1))
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end}/{len(content)}")
        self.end_headers()
        if body:
            try:
                self.wfile.write(content[begin : end + 1])
            except (BrokenPipeError, ConnectionResetError):  # the browser closed the connection
                return


@contextmanager
def harness(seconds: float = 40.0) -> Iterator[str]:
    """Serve the page while the block runs; yields its address. Every sound lasts `seconds`."""
    handler = type("Handler", (_Handler,), {"sound": silence(seconds)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def band(bars: int, *, start: int = 0, tracks: int = 3, seed: int = 0) -> Score:
    """Drums, a bass and other instruments: `bars` bars of four quarter notes from `start`."""
    chance = np.random.default_rng(seed)
    beats = range(4 * start, 4 * (start + bars))
    drums = [
        (12 * beat + half, 3, key, 90)
        for beat in beats
        for half, key in ((0, 36 if beat % 2 == 0 else 38), (0, 42), (6, 42))
    ]
    parts = [replace(Track.of(sorted(drums), is_drum=True), name="Kit", chunk=0)]
    for index in range(tracks - 1):
        middle = 36 + 9 * index % 48
        rows = [
            (
                12 * beat,
                int(chance.integers(4, 20)),
                middle + int(chance.integers(0, 12)),
                60 + 10 * (beat % 5),
            )
            for beat in beats
            if chance.random() < 0.8
        ]
        program = (33, 4, 48, 73, 24, 60, 11, 80)[index % 8]
        name = f"Part {index + 1}"
        parts.append(replace(Track.of(rows, program), name=name, chunk=index + 1))
    return Score(12, tuple(parts), tempos=(Tempo(0, BPM),), end_ticks=48 * (start + bars))


def prompt_frame(bars: int = 12, tracks: int = 3, *, first: int = 4, job: str = "j0") -> Frame:
    """An upload whose region begins with bar `first` + 1 and reaches to its end."""
    score = band(bars, tracks=tracks)
    return Frame(
        job=job,
        phase="prompt",
        title="Evening song",
        subtitle=f"New music begins after bar {bars}",
        timeline=timeline(score),
        prompt=PromptFrame(tracks=pack_tracks(score), splice=4.0 * bars, first=4.0 * first),
        variations=[],
    )


def done_frame(
    bars: int = 8, new_bars: int = 8, variations: int = 1, tracks: int = 3, *, job: str = "j1"
) -> Frame:
    """A finished job with sound and files."""
    frame = prompt_frame(bars, tracks, first=0, job=job)
    upload = band(bars, tracks=tracks)
    pieces = [band(new_bars, start=bars, tracks=tracks, seed=1 + n) for n in range(variations)]
    end = 48 * (bars + new_bars)
    return frame | Frame(
        phase="done",
        subtitle=f"{new_bars} bars after bar {bars} · groove model",
        variations=[
            VariationFrame(
                tracks=pack_tracks(piece, upload),
                timeline=timeline(band(bars + new_bars, tracks=tracks), end),
                files=KINDS,
                facts=f"{piece.num_notes} notes · 0:16",
                settings=f"seed {7 + index} · temperature 1.00 · top-p 0.97",
            )
            for index, piece in enumerate(pieces)
        ],
    )


_COUNT_FRAMES = """async ([seconds, pixels]) => {
  const roll = document.querySelector(".player-roll");
  const times = [];
  let last = null;
  await new Promise((resolve) => {
    const step = (now) => {
      if (last !== null) times.push(now - last);
      last = now;
      if (pixels) {
        roll.dispatchEvent(new WheelEvent("wheel", { deltaX: pixels, cancelable: true }));
      }
      if (times.reduce((sum, time) => sum + time, 0) > 1000 * seconds) resolve();
      else requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  return times;
}"""


class Smoothness(NamedTuple):
    """Frame rate and cost of a page over some seconds."""

    rate: float
    """Frames per second."""
    slow: float
    """95th percentile of the milliseconds between frames."""
    work: float
    """CPU milliseconds of the page per frame, independent of other programs."""


def smoothness(page: Page, seconds: float, pixels: int = 0) -> Smoothness:
    """Measure the player while it is scrolled by `pixels` in each frame."""
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    before = busy()
    times = page.evaluate(_COUNT_FRAMES, [seconds, pixels])
    work = 1000 * (busy() - before) / len(times)
    tools.detach()
    return Smoothness(1000 * len(times) / sum(times), float(np.percentile(times, 95)), work)
