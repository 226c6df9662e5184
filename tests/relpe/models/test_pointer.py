"""The pointer: compiled or not, its definition, its dependencies, the mixture."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from relpe.models.pointer import arithmetic
from relpe.models.pointer.config import (
    ALIGNMENTS,
    LENGTH_CLASSES,
    LONGEST,
    MOST_IDS,
    NUM_DISTANCES,
    NUM_RECORDS,
    RANGES,
    SIZES,
    BalanceConfig,
    GateConfig,
    PointerConfig,
)
from relpe.models.pointer.pointer import Pointer
from tests.support.reference_pointer import SlowPointer
from tests.support.without_numba import load_copy, load_without_numba

IDS = 9
UNCOMPILED = load_without_numba(arithmetic.__name__)


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
        strength=0.4,
        most=0.9,
        most_generated=-0.4,
        aligned=0.8,
        near=-1.1,
        named=0.6,
        imposed=1.5,
        proposed=(0.3, -0.7, 1.2),
        run=(0.2, 0.9, -0.1),
    ),
)
UNLIKE = replace(CONFIG, ignored=())


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


def empty(config: PointerConfig, module: ModuleType = arithmetic) -> Pointer:
    pointer = Pointer(config)
    vars(pointer)["_arithmetic"] = module
    return pointer


def read(config: PointerConfig, tokens: list[int], module: ModuleType = arithmetic) -> Pointer:
    pointer = empty(config, module)
    pointer.extend(tokens)
    return pointer


def observed(pointer: Pointer) -> list[list[Any]]:
    """Everything that can be read from a pointer, exactly."""
    logits = np.linspace(-3, 3, IDS, dtype=np.float32)
    mixed = pointer.mix(logits, np.array([0, 2, 3, 5, 7]), 0.8)
    return [part.tolist() for part in (*pointer.sources(), *pointer.proposals(), mixed)]


def test_the_arithmetic_is_compiled_where_numba_can_compile_it():
    def is_compiled(module: ModuleType) -> bool:
        functions = (module.read, module.mix, module._match)
        (answer,) = {hasattr(function, "py_func") for function in functions}
        assert answer == (module.indices is range)
        return answer

    assert is_compiled(arithmetic)
    assert not is_compiled(UNCOMPILED)
    # the environment variable NUMBA_DISABLE_JIT; no folder for the cache
    for name, value in (
        ("config.DISABLE_JIT", 1),
        ("core.caching.CacheImpl._locator_classes", []),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"numba.{name}", value)
            assert not is_compiled(load_copy(arithmetic.__name__))


@settings(max_examples=60)
@given(configs(), sequences(), st.lists(st.integers(0, 60)), st.integers(0, 60), st.integers(0, 60))
def test_parts_equal_the_whole_and_compiled_equals_uncompiled(
    config, tokens, cuts, prompt, imposed
):
    pointers = []
    for module, edges in ((arithmetic, []), (arithmetic, cuts), (UNCOMPILED, cuts)):
        pointer = empty(config, module)
        inside = {min(cut, len(tokens)) for cut in (*edges, prompt, imposed)}
        for start, stop in pairwise([0, *sorted(inside), len(tokens)]):
            if start == min(prompt, len(tokens)):
                pointer.end_prompt()
            pointer.extend(tokens[start:stop], imposed=start >= imposed)
        pointers.append(observed(pointer))
    assert pointers[0] == pointers[1] == pointers[2]


def test_compiled_equals_uncompiled_for_long_sequences():
    config, tokens = replace(CONFIG, reach=200), np.random.default_rng(0).integers(4, size=800)
    piecewise = empty(config)
    for start in range(0, 800, 7):
        piecewise.extend(tokens[start : start + 7])
    assert observed(piecewise) == observed(read(config, tokens.tolist(), UNCOMPILED))


@settings(max_examples=40)
# units that begin alike and go on differently; the last token names one of them
@example(UNLIKE, [1, 2, 4, 1, 2, 5, 1, 2, 7, 1, 2], 1, {10})
@example(UNLIKE, [1, 3, 4, 1, 3, 5, 1, 3, 7, 1, 3], 0, set())
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


def test_distances_of_many_units_share_two_classes():
    config = replace(CONFIG, reach=500, ignored=())
    sources = read(config, [1, 2] * 140).sources()
    assert sources.distances[[0, 1, 63, 64, 65]].tolist() == [0, 2, 126, 128, 256]
    assert sources.similar[[1, 64]].tolist() == [278, 152]
    assert (sources.tokens[1:] == 1).all()


def test_a_name_of_a_distant_unit_has_the_class_of_the_distance():
    config = replace(UNLIKE, names=(2, 300))
    for units, distance in ((1, 1), (63, 63), (64, 64), (127, 64), (128, 65)):
        sources = read(config, [1, 1 + units]).sources()
        assert np.flatnonzero(sources.named == 2).tolist() == [distance]
        assert (sources.named[np.arange(NUM_DISTANCES) != distance] == 1).all()


def test_a_source_in_an_imposed_unit_has_odds_of_4_to_403():
    for imposed, odds in ((-50.0, 4.48), (50.0, 403.4)):
        balance = BalanceConfig(strength=-9, most=-9, most_generated=-9, imposed=imposed)
        pointer = read(replace(UNLIKE, balance=balance), [1, 3, 5, 4, 1, 3, 5, 8, 1])
        pointer.end_prompt()
        pointer.extend([3], imposed=True)  # names the unit before the last, where 5 came next
        proposals = pointer.proposals()
        assert proposals.odds[proposals.tokens == 5] == pytest.approx([odds], rel=1e-2)


def test_lengths_and_distances_have_classes():
    lengths = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16, 6143, 6144, LONGEST]
    expected = [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 24, 25, 25]
    assert LENGTH_CLASSES[lengths].tolist() == expected
    distances = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 63, 64, 65]
    assert ALIGNMENTS[distances].tolist() == [0, 1, 2, 1, 3, 2, 4, 3, 5, 4, 5, 5, 1, 1, 1]
    assert RANGES[[0, 3, 4, 5, 6, 48, 63, 64, 65]].tolist() == [0, 3, 4, 4, 5, 11, 11, 12, 12]


def test_lengths_are_counted_up_to_a_limit():
    for module in (arithmetic, UNCOMPILED):
        pointer = read(replace(CONFIG, reach=4, unit=None), [2], module)
        parts = UNCOMPILED.sections(pointer._memory, 4)
        parts.similar[:] = parts.exact[:] = LONGEST
        pointer.extend([2, 2])
        assert pointer.sources().similar[0] == pointer.sources().exact[0] == LONGEST
        pointer.extend([3])
        assert (pointer.sources().similar[0], pointer.sources().exact[0]) == (LONGEST // 2, 0)


def test_nothing_depends_on_later_tokens_and_copies_are_independent():
    tokens = np.random.default_rng(1).integers(IDS, size=100).tolist()
    whole = Pointer(CONFIG)
    for count, token in enumerate(tokens):
        assert observed(whole) == observed(read(CONFIG, tokens[:count]))
        before, fork = observed(whole), whole.copy()
        fork.extend([(token + 1) % IDS, 3, 3])
        fork.end_prompt()
        assert observed(whole) == before
        whole.extend([token])
        assert observed(fork) != before


@settings(max_examples=30)
@given(sequences(), sequences(), st.integers(0, 2**32 - 1), st.booleans())
def test_a_prefix_beyond_reach_is_forgotten(first, second, seed, long):
    """What a pointer forgets, so that the prefix finally has no effect.

    No match continues across 15 tokens that have no equal, and no source is a token beyond reach.
    From then on, differences between track records decay by 1 - 1 / recent with each informative
    token.
    """
    rng = np.random.default_rng(seed)
    config = replace(CONFIG, families=(0,), gates=GateConfig(), balance=BalanceConfig())
    unknown = list(range(IDS, IDS + 15))
    later = rng.integers(IDS, size=config.reach + 100 * long).tolist()
    pointers = [read(config, [*tokens, *unknown, *later]) for tokens in (first, second)]
    one, two = (pointer.sources() for pointer in pointers)
    for name in ("tokens", "similar", "exact", "distances"):
        assert (getattr(one, name) == getattr(two, name)).all()
    out_of_reach = [*unknown, *later][config.reach :]
    informative = sum(not 4 <= token < IDS for token in out_of_reach)
    hits = [UNCOMPILED.sections(p._memory, config.reach).hits for p in pointers]
    bound = config.recent * (1 - 1 / config.recent) ** informative
    assert np.abs(hits[0] - hits[1]).max() <= bound * (1 + 1e-9)


@settings(max_examples=60)
@given(configs(), sequences(), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_the_mixture_matches_its_formula(config, tokens, seed, memory):
    rng = np.random.default_rng(seed)
    pointer = read(config, tokens)
    logits = (4 * rng.normal(size=IDS)).astype(np.float32)
    among = np.flatnonzero(rng.integers(2, size=IDS))
    assume(len(among))
    mixed = np.exp(pointer.mix(logits, among, memory))
    expected = np.exp(logits[among].astype(float))
    expected /= expected.sum()
    odds = np.bincount(*pointer.proposals(), IDS)[among]
    expected = (expected + memory * odds) / (1 + memory * odds.sum())
    assert mixed / mixed.sum() == pytest.approx(expected, rel=1e-9)


def test_extreme_gates_logits_and_ids_are_no_problem():
    sure = PointerConfig(gates=GateConfig(similar=(50.0,) * 26, exact=(50.0,) * 26))
    nothing = PointerConfig(gates=GateConfig(similar=(-1e308,) * 26))
    top, logits = MOST_IDS - 1, np.array([0, 1e30, -1e30, -1e30], np.float32)
    large_ids = replace(CONFIG, ignored=((top - 3, top + 1),))
    large_ids.check(MOST_IDS)
    for module in (arithmetic, UNCOMPILED):
        mixed = read(sure, [3, 3, 3], module).mix(logits, np.arange(4))
        assert mixed.argmax() == 3
        assert np.isfinite(mixed).all()
        for pointer in (read(nothing, [3, 3, 3], module), empty(sure, module)):
            assert not len(pointer.proposals().tokens)
        assert (empty(sure, module).sources().tokens == -1).all()
        sources = read(large_ids, [top, 7, top - 2, 7, top], module).sources()
        assert (sources.tokens[0], sources.similar[0], sources.exact[0]) == (7, 3, 0)


def test_invalid_configs_are_refused():
    cases: dict[str, list[dict[str, Any]]] = {
        "reach is 0, expected 1 to 1048576": [{"reach": 0}],
        "reach": [{"reach": 10**12}],
        "recent": [{"recent": 0}],
        "unit": [{"unit": -1}],
        "ignored": [{"ignored": one} for one in (((3, 3),), ((-1, 3),), ((4, 6), (5, 8)))],
        "names": [{"names": (3, 3)}, {"names": (-1, 3)}],
        "families": [{"families": (1, 2, 3)}, {"families": (0, 6, 2)}],
        "gates.family has 3 entries": [{"families": (0, 2)}],
        **{
            f"{name} has 2 entries": [{"balance": replace(CONFIG.balance, **{name: (1.0, 1.0)})}]
            for name in ("temperature", "proposed", "run")
        },
    }
    for message, changes in cases.items():
        for change in changes:
            with pytest.raises(ValueError, match=message):
                replace(CONFIG, **change)
    for value in (math.nan, math.inf, -math.inf, 50.1):
        for name in ("similar", "family"):
            with pytest.raises(ValueError, match="finite"):
                replace(CONFIG.gates, **{name: (value, *getattr(CONFIG.gates, name)[1:])})
        with pytest.raises(ValueError, match="near"):
            BalanceConfig(near=value)
        for name in ("temperature", "proposed", "run"):
            with pytest.raises(ValueError, match=name):
                replace(CONFIG.balance, **{name: (1.0, value)})
    with pytest.raises(ValueError, match="exact has 3 entries"):
        GateConfig(exact=(0.0,) * 3)


def test_ids_are_those_of_the_vocabulary():
    CONFIG.check(9)
    for name, value in (("unit", 9), ("ignored", ((4, 10),)), ("families", (0, 2, 9))):
        with pytest.raises(ValueError, match="id 9, expected ids below"):
            replace(CONFIG, **{name: value}).check(9)
    with pytest.raises(ValueError, match="vocabulary_size is 65537"):
        CONFIG.check(MOST_IDS + 1)
