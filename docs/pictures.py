"""Makes the pictures of the page in `examples/`, the moving one of the README among them.

Run from the top of the repository while `relpe ui` is running: `python -m docs.pictures`. Needs
Playwright and Chromium. The pictures show the released models at work on the example `ballad.mid`,
which is uploaded as a file of one's own would be.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks.timing import run

FOLDER = Path("examples")
SMALLER = 0.72
"""Width and height of the moving picture, compared with the page."""
PATIENCE = 600_000
"""Time-out in milliseconds."""
POINTER = """() => {
  const dot = document.body.appendChild(document.createElement("div"));
  dot.id = "pointer";
  dot.style = "position: fixed; z-index: 99; width: 18px; height: 18px; border-radius: 50%;" +
    "translate: -50% -50%; background: rgb(180 73 42 / 60%); pointer-events: none";
  addEventListener("mousemove", ({ x, y }) => {
    Object.assign(dot.style, { left: `${x}px`, top: `${y}px` });
  });
}"""
"""Draws a dot where the mouse is, which is no part of a screenshot."""


class Film:
    """Frames of a page and how long each is shown, in milliseconds."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.times: list[int] = []

    def take(self, milliseconds: int) -> None:
        """Add a frame."""
        frame = Image.open(io.BytesIO(self.page.screenshot(animations="disabled")))
        size = (int(frame.width * SMALLER), int(frame.height * SMALLER))
        self.frames.append(frame.convert("RGB").resize(size, Image.Resampling.LANCZOS))
        self.times.append(milliseconds)

    def press(self, selector: str) -> None:
        """Add a frame with the mouse on an element, and click it."""
        self.page.hover(selector)
        self.take(900)
        self.page.click(selector)

    def save(self, path: Path) -> None:
        """Write the frames as an animated WebP."""
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.times,
            loop=0,
            quality=80,
            method=6,
        )


def open_page(page: Page, address: str) -> None:
    """Open the page and wait until it shows its first example."""
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_selector(".player-roll[aria-valuetext]")
    page.add_style_tag(content=".estimate { visibility: hidden }")  # it is that of this machine
    page.wait_for_timeout(1000)


def continue_ballad(film: Film) -> None:
    """From the empty page to a continuation that is heard and kept."""
    page = film.page
    film.take(1500)
    page.set_input_files("#write-upload input[type=file]", str(FOLDER / "ballad.mid"))
    page.wait_for_selector(".player[data-phase=prompt]")
    page.wait_for_timeout(1000)
    film.take(1500)
    film.press(".go-music")
    while not page.locator(".player[data-phase=done]").count():
        film.take(160)
    page.wait_for_selector("#results li")
    page.wait_for_timeout(1500)
    film.take(1200)
    film.press("[data-part=play]")
    page.wait_for_selector(".player.playing")
    for _ in range(14):
        film.take(250)
        page.wait_for_timeout(500)
    page.click("[data-part=play]")
    film.press("#results [data-star]")
    film.take(2500)


def main(address: str = "http://127.0.0.1:7860") -> None:
    """Write the pictures."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1360, "height": 900})
        open_page(page, address)
        page.evaluate(POINTER)
        film = Film(page)
        continue_ballad(film)
        film.save(FOLDER / "page.webp")
        page.click("[data-part=from-splice]")
        page.evaluate("scrollTo(0, 0), document.querySelector('#pointer').remove()")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(1000)
            page.screenshot(path=FOLDER / ("page.png" if scheme == "light" else "page-dark.png"))
        phone = browser.new_page(
            viewport={"width": 390, "height": 844}, device_scale_factor=1.5, has_touch=True
        )
        open_page(phone, address)
        phone.locator(".chip-groove").click()
        phone.wait_for_selector(".player[data-phase=prompt]")
        phone.wait_for_timeout(1000)
        phone.screenshot(path=FOLDER / "page-phone.png")


if __name__ == "__main__":
    run(main)
