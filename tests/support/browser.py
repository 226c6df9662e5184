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
HEARD = """
const { connect } = AudioNode.prototype;
AudioNode.prototype.connect = function (to, ...rest) {
  if (to instanceof AudioDestinationNode && !window.ear) {
    window.ear = new AnalyserNode(this.context, { fftSize: 2048 });
    connect.call(this, window.ear);
  }
  return connect.call(this, to, ...rest);
};
window.level = () => {
  const samples = new Float32Array(2048);
  window.ear?.getFloatTimeDomainData(samples);
  return Math.max(...samples.map(Math.abs));
};"""
"""Makes `level()` the loudness of what the synthesizer plays."""
LOUD, SILENT = "level() > 1e-3", "level() < 1e-4"
Place = tuple[float, float]
"""Pixels from the left and from the top of the page."""


class Tab:
    """A tab with the page or its player; its other attributes are those of Playwright's `Page`."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def part(self, name: str) -> Locator:
        """A part of the player."""
        return self.page.locator(f"[data-part={name}]")

    def button(self, name: str) -> Locator:
        """The visible button with this text."""
        buttons = self.page.get_by_role("button", name=name, exact=True)
        return buttons.locator("visible=true").first

    def phase(self, name: str) -> None:
        """Wait until the player is in a phase."""
        self.page.wait_for_selector(f".player[data-phase={name}]")

    def upload(
        self, content: bytes, name: str = "Song.mid", *, place: str = "#write-upload"
    ) -> None:
        """Choose a file for an upload."""
        file: Any = {"name": name, "mimeType": "audio/midi", "buffer": content}
        self.page.set_input_files(f"{place} input[type=file]", files=[file])

    def upload_prompt(self, content: bytes, name: str = "Song.mid") -> None:
        """Choose a file and wait until the player shows it as a prompt."""
        self.upload(content, name)
        self.phase("prompt")

    def set_length(self, bars: object) -> Locator:
        """Enter the number of new bars; return its field."""
        fields = self.page.locator("#controls .length input[type=number]")
        field = fields.locator("visible=true").first
        field.fill(str(bars))
        field.press("Tab")
        return field

    @property
    def go(self) -> Locator:
        """The button that begins a job: Continue."""
        return self.page.locator(".go-music")

    def compose(self) -> None:
        """Press Continue and wait until the music is done."""
        self.go.click()
        self.page.wait_for_selector(".player:not([data-phase=done])")
        self.phase("done")

    def expert(self) -> None:
        """Unfold the settings for experts."""
        self.page.get_by_role("button", name="Expert").click()

    def downloaded(self, where: str = "[data-part=file-midi]") -> tuple[str, bytes]:
        """Name and content of the file that a button downloads."""
        with self.page.expect_download() as download:
            self.page.locator(where).click()
        return download.value.suggested_filename, Path(download.value.path()).read_bytes()

    def shows(self, text: str, where: str = "body") -> None:
        """Wait until an element that matches a selector contains a text."""
        self.page.wait_for_function(
            "([where, text]) => [...document.querySelectorAll(where)]"
            ".some((node) => node.innerText.includes(text))",
            arg=[where, text],
        )

    def keys(self, *keys: str) -> None:
        """Press keys one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def drag(self, *places: Place, release: bool = True) -> None:
        """Move the mouse from the first place to the others with its button pressed."""
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*place, steps=6)
        if release:
            self.page.mouse.up()

    def touch(self, *moments: list[Place]) -> None:
        """Put fingers on the screen, move and lift them; each moment has the place of each."""
        tools = self.page.context.new_cdp_session(self.page)
        for number, places in enumerate([*moments, []]):
            kind = "touchStart" if number == 0 else "touchMove" if places else "touchEnd"
            points = [{"x": x, "y": y} for x, y in places]
            tools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    size: tuple[int, int] = (1280, 860),
    ready: str = ".player-roll[aria-valuetext]",
    script: str = "",
    **context: Any,
) -> Iterator[Tab]:
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
        yield Tab(page)
    finally:
        page.close()
    assert failures == []
    server = urlsplit(address).netloc
    urls = [urlsplit(url) for url in hosts]
    assert [url for url in urls if url.scheme.startswith("http") and url.netloc != server] == []


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
