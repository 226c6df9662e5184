"""The page's callbacks: their arguments and results are values of widgets.

They change the sessions of `app.web.session` and return the values of `View.show`.
"""

from __future__ import annotations

from app.server.studio import Studio
from app.web.callbacks.files import FileCallbacks
from app.web.callbacks.history import HistoryCallbacks
from app.web.callbacks.jams import JamCallbacks
from app.web.callbacks.jobs import JobCallbacks
from app.web.callbacks.settings import SettingsCallbacks
from app.web.callbacks.studies import StudyCallbacks
from app.web.callbacks.uploads import UploadCallbacks
from app.web.view import View


class Callbacks:
    """All callbacks of a page."""

    def __init__(self, studio: Studio, max_upload_bytes: int) -> None:
        self.studio = studio
        self.view = View(studio)
        self.files = FileCallbacks(studio)
        self.settings = SettingsCallbacks(self.view)
        self.studies = StudyCallbacks(self.view)
        self.history = HistoryCallbacks(self.view)
        self.uploads = UploadCallbacks(self.view, self.settings, max_upload_bytes)
        self.jams = JamCallbacks(self.view)
        self.jobs = JobCallbacks(self.view, self.settings, self.uploads)
