# widgets and frames are looked into as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""The page without a browser: it builds, and its callbacks do what the widgets need."""

from __future__ import annotations

import asyncio
import re
import time
from types import SimpleNamespace
from typing import get_type_hints

import gradio as gr
import pytest

from app.compose.models import Models
from app.compose.options import LARGEST_SEED, MusicOptions
from app.player.assets import TEMPLATE
from app.player.frames import pack_tracks
from app.server.uploads import read_upload
from app.web.about import about, model_line
from app.web.call_values import LIMITS
from app.web.choices import CREATIVITY, key_note, key_problem, mood_of, roll_dice, widget_values
from app.web.examples import EXAMPLES, PIECE, example_file, finished_example, finished_file
from app.web.page import build_page
from app.web.results import results_list
from app.web.serving import Serving, launch
from app.web.session import EXAMPLE_OF_TAB
from app.web.tabs import TITLES
from app.web.theme import PAGE_STYLE, theme
from relpe.models.checkpoint import save_model
from tests.support.seen import SOMEONE, make, read
from tokenization.errors import MidiError
from tokenization.midi import read_midi

SCRIPTED = {*LIMITS, "beats", "model", "key", "ending", "Run"}
"""Names of what only scripts give or press."""


@pytest.fixture
def page(model, tmp_path):
    """The page, built while a loop runs: Gradio leaves open one that it had to make."""

    async def build():
        return build_page(Models.only(model), tmp_path)

    return asyncio.run(build())


# the page


def test_the_page_builds_and_all_but_its_calls_for_scripts_is_private(page):
    named = {
        fn.api_name: fn for fn in page.fns.values() if fn.api_visibility == "public" and fn.api_name
    }
    assert {"continue", "generate", "stop"} <= set(named)
    assert not any("compose" in name or "read" in name for name in named)
    assert page.analytics_enabled is False


def test_every_control_has_a_line_that_explains_it(page):
    kinds = (gr.Slider, gr.Radio, gr.Number, gr.Textbox, gr.Checkbox, gr.Button)
    seen = [
        block
        for block in page.blocks.values()
        if isinstance(block, kinds)
        and name_of(block) not in SCRIPTED
        and name_of(block)
        and getattr(block, "show_label", True)
    ]
    assert len(seen) > 50
    unexplained = {
        name_of(block)
        for block in seen
        if not getattr(block, "info", "") and not TITLES.keys() & set(block.elem_classes)
    }
    assert unexplained == set()


def name_of(block):
    """What stands on or beside a widget."""
    return block.value if isinstance(block, gr.Button) else block.label


def test_every_example_and_every_button_of_the_player_is_explained():
    for example in EXAMPLES:
        assert TITLES[f"chip-{example.name}"].lower() == f"{example.told}.".lower()
    buttons = re.findall("<button(?![^>]*menuitem)[^>]*>", TEMPLATE)  # entries of a menu say it
    assert len(buttons) > 10
    assert [button for button in buttons if "title=" not in button] == []


def test_lists_and_headings_are_what_a_screen_reader_expects(calls, midi):
    read(calls, midi)
    assert re.findall("<[uo]l[^>]* role=", TEMPLATE) == []  # its items would be nobody's
    text = calls.view(calls.session(SOMEONE))[2]
    assert "class='card'" in text
    assert "<h2>My prompt</h2>" in text  # below the page's h1, before the player's h2
    assert "<h3" not in text


