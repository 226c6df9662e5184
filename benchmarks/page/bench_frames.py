"""Measures the frame rate of the player with thousands of notes, in headless Chromium.

Run from the top of the repository: `python -m benchmarks.page.bench_frames`. Needs Playwright and
Chromium, which draws without a GPU. Prints CSV; the frame rate is at most 60 per second. The last
column hardly depends on the load of the machine: at most 16.7 ms allow 60 frames per second.
"""

from __future__ import annotations

import os
import platform

from playwright.sync_api import Page, sync_playwright

from benchmarks.timing import run
from tests.support import harness

TRACKS = 8
NOTES_OF_A_BAR = 34
"""Of drums and the other seven tracks, on average."""


def cases(page: Page, seconds: float) -> list[tuple[str, harness.Smoothness]]:
    """Return the smoothness of each user action."""
    measured: list[tuple[str, harness.Smoothness]] = []

    def measure(name: str, pixels: int = 0) -> None:
        measured.append((name, harness.smoothness(page, seconds, pixels)))

    measure("at rest")
    measure("panning", 12)
    page.locator("[data-part=from-start]").click()
    page.locator("[data-part=play]").click()
    page.wait_for_selector(".player.playing")
    measure("playing")
    page.locator("[data-part=zoom-fit]").click()
    page.wait_for_timeout(1000)
    measure("playing with the whole piece in view")
    page.locator("[data-part=play]").click()
    for _ in range(2):
        page.locator("[data-part=zoom-in]").click()
    page.wait_for_timeout(1000)
    measure("panning with half of the piece in view", -4)
    return measured


def main(notes: int = 10_000, seconds: float = 5.0) -> None:
    """Print one line for each case."""
    with harness.harness(8 * seconds) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=harness.CHROMIUM, args=harness.FLAGS)
        page = browser.new_page(viewport={"width": 1060, "height": 860})
        page.goto(address)
        frame = harness.done_frame(bars=0, new_bars=notes // NOTES_OF_A_BAR, tracks=TRACKS)
        page.evaluate("frame => harness.show(frame)", frame)
        page.wait_for_function("document.querySelector('[data-part=loading]').hidden")
        page.wait_for_timeout(1000)
        print(f"# {platform.machine()}, {os.cpu_count()} processors, Chromium {browser.version}")
        print("case,frames per second,95 % of frames within ms,ms of the page's thread per frame")
        for name, (rate, slow, work) in cases(page, seconds):
            print(f"{name},{rate:.1f},{slow:.1f},{work:.1f}")
        browser.close()


if __name__ == "__main__":
    run(main)
