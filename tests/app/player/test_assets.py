"""The files of the player: what they use of each other, and an address that changes with them."""

from __future__ import annotations

import re
import shutil

from app.player.assets import EVENTS, MODULES, ROUTE, SCRIPT, STYLE, TEMPLATE, digest

SOURCES = {path: path.read_text(encoding="utf-8") for path in MODULES.rglob("*.js")}
CODE = "\n".join(SOURCES.values())
IMPORT = re.compile(r'^import {([^}]*)} from "([^"]+)";$', re.MULTILINE)


def test_the_files_suit_gradios_template():
    assert STYLE.is_file()
    assert not any(sign in TEMPLATE for sign in ("${", "{{", "`", "<script"))
    assert "http" not in CODE + SCRIPT + TEMPLATE


def test_every_part_that_a_module_uses_is_in_the_template():
    used = set(re.findall(r'part\("([^"]+)"\)', CODE))
    assert len(used) > 30
    assert all(f'data-part="{name}"' in TEMPLATE for name in used)


def test_the_script_names_every_event_that_the_player_triggers():
    assert set(re.findall(r'trigger\("(\w+)"', CODE)) == set(EVENTS)
    assert all(f"'{name}'" in SCRIPT for name in EVENTS)


def test_every_import_names_an_export_of_a_module_beside_it():
    imported = set()
    for path, source in SOURCES.items():
        for names, address in re.findall(
            r'^import {([^}]*)} from "([^"]+)";$', source, re.MULTILINE
        ):
            target = (path.parent / address).resolve()
            imported.add(target)
            for name in names.split(","):
                kind = rf"^export (const|class|(async )?function) {name.strip()}\b"
                assert re.search(kind, SOURCES[target], re.MULTILINE), (path.name, name)
        assert source.count("import ") == len(IMPORT.findall(source))
    entry = MODULES / "player.js"
    assert imported == set(SOURCES) - {entry}
    assert "export function start(" in SOURCES[entry]


def test_the_address_changes_with_the_modules(tmp_path):
    folder = tmp_path / "js"
    shutil.copytree(MODULES, folder)
    assert ROUTE.endswith(f"/{digest(folder)}")
    (folder / "roll" / "notes.js").write_text("export {}", encoding="utf-8")
    changed = digest(folder)
    (folder / "roll" / "notes.js").rename(folder / "notes.js")
    assert len({ROUTE.rpartition("/")[2], changed, digest(folder)}) == 3
