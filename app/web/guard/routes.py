"""The routes of Gradio that the page and scripts use; all others are refused."""

from __future__ import annotations

from typing import Literal, NamedTuple

from app.web.guard.refused import RefusedError

API = "/gradio_api/"
V1, MCP = "/v1/", "/mcp"
"""Where programs and agents call."""
MAX_CALL_BYTES = 64_000
"""Maximum size of a call's JSON, which contains no files."""
MAX_SMALL_BYTES = 4_000
"""Maximum size of a login, or of a call of a jam or the rating page."""
FORM_BYTES = 16_000
"""What an upload's form may take beside its file."""

_READ_BY_ALL = (
    *("/assets/", "/static/", "/svelte/", "/theme.css", "/favicon.ico", "/robots.txt"),
    "/logout",
)
"""Beginnings of paths; the same for all users, or part of the login."""
_READ_BY_USERS = (
    *("/config", f"{API}info", f"{API}openapi.json", f"{API}file=", f"{API}call/"),
    *(f"{API}queue/data", f"{API}heartbeat/", f"{API}upload_progress", f"{API}app_id"),
)
_CALLS = ("run/", "api/", "call/", "queue/join/", "component_server/", "cancel/", "reset/")


class Route(NamedTuple):
    """What a request may contain, and who may send it."""

    kind: Literal["", "login", "upload", "call", "program"] = ""
    most_bytes: int = 0
    """Maximum size of the body."""
    is_public: bool = False
    """Whether it needs no login."""


def gradio_route(method: str, path: str, max_upload_bytes: int) -> Route:
    """Return the route of a request to Gradio's page. Raises RefusedError if there is none."""
    if method in ("GET", "HEAD"):
        if path == "/" or path.startswith(_READ_BY_ALL):
            return Route(is_public=True)
        # Gradio would fetch it, for anyone, from the other server
        is_elsewhere = path.removeprefix(f"{API}file=").lower().startswith("http")
        if (path.startswith(_READ_BY_USERS) and not is_elsewhere) or path == f"{V1}openapi.json":
            return Route()
    elif method == "POST":
        name = f"{path.removeprefix(API)}/" if path.startswith(API) else path.rstrip("/")
        if name == "/login":
            return Route("login", MAX_SMALL_BYTES, is_public=True)
        if name.startswith("upload/"):
            return Route("upload", max_upload_bytes + FORM_BYTES)
        if name.startswith("/jam/"):
            return Route(most_bytes=MAX_SMALL_BYTES)
        if name.startswith(_CALLS):
            return Route("call", MAX_CALL_BYTES)
        if path.startswith(V1):
            return Route("program", max_upload_bytes + FORM_BYTES)
        if path == MCP:
            return Route("program", max_upload_bytes * 4 // 3 + FORM_BYTES)  # files are in base64
    raise no_route(method, "endpoint")


def no_route(method: str, what: str) -> RefusedError:
    """Return the refusal of a method that is not used, or of a path that has no `what`."""
    if method in ("GET", "HEAD", "POST"):
        return RefusedError(404, f"there is no such {what}")
    return RefusedError(405, f"found the method {method[:20]}, expected GET, HEAD or POST")
