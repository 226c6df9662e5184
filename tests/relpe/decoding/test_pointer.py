"""Generation with a pointer: rows are independent, with every kind of steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.decoding.base import TokenSteps
from relpe.decoding.batch import Row, RuleT
from relpe.decoding.choose import choose_steps
from relpe.decoding.compiled import CompiledDecoder, compile_all
from relpe.decoding.cuda_graph import TileSteps
from relpe.decoding.eager import PlainSteps
from relpe.decoding.generate import Generation, Request
from relpe.decoding.sampling import SamplingOptions, draw
from relpe.models.decoder import Decoder
from relpe.models.pointer import arithmetic, kernel, pointer
from relpe.models.pointer.config import BalanceConfig, GateConfig, PointerConfig
from relpe.models.pointer.pointer import Pointer
from tests.support.decoders import small_decoder

VOCABULARY = 12
CONFIG = PointerConfig(
    reach=16,
    unit=1,
    ignored=((8, 12),),
    gates=GateConfig(similar=tuple(index / 4 - 1 for index in range(26))),
    balance=BalanceConfig(most_generated=-0.5, strength=0.5),
)


def decoder_with(config: PointerConfig | None) -> Decoder:
    return small_decoder(VOCABULARY, pointer=config)


PLAIN, POINTING = decoder_with(None), decoder_with(CONFIG)


class Counted(NamedTuple):
    """Allows `left` more tokens, each of them any but `without`."""

    left: int
    without: int = VOCABULARY

    @property
    def allowed(self) -> np.ndarray:
        return (np.arange(VOCABULARY) != self.without) & (self.left > 0)

    def advance(self, token: int) -> Counted:
        assert self.allowed[token]
        return self._replace(left=self.left - 1)


class Imposing(NamedTuple):
    """Allows all tokens, and may impose names."""

    imposed: bool

    @property
    def allowed(self) -> np.ndarray:
        return np.ones(VOCABULARY, bool)

    def advance(self, token: int) -> Imposing:
        return self


class Scripted(NamedTuple):
    """Allows some tokens at each step, and ends after the last step."""

    steps: tuple[tuple[int, ...], ...]
    imposed: bool

    @property
    def allowed(self) -> np.ndarray:
        return np.isin(np.arange(VOCABULARY), self.steps[0] if self.steps else ())

    def advance(self, token: int) -> Scripted:
        assert self.allowed[token]
        return self._replace(steps=self.steps[1:])


HALF, GREEDY = SamplingOptions(memory=0.5, top_p=1.0), SamplingOptions(temperature=0)
REQUESTS = [
    Request(np.array([1, 4, 9, 5, 1, 4, 10, 5, 1, 4]), Counted(30), [1, 2, 3]),
    Request(np.tile([1, 2, 3, 8], 9), Counted(12, without=3), [4], HALF),
    Request(np.array([5]), Counted(25), [5, 6], GREEDY),
    Request(np.arange(11), Counted(20), [7], SamplingOptions(memory=0)),
]
Tokens = list[list[list[int]]]


def generated(
    decoder: Decoder, steps: TokenSteps, requests: list[Request[RuleT]], rows: int | None = None
) -> Tokens:
    generation: Generation[RuleT] = Generation(decoder, steps, rows)
    samples = [generation.add(request) for request in requests]
    while len(generation):
        for sample in generation.step():
            assert sample.error is None
    return [[sample.tokens for sample in group] for group in samples]


def alone(decoder: Decoder, make: Callable[[], TokenSteps]) -> Tokens:
    each = [
        [Request(one.prompt, one.rule, [seed], one.options) for seed in one.seeds]
        for one in REQUESTS
    ]
    return [[generated(decoder, make(), [one])[0][0] for one in group] for group in each]


ALONE = alone(POINTING, lambda: PlainSteps(POINTING))
COMPILED = CompiledDecoder(POINTING)
WAYS = {
    "plain": lambda: PlainSteps(POINTING),
    "compiled": COMPILED.steps,
    "tiles": lambda: TileSteps(POINTING, rows=2),
}


@settings(max_examples=8)
@given(
    rows=st.none() | st.integers(1, 5), chunk=st.integers(1, 40), order=st.permutations(range(4))
)
def test_rows_are_independent_and_prompts_may_be_read_in_chunks(rows, chunk, order):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relpe.decoding.eager.PREFILL_CHUNK", chunk)
        made = generated(POINTING, PlainSteps(POINTING), [REQUESTS[i] for i in order], rows)
    assert made == [ALONE[i] for i in order]


@pytest.mark.parametrize("way", WAYS)
def test_rows_equal_rows_alone_in_each_kind_of_steps(way):
    assert generated(POINTING, WAYS[way](), REQUESTS) == alone(POINTING, WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_the_pointer_has_an_effect_unless_memory_is_0(way):
    def memory(value: float) -> list[Request[Counted]]:
        options = SamplingOptions(memory=value)
        return [Request(one.prompt, one.rule, one.seeds, options) for one in REQUESTS]

    plain = PlainSteps(PLAIN) if way != "compiled" else CompiledDecoder(PLAIN).steps()
    plain = TileSteps(PLAIN, rows=2) if way == "tiles" else plain
    without = generated(PLAIN, plain, memory(1))
    assert generated(POINTING, WAYS[way](), memory(0)) == without
    assert generated(POINTING, WAYS[way](), memory(1)) != without


@pytest.mark.parametrize("memory", [0.0, 1.0])
def test_factors_of_the_temperature_have_an_effect_in_generation(memory):
    cold = replace(CONFIG, balance=replace(CONFIG.balance, temperature=(0.1,)))
    requests = [
        Request(one.prompt, one.rule, one.seeds, SamplingOptions(memory=memory, top_p=1.0))
        for one in REQUESTS
    ]
    as_before, colder = (
        generated(decoder_with(config), PlainSteps(decoder_with(config)), requests)
        for config in (CONFIG, cold)
    )
    assert as_before != colder


def test_a_confident_pointer_continues_a_repeated_prompt():
    sure = decoder_with(PointerConfig(gates=GateConfig(similar=(30.0,) * 26)))
    request = Request(np.tile([1, 2, 3, 8], 9), Counted(9))
    assert generated(sure, PlainSteps(sure), [request]) == [[[1, 2, 3, 8, 1, 2, 3, 8]]]


def test_numpy_and_compiled_pointers_generate_the_same(monkeypatch):
    monkeypatch.setattr(pointer, "fastest_kernel", lambda: arithmetic)
    assert generated(POINTING, PlainSteps(POINTING), REQUESTS) == ALONE


def test_without_numba_the_numpy_pointer_is_used(monkeypatch):
    assert pointer.fastest_kernel() is kernel
    monkeypatch.delattr("relpe.models.pointer.kernel")
    monkeypatch.setitem(sys.modules, "relpe.models.pointer.kernel", None)
    assert pointer.fastest_kernel() is arithmetic


def test_a_token_that_is_not_allowed_is_not_drawn():
    sure = Pointer(PointerConfig(gates=GateConfig(similar=(50.0,) * 26)))
    sure.extend([1, 2, 1, 2, 1])
    allowed = np.array([True, True, False, True])
    rng = np.random.default_rng(0)
    options = SamplingOptions(top_p=1.0)
    logits = np.zeros(4, np.float32)
    drawn = {draw(logits, allowed, options, rng, pointer=sure) for _ in range(50)}
    assert drawn == {0, 1, 3}
    assert draw(logits, ~allowed, options, rng, pointer=sure) == 2


def test_a_bias_and_the_temperature_apply_to_the_mixture():
    """At temperature 1/2 probabilities are squared."""
    pair = Pointer(PointerConfig(gates=GateConfig(similar=(0.0,) * 26)))
    pair.extend([2, 2])
    logits, bias = np.zeros(3, np.float32), np.array([0, np.log(2), 0])
    options = SamplingOptions(temperature=0.5, top_p=1.0)
    rng = np.random.default_rng(0)
    drawn = [draw(logits, np.ones(3, bool), options, rng, bias, pair) for _ in range(6000)]
    expected = np.array([1, 2, 4]) ** 2 / 21
    assert np.bincount(drawn) / 6000 == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("logits", [[0, np.nan, 1], [np.inf, 0, 0]])
def test_invalid_logits_are_an_error_with_a_pointer_too(logits):
    pair = Pointer(CONFIG)
    pair.extend([2, 2])
    with pytest.raises(ValueError, match="not finite"):
        draw(
            np.array(logits, np.float32),
            np.ones(3, bool),
            SamplingOptions(),
            np.random.default_rng(0),
            pointer=pair,
        )


@pytest.mark.parametrize("memory", [0.0, 0.5, 1.0])
def test_equal_factors_are_a_temperature(memory):
    families = replace(CONFIG, families=(0, 3, 8), gates=replace(CONFIG.gates, family=(0.0,) * 3))
    warm = replace(families, balance=replace(CONFIG.balance, temperature=(1.25,) * 3))
    seen = np.array([1, 4, 9, 5, 1, 4, 10, 5, 1, 4])
    logits, allowed = np.linspace(-2, 2, VOCABULARY, dtype=np.float32), np.ones(VOCABULARY, bool)
    drawn = []
    for config, temperature in ((families, 1.25 * 0.8), (warm, 0.8)):
        one = Pointer(config)
        one.extend(seen)
        options = SamplingOptions(temperature=temperature, memory=memory)
        drawn.append(
            [draw(logits, allowed, options, np.random.default_rng(i), None, one) for i in range(99)]
        )
    assert drawn[0] == drawn[1]


def test_factors_divide_the_scores_of_their_families():
    config = PointerConfig(
        families=(0, 2, 5),
        gates=GateConfig(family=(0.0,) * 3),
        balance=BalanceConfig(temperature=(1.0, 0.5, 2.0)),
    )
    temperatures = Pointer(config).temperatures
    assert temperatures is not None
    assert temperatures[:8].tolist() == [1.0, 1.0, 0.5, 0.5, 0.5, 2.0, 2.0, 2.0]
    logits, options = np.array([0, -1, -1, -2, 0, 0, -1, 0], np.float32), SamplingOptions(top_p=1)
    allowed, generator = np.arange(8) % 7 > 0, np.random.default_rng(0)
    drawn = [draw(logits, allowed, options, generator, None, Pointer(config)) for _ in range(4000)]
    expected = np.exp((logits - logits[allowed].max()) / temperatures[:8]) * allowed
    found = np.bincount(drawn, minlength=8) / 4000
    assert found == pytest.approx(expected / expected.sum(), abs=0.03)


@pytest.mark.parametrize("rule", [Counted(2), Imposing(True), Imposing(False)])
def test_a_rule_may_impose_names(rule):
    row = Row(0, 1, rule, GREEDY, np.random.default_rng(0), Pointer(CONFIG))
    row.sample(np.zeros(VOCABULARY, np.float32))
    assert row.imposed == getattr(rule, "imposed", False)


def test_an_imposed_unit_is_generated_again():
    gates = GateConfig(similar=(-3.0,) * 26, family=(0.0,) * 3)
    bounds = BalanceConfig(most=-5, most_generated=-5, imposed=8)
    config = replace(CONFIG, names=(2, 4), ignored=(), families=(0, 2, 4), gates=gates)
    config = replace(config, balance=bounds)
    first = [1, 2, 5, 8, 6, 9, 7, 11, 5]
    returns = []
    for imposed in (True, False):
        steps = *((one,) for one in first), (1,), (2,), *(tuple(range(5, 12)),) * 8
        rule = Scripted(steps, imposed)
        request = Request(np.array([0]), rule, range(40))
        made = generated(decoder_with(config), PlainSteps(decoder_with(config)), [request])[0]
        returns.append(np.mean([one[11:] == first[2:] for one in made]))
    assert returns[0] > 0.8
    assert returns[1] < 0.1


def test_warming_up_compiles_the_pointer(monkeypatch):
    calls = []
    monkeypatch.setattr(pointer, "warm_up", lambda: calls.append("pointer"))
    for model, expected in ((PLAIN, []), (POINTING, ["pointer"])):
        for backend in ("compiled", "torch"):
            calls.clear()
            choose_steps(model, backend).warm_up()
            assert calls == expected
    calls.clear()
    compile_all()
    assert calls == ["pointer"]


def test_one_signature_is_compiled():
    pointer.warm_up()
    balance = BalanceConfig(most_generated=-1.0)
    config = PointerConfig(reach=3, unit=0, ignored=((4, 6),), balance=balance)
    other = Pointer(config)
    other.extend(np.arange(6, dtype=np.int32)[::2])
    other.end_prompt()
    other.extend((1, 2))
    frozen = np.zeros((4, 8))[:, ::2][1]
    frozen.setflags(write=False)
    other.mix(frozen, np.array([0, 1], np.int32), 1)
    assert len(kernel._read.signatures) == len(kernel._mix.signatures) == 1
