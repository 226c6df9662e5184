"""The thread that generates for all users of a model."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.compose.continuation import Result, Variations
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.server.worker import Worker, _Job


def test_a_snapshot_of_a_job_that_has_just_ended_does_not_wait(quick_model):
    opening = Opening.of_nothing(quick_model, MusicOptions(seed=1, bars=2))
    job = _Job(Variations(opening), threading.Event())
    with ThreadPoolExecutor(1) as threads:
        job.end()  # between the user's wait for the end and the snapshot
        look = threads.submit(job.snapshot)
        try:
            assert look.result(10) is job.variations
        finally:
            with job._changed:
                job._is_requested = False
                job._changed.notify_all()


def test_a_thread_that_cannot_be_started_fails_one_job_only(quick_model, monkeypatch):
    with monkeypatch.context() as patch:

        def refuse(_):
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", refuse)
        worker = Worker(quick_model)
        opening = Opening.of_nothing(quick_model, MusicOptions(seed=1, bars=2))
        with pytest.raises(RuntimeError, match="new thread"):
            next(worker.generate(Variations(opening), threading.Event()))
    *_, result = worker.generate(Variations(opening), threading.Event())
    assert isinstance(result, Result)
    assert result.bars == 2
