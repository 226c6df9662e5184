"""Errors of callbacks as sentences for the user."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import input_errors

_log = logging.getLogger(__name__)

BROKEN = "An unexpected error has occurred; see the program's log."
BUSY = "Music is being generated: wait until it has ended, or stop it first."


class AlertError(Exception):
    """A callback has failed; the message is one sentence for the user."""


@contextmanager
def alerting() -> Iterator[None]:
    """Turn every error into an `AlertError`, and log it unless the user's input caused it."""
    try:
        yield
    except AlertError:
        raise
    except input_errors() as error:
        raise AlertError(str(error)) from error
    except Exception as error:
        _log.exception("a callback of the page failed")
        raise AlertError(BROKEN) from error
