"""The page as a program of its own, Caddy in front of it, and many users at once."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import httpx
from gradio_client import Client, handle_file

from tests.support.memory import resident
from tests.support.paths import ROOT
from tests.support.served import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CADDY = shutil.which("caddy")
EXAMPLES = ROOT / "examples"
PROMPTS = ("ballad.mid", "groove.mid")
BUSY = "try again in a minute"
PAUSE = 0.1
"""Seconds between two requests for the page."""
PATIENCE = 60.0
"""Seconds until Caddy must have ended."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Program(NamedTuple):
    """A running page."""

    address: str
    pid: int


@contextmanager
def program(log: Path, *options: str, temporary: Path | None = None) -> Iterator[Program]:
    """Runs the command in a separate process until the end of the block.

    Ctrl+C ends it, if nothing else has. Its temporary files are in `temporary`, by default the
    system's folder.
    """
    port = free_port()
    command = [sys.executable, "-m", "relpe", "ui", "--port", str(port), *options]
    environment = os.environ | ({"TMPDIR": str(temporary)} if temporary else {})
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env=environment,
            # a shell's background jobs ignore Ctrl+C
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        address = f"http://127.0.0.1:{port}/"
        try:
            wait_until(lambda: process.poll() is not None or is_up(address))
            yield Program(address, process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(60) in (0, 130, -signal.SIGKILL)  # 130 if it has not opened yet
            finally:
                process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # a test that hangs is ended by pytest
        time.sleep(0.2)


def is_up(address: str) -> bool:
    try:
        return httpx.get(f"{address}healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def caddy_before(address: str, folder: Path, most_bytes: int) -> Iterator[int]:
    """Runs Debian's Caddy in front of a page until the end of the block; yields its port."""
    port = free_port()
    settings = {
        "RELPE_SITE": f"http://127.0.0.1:{port}",
        "RELPE_PAGE": address.removeprefix("http://").rstrip("/"),
        "RELPE_MAX_BODY": f"{most_bytes}",
        "HOME": str(folder),
    }
    command = [str(CADDY), "run", "--adapter", "caddyfile", "--config", ROOT / "deploy/Caddyfile"]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
    try:
        while True:
            assert process.poll() is None, (folder / "log.txt").read_text()
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)


class Load(NamedTuple):
    """What users met, and what they left."""

    errors: list[str]
    jobs: int
    looks: list[float]
    """Seconds that each request for the page and its parts took."""
    before: int
    """Memory of the page in kB after the models were loaded."""
    after: int


def load(page: Program, seconds: float, users: int, rest: float = 0, front: str = "") -> Load:
    """`users` clients request pieces, while another one loads the page repeatedly.

    `rest` is the time in seconds until memory is measured, `front` the address of a proxy.
    """
    errors: list[str] = []
    looks: list[float] = []
    over = threading.Event()
    address = front or page.address
    with ThreadPoolExecutor(users + 1) as threads:
        first = Client(address, verbose=False, httpx_kwargs=PATIENT)
        for name in PROMPTS:  # compilation is not part of the load
            first.predict(handle_file(EXAMPLES / name), bars=1, seed=1, api_name="/continue")
        before = resident(page.pid)

        def use(number: int) -> int:
            done = 0
            while not over.is_set():
                try:
                    client = Client(address, verbose=False, httpx_kwargs=PATIENT)
                    prompt = handle_file(EXAMPLES / PROMPTS[number % len(PROMPTS)])
                    settings = {"bars": 8, "variations": 1 + number % 2, "seed": number}
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
            with httpx.Client(timeout=60, base_url=address) as browser:
                text = browser.get("").text
                assets = re.findall(r'(?:src|href)="\.?/((?:assets|static)/[^"]+)"', text)[:2]
                assert len(assets) == 2
                while not over.is_set():
                    for path in ("", "config", "theme.css", *assets):
                        began = time.perf_counter()
                        if (status := browser.get(path).status_code) != 200:
                            errors.append(f"GET /{path}: {status}")
                        looks.append(time.perf_counter() - began)
                        over.wait(PAUSE)

        work = [threads.submit(use, number) for number in range(users)]
        looking = threads.submit(look)
        over.wait(seconds)
        over.set()
        jobs = sum(future.result() for future in work)
        looking.result()
        time.sleep(rest)
    return Load(errors, jobs, looks, before, resident(page.pid))
