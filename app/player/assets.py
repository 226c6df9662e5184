"""The files of the player that a browser loads: HTML, CSS and JavaScript modules."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
TEMPLATE = (_FOLDER / "player.html").read_text(encoding="utf-8")
STYLE = _FOLDER / "player.css"
MODULES = {
    path.relative_to(_FOLDER / "js").as_posix(): path.read_bytes()
    for path in sorted((_FOLDER / "js").rglob("*.js"))
}
"""The source of each module by its address from `player.js`, the entry."""


def route_of(modules: Mapping[str, bytes]) -> str:
    """Where modules are served, with a hash of them.

    They import each other by relative addresses, so a browser may cache them for ever: after a
    change, it loads all of them from another address.
    """
    digest = hashlib.sha256()
    for address, source in modules.items():
        digest.update(f"{address} {len(source)}\n".encode() + source)
    return f"/player-modules/{digest.hexdigest()[:12]}/"


ROUTE = route_of(MODULES)


def module_at(path: str) -> bytes | None:
    """The module at the path of a request, behind any root path; None if there is none."""
    return MODULES.get(path.partition(ROUTE)[2])


EVENTS = ("continue_this", "discard", "region", "replay", "stop", "tracks", "undo")
"""What the player triggers; Gradio takes an event if its quoted name is in `js_on_load`."""
SCRIPT = f"""
// events: {EVENTS}
const {{ pathname }} = new URL(window.gradio_config?.root || "/", document.baseURI);
import(pathname.replace(/\\/$/, "") + "{ROUTE}player.js")
  .then(({{ start }}) => start({{ element, props, watch, trigger, server }}));
"""
"""`js_on_load` of the HTML component. The path of `root` is that of the page behind any proxy; its
host and protocol may be wrong there."""
