"""Many users at once on a page of the released models, and on a rating page: no errors."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest
from gradio_client import Client, handle_file

from app.listening.answers import read_answers
from tests.support.listening import Caller, running, study_folder
from tests.support.memory import resident
from tests.support.paths import ROOT
from tests.support.served import MARKS, PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLES = ROOT / "examples"
PROMPTS = ("ballad.mid", "groove.mid")
BUSY = "try again in a minute"
PAUSE = 0.1
"""Seconds between two requests for the page."""
LISTENERS = 24

pytestmark = [*MARKS, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


class Program(NamedTuple):
    """A running page."""

    address: str
    pid: int


@contextmanager
def program(log: Path, temporary: Path | None = None) -> Iterator[Program]:
    """Runs the command in a separate process until the end of the block.

    Ctrl+C ends it. Its temporary files are in `temporary`, by default the system's folder.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "relpe", "ui", "--port", str(port)]
    environment = os.environ | ({"TMPDIR": str(temporary)} if temporary else {})
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        address = f"http://127.0.0.1:{port}/"
        try:
            wait_until(lambda: process.poll() is not None or is_up(address))
            yield Program(address, process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(60) in (0, 130)  # 130 if it has not opened yet
            finally:
                process.kill()


def wait_until(condition) -> None:
    while not condition():  # a test that hangs is ended by pytest
        time.sleep(0.2)


def is_up(address: str) -> bool:
    try:
        return httpx.get(f"{address}healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def load(folder: Path, seconds: float, users: int, rest: float = 0) -> tuple[int, int]:
    """`users` clients request pieces, while another client loads the page repeatedly.

    Checks that none gets an error, and returns the memory of the server in kB before, and after a
    `rest` of some seconds.
    """
    errors: list[str] = []
    looks: list[str] = []
    over = threading.Event()
    log = folder / "log.txt"
    with program(log) as page, ThreadPoolExecutor(users + 1) as threads:
        first = Client(page.address, verbose=False, httpx_kwargs=PATIENT)
        for name in PROMPTS:  # compilation is not part of the load
            first.predict(handle_file(EXAMPLES / name), bars=1, seed=1, api_name="/continue")
        before = resident(page.pid)

        def use(number: int) -> int:
            client = Client(page.address, verbose=False, httpx_kwargs=PATIENT)
            prompt = handle_file(EXAMPLES / PROMPTS[number % len(PROMPTS)])
            settings = {"bars": 8, "variations": 1 + number % 2, "seed": number}
            done = 0
            while not over.is_set():
                try:
                    files, facts = client.predict(prompt, **settings, api_name="/continue")  # pyright: ignore[reportArgumentType]
                    assert len(files) == 3 * settings["variations"], facts
                except Exception as error:  # noqa: BLE001 - reported at the end
                    if BUSY not in str(error):
                        errors.append(f"user {number}: {error!r}")
                        break
                    over.wait(2)
                else:
                    done += 1
            return done

        def look() -> None:
            with httpx.Client(timeout=60, base_url=page.address) as browser:
                text = browser.get("").text
                assets = re.findall(r'(?:src|href)="\.?/((?:assets|static)/[^"]+)"', text)[:2]
                assert len(assets) == 2
                while not over.is_set():
                    for path in ("", "config", "theme.css", *assets):
                        looks.append(path)
                        if (status := browser.get(path).status_code) != 200:
                            errors.append(f"GET /{path}: {status}")
                        over.wait(PAUSE)

        work = [threads.submit(use, number) for number in range(users)]
        looking = threads.submit(look)
        over.wait(seconds)
        over.set()
        jobs = sum(future.result() for future in work)
        looking.result()
        time.sleep(rest)
        after = resident(page.pid)
    assert errors == []
    assert "Traceback" not in log.read_text()
    assert jobs >= users / 3
    assert len(looks) >= 10
    return before, after


def test_many_users_get_no_error_but_busy_and_leave_no_memory(tmp_path):
    """Twenty-four users for 75 seconds; memory is measured ten minutes later.

    Run it in the foreground, as a shell's background jobs ignore Ctrl+C, and with
    `-o faulthandler_timeout=1800`, as every test ends after ten minutes by default.
    """
    before, after = load(tmp_path, seconds=75, users=24, rest=600)
    assert after < 1.2 * before


def test_ctrl_c_during_generation_ends_the_program_cleanly(tmp_path):
    """Nothing is left in the folder of temporary files, and the log has no traceback."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    with program(tmp_path / "log.txt", folder) as (address, _):
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
