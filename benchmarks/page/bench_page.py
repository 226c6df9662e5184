"""Waiting times of a user: for the page, the report of an upload, the first note, and a card.

A continuation is kept on its card after two actions: a file is chosen, and *Continue* pressed.

Run from the top of the repository: `python -m benchmarks.page.bench_page`. Needs Playwright and
Chromium. Starts `relpe ui` with the released models, as users do, and prints CSV.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.timing import run

FIRST_NOTE = (
    "() => / [1-9]\\d* notes/.test(document.querySelector('[data-part=subtitle]').innerText)"
)
PATIENCE = 120_000
"""Time-out in milliseconds."""


def wait_for_server(address: str) -> None:
    """Wait until the page answers.

    Raises:
        TimeoutError: it does not answer within two minutes.
    """
    end = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < end:
        try:
            with urlopen(address, timeout=1):
                return
        except (URLError, TimeoutError):
            time.sleep(0.05)
    raise TimeoutError(f"{address} does not answer")


def one_visit(page: Page, address: str, prompt: Path) -> tuple[float, float, float, float]:
    """Return seconds to the page, and from file to report, click to first note, file to card."""
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".player-roll")
    opened = time.perf_counter()
    page.set_input_files("#write-upload input[type=file]", str(prompt))
    page.wait_for_selector(".player[data-phase=prompt]")
    read = time.perf_counter()
    page.locator(".go-music").click()
    page.wait_for_function(FIRST_NOTE, polling=10)
    heard = time.perf_counter()
    page.wait_for_selector("#results li")
    return opened - begin, read - opened, heard - read, time.perf_counter() - opened


def first_load(browser: Browser, address: str) -> tuple[float, float]:
    """Seconds until the page can be used at 1 Mbit/s, and kB that a new browser receives."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    slow = {"latency": 40, "downloadThroughput": 125_000, "uploadThroughput": 125_000}
    session.send("Network.emulateNetworkConditions", {"offline": False, **slow})
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("#controls .go-music")
    page.wait_for_selector(".player.example [data-part=play]:enabled")
    seconds = time.perf_counter() - begin
    page.wait_for_timeout(3000)  # what comes after it
    page.close()
    return seconds, sum(sizes) / 1000


def main(prompt: Path = Path("examples/ballad.mid"), visits: int = 5, port: int = 7871) -> None:
    """Print the median of each wait."""
    address = f"http://127.0.0.1:{port}"
    begin = time.perf_counter()
    command = [sys.executable, "-m", "relpe", "ui", "--port", str(port)]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as server,
        sync_playwright() as driver,
    ):
        try:
            wait_for_server(address)
            print("wait,seconds")
            print(f"from the command to a page that answers,{time.perf_counter() - begin:.2f}")
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
            )
            seconds, size = first_load(browser, address)
            print(f"first load of {size:.0f} kB at 1 Mbit/s,{seconds:.2f}")
            waits = []
            for _ in range(visits):
                page = browser.new_page()
                page.set_default_timeout(PATIENCE)
                waits.append(one_visit(page, address, prompt))
                page.close()  # ends the job
                time.sleep(1)
            names = (
                "page drawn",
                "from the upload to its facts",
                "from the click to the first note",
                "from the upload to a kept continuation of 16 bars",
            )
            for name, seconds in zip(names, zip(*waits, strict=True), strict=True):
                print(f"{name},{statistics.median(seconds):.2f}")
        finally:
            server.terminate()


if __name__ == "__main__":
    run(main)
