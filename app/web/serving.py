"""Serves the page on a port until the program ends."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe
from typing import cast
from urllib.parse import urlsplit

import fastapi
import gradio as gr
from fastapi.exceptions import RequestValidationError
from gradio.routes import App
from gradio.utils import get_upload_folder
from starlette.routing import Mount

from app.compose.models import Models
from app.compose.options import MAX_FILE_BYTES
from app.player import assets as player
from app.server.memory.heap import return_unused
from app.server.store import prune
from app.server.studio import Sharing
from app.server.temporary import make_room, private_folder
from app.server.uploads import READER
from app.web.assets import PAGE_STYLE, SCRIPTS, theme
from app.web.guard import Guard, Hosts
from app.web.guard.answers import gradio_policy
from app.web.guard.calls import check_call
from app.web.guard.port import ENDING_SECONDS, served, wait_for_interruption
from app.web.guard.routes import gradio_route
from app.web.page import Page, build_page
from app.web.programs.api import calls_of
from app.web.programs.tools import Programs
from app.web.programs.v1 import answer_invalid, http_app
from app.web.session import MOST_SESSIONS

THREADS = 40
"""Threads for short calls; each job has one more."""
SECONDS_BETWEEN_PRUNINGS = 600.0
COOKIES = ("access-token-", "access-token-unsecure-")
"""Beginnings of the names of the cookies of Gradio's login."""
SECONDS_BETWEEN_RETURNS = 60.0
"""Interval at which unused memory is returned."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Settings of the page's server."""

    host: str = "127.0.0.1"
    port: int | None = 7860
    """None: the first free one from 7860 on."""
    allowed_hosts: tuple[str, ...] = ()
    """More names of hosts under which the page is served, as behind a proxy."""
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
    mcp: bool = False
    """Whether agents find the tools at /mcp."""


