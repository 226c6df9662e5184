"""The tools of agents, by the Model Context Protocol: on standard input, or on the page."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import fastapi
import gradio as gr
from mcp import types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from pydantic import Field, ValidationError, create_model

from app.errors import CommandError
from app.files import read_file
from app.web.guard.calls import is_file_in
from app.web.guard.routes import MCP
from app.web.programs.tools import TOOLS, Arguments, File, Programs, Tool
from app.web.programs.v1 import FILE, TYPES
from app.web.refusals import invalid, refusal

DOWNLOADS = "/gradio_api/file="
"""What precedes the path of a file in its address on the page."""
MOST_INLINE_BYTES = 1_000_000
"""Maximum size of a file that is returned as base64."""
MOST_BODY_BYTES = 2**30
"""Of a request; the guard has a smaller limit."""
_INSTRUCTIONS = """Tools that write symbolic music. A file is given by {place}, or by its content as
data:;base64,... Tools return a path, or base64 if asked for."""


def agent_server(programs: Programs, *, remote: bool) -> Server:
    """Return a server of the tools.

    Agents on this machine may name any file; `remote` ones only files that a tool returned, by
    the paths of their addresses on the page.
    """
    prefix = DOWNLOADS if remote else ""
    models = {name: _arguments_of(tool) for name, tool in TOOLS.items()}
    tools = [
        types.Tool(name=name, description=tool.text, input_schema=models[name].model_json_schema())
        for name, tool in TOOLS.items()
    ]

    async def list_tools(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext, called: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            facts = await answer(called.name, called.arguments or {}, context.request)
        except ValidationError as problem:
            return _result(invalid(problem.errors()))
        except gr.Error as problem:
            return _result(problem.message)
        return _result(json.dumps(facts), facts)

    async def answer(
        name: str,
        arguments: Mapping[str, Any],
        request: Any,  # noqa: ANN401 - Starlette's, or None on standard input
    ) -> dict[str, object]:
        if name not in TOOLS:
            raise refusal(f"there is no tool {name[:60]!r}, expected one of {', '.join(TOOLS)}")
        tool = TOOLS[name]
        asked = models[name].model_validate(arguments)
        file = _file_of(getattr(asked, tool.file)) if tool.file else None
        inline = getattr(asked, "answer", "") == "base64"
        sent = asked.model_dump(exclude={tool.file, "answer"})
        answered = await programs.ask(tool, sent, file, request, keeps=not inline)
        facts = dict(answered.facts)
        if answered.path is None:
            return facts
        if len(answered.data) > MOST_INLINE_BYTES:
            raise refusal(
                f"the answer has {len(answered.data):,} bytes, expected at most "
                f"{MOST_INLINE_BYTES:,} for base64; ask for its path"
            )
        content = base64.b64encode(answered.data).decode()
        shown = content if inline else f"{prefix}{answered.path.as_posix()}"
        return {tool.answer: shown, "type": TYPES[tool.answer], **facts}

    def _file_of(value: str) -> File | Path:
        if value.startswith("data:"):
            try:
                return File("piece.mid", base64.b64decode(value.partition(",")[2], validate=True))
            except ValueError as error:
                raise refusal("prompt is no base64 after data:;base64, expected a file") from error
        path = value.removeprefix(prefix)
        if not remote:
            try:
                return File(Path(value).name, read_file(Path(value), programs.max_upload_bytes))
            except CommandError as error:
                raise refusal(str(error)) from error
        if not (value.startswith(prefix) and is_file_in(programs.music, path)):
            raise refusal(f"prompt is no {FILE} of this page, expected a path that a tool returned")
        return Path(path)

    return Server(
        "relpe",
        version=version("relpe"),
        instructions=_INSTRUCTIONS.format(
            place="a path that a tool returned" if remote else "its path"
        ),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def add_agents(whole: fastapi.FastAPI, programs: Programs) -> None:
    """Add the route /mcp to the app of a page, whose guard checks hosts, login and sizes."""
    server = agent_server(programs, remote=True)
    routes = server.streamable_http_app(
        stateless_http=True,
        host="",
        streamable_http_path=MCP,
        max_request_body_size=MOST_BODY_BYTES,
    ).routes

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        async with server.session_manager.run():
            yield

    whole.router.routes += routes
    whole.router.lifespan_context = lifespan


async def serve_stdio(server: Server) -> None:
    """Serve on standard input and output until the input ends."""
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


def _arguments_of(tool: Tool) -> type[Arguments]:
    """Return the arguments of a tool, with its file and how it answers."""
    more: dict[str, Any] = {}
    if tool.file:
        text = f"path of a {FILE}, or its content as data:;base64,..."
        more[tool.file] = str, Field(description=text)
    if tool.answer:
        more["answer"] = Literal["path", "base64"], Field("path", description="what is returned")
    return create_model(tool.arguments.__name__, __base__=tool.arguments, **more)


def _result(text: str, facts: dict[str, object] | None = None) -> types.CallToolResult:
    """Return the facts of an answer, or, without them, an error."""
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=facts, is_error=facts is None)