def test_the_time_of_a_result_is_told_by_the_browser_in_its_zone(calls, monkeypatch):
    make(calls, "piano")
    session = calls.session(SOMEONE)
    session.results[0] = session.results[0]._replace(made=1_700_000_000.0)
    for zone in ("Asia/Tokyo", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert "<time datetime='2023-11-14T22:13:20Z'></time>" in results_list(session)
    monkeypatch.undo()
    time.tzset()


def test_examples_are_there_and_every_tab_shows_what_a_finished_piece_looks_like():
    for example in EXAMPLES:
        assert example_file(example.name).read_bytes().startswith(b"MThd")
    for name in EXAMPLE_OF_TAB.values():
        frame = finished_example(name)
        assert (frame["phase"], frame["example"]) == ("empty", True)
        assert frame["prompt"]["joint"] < frame["timeline"]["end"]
        assert bool(frame["prompt"]["tracks"]) == (frame["prompt"]["joint"] > 0) == (name != PIECE)
        assert all(track["notes"] for track in frame["variations"][0]["tracks"])
        path = finished_file(frame["job"])
        assert path is not None
        assert path == example_file(name if name == PIECE else f"{name}.continued")
        heard = {track["name"]: track["id"] for track in pack_tracks(read_midi(path.read_bytes()))}
        shown = (*frame["prompt"]["tracks"], *frame["variations"][0]["tracks"])
        assert heard == {track["name"]: track["id"] for track in shown}
    with pytest.raises(FileNotFoundError, match="no example nothing"):
        example_file("nothing")


def test_a_page_without_its_examples_shows_nothing_in_their_place(monkeypatch, tmp_path):
    monkeypatch.setattr("app.web.examples._PLACES", (tmp_path,))
    finished_example.cache_clear()
    assert finished_example("ballad") == {"job": "", "phase": "empty", "variations": []}
    finished_example.cache_clear()


def test_about_says_licence_encoding_and_results_of_the_released_models():
    text = about(Models())
    for fact in ("MIT, Copyright", "GPL-2-or-later", "sine stochastic", "1,024 tokens", "1.8376"):
        assert fact in text
    assert "prepared corpus" not in text
    assert model_line(Models(), "piano").startswith("Solo piano · ")


def test_about_speaks_to_musicians_and_keeps_the_exact_words_behind():
    text = about(Models())
    seen = re.sub(r"<[^>]*>", "", text)
    for raw in ("kneser_ney", "untransposed", "int8", "znver", "encoding, learned", "algebraic"):
        assert raw not in seen
    for exact in (
        "5-gram, kneser_ney, untransposed",
        "algebraic positional encoding, learned from",
    ):
        assert f"title='{exact}" in text
    for name in Models().names:
        assert f"<h3>{name}</h3>" in text


def test_the_login_has_the_colours_of_the_page():
    css = theme()._get_theme_css()
    used = set(re.findall(r"var\((--[a-z-]+)\)", css))
    own = {name for name in used if re.search(rf"{name}:", PAGE_STYLE.read_text("utf-8"))}
    assert len(own) > 8
    assert [name for name in sorted(own) if not re.search(rf"{name}: *[#u0r]", css)] == []
    assert 'input[type="password"]' in css
    assert "#desk" not in css


def test_what_is_read_on_a_button_is_in_its_name():
    for attributes, text in re.findall(r"<button([^>]*)>([^<&]*[A-Za-z][^<]*)</button>", TEMPLATE):
        name = re.search(r'aria-label="([^"]*)"', attributes)
        assert name is None or text.strip().lower() in name[1].lower()


def test_no_group_of_choices_is_called_by_its_kind(page):
    groups = [one for one in page.blocks.values() if isinstance(one, gr.Radio)]
    assert len(groups) > 9
    assert all(one.label for one in groups)


def test_about_of_a_model_that_is_nowhere_on_disk_has_its_name(model):
    text = about(Models.only(model))
    assert "removed within a day" in text
    assert "until its owner removes them" in about(Models.only(model), keep=True)
    assert "<h3>fake</h3>" in text
    assert "Licence" not in text


def test_a_key_is_checked_by_itself():
    assert all(key_problem(key) == "" for key in ("", None, "  ", "C", "F#m", "D dorian"))
    assert len(key_problem("H")) < 90
    assert "&lt;b&gt;" in key_note("<b>")
    assert key_note("Bb") == ""


def test_settings_of_a_piece_fill_the_form():
    options = MusicOptions(seconds=40.0, seed=7, temperature=1.1, top_p=0.98, key="C", variations=2)
    length, unit, variations, *_, mood = widget_values(options)
    assert (length.value, unit, variations, mood) == (40.0, "seconds", 2, "Wild")
    long = widget_values(MusicOptions(bars=200))[0]
    assert (long.value, long.maximum) == (200, 200)


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
    assert "deep" not in str(page.get_config_file()["components"])


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


def test_gradio_sees_the_request_of_each_callback(calls):
    for call in (calls.begin, calls.compose, calls.stop_job, calls.leave, calls.choose_region):
        assert gr.Request in get_type_hints(call).values()
    assert gr.EventData in get_type_hints(calls.choose_region).values()


def test_what_is_served_is_a_folder_of_this_run(model, tmp_path, monkeypatch):
    served = []

    def build(_, folder, **how):
        assert folder.is_dir()
        waited = lambda: served[-1].append("waited")  # noqa: E731
        return SimpleNamespace(made=(folder, how["keep"]), block_thread=waited)

    def opened(page, folder, _):
        served.append([page.made, folder])
        return "http://here"

    monkeypatch.setattr("app.web.serving.build_page", build)
    monkeypatch.setattr("app.web.serving.open_page", opened)
    mine = tmp_path / "deep" / "music"
    for folder in (mine, mine, None):
        serving = Serving(output_folder=folder)
        launch(model, serving, announce=lambda address: served[-1].append(address))
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
