"""A page behind its guard, called without a port."""

from __future__ import annotations

import asyncio
import gc
import json
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import gradio as gr
import pytest
from starlette.testclient import TestClient

from app.compose.models import Models
from app.server.studio import Studio
from app.web.page import build_page
from app.web.programs import api as endpoints
from app.web.serving import Serving, guarded
from tests.support import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from httpx2 import Response

    from app.compose.models import MusicModel
    from app.web.guard import Guard

ADDRESS = "http://localhost:7860"
JSON = {"content-type": "application/json"}
LARGEST = 20_000
"""Maximum size of an upload in tests of uploads."""


class GuardedPage(NamedTuple):
    """A page, its guard and its folder of uploads."""

    blocks: gr.Blocks
    guard: Guard
    uploads: Path


@contextmanager
def guarded_page(folder: Path, **how: object) -> Iterator[GuardedPage]:
    """A page with a fake model; `how` are fields of `Serving`."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        uploads = folder / "uploads"
        uploads.mkdir()
        patch.setenv("GRADIO_TEMP_DIR", str(uploads))
        model = cast("MusicModel", fakes.install(patch, speed=5000.0))
        blocks = build_page(Models.only(model), folder)
        blocks.queue(api_open=False)
        yield GuardedPage(blocks, guarded(blocks, folder, replace(Serving(), **how)), uploads)
        blocks.close(verbose=False)
        asyncio.set_event_loop(None)
        for _ in range(5):  # the server does not close its loops and sockets
            gc.collect()


def guard_of(blocks: gr.Blocks, **how: object) -> Guard:
    """The guard of any blocks."""
    models = Models.only(cast("MusicModel", fakes.FakeModel()))
    with blocks:
        endpoints.add(Studio(models, Path()), LARGEST)
    return guarded(blocks, Path(), replace(Serving(), **how))


def client_of(guard: Guard, address: str = ADDRESS) -> TestClient:
    """A client of a page at an address."""
    return TestClient(guard, base_url=address, raise_server_exceptions=False)


def post(client: TestClient, route: str, body: object, **headers: str) -> Response:
    """Calls a route with JSON, or with any bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    kind = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"/gradio_api/{route}", content=content, headers=kind)
