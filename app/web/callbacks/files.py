"""Callbacks of the player that return the files of a job."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from app.audio.synth.soundfont import SoundError
from app.compose.options import MAX_FILE_BYTES
from app.errors import BusyError, DiskError
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
        """Return the path of a file of a job; `request` is `{job, variation, kind, without}`.

        `without` are the ids of tracks that are left out of a sound.
        """
        try:
            return {"path": self._path(request).as_posix()}
        except (BusyError, DiskError) as error:
            return {"error": f"{error}."}
        except (LookupError, SoundError) as error:
            text = str(error.args[0]) if error.args else "there is no such file"
            return {"error": f"The file is not available: {text}."}
        except Exception:  # noqa: BLE001 - shown by the player, and logged
            _log.exception("a file could not be made")
            return {"error": BROKEN}

    def _path(self, request: object) -> Path:
        """Return the file of a request. Raises LookupError if it is malformed, or there is none."""
        asked: dict[str, Any] = request if isinstance(request, dict) else {}
        job, variation, kind = (asked.get(name) for name in ("job", "variation", "kind"))
        without = asked.get("without") or []
        if not (isinstance(job, str) and isinstance(kind, str) and type(variation) is int):
            raise LookupError(f"found {short(request)}, expected job, variation and kind")
        if not isinstance(without, list) or not all(isinstance(n, int) for n in without):
            raise LookupError(f"without is {short(without)}, expected a list of track ids")
        return self._studio.file(self._opened(job), variation, kind, frozenset(without))

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
