"""The files of the player that a browser loads: HTML, CSS and JavaScript modules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from html import escape
from pathlib import Path

from app.audio.synth.soundfont import SoundError, default_soundfont

_FOLDER = Path(__file__).parent / "static"
_HTML = (_FOLDER / "player.html").read_text(encoding="utf-8")
COLOURS = _FOLDER / "colours.css"
STYLE = _FOLDER / "player.css"
SOUNDFONT = "bank.sf2"
MOST_SOUNDFONT_BYTES = 48 << 20
"""Maximum size of a SoundFont that browsers load; with a larger one, the server renders."""


def template(files: Iterable[tuple[str, str, str]], instruments: Sequence[str] = ()) -> str:
    """Return the HTML of the player.

    Args:
        files: kind, label and short description of each file in the menu.
        instruments: names of the instruments that a new track can have, by their numbers.
    """
    entries = [
        f'        <button type="button" role="menuitem" tabindex="-1" data-part="file-{kind}" '
        f'data-kind="{kind}"><b>{label}</b> <span>{text}</span></button>\n'
        for kind, label, text in files
    ]
    options = (f'<option value="{n}">{escape(name)}</option>' for n, name in enumerate(instruments))
    html = _HTML.replace("<!-- files -->\n", "".join(entries))
    return html.replace("<!-- instruments -->", "".join(options))


class Modules:
    """JavaScript modules of a folder, or other files, and the address at which they are served.

    The address contains a hash of all of them, and modules import each other by relative addresses,
    so a browser may cache them forever: after a change, it loads them from another address.
    """

    def __init__(self, name: str, sources: Mapping[str, bytes]) -> None:
        """Take the modules by their paths, and the name of the set, for the address."""
        digest = hashlib.sha256()
        for path, source in sources.items():
            digest.update(f"{path} {len(source)}\n".encode() + source)
        self.sources = dict(sources)
        self.route = f"/{name}-modules/{digest.hexdigest()[:12]}/"

    @classmethod
    def of_folder(cls, name: str, folder: Path) -> Modules:
        """All modules of a folder and the folders in it."""
        paths = sorted(folder.rglob("*.js"))
        return cls(name, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    def at(self, path: str) -> bytes | None:
        """Return the module at the path of a request, behind any root path.

        It is None if there is none.
        """
        return self.sources.get(path.partition(self.route)[2])

    def script(self, entry: str, events: Sequence[str] = (), values: object = None) -> str:
        """`js_on_load` of an HTML component: starts the module `entry` with the component.

        Gradio accepts an event if its quoted name occurs in `js_on_load`. Behind a proxy, the path
        of Gradio's root is right, but its host and protocol may be wrong. `values` are passed to
        the module as JSON.
        """
        return f"""
// events: {tuple(events)}
const {{ pathname }} = new URL(window.gradio_config?.root || "/", document.baseURI);
const root = pathname.replace(/\\/$/, "");
const page = {{ element, props, watch, trigger, server, root }};
import(root + "{self.route}{entry}")
  .then(({{ start }}) => start(page, {json.dumps(values)}));
"""


@cache
def sound_bank(soundfont: Path | None) -> Modules:
    """Return the SoundFont that browsers play, by default the one that the server does.

    There is no file if it is missing or too large.
    """
    with suppress(SoundError, OSError):
        path = soundfont or default_soundfont()
        if path.stat().st_size <= MOST_SOUNDFONT_BYTES:
            return Modules("soundfont", {SOUNDFONT: path.read_bytes()})
    return Modules("soundfont", {})


def script(bank: Modules) -> str:
    """`js_on_load` of the player, whose synthesizer plays this SoundFont."""
    font = f"{bank.route}{SOUNDFONT}" if bank.sources else None
    return MODULES.script("player.js", EVENTS, {"font": font})


MODULES = Modules.of_folder("player", _FOLDER / "js")
EVENTS = (
    *("discard", "edit", "plan", "redo", "region", "select", "stop", "tracks"),
    "undo",
)
"""Events that the player triggers."""
