"""Checks calls of Gradio's endpoints: malformed ones get a status of 4xx and one sentence.

Gradio answers them with status 500 and a traceback in the log. Here an error in a callback is one
line in the log.
"""

from __future__ import annotations

import json
import logging
import math
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import gradio as gr
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from gradio.exceptions import InvalidPathError

from app.web.guard.answers import error
from app.web.guard.failures import FAILED, described
from app.web.guard.refused import RefusedError
from app.web.refusals import refusal, short

if TYPE_CHECKING:
    from gradio.block_function import BlockFunction
    from starlette.requests import Request

    from app.web.guard.routes import Route

_log = logging.getLogger(__name__)

MAX_SESSION = 64
"""Maximum length of the name of a session; Gradio's names have 36 characters."""
NOT_UPLOADED = "found a file that was not uploaded, expected an upload; upload it first"


class Calls:
    """The calls that a page accepts."""

    def __init__(self, page: gr.Blocks) -> None:
        self.page = page

    def check(self, route: Route, body: bytes) -> None:
        """Raises RefusedError for a call that Gradio would not answer with a sentence."""
        call = _parsed(body)
        if not isinstance(call, dict):
            raise RefusedError(422, f"found {short(call)}, expected a JSON object")
        session = call.get("session_hash")
        plain = isinstance(session, str) and session.isascii() and session.isprintable()
        if isinstance(session, str) and not (plain and len(session) <= MAX_SESSION):
            raise RefusedError(
                422,
                f"session_hash is {short(session)}, expected up to {MAX_SESSION} ASCII letters",
            )
        match route.call:
            case "component_server":
                self._check_server(call)
            case "run" | "api" | "queue/join":
                self._check_call(route.rest, call)
            case "call":
                self._named(route.rest.removeprefix("v2/"))

    def check_stream(self, path: str, query: bytes) -> None:
        """Rejects the stream of an unknown session or event, which Gradio would begin to answer."""
        _, _, route = path.partition("/gradio_api/")
        queue = self.page._queue
        known = queue.pending_messages_per_session
        if route == "queue/data":
            (session, *_) = parse_qs(query.decode("latin-1")).get("session_hash", [""])
            if session not in known:
                raise RefusedError(404, "there is no such session, or it has made no call")
        elif route.startswith("call/"):
            event = route.rstrip("/").rpartition("/")[2]
            pending = queue.pending_event_ids_session.values()
            if event not in {*queue.event_ids_to_events, *known}.union(*pending):
                raise RefusedError(404, "there is no such call in progress")

    def _check_call(self, api_name: str, call: dict[str, object]) -> None:
        index = call.get("fn_index")
        if index is None:
            if not api_name:
                raise RefusedError(422, "found no fn_index, expected the number of an endpoint")
            self._named(api_name)
        elif type(index) is not int or index not in self.page.fns:
            raise RefusedError(404, f"fn_index is {short(index)}, expected that of an endpoint")
        if not isinstance(call.get("data"), list):
            raise RefusedError(422, f"data is {short(call.get('data'))}, expected a list")
        trigger = call.get("trigger_id")
        known = self.page.blocks
        if trigger is not None and (type(trigger) is not int or trigger not in known):
            raise RefusedError(404, f"trigger_id is {short(trigger)}, expected a component's")

    def _named(self, api_name: str) -> None:
        if all(fn.api_name != api_name for fn in self.page.fns.values()):
            raise RefusedError(404, f"there is no endpoint {short(api_name)}")

    def _check_server(self, call: dict[str, object]) -> None:
        """Checks a call of a component's function."""
        known = call.get("component_id")
        block = self.page.blocks.get(known) if type(known) is int else None
        name = call.get("fn_name")
        function = getattr(block, name, None) if isinstance(name, str) else None
        if not getattr(function, "_is_server_fn", False):
            raise RefusedError(404, f"component {short(known)} has no function {short(name)}")
        if not isinstance(call.get("session_hash"), str):
            raise RefusedError(422, "found no session_hash, expected that of the session")
        if "data" not in call:
            raise RefusedError(422, "found no data, expected the argument of the function")


async def answer_invalid(_: Request, found: Exception) -> JSONResponse:
    """Answers a call whose values have wrong types; FastAPI would return all of them."""
    errors = found.errors() if isinstance(found, RequestValidationError) else []
    first = errors[0] if errors else {"loc": ("", "call"), "msg": "it is malformed"}
    message = f"{short('.'.join(str(part) for part in first['loc'][1:]))}: {first['msg']}"
    return JSONResponse(error(message), 422)


def answer_errors(page: gr.Blocks, uploads: Path) -> None:
    """From now on an error in a call is one sentence for the caller.

    It is also one line in the log, unless the sentence says what was wrong. `uploads` is the folder
    of uploaded files, the only files that calls may name.
    """
    process = page.process_api

    async def process_api(block_fn: Any, inputs: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401
        function = page.fns[block_fn] if isinstance(block_fn, int) else block_fn
        name = function.api_name or function.name
        try:
            if named.get("iterator") is None:  # else it continues a call that was checked
                _check_files(inputs, uploads)
                _check_inputs(function, inputs)
            return await process(block_fn, inputs, *rest, **named)
        except gr.Error as refused:
            refused.print_exception = False
            raise
        except InvalidPathError:
            raise refusal(NOT_UPLOADED) from None
        except Exception as caught:  # noqa: BLE001 - none may end in a traceback of Gradio
            _log.warning("%s: %s", name, described(caught))
            raise gr.Error(FAILED, print_exception=False) from None

    page.process_api = process_api


def _check_files(inputs: object, uploads: Path) -> None:
    """Raises gr.Error for a path that is not an uploaded file.

    Gradio would also accept its folders, and try to delete them as files later.
    """
    left = [inputs]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            left += value.values()
            path = value.get("path")
            if isinstance(path, str) and path and not _is_in(path, uploads):
                raise refusal(NOT_UPLOADED)


def _is_in(path: str, folder: Path) -> bool:
    try:
        found = Path(path).resolve(strict=True)
        return found.is_relative_to(folder.resolve()) and stat.S_ISREG(found.stat().st_mode)
    except (OSError, ValueError, RuntimeError):
        return False


def _check_inputs(function: BlockFunction, inputs: list[object]) -> None:
    """Raises gr.Error for values that the widgets cannot have sent."""
    if len(inputs) < len(function.inputs):
        raise refusal(f"found {len(inputs)} values, expected {len(function.inputs)}")
    if not function.preprocess:
        return  # it checks raw values itself
    for component, value in zip(function.inputs, inputs, strict=False):
        if isinstance(component, gr.Number | gr.Slider):
            good = _is_number(value) or (value is None and isinstance(component, gr.Number))
            kind = "a number"
        elif isinstance(component, gr.Checkbox):
            good, kind = isinstance(value, bool), "true or false"
        elif isinstance(component, gr.Textbox):
            good, kind = value is None or isinstance(value, str), "text"
        else:
            continue  # Gradio checks the rest, and gives states their own values
        if not good:
            raise refusal(f"{component.label or 'a value'} is {short(value)}, expected {kind}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(422, "found no JSON, expected the call as a JSON object") from None
