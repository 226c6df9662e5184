"""The pointer: compiled and NumPy versions, its definition, its dependencies, the mixture."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from relpe.models.pointer import arithmetic
from relpe.models.pointer import kernel as compiled
from relpe.models.pointer.arithmetic import NUM_DISTANCES
from relpe.models.pointer.config import (
    LONGEST,
    MOST_IDS,
    NUM_RECORDS,
    SIZES,
    BalanceConfig,
    GateConfig,
    PointerConfig,
)
from relpe.models.pointer.pointer import Pointer
from tests.support.reference_pointer import SlowPointer

IDS = 9
KERNELS: list[ModuleType] = [arithmetic, compiled]


def gates(rng: np.random.Generator, families: int = 3) -> GateConfig:
    """Random gates, different for all classes."""
    sizes = SIZES | {"family": families}
    return GateConfig(**{n: tuple(rng.normal(size=size).tolist()) for n, size in sizes.items()})


CONFIG = PointerConfig(
    reach=40,
    unit=1,
    ignored=((4, 6), (6, 9)),
    names=(2, 4),
    families=(0, 2, 6),
    recent=5,
    gates=gates(np.random.default_rng(0)),
    balance=BalanceConfig(
        strength=0.4, most=0.9, most_generated=-0.4, aligned=0.8, near=-1.1, named=0.6, imposed=1.5
    ),
)


@st.composite
def configs(draw: st.DrawFn) -> PointerConfig:
    return replace(
        CONFIG,
        reach=draw(st.sampled_from([1, 2, 3, 4, 5, 7, 13, 40])),
        unit=draw(st.sampled_from([None, 0, 1, 5])),
        ignored=draw(st.sampled_from([(), ((4, 9),), ((0, 2), (4, 6), (6, 9))])),
        names=draw(st.sampled_from([None, (2, 4), (0, 9), (8, 9)])),
        recent=draw(st.sampled_from([1, 2, 32])),
    )


@st.composite
def sequences(draw: st.DrawFn, most: int = 60) -> list[int]:
    """Tokens in which phrases are repeated, with or without changes."""
    phrases = draw(st.lists(st.lists(st.integers(0, IDS - 1), max_size=9), min_size=1, max_size=3))
    order = draw(st.lists(st.sampled_from(phrases) | st.lists(st.integers(0, IDS - 1), max_size=2)))
    return [token for phrase in order for token in phrase][:most]


def read(config: PointerConfig, tokens: list[int], kernel: ModuleType | None = None) -> Pointer:
    pointer = Pointer(config, kernel)
    pointer.extend(tokens)
    return pointer


def observed(pointer: Pointer) -> list[list[Any]]:
    """Everything that can be read from a pointer, exactly."""
    logits = np.linspace(-3, 3, IDS, dtype=np.float32)
    mixed = pointer.mix(logits, np.array([0, 2, 3, 5, 7]), 0.8)
    return [part.tolist() for part in (*pointer.sources(), *pointer.proposals(), mixed)]


@given(configs(), sequences(), st.lists(st.integers(0, 60)), st.integers(0, 60), st.integers(0, 60))
def test_parts_equal_the_whole_and_compiled_equals_numpy(config, tokens, cuts, prompt, imposed):
    pointers = []
    for kernel in KERNELS:
        for edges in ([], cuts, range(61)):
            pointer = Pointer(config, kernel)
            inside = {min(cut, len(tokens)) for cut in (*edges, prompt, imposed)}
            steps = [0, *sorted(inside), len(tokens)]
            for start, stop in pairwise(steps):
                if start == min(prompt, len(tokens)):
                    pointer.end_prompt()
                pointer.extend(tokens[start:stop], imposed=start >= imposed)
            pointers.append(observed(pointer))
    assert all(pointer == pointers[0] for pointer in pointers)


@settings(max_examples=60)
@given(configs(), sequences(30), st.integers(0, 30), st.sets(st.integers(0, 29)))
def test_the_pointer_matches_its_definition(config, tokens, generated, imposed):
    assume(tokens)
    generated = min(generated, len(tokens))
    pointer = read(config, tokens[: len(tokens) - generated])
    pointer.end_prompt()
    for place, token in enumerate(tokens[len(tokens) - generated :], len(tokens) - generated):
        pointer.extend([token], imposed=place in imposed)
    places = frozenset(place for place in imposed if place >= len(tokens) - generated)
    slow = SlowPointer(config, tokens, generated, places)
    expected, sources = slow.sources(), pointer.sources()
    for units in range(NUM_DISTANCES):
        found = (*(int(part[units]) for part in sources[:4]),)
        assert found == expected.get(units, (-1, 0, 0, 0))
    shares = np.array([slow.records()[units] for units in range(NUM_DISTANCES)]) * NUM_RECORDS
    assert (np.minimum((shares + 1e-9).astype(int), NUM_RECORDS - 1) == sources.records).all()
    tokens_and_odds = (part.tolist() for part in pointer.proposals())
    assert dict(zip(*tokens_and_odds, strict=True)) == pytest.approx(slow.odds())


@pytest.mark.parametrize("imposed", [False, True])
@pytest.mark.parametrize("last", [2, 3])
def test_a_source_in_the_named_unit_has_the_odds_of_the_definition(last, imposed):
    # units that begin alike and go on differently; the last token names one of them
    config = replace(CONFIG, reach=40, ignored=())
    tokens = [1, last, 4, 1, last, 5, 1, last, 7, 1, last]
    pointer = read(config, tokens[:-1])
    pointer.extend(tokens[-1:], imposed=imposed)
    assert (pointer.sources().named == 2).sum() == 1
    slow = SlowPointer(config, tokens, imposed=frozenset({len(tokens) - 1} if imposed else ()))
    tokens_and_odds = (part.tolist() for part in pointer.proposals())
    assert dict(zip(*tokens_and_odds, strict=True)) == pytest.approx(slow.odds())


def test_an_imposed_unit_comes_back_whatever_the_bounds():
    bounds = BalanceConfig(strength=-4, most=-4, most_generated=-4, imposed=8)
    config = replace(CONFIG, reach=40, ignored=(), gates=GateConfig(family=(0.0,) * 3))
    config = replace(config, balance=bounds)
    odds = {}
    for imposed in (False, True):
        pointer = read(config, [1, 3, 5])
        pointer.end_prompt()
        pointer.extend([4, 6, 7, 8, 1])
        pointer.extend([2], imposed=imposed)  # the unit before, which is generated
        pointer.extend([5, 4, 6])
        tokens_and_odds = (part.tolist() for part in pointer.proposals())
        odds[imposed] = dict(zip(*tokens_and_odds, strict=True))[7]
    assert odds[False] <= math.exp(-4) * 1.001
    assert odds[True] > 10


@pytest.mark.parametrize("kernel", KERNELS)
def test_distances_of_many_units_share_two_classes(kernel):
    config = replace(CONFIG, reach=500, ignored=())
    tokens = [1, 2] * 140
    sources = read(config, tokens, kernel).sources()
    assert sources.distances[[0, 1, 63, 64, 65]].tolist() == [0, 2, 126, 128, 256]
    assert sources.similar[[1, 64]].tolist() == [278, 152]
    assert (sources.tokens[1:] == 1).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("reach", "ids"), [(3, 3), (40, IDS), (1000, 4)])
def test_compiled_equals_numpy_for_long_sequences(kernel, reach, ids):
    rng = np.random.default_rng(reach)
    config = replace(CONFIG, reach=reach, families=(0, 2, 6))
    tokens = rng.integers(ids, size=2500).tolist()
    expected = observed(read(config, tokens, arithmetic))
    piecewise = Pointer(config, kernel)
    for start in range(0, 2500, 7):
        piecewise.extend(tokens[start : start + 7])
    assert observed(piecewise) == expected


@pytest.mark.parametrize("kernel", KERNELS)
def test_lengths_are_counted_up_to_a_limit(kernel):
    config = replace(CONFIG, reach=4, unit=None)
    pointer = read(config, [2] * 40_000 if kernel is compiled else [2], kernel)
    arithmetic.sections(pointer._memory, 4).similar[:] = LONGEST
    arithmetic.sections(pointer._memory, 4).exact[:] = LONGEST
    pointer.extend([2, 2])
    assert pointer.sources().similar[0] == pointer.sources().exact[0] == LONGEST
    pointer.extend([3])
    assert pointer.sources().similar[0] == LONGEST // 2
    assert pointer.sources().exact[0] == 0


def test_nothing_depends_on_later_tokens_and_copies_are_independent():
    tokens = np.random.default_rng(1).integers(IDS, size=200).tolist()
    whole = Pointer(CONFIG)
    for count, token in enumerate(tokens):
        assert observed(whole) == observed(read(CONFIG, tokens[:count]))
        before, fork = observed(whole), whole.copy()
        fork.extend([(token + 1) % IDS, 3, 3])
        fork.end_prompt()
        assert observed(whole) == before
        whole.extend([token])
        assert observed(fork) != before


@settings(max_examples=50)
@given(sequences(), sequences(), st.integers(0, 2**32 - 1), st.booleans())
def test_a_prefix_beyond_reach_is_forgotten(first, second, seed, long):
    """What a pointer forgets, so that the prefix finally has no effect.

    No match continues across 15 tokens that have no equal, and no source is a token beyond reach.
    From then on, differences between track records decay by 1 - 1 / recent with each informative
    token.
    """
    rng = np.random.default_rng(seed)
    config = replace(CONFIG, families=(0,), gates=GateConfig())
    unknown = list(range(IDS, IDS + 15))
    later = rng.integers(IDS, size=config.reach + 100 * long).tolist()
    pointers = [read(config, [*tokens, *unknown, *later]) for tokens in (first, second)]
    one, two = (pointer.sources() for pointer in pointers)
    for name in ("tokens", "similar", "exact", "distances"):
        assert (getattr(one, name) == getattr(two, name)).all()
    out_of_reach = [*unknown, *later][config.reach :]
    informative = sum(not 4 <= token < IDS for token in out_of_reach)
    hits = [arithmetic.sections(p._memory, config.reach).hits for p in pointers]
    bound = config.recent * (1 - 1 / config.recent) ** informative
    assert np.abs(hits[0] - hits[1]).max() <= bound * (1 + 1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_hits_count_informative_tokens_only(kernel):
    config = replace(CONFIG, recent=1000)
    pointer = read(config, [1, 2, 3, 4] * 9, kernel)
    hits = arithmetic.sections(pointer._memory, config.reach).hits
    assert hits[-1] == pytest.approx(26, rel=0.05)  # neither the first token nor those of id 4
    assert hits[1] == pytest.approx(23, rel=0.05)  # the first bar, and the Bar after it, are new
    assert pointer.sources().records[1] == 8


@given(configs(), sequences(), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_the_mixture_matches_its_formula(config, tokens, seed, memory):
    rng = np.random.default_rng(seed)
    pointer = read(config, tokens)
    logits = (4 * rng.normal(size=IDS)).astype(np.float32)
    among = np.flatnonzero(rng.integers(2, size=IDS))
    assume(len(among))
    for kernel in KERNELS:
        again = read(config, tokens, kernel)
        mixed = np.exp(again.mix(logits, among, memory))
        expected = np.exp(logits[among].astype(float))
        expected /= expected.sum()
        odds = np.bincount(*pointer.proposals(), IDS)[among]
        expected = (expected + memory * odds) / (1 + memory * odds.sum())
        assert expected.sum() == pytest.approx(1)
        assert mixed / mixed.sum() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_forbidden_tokens_get_no_probability_and_proposals_add_up(kernel):
    config = PointerConfig(unit=1, gates=GateConfig(similar=(0.0,) * 26))
    pointer = read(config, [1, 2, 3, 1, 2, 3, 1, 2], kernel)
    proposals = pointer.proposals()
    assert proposals.tokens.tolist() == [3]
    assert proposals.odds == pytest.approx([math.sqrt(2)])  # of two sources, by tables of 0
    logits = np.zeros(5, np.float32)
    mixed = np.exp(pointer.mix(logits, np.array([0, 2, 4])))
    assert mixed / mixed.sum() == pytest.approx(np.full(3, 1 / 3))
    mixed = np.exp(pointer.mix(logits, np.array([0, 3, 4])))
    assert mixed / mixed.sum() == pytest.approx(
        np.array([1 / 3, 1 / 3 + math.sqrt(2), 1 / 3]) / (1 + math.sqrt(2))
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_extreme_gates_and_logits_stay_finite(kernel):
    config = PointerConfig(gates=GateConfig(similar=(50.0,) * 26, exact=(50.0,) * 26))
    pointer = read(config, [3, 3, 3], kernel)
    mixed = pointer.mix(np.array([0, 1e30, -1e30, -1e30], np.float32), np.arange(4))
    assert mixed.argmax() == 3
    assert np.isfinite(mixed).all()
    nothing = PointerConfig(gates=GateConfig(similar=(-1e308,) * 26))
    assert not len(read(nothing, [3, 3, 3], kernel).proposals().tokens)
    assert not len(Pointer(config, kernel).proposals().tokens)


def test_ids_may_be_as_large_as_allowed():
    top = MOST_IDS - 1
    config = replace(CONFIG, ignored=((top - 3, top + 1),))
    config.check(MOST_IDS)
    for kernel in KERNELS:
        sources = read(config, [top, 7, top - 2, 7, top], kernel).sources()
        assert sources.tokens[0] == 7
        assert (sources.similar[0], sources.exact[0]) == (3, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reach": 0}, "reach is 0, expected 1 to 1048576"),
        ({"reach": 10**12}, "reach is 1000000000000, expected 1 to"),
        ({"recent": 0}, "recent is 0"),
        ({"unit": -1}, "unit is -1, expected an id of at least 0"),
        ({"ignored": ((3, 3),)}, "expected ascending ranges"),
        ({"ignored": ((-1, 3),)}, "expected ascending ranges"),
        ({"ignored": ((4, 6), (5, 8))}, "expected ascending ranges"),
        ({"families": (1, 2, 3)}, "expected ids ascending from 0"),
        ({"families": (0, 2)}, "gates.family has 3 entries, expected one for each of the 2"),
    ],
)
def test_invalid_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changes)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 50.1])
def test_gates_are_finite_and_bounded(value):
    for name in ("similar", "family"):
        with pytest.raises(ValueError, match="finite and at most"):
            replace(CONFIG.gates, **{name: (value, *getattr(CONFIG.gates, name)[1:])})
    with pytest.raises(ValueError, match="expected -50"):
        BalanceConfig(near=value)
    with pytest.raises(ValueError, match="exact has 3 entries, expected 26"):
        GateConfig(exact=(0.0,) * 3)


@pytest.mark.parametrize(
    "changes", [{"unit": 12}, {"ignored": ((4, 13),)}, {"families": (0, 2, 12)}]
)
def test_ids_are_those_of_the_vocabulary(changes):
    CONFIG.check(12)
    with pytest.raises(ValueError, match="pointer has the id 12, expected ids below"):
        replace(CONFIG, **changes).check(12)
    with pytest.raises(ValueError, match="vocabulary_size is 65537, expected at most 65536"):
        CONFIG.check(MOST_IDS + 1)
