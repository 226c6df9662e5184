"""Callbacks of the player that return the files of a job."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.audio.synth.soundfont import SoundError
from app.compose.options import MAX_FILE_BYTES
from app.errors import DiskError
from app.server.studio import Studio
from app.server.uploads import read_upload
from app.web.callbacks.alerts import BROKEN
from app.web.examples import finished_file
from app.web.refusals import short

_log = logging.getLogger(__name__)


class FileCallbacks:
    """Callbacks that return `{"path": …}`, or `{"error": …}` with a sentence for the user."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._examples: dict[str, str] = {}  # job ids by example
        self._opening = threading.Lock()

    def file(self, request: object) -> dict[str, object]:
        """Path of a file of a job; `request` is `{job, variation, kind}`."""
        with _answered() as answer:
            job, variation, asked = _checked(request)
            kind = asked.get("kind")
            if not isinstance(kind, str):
                raise LookupError(f"kind is {short(kind)}, expected one such as midi")
            answer["path"] = self._studio.file(job, variation, kind).as_posix()
        return answer

    def mix(self, request: object) -> dict[str, object]:
        """Path of the sound without some tracks, and the second of the piece where it begins.

        `request` is `{job, variation, without, second}`; the sound begins shortly before `second`.
        """
        with _answered() as answer:
            job, variation, asked = _checked(request)
            without = asked.get("without") or []
            if not isinstance(without, list) or not all(isinstance(n, int) for n in without):
                raise LookupError(f"without is {short(without)}, expected a list of track ids")
            second = asked.get("second", 0)
            if not isinstance(second, int | float) or not math.isfinite(second):
                raise LookupError(f"second is {short(second)}, expected a number")
            job = self._opened(job)
            path, begin = self._studio.mix(job, variation, frozenset(without), second)
            answer |= {"path": path.as_posix(), "begin": begin}
        return answer

    def _opened(self, job: str) -> str:
        """Return the id of a job; an example of the empty page becomes a job when it is played."""
        path = finished_file(job)
        if path is None:
            return job
        with self._opening:
            if not self._studio.knows(self._examples.get(job, "")):
                upload = read_upload(path, MAX_FILE_BYTES, self._studio.models)
                self._examples[job] = self._studio.opened(job, upload).id
            return self._examples[job]


@contextmanager
def _answered() -> Iterator[dict[str, object]]:
    """Return an answer to the player; an error becomes its sentence."""
    answer: dict[str, object] = {}
    try:
        yield answer
    except DiskError as error:
        answer["error"] = f"{error}."
    except (LookupError, SoundError) as error:
        text = str(error.args[0]) if error.args else "there is no such file"
        answer["error"] = f"The file is not available: {text}."
    except Exception:  # noqa: BLE001 - shown by the player, and logged
        _log.exception("a file could not be made")
        answer["error"] = BROKEN


def _checked(request: object) -> tuple[str, int, dict[str, Any]]:
    """Job, variation and all values of a request. Raises LookupError if it is malformed."""
    if not isinstance(request, dict):
        raise LookupError(f"found {short(request)}, expected job and variation")
    asked: dict[str, Any] = request
    job, variation = asked.get("job"), asked.get("variation")
    if not isinstance(job, str) or not isinstance(variation, int) or isinstance(variation, bool):
        raise LookupError(f"found {short(asked)}, expected job and variation")
    return job, variation, asked
