"""The page without a browser: it builds, and its callbacks do what the widgets need."""

from __future__ import annotations

import asyncio
import html
from types import SimpleNamespace
from typing import get_type_hints

import gradio as gr
import pytest

from app import endpoints
from app.callbacks import BROKEN, CREATIVITY, facts_table, mood_of, roll_dice
from app.facts import PromptFacts
from app.models import Models
from app.options import LARGEST_SEED
from app.page import build_page
from app.player import SCRIPT, STYLES, TEMPLATE
from app.serving import launch
from app.upload import read_upload
from relpe.checkpoint import save_model
from tests.app import fakes
from tests.app.test_timing import performance
from tokenization.errors import MidiError
from tokenization.midi import write_midi
from tokenization.score import Score, Track

REQUEST = SimpleNamespace(session_hash="someone")


@pytest.fixture
def page(model, tmp_path):
    """The page, built while a loop runs: Gradio leaves open one that it had to make."""

    async def build():
        return build_page(Models.only(model), tmp_path)

    return asyncio.run(build())


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


def test_a_model_in_a_folder_is_called_by_its_name_not_its_place(small_model, tmp_path):
    folder = tmp_path / "deep" / "mine"
    save_model(small_model.decoder, folder)
    small_model.tokenizer.save(folder)
    models = Models(folder)
    assert models.names == ("mine",)
    assert models.to_generate().name == "mine"

    async def build():
        return build_page(models, tmp_path / "music")

    page = asyncio.run(build())
    assert page.title == "relpe · mine"
    assert "deep" not in str(page.get_config_file()["components"])


# upload


def test_an_upload_shows_its_facts_and_allows_to_continue(calls, midi):
    upload, card, beats, slider, go, frame = calls.read(str(midi))
    for fact in ("96 bpm", "4/4", f"<dd>{upload.whole.facts.notes}</dd>", "<dt>Bars</dt>"):
        assert fact in card
    assert "continued by the fake model" in card
    assert "<ul>" not in card  # nothing that the user should know
    assert (slider.maximum, slider.value) == (upload.bars, upload.bars) == (4, 4)
    assert go.interactive
    assert not beats.visible
    assert frame["phase"] == "prompt"
    assert frame["title"] == "My prompt"
    assert frame["prompt"]["joint"] == 16


def test_what_the_user_should_know_of_an_upload_is_on_its_card(calls, tmp_path):
    path = tmp_path / "band.mid"
    drums = Track.of([(0, 100, 36, 90)], is_drum=True)
    path.write_bytes(write_midi(Score(480, (Track.of([(0, 400, 60, 80)], program=73), drums))))
    upload, card, *_ = calls.read(str(path))
    assert len(upload.whole.facts.notices) == 2
    assert all(f"<li>{notice}</li>" in card for notice in upload.whole.facts.notices)
    path.write_bytes(fakes.example_midi()[:100])
    upload, card, *_ = calls.read(str(path))
    assert upload.whole.score.damage in card


@pytest.mark.parametrize("content", [b"", b"MThd", b"<b>no</b>", fakes.example_midi()[:58]])
def test_a_refused_upload_gives_its_reason_and_nothing_else(calls, tmp_path, content):
    path = tmp_path / "<b>odd.mid"
    path.write_bytes(content)
    upload, card, beats, slider, go, frame = calls.read(str(path))
    assert upload is None
    assert "role='alert'" in card
    assert "&lt;b&gt;odd.mid" in card
    assert "<b>" not in card
    assert not slider.visible
    assert not beats.visible
    assert not go.interactive
    assert frame["phase"] == "empty"


def test_beats_are_offered_where_those_of_the_file_mean_nothing(calls, tmp_path):
    path = tmp_path / "played.mid"
    path.write_bytes(write_midi(performance()))
    upload, card, beats, _, _, frame = calls.read(str(path))
    assert (beats.visible, beats.value) == (True, "file")
    assert "120 bpm" in card
    assert frame["timeline"]["beats"]
    anew, card, slider, go, frame = calls.count_anew(upload, "estimate")
    assert "83 bpm" in card
    assert "estimated from the notes" in card
    assert (slider.value, go.interactive) == (12, True)
    assert not frame["timeline"]["beats"]
    moved, _ = calls.move_joint(anew, 4)
    assert moved.prompt.facts.beats == "estimate"
    assert calls.count_anew(moved, "file")[0].whole.facts.beats == "file"
    assert all(value == gr.skip() for value in calls.count_anew(None, "grid"))


