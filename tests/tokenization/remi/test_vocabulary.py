from __future__ import annotations

import numpy as np
import pytest

from tokenization.remi import vocabulary
from tokenization.remi.vocabulary import (
    DURATIONS,
    MULTITRACK_FAMILIES,
    PIANO_FAMILIES,
    PROGRAM_ORDER,
    TEMPO_EDGES,
    TEMPO_GRID,
    VOCABULARY,
    Families,
    Kind,
)


def test_the_ids_are_those_of_the_released_weights():
    released = "b0f142c62bfc135b9902e29d8ec3fb0c8731b974220b23f8c4695f0c39a8a3b2"
    assert VOCABULARY.hash == released
    assert len(VOCABULARY) == 1246


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("PAD", vocabulary.PAD),
        ("BOS", vocabulary.BOS),
        ("EOS", vocabulary.EOS),
        ("MASK", vocabulary.MASK),
        ("Bar", vocabulary.BAR),
        ("TimeSignature_6", vocabulary.TIME_SIGNATURE),
        ("Position_0", vocabulary.POSITION),
        ("Tempo_15.0", vocabulary.TEMPO),
        ("Pitch_0", PIANO_FAMILIES.pitch),
        ("Velocity_0", PIANO_FAMILIES.velocity),
        ("Duration_1", PIANO_FAMILIES.duration),
    ],
)
def test_constants_are_the_ids_of_names(name, first):
    assert VOCABULARY.ids[name] == first
    assert VOCABULARY.names[first] == name


@pytest.mark.parametrize("families", [PIANO_FAMILIES, MULTITRACK_FAMILIES])
def test_kinds_and_values_match_the_names(families: Families):
    kinds = {"TimeSignature": Kind.TIME_SIGNATURE, "Bar": Kind.BAR}
    kinds |= {"BOS": Kind.BOS, "EOS": Kind.EOS, "DrumVelocity": Kind.VELOCITY}
    kinds |= {k: getattr(Kind, k.upper()) for k in ("Position", "Tempo", "Program", "Part")}
    kinds |= {k: getattr(Kind, k.upper()) for k in ("Pitch", "Drum", "Velocity", "Duration")}
    kinds |= {k: getattr(Kind, k.upper()) for k in ("Return", "Chord", "Bass", "Later", "Write")}
    kinds |= {k: getattr(Kind, k.upper()) for k in ("Last", "Style", "Key", "Plays", "Gap")}
    first = families.first_ids
    rows = zip(families.vocabulary.names, families.kinds, families.values, strict=False)
    for index, (name, kind, value) in enumerate(rows):
        family, _, number = name.partition("_")
        assert kind == kinds.get(family, Kind.OTHER)
        if family == "Program":
            program = vocabulary.DRUMS if number == "Drums" else int(number)
            number = 4 * PROGRAM_ORDER.index(program)
        elif family in {"Tempo", "Chord", "Key"}:
            number = index - first[family]
        assert value == (0 if number == "New" else int(number or 0))
    assert len(families.kinds) == len(families.values) == families.size + 1
    assert families.kinds[-1] == Kind.OTHER


def test_every_program_has_a_place():
    assert sorted(PROGRAM_ORDER) == list(range(129))


def test_durations_grow_by_steps_and_then_by_quarter_octaves():
    assert DURATIONS[:48].tolist() == list(range(1, 49))
    ratios = DURATIONS[48:] / DURATIONS[47:-1]
    np.testing.assert_allclose(ratios, 2**0.25, rtol=0.01)
    assert DURATIONS[-1] == 768


def test_tempos_are_a_fine_geometric_grid():
    assert TEMPO_GRID[0] == 15
    assert {30.0, 60.0, 120.0, 240.0, 480.0} <= {*TEMPO_GRID.tolist()}
    assert (TEMPO_GRID[1:] / TEMPO_GRID[:-1]).max() <= 1.02
    assert (TEMPO_GRID[:-1] < TEMPO_EDGES[1:-1]).all()
    assert (TEMPO_EDGES[1:-1] < TEMPO_GRID[1:]).all()
    assert TEMPO_EDGES[-1] > 500


def test_first_ids_of_families_have_their_names():
    families = MULTITRACK_FAMILIES
    for name, first in families.first_ids.items():
        assert VOCABULARY.names[first].split("_")[0] == name or name == "Other"
    assert VOCABULARY.names[families.return_] == "Return_New"
    assert VOCABULARY.names[families.bass - 1] == "Chord_N_N"
