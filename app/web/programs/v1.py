"""POST /v1/continue and the others: a MIDI file and options in, a MIDI file out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.metadata import version
from inspect import Parameter, Signature
from typing import Annotated, Any

import fastapi
import gradio as gr
from fastapi import Form, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, create_model
from starlette.requests import Request
from starlette.responses import Response

from app.errors import BusyError
from app.web.guard.answers import error
from app.web.programs.tools import TOOLS, Answered, Arguments, File, Programs, Tool
from app.web.refusals import invalid, refusal

FILE = "MIDI or MusicXML file"
TYPES = {"midi": "audio/midi", "sound": "audio/flac", "": "application/json"}


class Refusal(BaseModel):
    """Why a call was refused: the same sentence twice, as Gradio and FastAPI name it."""

    error: str
    detail: str


def http_app(programs: Programs) -> fastapi.FastAPI:
    """Return the app whose routes are the tools, with its OpenAPI at /openapi.json."""
    app = fastapi.FastAPI(
        title="relpe",
        summary="Continues, fills and generates music.",
        version=version("relpe"),
        docs_url=None,  # it would load scripts from another server
        redoc_url=None,
        exception_handlers={RequestValidationError: answer_invalid, gr.Error: _answer_refused},
    )
    for name, tool in TOOLS.items():
        kind = TYPES[tool.answer]
        content: dict[str, Any] = {kind: {} if tool.answer else {"schema": {"type": "object"}}}
        app.post(
            f"/{name}",
            summary=tool.text,
            operation_id=name,
            response_class=Response,
            responses={200: {"content": content}, "4XX": {"model": Refusal}},
        )(_endpoint(programs, tool))
    return app


def _endpoint(programs: Programs, tool: Tool) -> Any:  # noqa: ANN401 - FastAPI reads its signature
    file: dict[str, Any] = {tool.file: (UploadFile, Field(description=FILE))} if tool.file else {}
    form = create_model(tool.arguments.__name__, __base__=tool.arguments, **file)

    async def answer(request: Request, asked: Arguments) -> Response:
        upload = getattr(asked, tool.file) if tool.file else None
        sent = File(upload.filename or "file.mid", await upload.read()) if upload else None
        values = asked.model_dump(exclude={tool.file})
        answered = await _unless_gone(request, programs.ask(tool, values, sent, request))
        if not tool.answer:
            return JSONResponse(answered.facts)
        headers = {
            f"Relpe-{name.capitalize()}": _in_header(str(value))
            for name, value in answered.facts.items()
        }
        return Response(answered.data, media_type=TYPES[tool.answer], headers=headers)

    options = Annotated[form, Form(media_type="multipart/form-data")]
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)
        for name, kind in (("request", Request), ("asked", options))
    ]
    setattr(answer, "__signature__", Signature(parameters))  # noqa: B010 - not declared
    return answer


def _in_header(text: str) -> str:
    """Return a text in ASCII and in one line, since charts may have several."""
    return " ".join(text.replace(" · ", "; ").encode("ascii", "replace").decode().split())


async def _unless_gone(request: Request, call: Coroutine[Any, Any, Answered]) -> Answered:
    """Return the answer to a call, which is cancelled if its client closes the connection."""
    asking, leaving = asyncio.ensure_future(call), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise refusal("the client has gone")
        return asking.result()
    finally:
        asking.cancel()
        leaving.cancel()


async def answer_invalid(_: Request, problem: Exception) -> JSONResponse:
    """Answer a call whose values have wrong types; FastAPI would return all of them."""
    errors = problem.errors() if isinstance(problem, RequestValidationError) else []
    return JSONResponse(error(invalid(errors)), 422)


async def _answer_refused(_: Request, problem: Exception) -> JSONResponse:
    message = problem.message if isinstance(problem, gr.Error) else str(problem)
    return JSONResponse(error(message), 429 if isinstance(problem.__cause__, BusyError) else 400)
