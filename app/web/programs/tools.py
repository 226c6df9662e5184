"""What programs can ask for, with typed arguments: POST /v1 and the tools of agents.

`Calls` does the work, as for Gradio's endpoints; the types are those of `MusicOptions`.
"""

from __future__ import annotations

import inspect
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import gradio as gr
from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.requests import Request

from app.cli.main import COMMANDS
from app.compose.options import NEW_PIECE_BARS, OPTIONS
from app.files import safe_name
from app.web.programs.api import CONTINUE, FILL, GENERATE, Answer, Calls

_OTHERS: dict[str, tuple[Any, Any]] = {
    "model": (str, Field("", description="name of a model; empty: the one that suits best")),
    "first_bar": (int, Field(1, ge=1, description="first bar to write, counted from 1")),
    "last_bar": (int, Field(0, ge=0, description="last bar to write; 0: the last of the file")),
    "tracks": (
        str,
        Field("", description="tracks to write: numbers from 1, names or instruments; empty: all"),
    ),
    "rest": (str, Field("", description="tracks whose notes are removed, in the same way")),
    "instrument": (str, Field(description="General MIDI name of the new track, or Drums")),
}
"""Types of arguments that are no options."""
_LAST_READ = (int, Field(0, ge=0, description="last bar before the new music; 0: all of the file"))
_NEW_BARS = (int, Field(NEW_PIECE_BARS, ge=1, le=256, description=OPTIONS["bars"].help))


class Arguments(BaseModel):
    """Arguments of a call; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


class File(NamedTuple):
    """A file that was sent."""

    name: str
    data: bytes


class Answered(NamedTuple):
    """The answer to a call: a file, unless only facts were asked for."""

    facts: Mapping[str, object]
    path: Path | None = None
    data: bytes = b""


Run = Callable[[Calls, gr.Request, Mapping[str, object]], Answered]


class Tool(NamedTuple):
    """Something that programs can ask for."""

    text: str
    arguments: type[Arguments]
    file: str
    """Name of the argument that is a MIDI or MusicXML file; empty if there is none."""
    answer: Literal["midi", "sound", ""]
    """What the file of the answer is; empty if there are only facts."""
    run: Run


def _type_of(name: str) -> tuple[Any, Any]:
    """Return type and default of an argument, for pydantic."""
    if name in _OTHERS:
        return _OTHERS[name]
    option, bounds = OPTIONS[name], {}
    kind: Any = Literal[option.words] if option.words else option.kind
    if option.limits is not None:
        least, most = option.limits.scripts
        bounds = {"ge": option.limits.most[0] if option.default is None else least, "le": most}
    if option.default is None:
        kind |= None
    text = option.help.replace("%%", "%")
    return kind, Field(option.default, description=text, **bounds)


def _arguments(title: str, names: tuple[str, ...], **others: Any) -> type[Arguments]:  # noqa: ANN401
    """Return typed arguments. Programs call again, with another seed, for another variation."""
    fields: dict[str, Any] = {
        name: _type_of(name) for name in names if name not in ("prompt", "variations")
    }
    return create_model(title, __base__=Arguments, **(fields | others))


def _music(call: Callable[[Calls, gr.Request, Mapping[str, object]], Answer]) -> Run:
    """Return a call with the MIDI file of one piece, its seed and its settings as answer."""

    def run(calls: Calls, request: gr.Request, sent: Mapping[str, object]) -> Answered:
        paths, facts = call(calls, request, sent)
        (settings,) = cast("list[str]", facts.pop("settings"))
        del facts["replay"]
        return Answered(facts | {"settings": settings}, Path(paths[0]))

    return run


def _inspect(calls: Calls, _: gr.Request, sent: Mapping[str, object]) -> Answered:
    return Answered(calls.inspect(sent["prompt"], sent["beats"]))


def _render(calls: Calls, request: gr.Request, sent: Mapping[str, object]) -> Answered:
    return Answered({}, Path(calls.render(sent["prompt"], request)))


def _summary(call: Callable[..., object]) -> str:
    return (inspect.getdoc(call) or "").partition("\n")[0]


_WRITTEN = tuple(name for name in FILL if name not in ("tracks", "rest", "instrument"))
TOOLS = {
    "continue": Tool(
        _summary(Calls.continue_piece),
        _arguments("Continue", CONTINUE, last_bar=_LAST_READ),
        *("prompt", "midi", _music(Calls.continue_piece)),
    ),
    "fill": Tool(
        "Write some bars and tracks of a MIDI file again.",
        _arguments("Fill", (*_WRITTEN, "tracks", "rest")),
        *("prompt", "midi", _music(Calls.fill)),
    ),
    "accompany": Tool(
        f"{COMMANDS['accompany'].help.capitalize()}.",
        _arguments("Accompany", ("instrument", *_WRITTEN)),
        *("prompt", "midi", _music(Calls.fill)),
    ),
    "generate": Tool(
        _summary(Calls.generate),
        _arguments("Generate", GENERATE, bars=_NEW_BARS),
        *("", "midi", _music(Calls.generate)),
    ),
    "inspect": Tool(
        _summary(Calls.inspect), _arguments("Inspect", ("beats",)), "prompt", "", _inspect
    ),
    "render": Tool(_summary(Calls.render), _arguments("Render", ()), "prompt", "sound", _render),
}


class Programs:
    """Answers calls of programs with the studio of a page, within its limits."""

    def __init__(
        self,
        calls: Calls,
        folder: Path,
        account_of: Callable[[Mapping[str, str]], str | None] = lambda _: None,
    ) -> None:
        """`folder` gets files that are sent; `account_of` returns the account of some cookies."""
        studio = calls.studio
        self.max_upload_bytes = calls.max_upload_bytes
        self._calls = Calls(studio, self.max_upload_bytes, has_sound=False)
        self._folder, self._account_of = folder, account_of
        self.music = studio.folders.root
        """Folder of the files of all answers."""
        # the studio refuses jobs beyond its limits; threads are bounded as in the page's queue
        self._threads = CapacityLimiter(2 * studio.sharing.max_jobs)

    async def ask(
        self,
        tool: Tool,
        sent: Mapping[str, object],
        file: File | Path | None,
        request: Request | None = None,
        *,
        keeps: bool = False,
    ) -> Answered:
        """Answer a call. Its job is stopped if the caller no longer waits for it.

        The answer has the bytes of its file, or, with `keeps`, its path, which exists for a day.
        Raises gr.Error for bad input.
        """
        session, studio = secrets.token_hex(16), self._calls.studio
        account = None if request is None else self._account_of(request.cookies)
        caller = gr.Request(request, account, session, client=None)

        def answer() -> Answered:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                path = file
                if isinstance(file, File):
                    path = Path(folder, safe_name(file.name))
                    path.write_bytes(file.data)
                uploaded = {"path": str(path), "meta": {"_type": "gradio.FileData"}}
                answered = tool.run(self._calls, caller, {**sent, "prompt": uploaded})
            if keeps or answered.path is None:
                return answered
            return answered._replace(data=answered.path.read_bytes())

        try:
            return await to_thread.run_sync(answer, abandon_on_cancel=True, limiter=self._threads)
        finally:
            studio.stop(session)
            if not keeps:
                studio.leave(session)
                studio.folders.remove(session)
