"""The files of the player: their references to each other, and their address."""

from __future__ import annotations

import hashlib
import posixpath
import re

from app.player.assets import ALL, EVENTS, MODULES, STYLE, Modules, script, sound_bank, template
from app.server.downloads import MENU
from app.web.assets import SCRIPTS

TEMPLATE, SCRIPT = template(MENU), script(sound_bank(None))
VENDOR, WORKLET = "vendor/", "sound/worklet.js"
SOURCES = {
    address: source.decode()
    for address, source in MODULES.sources.items()
    if not address.startswith(VENDOR) and address != ALL
}
CODE = "\n".join(SOURCES.values())
IMPORT = re.compile(r'^import {([^}]*)} from "([^"]+)";$', re.MULTILINE)


def test_the_files_suit_gradios_template_and_each_other():
    assert STYLE.is_file()
    assert not any(sign in TEMPLATE for sign in ("${", "{{", "`", "<script"))
    assert "://" not in CODE + SCRIPT + TEMPLATE
    used = set(re.findall(r'part\("([^"]+)"\)', CODE))
    assert len(used) > 30
    assert all(f'data-part="{name}"' in TEMPLATE for name in used)
    assert set(re.findall(r'(?:trigger|choose)\("(\w+)"', CODE)) == set(EVENTS)
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
            if target.startswith(VENDOR):
                continue
            imported.add(target)
            for name in names.split(","):
                kind = rf"^export (const|class|(async )?function) {name.strip()}\b"
                assert re.search(kind, SOURCES[target], re.MULTILINE), (address, name)
        assert source.count("import ") == len(IMPORT.findall(source))
    assert imported == set(SOURCES) - {"player.js", WORKLET}
    assert f'new URL("{WORKLET.split("/")[1]}", import.meta.url)' in CODE
    assert "export function start(" in SOURCES["player.js"]
    bundle = MODULES.sources[ALL].decode()
    assert {name: bundle.count(f'$all["{name}"] = ') for name in SOURCES} == {
        name: int(name != WORKLET) for name in SOURCES
    }
    for modules in (MODULES, SCRIPTS):
        lines = modules.sources[ALL].decode().splitlines()
        assert [line for line in lines if line.startswith(("import ", "export "))] == lines[-1:]


def test_the_synthesizer_is_the_one_that_its_hash_and_script_name_and_has_its_licence():
    folder = STYLE.parent / "js" / VENDOR
    digest, name = (folder / "spessasynth.js.sha256").read_text(encoding="utf-8").split()
    source = MODULES.sources[VENDOR + name]
    assert hashlib.sha256(source).hexdigest() == digest
    versions = re.findall(r"[a-z_-]+ \d+\.\d+\.\d+", source.decode().splitlines()[0])
    script = (folder / "build.sh").read_text(encoding="utf-8")
    assert len(versions) == 2
    assert all(version.replace(" ", "@") in script for version in versions)
    assert "Apache License" in (folder / "LICENSE").read_text(encoding="utf-8")


def test_browsers_get_the_soundfont_of_the_server_unless_it_is_missing_or_large(
    tmp_path, monkeypatch
):
    soundfont = tmp_path / "soundfont.sf2"
    soundfont.write_bytes(b"RIFF")
    default, bank = sound_bank(None), sound_bank(soundfont)
    assert bank.at(f"/music{bank.route}bank.sf2") == b"RIFF"
    assert bank.route != default.route
    assert f'{{"font": "{bank.route}bank.sf2"}}' in script(bank)
    monkeypatch.setattr("app.player.assets.MOST_SOUNDFONT_BYTES", 3)
    for path in (tmp_path / "none.sf2", tmp_path / "." / "soundfont.sf2"):
        sound_bank.cache_clear()
        assert '{"font": null}' in script(sound_bank(path))


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
