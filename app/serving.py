"""The page on a port, for as long as the program runs."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from app import player
from app.look import theme
from app.options import MAX_FILE_BYTES
from app.page import build_page

if TYPE_CHECKING:
    from collections.abc import Callable

    import gradio as gr

    from app.continuation import Models

MAX_WAITING = 8
"""Calls that may wait in the queue at the same time: jobs for the model, above all."""


def launch(
    models: Models,
    *,
    host: str = "127.0.0.1",
    port: int | None = 7860,
    output_folder: Path | None = None,
    max_upload_bytes: int = MAX_FILE_BYTES,
    open_browser: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Serves the page until it is interrupted; its address is announced when it can be opened.

    Music is kept in a new folder in `output_folder`; without one in a temporary folder, for a day
    or until the program ends. Whoever can reach the page can read a file of this run if they know
    its name, and nothing else.
    """
    with ExitStack() as stack:
        if output_folder is None:
            served = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relpe-")))
        else:
            output_folder.mkdir(parents=True, exist_ok=True)
            served = Path(tempfile.mkdtemp(prefix=f"{date.today()}-", dir=output_folder))
            stack.callback(_remove_if_empty, served)
        page = build_page(
            models, served, keep=output_folder is not None, max_upload_bytes=max_upload_bytes
        )
        address = open_page(
            page,
            served,
            host=host,
            port=port,
            max_upload_bytes=max_upload_bytes,
            open_browser=open_browser,
        )
        with suppress(KeyboardInterrupt):
            announce(address)
            page.block_thread()


def open_page(
    page: gr.Blocks,
    output_folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = 7860,
    max_upload_bytes: int = MAX_FILE_BYTES,
    open_browser: bool = False,
) -> str:
    """Starts the server of a built page and returns its address.

    Jobs get to the model through its queue alone: Gradio would also take them past it.
    """
    page.queue(max_size=MAX_WAITING, api_open=False)
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        inbrowser=open_browser,
        share=False,
        ssr_mode=False,
        prevent_thread_lock=True,
        quiet=True,
        run_history=False,
        enable_monitoring=False,
        footer_links=[],
        allowed_paths=[str(output_folder.resolve())],
        max_file_size=max_upload_bytes,
        theme=theme(),
        css_paths=player.STYLES,
    )
    return address


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
