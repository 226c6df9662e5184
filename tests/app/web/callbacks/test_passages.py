"""Bars and tracks that are selected on the page and written again, without a browser."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from app.audio import stems
from app.compose import replay
from app.compose.models import Models
from app.server.studio import Studio
from app.web.callbacks import Callbacks
from app.web.callbacks.fitting import NO_TRACK
from app.web.callbacks.uploads import PASSAGE_ANEW
from tests.support import fakes
from tests.support.bands import band as band_score
from tests.support.bands import model_of
from tests.support.seen import (
    OTHER,
    SOMEONE,
    begin,
    event,
    file_of,
    make,
    planned,
    read,
    seen,
    work_of,
)
from tokenization.midi import read_midi, write_midi
from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi


@pytest.fixture(scope="module")
def filler():
    """A small model of several instruments."""
    return model_of(MultitrackRemi())


@pytest.fixture
def filling(monkeypatch, tmp_path, filler):
    """Callbacks of a page with a model of several instruments and one for piano."""
    monkeypatch.setattr(stems, "render", fakes.silent_stems)
    models = Models.only(filler)
    first = replace(model_of(PianoRemi()), name="first", sha256="abc")
    models.names = ("second", "first")
    models._loaded = {"first": first, "second": filler}
    return Callbacks(Studio(models, tmp_path / "out"), 100_000)


@pytest.fixture
def song(tmp_path):
    path = tmp_path / "song.mid"
    path.write_bytes(write_midi(band_score(bars=6)))
    return path


def notes_of(path):
    return [Counter(map(tuple, track.notes.tolist())) for track in read_midi(Path(path)).tracks]


def outside(notes):
    """The notes that do not begin in bars 3 and 4, or half a grid step before them."""
    start, stop = 2 * 1920 - 21, 4 * 1920 - 21
    return Counter({note: n for note, n in notes.items() if not start <= note[0] < stop})


def select(calls, **data):
    return seen(calls.uploads.choose_passage(event(**data), SOMEONE))


def test_selected_bars_and_tracks_are_written_and_all_other_events_stay(filling, song):
    read(filling, song)
    view = select(filling, first=3, last=4, tracks=[1, 2])
    gap = view.frame["prompt"]["gap"]
    assert gap == {"first": 3, "last": 4, "tracks": [1, 2], "rests": [], "instrument": None}
    assert [track["played"] for track in view.frame["prompt"]["tracks"]] == [False, True, True]
    written = "Electric Bass (finger) and Drums, bars 3 to 4"
    assert f"The model writes {written}; everything else" in view.card
    _, view = make(filling, bars=None, seed=1, ending="cadence")
    assert view.frame["subtitle"] == written
    before, after = notes_of(song), notes_of(view.frame["variations"][0]["midi"])
    assert before[0] == after[0]
    assert before != after
    assert [outside(track) for track in before] == [outside(track) for track in after]
    view = seen(filling.history.undo(SOMEONE))
    assert view.frame["prompt"]["gap"] == gap


def test_selected_bars_need_no_length_and_without_them_the_piece_is_continued(filling, song):
    read(filling, song)
    planned(filling, bars=None)  # its field was emptied, which is grey now
    view = select(filling, first=3, last=4)
    assert (view.go.value, view.frame["plan"]["bars"]) == ("Continue\nwrites bars 3 to 4", 2)
    assert (view.length.interactive, view.unit.interactive) == (False, False)
    assert "are selected" in view.length.info
    assert work_of(filling).upload.model.name == "second"
    view = select(filling)
    assert (view.length.interactive, view.unit.interactive) == (True, True)
    assert view.length.info is None
    assert view.go.value == "Continue\nwrites new music after bar 6"
    assert "gap" not in view.frame["prompt"]
    assert view.frame["prompt"]["splice"] == 24


def test_a_new_track_is_written_beside_the_others(filling, song):
    read(filling, song)
    view = select(filling, first=1, last=6, tracks=None, instrument=73)
    assert [track["played"] for track in view.frame["prompt"]["tracks"]] == [False] * 3
    assert "writes Flute, bars 1 to 6" in view.card
    _, view = make(filling, seed=2)
    path = Path(view.frame["variations"][0]["midi"])
    assert notes_of(path)[:3] == notes_of(song)
    assert {track.program for track in read_midi(path).tracks[3:]} == {73}


def test_a_track_that_rests_has_no_notes_there_and_the_settings_make_it_again(filling, song):
    read(filling, song)
    view = select(filling, first=3, last=4, tracks=[1], rests=[1, 2])
    assert view.frame["prompt"]["gap"]["rests"] == [2]
    _, view = make(filling, seed=1)
    (row,) = view.frame["variations"]
    before, after = notes_of(song), notes_of(row["midi"])
    assert after[0] == before[0]
    assert after[2] == outside(before[2])
    assert "tracks that rest: Drums" in row["settings"]
    settings = file_of(filling, view, "replay")
    passage = work_of(filling).upload.passage
    assert replay.read(settings.read_text()).passage == passage
    read(filling, song, who=OTHER)
    view, upload = read(filling, settings, who=OTHER)
    assert upload.passage == passage
    assert "All settings are restored" in view.card
    _, view = make(filling, who=OTHER, seed=1)
    assert file_of(filling, view).read_bytes() == Path(row["midi"]).read_bytes()


def test_what_the_model_cannot_write_is_refused_before_it_begins(filling, song):
    read(filling, song)
    filling.uploads.choose_model("first", SOMEONE)
    view = select(filling, first=2, last=3, tracks=[1])
    error = "reads all tracks as one piano"
    for text in (view.frame["prompt"]["gap"]["problem"], view.estimate, view.card):
        assert error in text
    assert not view.go.interactive
    with pytest.raises(Exception, match=error):
        begin(filling)
    view = seen(filling.uploads.choose_model("second", SOMEONE))
    assert (view.frame["prompt"]["gap"]["first"], work_of(filling).upload.problem) == (2, "")


def test_a_selection_that_cannot_be_is_explained(filling, song):
    read(filling, song)
    for data in ({"first": 3, "last": 2}, {"first": 0, "last": 2}, {"first": "1", "last": 2}):
        assert "gap" not in select(filling, **data).frame["prompt"]
    for data, problem in (
        ({"first": 2, "last": 3, "tracks": []}, NO_TRACK),
        ({"first": 9, "last": 9}, "The bars that are to be written begin at bar 9"),
        ({"first": 2, "last": 3, "tracks": [7]}, "There is no track 7"),
    ):
        view = select(filling, **data)
        assert view.frame["prompt"]["gap"]["problem"].startswith(problem)
        assert not view.go.interactive


def test_bars_of_a_result_belong_to_its_music_and_other_beats_drop_them(filling, song):
    read(filling, song)
    make(filling, bars=2, seed=1)
    view = select(filling, first=7, last=8, variation=0)
    assert view.frame["phase"] == "prompt"
    assert view.frame["prompt"]["gap"]["first"] == 7
    assert work_of(filling).upload.whole.bars == 8
    view = seen(filling.uploads.count_anew("estimate", SOMEONE))
    assert PASSAGE_ANEW in view.card
    assert "gap" not in view.frame["prompt"]
    view = seen(filling.history.undo(SOMEONE))
    assert view.frame["phase"] == "done"


def sections(frame):
    """The sections over the roll, of a result or the prompt."""
    shown = frame["variations"][0] if frame["variations"] else frame["prompt"]
    return shown["sheet"]["sections"]


def test_sections_keep_their_letters_when_new_bars_are_heard_and_continued(filling, song, tmp_path):
    view, _ = read(filling, song)
    before = sections(view.frame)
    _, view = make(filling, bars=5, form="Q3 A2", seed=2)
    after = sections(view.frame)
    assert after == [*before, ("Q", 7, 3), ("A", 10, 2)]
    view = seen(filling.uploads.choose_passage(event(variation=0), SOMEONE))
    assert sections(view.frame) == after
    view = seen(filling.uploads.edit(event(variation=-1, semitones=2), SOMEONE))
    assert sections(view.frame) == after
    assert view.frame["plan"]["letters"][-2][0] == "Q"

    prompt = tmp_path / "longer.mid"
    prompt.write_bytes(work_of(filling).upload.whole.data)
    _, view = make(filling, bars=3, form="Q", seed=3)  # comes back with its number of bars
    assert sections(view.frame) == [*after, ("Q", 12, 3)]
    settings, midi = file_of(filling, view, "replay"), file_of(filling, view)
    assert replay.read(settings.read_bytes()).sections[-2:] == (("Q", 6, 3), ("A", 9, 2))
    read(filling, prompt, who=OTHER)
    read(filling, settings, who=OTHER)
    _, view = make(filling, who=OTHER, bars=3, form="Q", seed=3)
    assert file_of(filling, view).read_bytes() == midi.read_bytes()


def test_without_a_model_that_has_styles_none_can_be_asked(filling, song):
    view, _ = read(filling, song)
    assert not view.style.visible


def test_a_model_that_has_the_style_is_taken_and_the_card_says_why(filling, song):
    read(filling, song)
    names = ("pop", "waltz")
    models = filling.studio.models
    styled = replace(model_of(MultitrackRemi(MultitrackRemiConfig(styles=names))), name="styled")
    models.names = (*models.names, "styled")
    models._loaded["styled"] = styled
    view = planned(filling, style="waltz")
    assert [value for _, value in view.style.choices] == ["", "pop", "waltz"]
    assert view.model.info.startswith("styled, because the second model cannot write")
    assert planned(filling, style="walz").style.info == "“walz” is not a style; near: waltz."
    _, view = make(filling, bars=2, style="waltz")
    assert "styled on" in view.frame["variations"][0]["settings"]
    filling.history.undo(SOMEONE)
    filling.uploads.choose_model("second", SOMEONE)
    with pytest.raises(Exception, match=r"in the style 'waltz'\. Choose styled, or clear Style"):
        begin(filling, style="waltz")
    filling.uploads.choose_model("auto", SOMEONE)
    assert planned(filling, style="").model.info.startswith("second: ")
