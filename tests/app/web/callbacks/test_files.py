"""Files of a job, as the player requests them."""

from __future__ import annotations

import shutil
from pathlib import Path

from app.web.callbacks.alerts import BROKEN
from app.web.session import FIRST_EXAMPLE
from tests.support.seen import make, read


def test_files_are_found_by_job_variation_and_kind_only(calls, midi):
    read(calls, midi)
    _, view = make(calls)
    job = view.frame["job"]
    for kind in ("midi", "new_midi", "flac", "wav", "replay"):
        assert calls.files.file({"job": job, "variation": 0, "kind": kind})["path"]
    for request in (
        None,
        [],
        "job",
        {},
        {"job": "/etc/passwd", "variation": 0, "kind": "midi"},
        {"job": job, "variation": 7, "kind": "midi"},
        {"job": job, "variation": "0", "kind": "midi"},
        {"job": job, "variation": 0, "kind": "../midi"},
        {"job": job, "variation": 0, "kind": None},
        {"job": job, "variation": True, "kind": "midi"},
    ):
        answer = calls.files.file(request)
        assert set(answer) == {"error"}
        assert answer["error"] != BROKEN
    for without in ("0", [None], {"a": 1}):
        answer = calls.files.file({"job": job, "variation": 0, "kind": "flac", "without": without})
        assert set(answer) == {"error"}
        assert answer["error"] != BROKEN


def test_the_example_of_an_empty_page_is_rendered_on_demand(calls):
    request, first = {}, {}
    for name in (FIRST_EXAMPLE, "groove"):
        request = {"job": f"example {name}", "variation": -1, "kind": "flac"}
        first = calls.files.file(request)
        assert Path(first["path"]).is_file()
    assert calls.files.file(request) == first
    shutil.rmtree(Path(first["path"]).parent)  # as if it had expired
    assert Path(calls.files.file(request)["path"]).is_file()
    for job in ("example nothing", "example ../waltz", "example "):
        assert "is not available" in calls.files.file({**request, "job": job})["error"]
