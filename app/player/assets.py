"""The files of the player that a browser loads: HTML, CSS and JavaScript modules."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
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
ALL = "all.js"
"""The module that `bundled` makes of all others."""
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
        """Return all modules of a folder and the folders in it, and their bundle."""
        paths = sorted(folder.rglob("*.js"))
        sources = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        return cls(name, {**sources, ALL: bundled(sources)})

    def at(self, path: str) -> bytes | None:
        """Return the module at the path of a request, behind any root path.

        It is None if there is none.
        """
        return self.sources.get(path.partition(self.route)[2])

    def script(self, entry: str, events: Sequence[str] = (), values: object = None) -> str:
        """Return the `js_on_load` of an HTML component, which starts the module `entry` with it.

        Gradio accepts an event if its quoted name occurs in `js_on_load`. Behind a proxy, the path
        of Gradio's root is right, but its host and protocol may be wrong. `values` are passed to
        the module as JSON.
        """
        return f"""
// events: {tuple(events)}
const {{ pathname }} = new URL(window.gradio_config?.root || "/", document.baseURI);
const root = pathname.replace(/\\/$/, "");
const page = {{ element, props, watch, trigger, server, root }};
import(root + "{self.route}{ALL}")
  .then((all) => all.default["{entry}"].start(page, {json.dumps(values)}));
"""


_IMPORT = re.compile(r'^import {(.+)} from "(.+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|class|function) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^ *(?://[^\n]*|/\*\*.*?\*/)\n", re.MULTILINE | re.DOTALL)


def bundled(sources: Mapping[str, bytes]) -> bytes:
    """Return the modules that export `start`, and those that they import, as one module.

    A browser asks once instead of 40 times. Each becomes a function that returns its exports; the
    default export has these by path.
    """
    parts: dict[str, str] = {}

    def add(path: str) -> None:
        def link(imported: re.Match[str]) -> str:
            other = posixpath.normpath(posixpath.join(path, "..", imported[2]))
            add(other)
            return f"const {{{imported[1]}}} = $all[{json.dumps(other)}];"

        if path in parts:
            return
        code = _IMPORT.sub(link, _COMMENT.sub("", sources[path].decode()))
        code = code.replace("import.meta.url", f'new URL("{path}", import.meta.url)')
        exports = ", ".join(_EXPORT.findall(code))
        code = _EXPORT.sub("", code)
        parts[path] = f'$all["{path}"] = (() => {{\n{code}return {{ {exports} }};\n}})();\n'

    for path, source in sources.items():
        if b"\nexport function start(" in source:
            add(path)
    return f"const $all = {{}};\n{''.join(parts.values())}export default $all;\n".encode()


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
    """Return the `js_on_load` of the player, whose synthesizer plays this SoundFont."""
    font = f"{bank.route}{SOUNDFONT}" if bank.sources else None
    return MODULES.script("player.js", EVENTS, {"font": font})


MODULES = Modules.of_folder("player", _FOLDER / "js")
EVENTS = (
    *("discard", "edit", "plan", "redo", "region", "select", "stop", "tracks"),
    "undo",
)
"""Events that the player triggers."""
