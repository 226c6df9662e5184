"""The files of the player that a browser loads: HTML, CSS and JavaScript modules."""

from __future__ import annotations

import hashlib
from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
TEMPLATE = (_FOLDER / "player.html").read_text(encoding="utf-8")
STYLE = _FOLDER / "player.css"
MODULES = _FOLDER / "js"
"""Folder of the modules; `player.js` is the entry."""


def digest(folder: Path) -> str:
    """A hash of the names and contents of all modules in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.js")):
        digest.update(f"{path.relative_to(folder)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


ROUTE = f"/player-modules/{digest(MODULES)}"
"""Where the modules are served. They import each other by relative addresses, so the hash in the
path makes a browser load all of them again after a change and lets it cache them until then."""
EVENTS = ("continue_this", "discard", "region", "replay", "stop", "tracks", "undo")
"""What the player triggers; Gradio takes an event if its quoted name is in `js_on_load`."""
SCRIPT = f"""
// events: {EVENTS}
const {{ pathname }} = new URL(window.gradio_config?.root || "/", document.baseURI);
import(pathname.replace(/\\/$/, "") + "{ROUTE}/player.js")
  .then(({{ start }}) => start({{ element, props, watch, trigger, server }}));
"""
"""`js_on_load` of the HTML component. The path of `root` is that of the page behind any proxy; its
host and protocol may be wrong there."""
