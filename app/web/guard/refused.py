"""The refusal of a request."""

from __future__ import annotations


class RefusedError(Exception):
    """A request is refused with a status and a sentence."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: seconds until another attempt makes sense."""
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
