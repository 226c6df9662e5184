"""Generation with a pointer: rows are independent, with every kind of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relpe.decoding.base import TokenSteps
from relpe.decoding.batch import RuleT
from relpe.decoding.choose import choose_steps
from relpe.decoding.compiled import CompiledDecoder, compile_all
from relpe.decoding.cuda_graph import TileSteps
from relpe.decoding.eager import PlainSteps
from relpe.decoding.generate import Generation, Request
from relpe.decoding.sampling import SamplingOptions, draw
from relpe.models.decoder import Decoder
from relpe.models.pointer import arithmetic, pointer
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
    Request(np.array([1, 4, 9, 5, 1, 4, 10, 5, 1, 4]), Counted(16), [1, 2, 3]),
    Request(np.tile([1, 2, 3, 8], 9), Counted(9, without=3), [4], HALF),
    Request(np.array([5]), Counted(14), [5, 6], GREEDY),
    Request(np.arange(11), Counted(12), [7], SamplingOptions(memory=0)),
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
WAYS = {
    "plain": PlainSteps,
    "compiled": lambda decoder: CompiledDecoder(decoder).steps(),
    "tiles": lambda decoder: TileSteps(decoder, rows=2),
}


def with_options(options: SamplingOptions) -> list[Request[Counted]]:
    return [Request(one.prompt, one.rule, one.seeds, options) for one in REQUESTS]


@settings(max_examples=5)
@given(
    rows=st.none() | st.integers(1, 5), chunk=st.integers(1, 40), order=st.permutations(range(4))
)
def test_rows_are_independent_and_prompts_may_be_read_in_chunks(rows, chunk, order):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relpe.decoding.eager.PREFILL_CHUNK", chunk)
        made = generated(POINTING, PlainSteps(POINTING), [REQUESTS[i] for i in order], rows)
    assert made == [ALONE[i] for i in order]


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_steps_has_independent_rows_and_a_pointer_unless_memory_is_0(way):
    make = WAYS[way]
    made = generated(POINTING, make(POINTING), REQUESTS)
    assert made == (ALONE if way == "plain" else alone(POINTING, lambda: make(POINTING)))
    without = generated(PLAIN, make(PLAIN), REQUESTS)
    assert made != without
    assert made[3] == without[3]  # its memory is 0


def test_equal_factors_are_a_temperature():
    for memory in (0.0, 0.5):
        made = []
        for factors, temperature in (((), 0.8), ((), 0.8 * 1.25), ((1.25,), 0.8)):
            balance = replace(CONFIG.balance, temperature=factors)
            decoder = decoder_with(replace(CONFIG, balance=balance))
            options = SamplingOptions(temperature=temperature, memory=memory)
            made.append(generated(decoder, PlainSteps(decoder), with_options(options)))
        assert made[0] != made[1] == made[2]


def test_a_confident_pointer_continues_a_repeated_prompt():
    sure = decoder_with(PointerConfig(gates=GateConfig(similar=(30.0,) * 26)))
    request = Request(np.tile([1, 2, 3, 8], 9), Counted(9))
    assert generated(sure, PlainSteps(sure), [request]) == [[[1, 2, 3, 8, 1, 2, 3, 8]]]


def test_draws_follow_the_mixture_the_bias_the_temperature_and_its_factors():
    config = PointerConfig(
        families=(0, 2, 5),
        gates=GateConfig(similar=(0.0,) * 26, family=(0.0,) * 3),
        balance=BalanceConfig(temperature=(1.0, 0.5, 2.0)),
    )
    pair = Pointer(config)
    pair.extend([2, 2])  # proposes 2, with odds of 1
    logits, bias = np.array([0, -1, -1, -2, 0, 0, -1, 0], np.float32), np.linspace(-1, 1, 8)
    allowed, generator = np.arange(8) % 7 > 0, np.random.default_rng(0)
    options = SamplingOptions(temperature=0.8, top_p=1.0)
    drawn = [draw(logits, allowed, options, generator, bias, pair) for _ in range(4000)]
    shares = np.exp(logits[allowed])
    scores = np.log(shares / shares.sum() + np.array([0, 1, 0, 0, 0, 0])) + bias[allowed]
    temperatures = 0.8 * np.array([1, 0.5, 0.5, 0.5, 2, 2])
    expected = np.exp((scores - scores.max()) / temperatures)
    found = np.bincount(drawn, minlength=8)[allowed] / 4000
    assert found == pytest.approx(expected / expected.sum(), abs=0.02)


def test_invalid_logits_are_an_error_with_a_pointer_too():
    pair = Pointer(CONFIG)
    pair.extend([2, 2])
    allowed, generator = np.ones(3, bool), np.random.default_rng(0)
    for logits in ([0, np.nan, 1], [np.inf, 0, 0]):
        with pytest.raises(ValueError, match="not finite"):
            draw(np.array(logits, np.float32), allowed, SamplingOptions(), generator, pointer=pair)


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
        request = Request(np.array([0]), rule, range(12))
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
    functions: list[Any] = [arithmetic.read, arithmetic.mix]
    assert [len(function.signatures) for function in functions] == [1, 1]
