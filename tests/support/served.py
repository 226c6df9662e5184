"""The page on a port, with a fake model."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from app.compose.models import Models
from app.server.studio import Sharing
from app.web.page import build_page
from app.web.serving import Serving, open_page
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from app.compose.models import MusicModel


class Served(NamedTuple):
    """A running page."""

    address: str
    model: fakes.FakeModel
    folder: Path
    uploads: Path


MARKS = (
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # of pandas, in Gradio's statistics of its queue
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.slow,
)
"""Marks of tests of a served page: server and client leave loops and sockets open."""
PATIENT = {"timeout": 60.0}
"""Time-out of clients in seconds."""


@contextmanager
def served(
    folder: Path,
    *,
    speed: float = 40.0,
    models: Models | None = None,
    sharing: Sharing | None = None,
    **how: object,
) -> Iterator[Served]:
    """Serve a page whose model generates `speed` notes per second; close everything at the end.

    `models` replace this fake model. `how` are further fields of `Serving`.
    """
    sharing = sharing or Sharing()
    with pytest.MonkeyPatch.context() as patch:
        # pages that run at the same time share it
        uploads = Path(os.environ.get("GRADIO_TEMP_DIR", folder / "uploads"))
        uploads.mkdir(exist_ok=True)
        patch.setenv("GRADIO_TEMP_DIR", str(uploads))
        model = fakes.FakeModel() if models else fakes.install(patch, speed=speed)
        models = models or Models.only(cast("MusicModel", model))
        blocks = build_page(models, folder, max_upload_bytes=20_000, sharing=sharing)
        serving = Serving(port=None, max_upload_bytes=50_000, sharing=sharing)
        with open_page(blocks, folder, replace(serving, **how)) as address:
            yield Served(address, model, folder, uploads)
    asyncio.set_event_loop(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(5):
            gc.collect()
