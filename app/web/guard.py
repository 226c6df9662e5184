"""Rejects malformed requests to the page's server, and answers health checks.

Gradio answers a malformed call with status 500 and a traceback in the log. Here it gets a status of
4xx and one sentence, and an error in a callback is one line in the log.
"""

from __future__ import annotations

import json
import logging
import math
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import gradio as gr
from gradio.exceptions import InvalidPathError

from app.player.assets import MODULES
from app.web.assets import SCRIPTS
from app.web.refusals import refusal, short

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping
    from types import TracebackType

    from gradio.block_function import BlockFunction

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]
    Middleware = tuple[type["Guard"], tuple[()], dict[str, object]]

_log = logging.getLogger(__name__)

HEALTH = "/healthz"
MAX_CALL_BYTES = 4_000_000
"""Maximum size of a call's JSON, which contains no files."""
MAX_SESSION = 64
"""Maximum length of the name of a session; Gradio's names have 36 characters."""
FAILED = "The call failed; see the program's log."
NOT_UPLOADED = "found a file that was not uploaded, expected an upload; upload it first"
_CALLS = ("run", "api", "call", "queue/join", "component_server", "cancel", "reset")
"""Routes that take JSON."""
_NOT_OURS = ("vibe", "undo-vibe", "dev/", "proxy=", "process_recording", "profiling", "custom_comp")
"""Routes of Gradio that the page does not use."""


class _RefusedError(Exception):
    """A call is rejected."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """ASGI middleware around a page's server."""

    def __init__(
        self, app: App, page: gr.Blocks, health: Callable[[], Mapping[str, object]]
    ) -> None:
        """`health` returns the state of the page; it needs no login."""
        self.app, self.page, self.health = app, page, health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or passes it to the page."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, method = scope["path"], scope["method"]
        if path.endswith(HEALTH) and method in {"GET", "HEAD"}:
            await _answer(send, 200, self.health(), body=method == "GET")
            return
        module = MODULES.at(path) or SCRIPTS.at(path)
        if module is not None and method in {"GET", "HEAD"}:
            # the address of a module changes with its content
            cached = b"public, max-age=31536000, immutable"
            kind = b"text/javascript; charset=utf-8"
            await _respond(send, 200, module, kind, cached, body=method == "GET")
            return
        sent = _Sent(send, calls=method == "POST")
        try:
            if method == "GET":
                self._check_stream(path, scope["query_string"])
            await self.app(scope, await self._checked(path, method, receive), sent)
        except _RefusedError as refused:
            await _answer(send, refused.status, _error(str(refused)))
        except Exception as error:
            if sent.begun:
                raise
            # without the rest of the path, which may name files and sessions
            route = path.partition("/gradio_api")[2].split("/")[1:2]
            _log.warning("%s %.40s: %s", method, *route or ["/"], described(error))
            await _answer(send, 400, _error(FAILED))

    async def _checked(self, path: str, method: str, receive: Receive) -> Receive:
        """The request's body, if the request is well formed."""
        if "\0" in path:
            raise _RefusedError(400, "found a path with a NUL character, expected one without")
        _, _, route = path.partition("/gradio_api/")
        if route.startswith(_NOT_OURS):
            raise _RefusedError(404, "there is no such endpoint")
        name = next((name for name in _CALLS if f"{route}/".startswith(f"{name}/")), None)
        if method != "POST" or name is None:
            return receive
        body = await _read(receive)
        self._check(name, route.removeprefix(name).strip("/"), _parsed(body))
        return _again(body, receive)

    def _check_stream(self, path: str, query: bytes) -> None:
        """Rejects the stream of an unknown session or event, which Gradio would begin to answer."""
        _, _, route = path.partition("/gradio_api/")
        queue = self.page._queue
        known = queue.pending_messages_per_session
        if route == "queue/data":
            (session, *_) = parse_qs(query.decode("latin-1")).get("session_hash", [""])
            if session not in known:
                raise _RefusedError(404, "there is no such session, or it has made no call")
        elif route.startswith("call/"):
            event = route.rstrip("/").rpartition("/")[2]
            pending = queue.pending_event_ids_session.values()
            if event not in {*queue.event_ids_to_events, *known}.union(*pending):
                raise _RefusedError(404, "there is no such call in progress")

    def _check(self, name: str, rest: str, call: object) -> None:
        if not isinstance(call, dict):
            raise _RefusedError(422, f"found {short(call)}, expected a JSON object")
        session = call.get("session_hash")
        plain = isinstance(session, str) and session.isascii() and session.isprintable()
        if isinstance(session, str) and not (plain and len(session) <= MAX_SESSION):
            raise _RefusedError(
                422,
                f"session_hash is {short(session)}, expected up to {MAX_SESSION} ASCII letters",
            )
        if name == "component_server":
            self._check_server(call)
        elif name in {"run", "api", "queue/join"}:
            self._check_call(rest, call)
        elif name == "call":
            self._named(rest.removeprefix("v2/"))

    def _check_call(self, api_name: str, call: dict[str, object]) -> None:
        index = call.get("fn_index")
        if index is None:
            if not api_name:
                raise _RefusedError(422, "found no fn_index, expected the number of an endpoint")
            self._named(api_name)
        elif type(index) is not int or index not in self.page.fns:
            raise _RefusedError(404, f"fn_index is {short(index)}, expected that of an endpoint")
        if not isinstance(call.get("data"), list):
            raise _RefusedError(422, f"data is {short(call.get('data'))}, expected a list")
        for key, kind in (("trigger_id", int), ("session_hash", str), ("event_id", str)):
            if not isinstance(call.get(key), kind | None):
                raise _RefusedError(422, f"{key} is {short(call[key])}, expected {kind.__name__}")
        trigger = call.get("trigger_id")
        if trigger is not None and trigger not in self.page.blocks:
            raise _RefusedError(404, f"trigger_id is {short(trigger)}, expected a component's")

    def _named(self, api_name: str) -> None:
        if all(fn.api_name != api_name for fn in self.page.fns.values()):
            raise _RefusedError(404, f"there is no endpoint {short(api_name)}")

    def _check_server(self, call: dict[str, object]) -> None:
        """Checks a call of a component's function."""
        known = call.get("component_id")
        block = self.page.blocks.get(known) if type(known) is int else None
        name = call.get("fn_name")
        function = getattr(block, name, None) if isinstance(name, str) else None
        if not getattr(function, "_is_server_fn", False):
            raise _RefusedError(404, f"component {short(known)} has no function {short(name)}")
        if not isinstance(call.get("session_hash"), str):
            raise _RefusedError(422, "found no session_hash, expected that of the session")
        if "data" not in call:
            raise _RefusedError(422, "found no data, expected the argument of the function")


