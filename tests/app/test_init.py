import subprocess
import sys

import pytest

import app
from app.compose.continuation import Progress, Result, continue_prompt, generate_piece
from app.compose.prompt.prompt import read_prompt
from tests.support.scores import two_hands
from tokenization.errors import MidiError
from tokenization.midi import write_midi

OPTIONS = app.MusicOptions(bars=2, seed=3)


def test_a_file_is_continued_as_by_the_calls_behind_it(small_model):
    midi, seen = write_midi(two_hands()), []
    result = app.continue_midi(small_model, midi, OPTIONS, on_progress=seen.append)
    *_, wanted = continue_prompt(small_model, read_prompt(midi), OPTIONS)
    assert isinstance(wanted, Result)
    assert result.pieces[0].midi == wanted.pieces[0].midi
    assert result.pieces[0].bars == 2
    assert seen
    assert all(isinstance(step, Progress) for step in seen)
    with pytest.raises(MidiError, match=r"^song\.mid: "):
        app.continue_midi(small_model, b"no MIDI", name="song.mid")


def test_a_piece_from_nothing_is_that_of_the_call_behind_it(small_model):
    *_, wanted = generate_piece(small_model, OPTIONS)
    assert isinstance(wanted, Result)
    assert app.generate_midi(small_model, OPTIONS).pieces[0].midi == wanted.pieces[0].midi


def test_the_package_has_its_names_and_loads_no_engine():
    assert {*app.__all__} <= {*dir(app)}
    for name in app.__all__:
        assert getattr(app, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        app.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
    code = "import sys, app; app.MusicOptions; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
