# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""HTML of uploads and results."""

from __future__ import annotations

import re

from app.player.assets import template
from app.server.downloads import MENU
from app.web.cards import results_value
from tests.support.seen import SOMEONE, make, read


def test_the_card_has_the_key_and_headings_for_screen_readers(calls, midi):
    view, upload = read(calls, midi)
    assert re.findall("<[uo]l[^>]* role=", template(MENU)) == []  # its items would have no list
    assert "class='card'" in view.card
    assert "<h2>My prompt</h2>" in view.card  # below the page's h1, before the player's h2
    assert "<h3" not in view.card
    assert f" · {upload.sheet.key}</p>" in view.card


def test_a_card_of_each_variation_has_its_notes_and_accidents(calls, midi):
    read(calls, midi)
    make(calls, variations=2)
    session = calls.view.session(SOMEONE)
    row = session.work.frame["variations"][1]
    row |= {"accidents": "in no key (bars 5 to 8)", "best": True}
    first, second = results_value(session)["cards"]  # pyright: ignore
    assert (first["best"], second["best"]) == (False, True)
    assert second["text"].endswith("bar 4 · In no key (bars 5 to 8)")
    assert second["name"] == "My prompt 2"
    old, new = re.findall("<path class='(?:old|new)' d='(.*?)'/>", second["roll"])
    assert old.count("M") > 10 < new.count("M")
    assert max(int(x) for x in re.findall(r"M(\d+) ", old)) < min(
        int(x) for x in re.findall(r"M(\d+) ", new)
    )
