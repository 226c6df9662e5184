"""The files of the player: their references to each other, and their address."""

from __future__ import annotations

import posixpath
import re

from app.player.assets import EVENTS, MODULES, SCRIPT, STYLE, Modules, template
from app.server.downloads import MENU

TEMPLATE = template(MENU)
SOURCES = {address: source.decode() for address, source in MODULES.sources.items()}
CODE = "\n".join(SOURCES.values())
IMPORT = re.compile(r'^import {([^}]*)} from "([^"]+)";$', re.MULTILINE)


def test_the_files_suit_gradios_template_and_each_other():
    assert STYLE.is_file()
    assert not any(sign in TEMPLATE for sign in ("${", "{{", "`", "<script"))
    assert "http" not in CODE + SCRIPT + TEMPLATE
    used = set(re.findall(r'part\("([^"]+)"\)', CODE))
    assert len(used) > 30
    assert all(f'data-part="{name}"' in TEMPLATE for name in used)
    assert set(re.findall(r'trigger\("(\w+)"', CODE)) == set(EVENTS)
    assert all(f"'{name}'" in SCRIPT for name in EVENTS)


def test_every_button_is_explained_and_its_text_is_in_its_accessible_name():
    buttons = re.findall(r"<button([^>]*)>([^<]*)", TEMPLATE)
    assert len(buttons) > 10
    for attributes, text in buttons:
        # entries of a menu need no tooltip
        assert "menuitem" in attributes or "title=" in attributes, attributes
        name = re.search(r'aria-label="([^"]*)"', attributes)
        if name and re.search("[A-Za-z]", text) and "&" not in text:
            assert text.strip().lower() in name[1].lower()


def test_every_import_names_an_export_of_a_module_beside_it():
    imported = set()
    for address, source in SOURCES.items():
        for names, relative in IMPORT.findall(source):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(address), relative))
            imported.add(target)
            for name in names.split(","):
                kind = rf"^export (const|class|(async )?function) {name.strip()}\b"
                assert re.search(kind, SOURCES[target], re.MULTILINE), (address, name)
        assert source.count("import ") == len(IMPORT.findall(source))
    assert imported == set(SOURCES) - {"player.js"}
    assert "export function start(" in SOURCES["player.js"]


def test_the_address_changes_with_the_modules_and_works_under_any_root_path():
    changed = {**MODULES.sources, "roll/notes.js": b"export {}"}
    renamed = {name.removeprefix("roll/"): source for name, source in MODULES.sources.items()}
    others = [Modules("player", changed), Modules("player", renamed)]
    others.append(Modules("page", MODULES.sources))
    assert len({MODULES.route, *(other.route for other in others)}) == 4
    assert Modules("player", MODULES.sources).route == MODULES.route
    for name, source in MODULES.sources.items():
        assert MODULES.at(MODULES.route + name) == source
        assert MODULES.at(f"/music{MODULES.route}{name}") == source
    for name in ("", "x.js", "../player.html", "/player.js", "roll/../player.js"):
        assert MODULES.at(MODULES.route + name) is None
    assert MODULES.at("/player.js") is MODULES.at("/player-modules/0/player.js") is None
