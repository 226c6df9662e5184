"""The routes of Gradio that the page and scripts use; all others are refused."""

from __future__ import annotations

from typing import NamedTuple

from app.web.guard.refused import RefusedError

API = "/gradio_api/"
MAX_CALL_BYTES = 64_000
"""Maximum size of a call's JSON, which contains no files."""
MAX_SMALL_BYTES = 4_000
"""Maximum size of a login, or of a call that only names a job."""
FORM_BYTES = 16_000
"""What an upload's form may take beside its file."""

_READ_BY_ALL = (
    *("/assets/", "/static/", "/svelte/", "/theme.css", "/favicon.ico", "/manifest.json"),
    *("/robots.txt", "/logout"),
)
"""Beginnings of paths; the same for all users, or part of the login."""
_READ_BY_USERS = (
    *("/config", f"{API}info", f"{API}openapi.json", f"{API}file=", f"{API}call/"),
    *(f"{API}queue/data", f"{API}heartbeat/", f"{API}upload_progress", f"{API}app_id"),
)
_CALLS = ("run", "api", "call", "queue/join", "component_server")
_SMALL_CALLS = ("cancel", "reset")


class Route(NamedTuple):
    """What a request may contain, and who may send it."""

    is_public: bool = False
    """Whether it needs no login."""
    most_bytes: int = 0
    """Maximum size of the body."""
    call: str = ""
    """The kind of a call, whose body is JSON: one of `run`, `api`, `call`, `queue/join`,
    `component_server`, `cancel` and `reset`."""
    rest: str = ""
    """The path after the kind of the call."""
    is_login: bool = False
    is_upload: bool = False


class Routes:
    """All routes."""

    def __init__(self, max_upload_bytes: int) -> None:
        self._upload = Route(most_bytes=max_upload_bytes + FORM_BYTES, is_upload=True)

    def at(self, method: str, path: str) -> Route:
        """The route of a request. Raises RefusedError if there is none."""
        if "\0" in path:
            raise RefusedError(400, "found a path with a NUL character, expected one without")
        if method in ("GET", "HEAD"):
            if path == "/" or path.startswith(_READ_BY_ALL):
                return Route(is_public=True)
            if path.startswith(_READ_BY_USERS):
                return Route()
        elif method == "POST":
            if path.rstrip("/") == "/login":
                return Route(is_public=True, most_bytes=MAX_SMALL_BYTES, is_login=True)
            if path.rstrip("/") == f"{API}upload":
                return self._upload
            below = f"{path.partition(API)[2]}/" if path.startswith(API) else ""
            for most, names in ((MAX_CALL_BYTES, _CALLS), (MAX_SMALL_BYTES, _SMALL_CALLS)):
                for name in names:
                    if below.startswith(f"{name}/"):
                        rest = below.removeprefix(name).strip("/")
                        return Route(most_bytes=most, call=name, rest=rest)
        else:
            raise RefusedError(405, f"found the method {method[:20]}, expected GET, HEAD or POST")
        raise RefusedError(404, "there is no such endpoint")
