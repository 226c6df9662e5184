"""What tests do with a page in Chromium."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

PATIENCE = 120_000
"""Time-out in milliseconds: machines are shared."""
Place = tuple[float, float]
"""Pixels from the left and from the top of the page."""


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    size: tuple[int, int] = (1280, 860),
    ready: str = ".player-roll[aria-valuetext]",
    script: str = "",
    **context: Any,
) -> Iterator[Page]:
    """Open a page in a new tab and wait for `ready`; tabs narrower than 600 pixels have touch.

    `script` runs before those of the page. Afterwards, check that no script failed and that no
    request went to another host.
    """
    width, height = size
    context |= {"viewport": {"width": width, "height": height}, "has_touch": width < 600}
    page = browser.new_page(**context)
    page.set_default_timeout(PATIENCE)
    hosts: set[str] = set()
    failures: list[str] = []
    page.on("request", lambda request: hosts.add(request.url))
    page.on("pageerror", lambda error: failures.append(str(error)))
    if script:
        page.add_init_script(script)
    try:
        page.goto(address)
        page.wait_for_selector(ready)
        yield page
    finally:
        page.close()
    assert failures == []
    server = urlsplit(address).netloc
    urls = [urlsplit(url) for url in hosts]
    assert [url for url in urls if url.scheme.startswith("http") and url.netloc != server] == []


def part(page: Page, name: str) -> Locator:
    """A part of the player."""
    return page.locator(f"[data-part={name}]")


def button(page: Page, name: str) -> Locator:
    """The visible button with this text."""
    return page.get_by_role("button", name=name, exact=True).locator("visible=true").first


def phase(page: Page, name: str) -> None:
    """Wait until the player is in a phase."""
    page.wait_for_selector(f".player[data-phase={name}]")


def upload(
    page: Page, content: bytes, name: str = "Song.mid", *, place: str = "#write-upload"
) -> None:
    """Choose a file for an upload."""
    file: Any = {"name": name, "mimeType": "audio/midi", "buffer": content}
    page.set_input_files(f"{place} input[type=file]", files=[file])


def upload_prompt(page: Page, content: bytes, name: str = "Song.mid") -> None:
    """Choose a file and wait until the player shows it as a prompt."""
    upload(page, content, name)
    phase(page, "prompt")


def set_length(page: Page, bars: object) -> Locator:
    """Enter the number of new bars."""
    field = page.locator("#controls .length input[type=number]").locator("visible=true").first
    field.fill(str(bars))
    field.press("Tab")
    return field


def compose(page: Page, name: str = "Continue") -> None:
    """Press the button that starts a job and wait until it is done."""
    button(page, name).click()
    phase(page, "done")


def downloaded(page: Page, where: str = "[data-part=file-midi]") -> tuple[str, bytes]:
    """Name and content of the file that a button downloads."""
    with page.expect_download() as download:
        page.locator(where).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def wait_for_text(page: Page, where: str, text: str) -> None:
    """Wait until an element that matches a selector contains a text."""
    page.wait_for_function(
        "([where, text]) => [...document.querySelectorAll(where)]"
        ".some((node) => (node.innerText || node.textContent).includes(text))",
        arg=[where, text],
    )


def in_focus(locator: Locator) -> bool:
    """Whether the element has the focus."""
    return locator.evaluate("node => node === document.activeElement")


def box_of(locator: Locator) -> dict[str, float]:
    """Left (x), top (y), width and height of a visible element in pixels."""
    box: Any = locator.bounding_box()
    assert box is not None
    return box


def centre(locator: Locator) -> Place:
    """The middle of an element."""
    box = box_of(locator)
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page: Page, *places: Place, release: bool = True) -> None:
    """Move the mouse from the first place to the others with its button pressed."""
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=6)
    if release:
        page.mouse.up()


def touch(page: Page, *moments: list[Place]) -> None:
    """Put fingers on the screen, move them and lift them; each moment has the place of each."""
    tools = page.context.new_cdp_session(page)
    for number, places in enumerate([*moments, []]):
        kind = "touchStart" if number == 0 else "touchMove" if places else "touchEnd"
        points = [{"x": x, "y": y} for x, y in places]
        tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def press(page: Page, *keys: str) -> None:
    """Press keys one after another."""
    for key in keys:
        page.keyboard.press(key)
