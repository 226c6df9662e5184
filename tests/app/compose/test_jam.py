"""Jams: bars that are written one after the other, for ever."""

from __future__ import annotations

import gc
import sys
from itertools import cycle, islice
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from app.compose import jam as jams
from app.compose.jam import Bar, Jam, joined
from app.compose.plan.asked import kinds
from relpe.models.pointer.config import PointerConfig
from tests.support.bands import model_of
from tokenization.errors import TokenizerError
from tokenization.grid import notated_lines
from tokenization.plan_text import parse_chart
from tokenization.remi.multitrack import MultitrackRemi

if TYPE_CHECKING:
    from app.compose.models import MusicModel

LOOP = ("Am7 D7", "G", None, "C/E", "%", "N")
BAND = ("Drums", "Acoustic Bass", "Vibraphone", "Vibraphone")


@pytest.fixture(scope="module")
def model() -> MusicModel:
    return model_of(MultitrackRemi(), pointer=PointerConfig(reach=256, unit=4))


@pytest.fixture(autouse=True)
def _short_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model without training would hardly end a bar."""
    monkeypatch.setattr(jams, "MOST_TOKENS", 24)


def played(jam: Jam, count: int) -> list[Bar]:
    """Bars with all that can be asked for."""
    bars = []
    for chords in islice(cycle(LOOP), count):
        at = len(bars)
        section = "ABA"[at // 4] if at % 4 == 0 and at < 12 else None
        energy = None if at % 3 else at % 5 / 4
        bars.append(jam.next_bar(chords, fill=at % 4 == 3, energy=energy, section=section))
    return bars


def notes_of(bars: list[Bar]) -> list[list[list[list[int]]]]:
    return [[track.notes.tolist() for track in bar.score.tracks] for bar in bars]


@pytest.mark.parametrize("metre", [(4, 4), (6, 8), (5, 4)])
def test_the_same_seed_and_requests_give_the_same_bars_however_many_follow(model, metre):
    first, second, other = (Jam(model, None, 93, metre, BAND, seed) for seed in (3, 3, 4))
    longer = played(first, 15)
    shorter = played(second, 9)
    assert notes_of(longer[:9]) == notes_of(shorter)
    assert notes_of(shorter) != notes_of(played(other, 9))
    assert [bar.number for bar in longer] == list(range(15))


def test_a_bar_has_its_chords_and_lies_between_its_bar_lines(model):
    jam = Jam(model, None, 93, (3, 4), BAND)
    bars = played(jam, 12)
    for bar, chords in zip(bars, cycle(LOOP), strict=False):
        if chords not in (None, "%"):
            assert kinds(bar.chords) == kinds(parse_chart(chords)[0])
        assert [track.name for track in bar.score.tracks] == ["Drums", *BAND[1:]]
        assert bar.score.end_ticks == 36
        assert (bar.tempo, bar.metre) == (93, (3, 4))
    assert kinds(bars[4].chords) == kinds(bars[3].chords)
    whole = joined(bars)
    assert whole.num_notes == sum(bar.score.num_notes for bar in bars)
    np.testing.assert_array_equal(notated_lines(whole, whole.end_ticks), np.arange(13) * 36)


def test_a_jam_ends_on_a_chord(model):
    jam = Jam(model, band=BAND)
    bars = [*played(jam, 6), jam.end("F")]
    assert jam.ended
    assert kinds(bars[-1].chords) == [(5, False)]
    with pytest.raises(ValueError, match="the jam has ended"):
        jam.next_bar()
    assert Jam(model, band=BAND).end().number == 0  # it may end before it begins


def sizes(jam: Jam, model: MusicModel) -> int:
    """Bytes of all that a jam holds and its model does not."""
    seen, waiting, total = {id(model), id(model.decoder)}, [jam.__dict__], 0
    while waiting:
        item: Any = waiting.pop()
        if id(item) in seen or isinstance(item, type | ModuleType | FunctionType):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        waiting += gc.get_referents(item)
    return total


def test_a_jam_does_not_grow(model, monkeypatch):
    monkeypatch.setattr(jams, "MOST_TOKENS", 8)
    jam, measured = Jam(model, band=BAND[:2]), []
    for _ in range(4):
        played(jam, 500)
        measured.append(sizes(jam, model))
    # the last bars are not equally long
    assert max(measured) < 1.02 * measured[0] + 20_000, measured


def test_the_piano_plays_alone(small_model):
    jam = Jam(small_model, tempo=80)
    (bar,) = played(jam, 1)
    assert [track.name for track in bar.score.tracks] == ["Piano"]
    with pytest.raises(ValueError, match="leave the band out"):
        Jam(small_model, band=("Drums",))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"chords": "X7"}, "'X7'"),
        ({"chords": "C | F"}, "of 2 bars, expected one bar"),
        ({"chords": "C F G"}, "3 chords, expected one or two"),
        ({"chords": " "}, "the chart is empty"),
        ({"energy": 1.5}, "the energy is 1.5, expected 0"),
        ({"energy": float("nan")}, "the energy is nan"),
        ({"section": "verse"}, "the section is 'verse', expected a letter"),
    ],
)
def test_what_is_not_understood_is_refused_and_nothing_is_written(model, asked, message):
    first, second = (Jam(model, band=BAND) for _ in range(2))
    with pytest.raises(ValueError, match=message):
        first.next_bar(**asked)
    assert notes_of([first.next_bar("C")]) == notes_of([second.next_bar("C")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tempo": 1}, "the tempo is 1, expected 15 to"),
        ({"tempo": float("nan")}, "the tempo is nan"),
        ({"metre": (5, 16)}, "the metre is 5/16, expected bars of whole eighths"),
        ({"metre": (4, 0)}, "the metre is 4/0"),
        ({"metre": (9, 4)}, "the metre is 9/4"),
        ({"band": ("Kazoo",)}, "'Kazoo' is not an instrument"),
        ({"band": ()}, "the band has no instruments"),
        ({"band": ("Drums", "Drums")}, "Drums 2 times, expected at most 1"),
        ({"style": "waltz"}, "cannot write in the style 'waltz'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_a_band_that_cannot_play_is_refused(model, arguments, message):
    with pytest.raises((ValueError, TokenizerError), match=message):
        Jam(model, **arguments)
