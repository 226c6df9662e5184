"""Many users at once on a page of the released models: no errors, and quick responses."""

from __future__ import annotations

import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from gradio_client import Client, handle_file

from tests.support.paths import ROOT
from tests.support.served import MARKS, PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = ROOT / "examples"
PROMPTS = ("ballad.mid", "groove.mid")
BUSY = "try again in a minute"
PAUSE = 0.1
"""Seconds between two requests for the page."""


class Program(NamedTuple):
    """A running page."""

    address: str
    pid: int

    @property
    def memory(self) -> int:
        """Resident memory in kB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


class Load(NamedTuple):
    """Results of a load test."""

    jobs: int
    """Number of finished jobs."""
    errors: list[str]
    seconds: list[float]
    """Duration of each GET of the page."""
    log: str
    """Output of the server."""
    busy: int = 0
    """Number of jobs that were refused since too many were waiting."""
    memory: tuple[int, ...] = ()
    """Memory of the server before and after the load, and after the rest, in kB."""

    @property
    def p95(self) -> float:
        """95th percentile of the seconds of responses."""
        return statistics.quantiles(self.seconds, n=20)[-1]


@contextmanager
def program(log: Path, temporary: Path | None = None) -> Iterator[Program]:
    """Runs the command in a separate process until the end of the block.

    Ctrl+C ends it. Its temporary files are in `temporary`, by default the system's folder.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("w") as said:
        command = [sys.executable, "-m", "app", "ui", "--port", str(port)]
        where = {"TMPDIR": str(temporary)} if temporary else {}
        running = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **where})
        address = f"http://127.0.0.1:{port}/"
        try:
            until(lambda: running.poll() is None and answers(address), 600)
            yield Program(address, running.pid)
        finally:
            running.send_signal(signal.SIGINT)
            try:
                assert running.wait(60) in (0, 130)  # 130 if it has not opened yet
            finally:
                running.kill()


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def load(folder: Path, seconds: float, users: int, bars: int = 8, rest: float = 0) -> Load:
    """`users` clients request pieces, while another client loads the page repeatedly.

    After a `rest` of some seconds, the memory of the server is measured again.
    """
    errors: list[str] = []
    busy: list[str] = []
    over = threading.Event()
    with program(folder / "log.txt") as page, ThreadPoolExecutor(users + 1) as threads:
        address = page.address
        first = Client(address, verbose=False, httpx_kwargs=PATIENT)
        for name in PROMPTS:  # compilation is not part of the load
            first.predict(handle_file(EXAMPLES / name), bars=1, seed=1, api_name="/continue")
        before = page.memory

        def use(number: int) -> int:
            client = Client(address, verbose=False, httpx_kwargs=PATIENT)
            prompt = handle_file(EXAMPLES / PROMPTS[number % len(PROMPTS)])
            done = 0
            while not over.is_set():
                try:
                    files, facts = client.predict(
                        prompt,
                        bars=bars,
                        variations=1 + number % 2,
                        seed=number,
                        api_name="/continue",
                    )
                    assert len(files) == 3 * (1 + number % 2), facts
                except Exception as error:  # noqa: BLE001 - reported at the end
                    if BUSY in str(error):
                        busy.append(str(error))
                        over.wait(2)
                        continue
                    errors.append(f"user {number}: {error!r}")
                    return done
                done += 1
            return done

        def look() -> list[float]:
            taken = []
            with httpx.Client(timeout=60) as browser:
                page = browser.get(address)
                assets = re.findall(r'(?:src|href)="\.?/((?:assets|static)/[^"]+)"', page.text)[:2]
                assert len(assets) == 2
                while not over.is_set():
                    for path in ("", "config", "theme.css", *assets):
                        began = time.monotonic()
                        status = browser.get(f"{address}{path}").status_code
                        taken.append(time.monotonic() - began)
                        if status != 200:
                            errors.append(f"GET /{path}: {status}")
                        over.wait(PAUSE)
            return taken

        works = [threads.submit(use, number) for number in range(users)]
        looking = threads.submit(look)
        over.wait(seconds)
        over.set()
        done = sum(work.result() for work in works)
        taken = looking.result()
        after = page.memory
        time.sleep(rest)
        memory = (before, after, page.memory)
    log = (folder / "log.txt").read_text()
    return Load(done, errors, taken, log, len(busy), memory)


def with_marks(test):
    """Adds the marks of tests of a served page."""
    for mark in MARKS:
        test = mark(test)
    return test


def checked(came: Load, jobs: int, looks: int) -> Load:
    """Checks that no request was refused and that nothing went wrong."""
    print(  # noqa: T201 - by -s
        f"{came.jobs} jobs, {came.busy} refused as busy, {len(came.seconds)} looks at the page, "
        f"p95 {came.p95:.3f} s, memory {came.memory} kB"
    )
    assert came.errors == []
    assert "Traceback" not in came.log
    assert came.jobs >= jobs
    assert len(came.seconds) >= looks
    return came


@with_marks
def test_eight_users_for_a_quarter_of_a_minute_get_no_error(tmp_path):
    """The speed of the page depends on the machine; the next test measures it, on a quiet one."""
    checked(load(tmp_path, seconds=15, users=8, bars=2), jobs=8, looks=10)


@with_marks
def test_eight_users_for_two_minutes_get_no_error_and_a_quick_page(tmp_path):
    came = checked(load(tmp_path, seconds=120, users=8), jobs=16, looks=200)
    assert came.p95 < 0.2, f"{came.p95:.3f} s"


@with_marks
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_users_get_no_error_but_busy_and_leave_no_memory(tmp_path):
    """Twenty-four users for 75 seconds; memory is measured ten minutes later.

    Run it in the foreground, as a shell's background jobs ignore Ctrl+C, and with
    `-o faulthandler_timeout=1800`, as every test ends after ten minutes by default.
    """
    came = checked(load(tmp_path, seconds=75, users=24, rest=600), jobs=8, looks=10)
    before, _, later = came.memory
    assert later < 1.2 * before


@with_marks
def test_ctrl_c_during_generation_ends_the_program_cleanly(tmp_path):
    """Nothing is left in the folder of temporary files, and the log has no traceback."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    with program(tmp_path / "log.txt", folder) as (address, _):
        client = Client(address, verbose=False, httpx_kwargs=PATIENT)
        client.submit(bars=256, variations=4, api_name="/generate")
        until(lambda: httpx.get(f"{address}healthz").json()["jobs"]["running"] == 1, 120)
        assert list(folder.glob("relpe-*"))
    assert "Traceback" not in (tmp_path / "log.txt").read_text()
    assert not list(folder.glob("relpe-*"))


def test_the_95th_percentile_is_computed():
    assert Load(0, [], [number / 100 for number in range(1, 101)], "").p95 == pytest.approx(
        0.96, abs=0.01
    )
