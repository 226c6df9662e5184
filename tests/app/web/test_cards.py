# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""HTML of uploads and results."""

from __future__ import annotations

import re

import pytest

from app.player.assets import template
from app.server.downloads import MENU
from app.web.cards import results_list
from tests.support.seen import SOMEONE, make, read


def test_the_card_shows_form_key_and_chords_under_headings_for_screen_readers(calls, midi):
    view, upload = read(calls, midi)
    assert re.findall("<[uo]l[^>]* role=", template(MENU)) == []  # its items would have no list
    assert "class='card'" in view.card
    assert "<h2>My prompt</h2>" in view.card  # below the page's h1, before the player's h2
    assert "<h3" not in view.card
    letters = " ".join(phrase.letter for phrase in upload.sheet.phrases)
    assert f"Key <b>{upload.sheet.key}</b> · Form <b>{letters}</b></p>" in view.card
    chords = " ".join(upload.sheet.chords[0])
    assert f"<tr><th scope='row'>A</th><td>1</td><td>{chords}</td>" in view.card


def test_results_have_their_time_in_utc_for_the_browser(calls, monkeypatch):
    make(calls)
    session = calls.view.session(SOMEONE)
    session.results[0] = session.results[0]._replace(finished_at=1_700_000_000.0)
    assert "<time datetime='2023-11-14T22:13:20Z'></time>" in results_list(session)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([""], None),
        (["a <bar> without a note (bar 5)"], "A &lt;bar&gt; without a note (bar 5)."),
        (["", "in no key (bars 5 to 8)"], "Variation 2: in no key (bars 5 to 8)."),
        (["x", "", "y", "z"], "Accidents in variations 1, 3 and 4"),
    ],
)
def test_results_name_their_accidents(calls, lines, shown):
    make(calls)
    session = calls.view.session(SOMEONE)
    step = session.results[0].step
    rows = [step.frame["variations"][0] | {"accidents": line} for line in lines]
    step = step._replace(frame=step.frame | {"variations": rows})
    session.results[0] = session.results[0]._replace(step=step)
    found = re.findall("<small>(.*?)</small>", results_list(session))
    assert found == ([shown] if shown else [])
