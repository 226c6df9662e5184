"""Many users at once on a page of the released models, and on a rating page: no errors."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from gradio_client import Client

from app.listening.answers import read_answers
from tests.support.listening import Caller, running, study_folder
from tests.support.loaded import load, program, wait_until
from tests.support.memory import resident
from tests.support.served import MARKS, PATIENT

if TYPE_CHECKING:
    pass

LISTENERS = 24

pytestmark = [*MARKS, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


def test_many_users_get_no_error_but_busy_and_leave_no_memory(tmp_path):
    """Twenty-four users for 75 seconds; memory is measured ten minutes later.

    Run it with `-o faulthandler_timeout=1800`, as every test ends after ten minutes by default.
    """
    log = tmp_path / "log.txt"
    with program(log) as page:
        met = load(page, seconds=75, users=24, rest=600)
    assert met.errors == []
    assert "Traceback" not in log.read_text()
    assert met.jobs >= 24 / 3
    assert len(met.looks) >= 10
    assert met.after < 1.2 * met.before


def test_ctrl_c_during_generation_ends_the_program_cleanly(tmp_path):
    """Nothing is left in the folder of temporary files, and the log has no traceback."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    with program(tmp_path / "log.txt", temporary=folder) as (address, _):
        client = Client(address, verbose=False, httpx_kwargs=PATIENT)
        client.submit(bars=256, variations=4, api_name="/generate")
        wait_until(lambda: httpx.get(f"{address}healthz").json()["jobs"]["running"] == 1)
        assert list(folder.glob("relpe-*"))
    assert "Traceback" not in (tmp_path / "log.txt").read_text()
    assert not list(folder.glob("relpe-*"))


def test_24_listeners_at_once_get_no_error(tmp_path):
    """They go through the whole test without pauses, and load all clips, of 20 s in stereo."""
    folder = study_folder(tmp_path / "study", seconds=20.0, rate=44_100, channels=2, prompts=4)
    with running(folder) as page:
        before = resident(page.process.pid)
        listeners = [Caller(page.address) for _ in range(LISTENERS)]
        together = threading.Barrier(LISTENERS)

        def listen(listener):
            together.wait()
            listener.join()
            listener.go_through(lambda _: 3, clips=True)
            listener.close()

        with ThreadPoolExecutor(LISTENERS) as threads:
            list(threads.map(listen, listeners))
        after = resident(page.process.pid)
    answers = read_answers(folder)
    assert len(answers) == sum(len(listener.acknowledged) for listener in listeners)
    assert len({answer.listener for answer in answers}) == LISTENERS
    assert after - before < 200_000
