"""The page without a browser: it builds, and its callbacks do what the widgets need."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import get_type_hints

import gradio as gr
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import continuation, endpoints
from app.callbacks import CREATIVITY, facts_table, mood_of, roll_dice
from app.continuation import LARGEST_SEED
from app.page import build_page, launch
from app.player import SCRIPT, STYLES, TEMPLATE, UNITS_PER_BEAT, bar_lines, pack_notes, timeline
from app.upload import read_upload
from tests.app import fakes
from tokenization.errors import MidiError
from tokenization.score import Score, Tempo, TimeSignature, Track

REQUEST = SimpleNamespace(session_hash="someone")


@pytest.fixture
def page(model, tmp_path):
    """The page, built while a loop runs: Gradio leaves open one that it had to make."""

    async def build():
        return build_page(model, tmp_path)

    return asyncio.run(build())


def parse(text):
    return [tuple(map(int, row.split(","))) for row in text.split(";") if row]


# laws


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 5000), st.integers(1, 800), st.integers(0, 127), st.integers(1, 127)
        ),
        max_size=30,
    ),
    count=st.integers(0, 30),
)
def test_packed_notes_grow_at_the_end_and_are_the_notes(rows, count):
    rows = sorted(rows, key=lambda row: (row[0], row[2], row[1], row[3]))
    whole, part = pack_notes(Track.of(rows), 12), pack_notes(Track.of(rows[:count]), 12)
    assert whole.startswith(part)
    factor = UNITS_PER_BEAT // 12
    assert parse(whole) == [(on * factor, n * factor, *rest) for on, n, *rest in rows]


@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 7)), max_size=4),
    end=st.integers(1, 600),
)
def test_bar_lines_rise_and_reach_the_end(changes, end):
    signatures = tuple(TimeSignature(tick, top, 4) for tick, top in sorted(dict(changes).items()))
    lines = list(bar_lines(signatures, 12, end))
    assert lines[0] == 0
    assert all(np.diff(lines) > 0)
    assert lines[-1] >= end > lines[-2]
    assert {s.tick for s in signatures if s.tick < end} <= set(lines)


@given(bpms=st.lists(st.integers(20, 300), min_size=1, max_size=5))
def test_the_timeline_keeps_the_time(bpms):
    score = Score(12, tempos=tuple(Tempo(96 * i, float(bpm)) for i, bpm in enumerate(bpms)))
    score = Score(12, tempos=score.tempos, end_ticks=96 * len(bpms))
    points = parse(timeline(score)["tempos"])
    for unit, millis in points:
        seconds = float(score.seconds_at(unit * 12 // UNITS_PER_BEAT))
        assert millis / 1000 == pytest.approx(seconds, abs=0.001)
    assert points[-1][0] == 8 * len(bpms) * UNITS_PER_BEAT


def test_a_hostile_length_does_not_fill_the_page():
    score = Score(12, time_signatures=(TimeSignature(0, 1, 32),), end_ticks=10**9)
    assert len(parse(timeline(score)["bars"])) < 30_000


# the page


def test_the_page_builds_and_offers_three_calls_to_scripts(page):
    named = {
        fn.api_name: fn for fn in page.fns.values() if fn.api_visibility == "public" and fn.api_name
    }
    assert set(named) == {"continue", "generate", "stop"}
    assert page.analytics_enabled is False


def test_all_that_needs_the_model_waits_in_one_queue(page):
    waiting_for_model = [
        fn for fn in page.fns.values() if fn.concurrency_id == endpoints.MODEL_QUEUE
    ]
    assert len(waiting_for_model) == 4  # two buttons, two endpoints
    assert {fn.concurrency_limit for fn in waiting_for_model} == {1}


def test_the_players_files_suit_gradios_template():
    assert all(path.is_file() for path in STYLES)
    assert not any(sign in TEMPLATE for sign in ("${", "{{", "`", "<script"))
    used = {name.split('"')[0] for name in SCRIPT.split('part("')[1:]}
    assert all(f'data-part="{name}"' in TEMPLATE for name in used)
    assert "http" not in SCRIPT + TEMPLATE


def test_creativity_names_its_settings():
    assert all(mood_of(*pair) == name for name, pair in CREATIVITY.items())
    assert mood_of(0.73, 0.5) is None
    seed, fresh = roll_dice()
    assert 0 <= seed <= LARGEST_SEED
    assert fresh is False


# upload


def test_an_upload_shows_its_facts_and_allows_to_continue(calls, midi):
    upload, card, slider, go, frame = calls.read(str(midi))
    for fact in ("96 bpm", "4/4", f"<dd>{upload.whole.facts.notes}</dd>", "<dt>Bars</dt>"):
        assert fact in card
    assert upload.whole.facts.notices[0] in card
    assert (slider.maximum, slider.value) == (upload.bars, upload.bars) == (4, 4)
    assert go.interactive
    assert frame["phase"] == "prompt"
    assert frame["title"] == "My prompt"
    assert frame["prompt"]["joint"] == 16


@pytest.mark.parametrize("content", [b"", b"MThd", b"<b>no</b>", fakes.example_midi()[:100]])
def test_a_refused_upload_gives_its_reason_and_nothing_else(calls, tmp_path, content):
    path = tmp_path / "<b>odd.mid"
    path.write_bytes(content)
    upload, card, slider, go, frame = calls.read(str(path))
    assert upload is None
    assert "role='alert'" in card
    assert "&lt;b&gt;odd.mid" in card
    assert "<b>" not in card
    assert not slider.visible
    assert not go.interactive
    assert frame["phase"] == "empty"


def test_a_file_over_the_limit_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "big.mid"
    path.write_bytes(bytes(2000))
    with pytest.raises(MidiError, match=r"big.mid: .* at most 0.0 MB"):
        read_upload(path, 1000)


def test_the_joint_moves_with_the_last_bar(calls, midi):
    upload, *_ = calls.read(str(midi))
    moved, frame = calls.move_joint(upload, 2)
    assert moved.bars == 2
    assert frame["prompt"]["joint"] == 8
    assert calls.move_joint(moved, 4)[0].prompt is upload.whole


def test_facts_are_escaped():
    facts = continuation.PromptFacts(1, 1, 1, 120.0, "<4>", 61.0, ("<x>",))
    card = facts_table(facts)
    assert "&lt;4&gt;" in card
    assert "&lt;x&gt;" in card
    assert "1:01" in card


def test_gradio_sees_the_request_of_each_callback(calls):
    for call in (calls.begin, calls.compose, calls.stop_job, calls.leave):
        assert gr.Request in get_type_hints(call).values()


def test_what_is_served_is_a_folder_of_this_run(model, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr("app.page.build_page", lambda _, folder, **how: (folder, how["keep"]))
    monkeypatch.setattr(
        "app.page.open_page", lambda page, folder, **_: served.append((page, folder))
    )
    mine = tmp_path / "deep" / "music"
    for folder in (mine, mine, None):
        launch(model, output_folder=folder)
    (one, keep), (other, _), ((temporary, keep_temporary), allowed) = (
        served[0][0],
        served[1][0],
        served[2],
    )
    assert one.parent == other.parent == mine
    assert one != other
    assert [folder for _, folder in served] == [one, other, allowed]
    assert (keep, keep_temporary) == (True, False)
    assert not temporary.exists()
    assert not list(mine.iterdir())  # no music was made