def launch(
    models: Models, serving: Serving | None = None, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Serve the page until it is interrupted; `announce` gets its address when it is ready.

    Clients can only read files made since this start, and only if they know their names.
    """
    serving = serving or Serving()
    with ExitStack() as stack:
        temporary = stack.enter_context(private_folder())
        uploads = stack.enter_context(_uploads_in(temporary / "uploads"))
        music = stack.enter_context(_music_folder(serving, temporary))
        stack.enter_context(_repeated(partial(make_room, uploads)))
        stack.enter_context(_repeated(return_unused, SECONDS_BETWEEN_RETURNS))
        page = build_page(
            models,
            music,
            keep=serving.output_folder is not None,
            max_upload_bytes=serving.max_upload_bytes,
            sharing=serving.sharing,
            soundfont=serving.soundfont,
            closing=stack,
        )
        with suppress(KeyboardInterrupt), open_page(page, music, serving) as address:
            announce(address)
            if serving.open_browser:
                webbrowser.open(address)
            wait_for_interruption()


@contextmanager
def open_page(page: gr.Blocks, music: Path, serving: Serving | None = None) -> Iterator[str]:
    """Serve a built page during the block; yield its address.

    Jobs pass Gradio's queue, whose length allows for all jobs that the studio accepts.
    """
    serving = serving or Serving()
    READER.warm_up()
    jobs = serving.sharing.max_jobs
    page.max_threads = THREADS + jobs
    page.queue(max_size=2 * jobs, api_open=False)
    page.state_session_capacity = MOST_SESSIONS
    with served(guarded(page, music, serving), serving.host, serving.port) as address:
        try:
            yield address
        finally:
            page.close(verbose=False)  # ends all streams


def guarded(page: gr.Blocks, music: Path, serving: Serving) -> Guard:
    """Return the app of a built page, behind its guard."""
    uploads = Path(get_upload_folder())
    calls = calls_of(page)
    programs = Programs(calls, uploads, lambda cookies: _account_of(page.app, cookies))
    whole = fastapi.FastAPI(openapi_url=None)
    if isinstance(page, Page):
        whole.add_api_route("/jam/{name}", page.jams.post, methods=["POST"], response_model=None)
    whole.mount("/v1", http_app(programs))
    if serving.mcp:
        from app.web.programs.agents import add_agents

        add_agents(whole, programs)
    gr.mount_gradio_app(
        whole,
        page,
        path="/",
        app_kwargs={"exception_handlers": {RequestValidationError: answer_invalid}},
        auth=list(serving.accounts) or None,
        root_path=serving.root_path,
        allowed_paths=[str(music.resolve())],
        max_file_size=serving.max_upload_bytes,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        ssr_mode=False,
        theme=theme(),
        css_paths=(player.COLOURS, player.STYLE, PAGE_STYLE),
    )
    last = whole.routes[-1]
    assert isinstance(last, Mount)
    assert isinstance(last.app, App)
    page.app = mounted = last.app
    return Guard(
        whole,
        route_of=partial(gradio_route, max_upload_bytes=serving.max_upload_bytes),
        is_known=lambda cookies: mounted.auth is None or _account_of(mounted, cookies) is not None,
        cookie_of=partial(_cookie_of, mounted),
        health=calls.health,
        hosts=Hosts.of(serving.host, serving.allowed_hosts, serving.root_path),
        policy=gradio_policy,
        modules=(player.MODULES, SCRIPTS, player.sound_bank(serving.soundfont)),
        check_call=partial(check_call, uploads=uploads),
        max_upload_bytes=serving.max_upload_bytes,
        root_path=urlsplit(serving.root_path).path,
        make_room=partial(make_room, uploads),
    )


def _account_of(app: App, cookies: Mapping[str, str]) -> str | None:
    """Return the account whose login to Gradio's app has these cookies, or None."""
    tokens = (cookies.get(f"{cookie}{app.cookie_id}", "") for cookie in COOKIES)
    return next((app.tokens[token] for token in tokens if token in app.tokens), None)


def _cookie_of(app: App, account: str, password: str) -> str | None:
    """Return the cookie of a login with a password, or None if it is wrong."""
    passwords = cast("dict[str, str]", app.auth)  # Gradio makes it of the list of accounts
    right = passwords.get(account, "")
    # an account that does not exist takes as long
    if not compare_digest(right.encode(), password.encode()) or not right:
        return None
    token = next((token for token, name in list(app.tokens.items()) if name == account), "")
    token = token or token_urlsafe(16)
    app.tokens[token] = account
    return f"{COOKIES[-1]}{app.cookie_id}={token}"


@contextmanager
def _uploads_in(folder: Path) -> Iterator[Path]:
    """Make Gradio put uploaded files into a folder instead of one that all programs share."""
    folder.mkdir()
    before = os.environ.get("GRADIO_TEMP_DIR")
    os.environ["GRADIO_TEMP_DIR"] = str(folder)
    try:
        yield folder
    finally:
        if before is None:
            del os.environ["GRADIO_TEMP_DIR"]
        else:
            os.environ["GRADIO_TEMP_DIR"] = before


@contextmanager
def _music_folder(serving: Serving, temporary: Path) -> Iterator[Path]:
    """Return the folder for the music of this start; it is removed at the end if it is empty."""
    kept = serving.output_folder
    if kept is None:
        music = temporary / "music"
        music.mkdir()
        yield music
        return
    kept.mkdir(parents=True, exist_ok=True)
    music = Path(tempfile.mkdtemp(prefix=f"{date.today()}-", dir=kept))
    days, most_bytes = serving.keep_days, serving.keep_bytes
    try:
        with ExitStack() as stack:
            if days is not None or most_bytes is not None:
                stack.enter_context(_repeated(partial(_prune, kept, days, most_bytes)))
            yield music
    finally:
        with suppress(OSError):  # it has music
            music.rmdir()


def _prune(kept: Path, days: float | None, most_bytes: int | None) -> None:
    try:
        prune(kept, days, most_bytes)
    except OSError as error:
        _log.warning("%s: old music cannot be removed: %s", kept, error.strerror or error)


@contextmanager
def _repeated(
    work: Callable[[], object], seconds: float = SECONDS_BETWEEN_PRUNINGS
) -> Iterator[None]:
    """Do some work at once and at intervals of some seconds."""
    over = threading.Event()

    def repeat() -> None:
        while True:
            work()
            if over.wait(seconds):
                return

    thread = threading.Thread(target=repeat, name="housekeeping", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(ENDING_SECONDS)
