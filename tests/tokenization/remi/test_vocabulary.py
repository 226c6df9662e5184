from __future__ import annotations

import numpy as np
import pytest

from tokenization.remi import vocabulary
from tokenization.remi.vocabulary import (
    DURATIONS,
    MULTITRACK_FAMILIES,
    PIANO_FAMILIES,
    POSITION,
    PROGRAM_ORDER,
    TEMPO,
    TIME_SIGNATURE,
    VOCABULARY,
    Families,
    Kind,
)


@pytest.mark.parametrize(
    ("vocabulary", "size", "expected"),
    [
        (VOCABULARY, 512, "56dbc320aaae010e58335c17db066269dc843928689715e5e4ed938c4885c331"),
        (
            VOCABULARY,
            812,
            "38f3fa4ee814abef661bcd81b809c8bd70dd1a2f0d3ed409b1a0c2a286126d06",
        ),
        (
            VOCABULARY,
            1246,
            "b0f142c62bfc135b9902e29d8ec3fb0c8731b974220b23f8c4695f0c39a8a3b2",
        ),
    ],
)
def test_the_ids_are_those_of_the_released_weights(vocabulary, size, expected):
    assert vocabulary.hash == expected
    assert len(vocabulary) == size


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
        ("Tempo_30", vocabulary.TEMPO),
        ("Pitch_21", PIANO_FAMILIES.pitch),
        ("Velocity_0", PIANO_FAMILIES.velocity),
        ("Duration_1", PIANO_FAMILIES.duration),
    ],
)
def test_constants_are_the_ids_of_names(name, first):
    assert VOCABULARY.ids[name] == first
    assert VOCABULARY.names[first] == name


@pytest.mark.parametrize("families", [PIANO_FAMILIES, MULTITRACK_FAMILIES])
def test_families_match_the_documented_table(families: Families):
    first = {
        "TimeSignature": TIME_SIGNATURE,
        "Position": POSITION,
        "Tempo": TEMPO,
        "Program": families.program,
        "Part": families.part,
        "Pitch": families.pitch,
        "Drum": families.drum,
        "Velocity": families.velocity,
        "Duration": families.duration,
    }
    names = families.vocabulary.names
    for (family, begin), end in zip(
        first.items(), [*first.values(), families.size][1:], strict=True
    ):
        assert all(name.startswith(f"{family}_") for name in names[begin:end])
    assert names[families.pitch] == "Pitch_0"


@pytest.mark.parametrize("families", [PIANO_FAMILIES, MULTITRACK_FAMILIES, MULTITRACK_FAMILIES])
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


def test_tempos_of_version_2_are_a_fine_geometric_grid():
    tempos, edges = MULTITRACK_FAMILIES.bpm, MULTITRACK_FAMILIES.tempo_edges
    assert tempos[0] == 15
    assert {30.0, 60.0, 120.0, 240.0, 480.0} <= {*tempos.tolist()}
    assert tempos[1:].max() > 498
    assert (tempos[1:] / tempos[:-1]).max() <= 1.02
    for families in (PIANO_FAMILIES, MULTITRACK_FAMILIES):
        inner = families.tempo_edges[1:-1]
        assert (families.bpm[:-1] < inner).all()
        assert (inner < families.bpm[1:]).all()
    assert edges[-1] > 500


def test_version_2_begins_like_version_1():
    names = VOCABULARY.names
    assert names[:TEMPO] == VOCABULARY.names[:TEMPO]
    families = MULTITRACK_FAMILIES
    for name, first in families.first_ids.items():
        assert names[first].split("_")[0] == name or name == "Other"
    assert names[families.return_] == "Return_New"
    assert names[families.bass - 1] == "Chord_N_N"
