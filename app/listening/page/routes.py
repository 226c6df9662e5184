"""The routes of the rating page; the guard refuses all others."""

from __future__ import annotations

from app.web.guard.refused import RefusedError
from app.web.guard.routes import MAX_SMALL_BYTES, Route

_READ_BY_ALL = ("/", "/listen.css", "/font.woff2", "/font-bold.woff2", "/favicon.ico")
_READ_BY_LISTENERS = ("/study", "/listener", "/clips/")
_CALLS = ("/listeners", "/answers", "/next")


def listening_route(method: str, path: str) -> Route:
    """Return the route of a request. Raises RefusedError if there is none."""
    if method in ("GET", "HEAD"):
        if path in _READ_BY_ALL:
            return Route(is_public=True)
        if path in _READ_BY_LISTENERS or path.startswith("/clips/"):
            return Route()
    elif method == "POST":
        if path == "/login":
            return Route("login", MAX_SMALL_BYTES, is_public=True)
        if path in _CALLS:
            return Route("call", MAX_SMALL_BYTES)
    else:
        raise RefusedError(405, f"found the method {method[:20]}, expected GET, HEAD or POST")
    raise RefusedError(404, "there is no such page")