def test_a_file_over_the_limit_is_refused_before_it_is_read(model, tmp_path):
    path = tmp_path / "big.mid"
    path.write_bytes(bytes(2000))
    with pytest.raises(MidiError, match=r"big.mid: found 2,000 .* at most 1,000;"):
        read_upload(path, 1000, Models.only(model))


@pytest.mark.parametrize("kind", ["gone", "folder"])
def test_an_upload_that_is_not_there_is_one_sentence(model, tmp_path, kind):
    path = tmp_path / "song.mid"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(MidiError, match=r"^song.mid: the upload cannot be read .*; upload"):
        read_upload(path, 1000, Models.only(model))


def test_the_joint_moves_with_the_last_bar(calls, midi):
    upload, *_ = calls.read(str(midi))
    moved, frame = calls.move_joint(upload, 2)
    assert moved.bars == 2
    assert frame["prompt"]["joint"] == 8
    assert calls.move_joint(moved, 4)[0].prompt is upload.whole
    for last_bar in (0, 5, 999):
        with pytest.raises(MidiError, match=f"bar {last_bar}, expected 1 to 4"):
            upload.until(last_bar)


def test_a_bug_in_a_callback_is_an_alert_and_in_the_log(calls, midi, monkeypatch, caplog):
    upload, *_ = calls.read(str(midi))

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("app.continuation.read_prompt", broken)
    _, card, *_ = calls.read(str(midi))
    assert f"role='alert'>{html.escape(BROKEN)}" in card
    kept, frame = calls.move_joint(upload, 2)
    assert (kept, frame["alert"], frame["phase"]) == (upload, BROKEN, "prompt")
    kept, *_, frame = calls.count_anew(upload, "grid")
    assert (kept, frame["alert"], frame["phase"]) == (upload, BROKEN, "prompt")
    monkeypatch.setattr("app.callbacks.waiting", broken)
    with pytest.raises(gr.Error) as caught:
        calls.begin(upload, 5, False, 3, REQUEST)
    assert (caught.value.message, caught.value.visible) == (BROKEN, False)
    assert not calls.studio.stop(REQUEST.session_hash)
    assert calls.refuse(5, False, frame)["alert"] == BROKEN
    assert sum(record.exc_info is not None for record in caplog.records) == 4


@pytest.mark.parametrize("seed", [-5, LARGEST_SEED + 1, 99_999_999_999])
def test_a_seed_out_of_range_is_said_in_the_player_and_begins_nothing(calls, seed):
    with pytest.raises(gr.Error):
        calls.begin(None, seed, False, 3, REQUEST)
    assert not calls.studio.stop(REQUEST.session_hash)
    shown = {"phase": "done", "variations": [{"midi": "song.mid"}]}
    frame = calls.refuse(seed, False, shown)
    assert frame["alert"].startswith(f"The seed is {seed:,}, expected a whole number from 0 to ")
    assert frame | {"alert": ""} == shown | {"alert": ""}
    assert calls.begin(None, seed, True, 3, REQUEST)[1] != seed  # a new one was asked for


def test_who_does_not_say_who_asks_is_refused(calls):
    nobody = SimpleNamespace(session_hash=None)
    with pytest.raises(gr.Error, match="session_hash"):
        calls.stop_job(nobody)
    with pytest.raises(gr.Error, match="session_hash"):
        calls.leave(nobody)


def test_facts_are_escaped():
    facts = PromptFacts(1, 1, 1, 120.0, "<4>", 61.0, 1.0, "file", ("<x>",))
    card = facts_table(facts, "<m>")
    assert "<m>" not in card
    assert "&lt;4&gt;" in card
    assert "&lt;x&gt;" in card
    assert "1:01" in card


def test_gradio_sees_the_request_of_each_callback(calls):
    for call in (calls.begin, calls.compose, calls.stop_job, calls.leave):
        assert gr.Request in get_type_hints(call).values()


def test_what_is_served_is_a_folder_of_this_run(model, tmp_path, monkeypatch):
    served = []

    def build(_, folder, **how):
        assert folder.is_dir()
        waited = lambda: served[-1].append("waited")  # noqa: E731
        return SimpleNamespace(made=(folder, how["keep"]), block_thread=waited)

    def opened(page, folder, **_):
        served.append([page.made, folder])
        return "http://here"

    monkeypatch.setattr("app.serving.build_page", build)
    monkeypatch.setattr("app.serving.open_page", opened)
    mine = tmp_path / "deep" / "music"
    for folder in (mine, mine, None):
        launch(model, output_folder=folder, announce=lambda address: served[-1].append(address))
    assert all(row.pop() == "waited" for row in served)
    assert all(row.pop() == "http://here" for row in served)  # before that
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
