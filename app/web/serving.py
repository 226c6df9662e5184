"""Serves the page on a port until the program ends."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import gradio as gr

from app.compose.models import Models
from app.compose.options import MAX_FILE_BYTES
from app.player import assets as player
from app.server.store import KEPT_SECONDS, prune, remove_raw
from app.server.studio import Sharing
from app.server.uploads import READER
from app.web import api as endpoints
from app.web.assets import PAGE_STYLE, theme
from app.web.guard import guarded
from app.web.page import build_page

THREADS = 40
"""Threads for short calls; each job has one more."""
SECONDS_BETWEEN_PRUNINGS = 600.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Settings of the page's server."""

    host: str = "127.0.0.1"
    port: int | None = 7860
    """None: the first free one from 7860 on."""
    root_path: str = ""
    """Path under which a proxy shows the page, such as /music."""
    accounts: tuple[tuple[str, str], ...] = ()
    """Names and passwords; there is no login if empty."""
    output_folder: Path | None = None
    """Folder that keeps the music, in a new subfolder for each start of the page; None: a temporary
    folder keeps it for a day or until the program ends."""
    keep_days: float | None = None
    """How long music is kept in `output_folder`; None: forever."""
    keep_bytes: int | None = None
    """Maximum size of the music in `output_folder`; the oldest is removed. None: no limit."""
    max_upload_bytes: int = MAX_FILE_BYTES
    sharing: Sharing = field(default_factory=Sharing)
    soundfont: Path | None = None
    """None: the General MIDI one of pretty_midi."""
    open_browser: bool = False


def launch(
    models: Models, serving: Serving | None = None, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Serves the page until it is interrupted; `announce` gets its address when it is ready.

    Clients can only read files made since this start, and only if they know their names.
    """
    serving = serving or Serving()
    kept = serving.output_folder
    with ExitStack() as stack:
        if kept is None:
            folder = tempfile.TemporaryDirectory(prefix="relpe-", ignore_cleanup_errors=True)
            served = Path(stack.enter_context(folder))
        else:
            kept.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_pruned(kept, serving.keep_days, serving.keep_bytes))
            remove_raw(kept, untouched_seconds=KEPT_SECONDS)
            served = Path(tempfile.mkdtemp(prefix=f"{date.today()}-", dir=kept))
            stack.callback(_remove_if_empty, served)
            stack.callback(remove_raw, kept, served.name)
        page = build_page(
            models,
            served,
            keep=kept is not None,
            max_upload_bytes=serving.max_upload_bytes,
            sharing=serving.sharing,
            soundfont=serving.soundfont,
            closing=stack,
        )
        address = open_page(page, served, serving)
        with suppress(KeyboardInterrupt):
            announce(address)
            page.block_thread()


def open_page(page: gr.Blocks, output_folder: Path, serving: Serving | None = None) -> str:
    """Starts the server of a built page and returns its address.

    Jobs pass Gradio's queue, whose length allows for all jobs that the studio accepts.
    """
    serving = serving or Serving()
    READER.warm_up()
    jobs = serving.sharing.max_jobs
    page.queue(max_size=2 * jobs, api_open=False)
    health = endpoints.health_of(page)
    _, address, _ = page.launch(
        server_name=serving.host,
        server_port=serving.port,
        root_path=serving.root_path or None,
        auth=list(serving.accounts) or None,
        inbrowser=serving.open_browser,
        share=False,
        ssr_mode=False,
        prevent_thread_lock=True,
        quiet=True,
        run_history=False,
        enable_monitoring=False,
        footer_links=[],
        allowed_paths=[str(output_folder.resolve())],
        max_file_size=serving.max_upload_bytes,
        max_threads=THREADS + jobs,
        app_kwargs={"middleware": [guarded(page, health)]},
        theme=theme(),
        css_paths=(player.STYLE, PAGE_STYLE),
    )
    return address


@contextmanager
def _pruned(kept: Path, days: float | None, most_bytes: int | None) -> Iterator[None]:
    """Removes old music at once and every few minutes."""
    if days is None and most_bytes is None:
        yield
        return
    over = threading.Event()

    def work() -> None:
        while True:
            try:
                prune(kept, days, most_bytes)
            except OSError as error:
                _log.warning("%s: old music cannot be removed: %s", kept, error.strerror or error)
            if over.wait(SECONDS_BETWEEN_PRUNINGS):
                return

    threading.Thread(target=work, name="pruning", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
