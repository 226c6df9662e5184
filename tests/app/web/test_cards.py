# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""HTML of uploads and results."""

from __future__ import annotations

import re
import time

from app.player.assets import template
from app.server.downloads import MENU
from app.web.cards import results_list
from tests.support.seen import SOMEONE, make, read


def test_lists_and_headings_are_what_a_screen_reader_expects(calls, midi):
    read(calls, midi)
    assert re.findall("<[uo]l[^>]* role=", template(MENU)) == []  # its items would have no list
    text = calls.view.show(calls.view.session(SOMEONE))[2]
    assert "class='card'" in text
    assert "<h2>My prompt</h2>" in text  # below the page's h1, before the player's h2
    assert "<h3" not in text


def test_the_browser_shows_the_time_of_a_result_in_its_zone(calls, monkeypatch):
    make(calls)
    session = calls.view.session(SOMEONE)
    session.results[0] = session.results[0]._replace(made=1_700_000_000.0)
    for zone in ("Asia/Tokyo", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert "<time datetime='2023-11-14T22:13:20Z'></time>" in results_list(session)
    monkeypatch.undo()
    time.tzset()


def test_the_card_shows_form_key_and_chords(calls, midi):
    read(calls, midi)
    text = calls.view.show(calls.view.session(SOMEONE))[2]
    sheet = calls.view.session(SOMEONE).work.upload.sheet
    letters = " ".join(phrase.letter for phrase in sheet.phrases)
    assert f"<p class='form'>Key <b>{sheet.key}</b> · Form <b>{letters}</b></p>" in text
    assert f"<tr><th scope='row'>A</th><td>1</td><td>{' '.join(sheet.chords[0])}</td>" in text
