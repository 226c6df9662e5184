"""The routes of the rating page; the guard refuses all others."""

from __future__ import annotations

from app.web.guard.refused import RefusedError
from app.web.guard.routes import MAX_SMALL_BYTES, Route

_READ_BY_ALL = ("/", "/listen.css", "/font.woff2", "/font-bold.woff2", "/favicon.ico")
_READ_BY_LISTENERS = ("/study", "/listener", "/clips/")
_CALLS = ("/listeners", "/answers", "/next")


class ListeningRoutes:
    """Which routes there are, and what their requests may contain."""

    def at(self, method: str, path: str) -> Route:
        """The route of a request. Raises RefusedError if there is none."""
        if method in ("GET", "HEAD"):
            if path in _READ_BY_ALL:
                return Route(is_public=True)
            if path in _READ_BY_LISTENERS or path.startswith("/clips/"):
                return Route()
        elif method == "POST":
            if path == "/login":
                return Route(is_public=True, most_bytes=MAX_SMALL_BYTES, is_login=True)
            if path in _CALLS:
                return Route(most_bytes=MAX_SMALL_BYTES)
        else:
            raise RefusedError(405, f"found the method {method[:20]}, expected GET, HEAD or POST")
        raise RefusedError(404, "there is no such page")


class NoCalls:
    """The page has no calls of Gradio and no streams; its server checks its own requests."""

    def check(self, route: Route, body: bytes) -> None:
        """Accepts a body."""

    def check_stream(self, path: str, query: bytes) -> None:
        """Accepts a request."""