class _Sent:
    """Sends an answer; Gradio's own refusals get status 400 in place of 500."""

    def __init__(self, send: Send, *, calls: bool) -> None:
        self._send, self._calls = send, calls
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            if self._calls and message["status"] == 500 and kinds[:1] == [b"application/json"]:
                message = {**message, "status": 400}
        await self._send(message)


def guarded(page: gr.Blocks, health: Callable[[], Mapping[str, object]]) -> Middleware:
    """The guard of a page whose server is about to start, as middleware of its app.

    From now on an error in a call is one sentence for the caller, and one line in the log unless
    the sentence says what was wrong.
    """
    process = page.process_api

    async def process_api(block_fn: Any, inputs: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401
        function = page.fns[block_fn] if isinstance(block_fn, int) else block_fn
        name = function.api_name or function.name
        try:
            if named.get("iterator") is None:  # else it continues a call that was checked
                _check_inputs(function, inputs)
            return await process(block_fn, inputs, *rest, **named)
        except gr.Error as error:
            error.print_exception = False
            raise
        except InvalidPathError:
            raise refusal(NOT_UPLOADED) from None
        except Exception as error:  # noqa: BLE001 - none may end in a traceback of Gradio
            _log.warning("%s: %s", name, described(error))
            raise gr.Error(FAILED, print_exception=False) from None

    page.process_api = process_api
    return Guard, (), {"page": page, "health": health}


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


def described(error: BaseException) -> str:
    """An error and its place in one line, without paths and values that a caller has sent."""
    where, at = "", error.__traceback__
    while at is not None:
        where, at = _place(at), at.tb_next
    text = error.strerror if isinstance(error, OSError) else str(error)
    text = " ".join(_PRIVATE.sub("…", (text or "")[:2000]).split())
    return f"{type(error).__name__}: {text[:200]}{where}"


_PRIVATE = re.compile(r"""'[^']*'?|"[^"]*"?|\S*[/\\]\S*|\w{20,}""")
"""Parts of an error's text: quotations, paths, and long names."""


def _place(traceback: TracebackType) -> str:
    code = traceback.tb_frame.f_code
    return f" ({'/'.join(code.co_filename.split('/')[-2:])}:{traceback.tb_lineno})"


async def _read(receive: Receive) -> bytes:
    """The whole body of a request."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise _RefusedError(400, "the request ended before its body was complete")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > MAX_CALL_BYTES:
            raise _RefusedError(
                413, f"found more than {MAX_CALL_BYTES:,} bytes, expected at most that many"
            )
    return b"".join(parts)


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _RefusedError(422, "found no JSON, expected the call as a JSON object") from None


def _again(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read before, and then the following messages."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def call() -> Message:
        return left.pop() if left else await receive()

    return call


def _error(message: str) -> dict[str, str]:
    """An error for Gradio's clients, and in FastAPI's form."""
    return {"error": message, "detail": message}


async def _answer(
    send: Send, status: int, content: Mapping[str, object], *, body: bool = True
) -> None:
    data = json.dumps(content).encode()
    await _respond(send, status, data, b"application/json", b"no-store", body=body)


async def _respond(
    send: Send, status: int, data: bytes, kind: bytes, cached: bytes, *, body: bool
) -> None:
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(data)).encode()),
        (b"cache-control", cached),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data if body else b""})
