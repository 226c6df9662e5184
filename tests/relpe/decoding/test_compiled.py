"""Compiled steps agree with the decoder, row by row, independent of the other rows."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numba.core.event import trigger_event

from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.decoding import position_codes
from relpe.decoding.choose import choose_steps, why_not_compiled
from relpe.decoding.compiled import CompiledDecoder
from relpe.decoding.eager import PlainSteps, prefill
from relpe.decoding.generate import Generation, Request
from relpe.decoding.kernels import LARGEST_WEIGHT, exp, narrowed
from relpe.encodings import AlgebraicConfig, ConvSPEConfig, LearnedPositionConfig, SineSPEConfig
from relpe.encodings.algebraic.structures import GridStructure
from relpe.encodings.stochastic import noise_products
from relpe.models.decoder import Decoder
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig
from tests.support.decoders import (
    CONFIGS,
    EVENTS,
    FAVOR,
    ROPE,
    SHORT,
    big_decoder,
    decoder,
    entry,
    logits_of,
    parameters,
)
from tests.support.paths import ROOT

REFUSED = [name for name in CONFIGS if why_not_compiled(decoder(name)) is not None]
COMPILED = [name for name in CONFIGS if name not in REFUSED]
MORE = {
    "rope favor": entry(ROPE, FAVOR),
    "rope windowed": entry(ROPE, SHORT),
    "algebraic windowed, basis": entry(AlgebraicConfig(basis=True), SHORT),
    "learned relu": entry(LearnedPositionConfig(num_positions=1000)),
}


@pytest.fixture(autouse=True)
def _more(monkeypatch):
    for name, changes in MORE.items():
        monkeypatch.setitem(CONFIGS, name, changes)


def test_all_but_softmax_attention_and_scores_of_offsets_is_compiled():
    """Rotations in the numerator and moves by inputs are not, either."""
    kinds = ("softmax", "siren windowed", "alibi", "kerple", "transformer")
    for name in CONFIGS:
        words = (*kinds, "numerator", "selective")
        assert (name in REFUSED) == any(word in name for word in words), name


def stepped(steps, model: Decoder, tokens: torch.Tensor, prompt: int, start: int = 0) -> np.ndarray:
    """Logits (l - prompt, v) computed by steps, after a prompt that the decoder has read."""
    state = prefill(model, model.init_state(1), tokens[None, :prompt], start)
    slot = steps.admit(state, start + prompt)
    made = [steps.step([slot], [token])[0] for token in tokens[prompt:].tolist()]
    steps.release(slot)
    return np.stack(made)


@pytest.mark.parametrize("name", [*parameters(COMPILED), *MORE])
def test_steps_match_the_decoder(name):
    model, tokens = decoder(name), torch.randint(11, (90,))
    wanted = logits_of(model, tokens, 0)
    compiled = CompiledDecoder(model, "float32")
    for prompt in (0, 1, 37) if name in ("sine relu", "algebraic delta") else (37,):
        made = stepped(compiled.steps(), model, tokens, prompt)
        np.testing.assert_allclose(made, wanted[prompt:], atol=2e-5, rtol=1e-4)
    rounded = stepped(CompiledDecoder(model, "int8").steps(), model, tokens, 0)
    for key, weight in model.named_parameters():
        if weight.dim() == 2 and "project" in key:
            scale = weight.data.abs().amax(1, keepdim=True) / LARGEST_WEIGHT
            weight.data = (weight.data / scale).round() * scale
    np.testing.assert_allclose(rounded, logits_of(model, tokens, 0), atol=2e-3, rtol=2e-2)


def test_a_learned_basis_is_not_taken_for_rotations_of_pairs():
    model, tokens = decoder("algebraic windowed, basis"), torch.randint(11, (40,))
    for weight in model.encoding.parameters():
        weight.data += torch.randn_like(weight) / 2
    assert model.encoding.partners is None
    made = stepped(CompiledDecoder(model, "float32").steps(), model, tokens, 0)
    np.testing.assert_allclose(made, logits_of(model, tokens, 0), atol=2e-5, rtol=1e-4)


def test_far_positions_are_equally_exact():
    for name in ("sine relu, fading", "conv relu", "algebraic windowed"):
        model, tokens = decoder(name), torch.randint(11, (70,))
        made = stepped(CompiledDecoder(model, "float32").steps(), model, tokens, 5, 10**6)
        wanted = logits_of(model, tokens, 10**6)[5:]
        np.testing.assert_allclose(made, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize(
    "changes",
    [
        {"encoding": SineSPEConfig(num_realizations=24)},
        {"encoding": AlgebraicConfig(), "attention": WindowedAttentionConfig(span=13)},
        {
            "encoding": SineSPEConfig(num_realizations=24),
            "layers": (
                LayerConfig(),
                LayerConfig(attention=WindowedAttentionConfig(span=13), encoding=AlgebraicConfig()),
            ),
            "events": EventsConfig(closing=((30, 60),), hidden=101),
        },
    ],
)
def test_rows_are_independent(precision, changes):
    model = big_decoder(**changes)
    compiled = CompiledDecoder(model, precision)
    sequences = torch.randint(97, (32, 40)).tolist()
    starts = [int(x) for x in torch.randint(400, (32,))]
    alone = []
    for tokens, start in zip(sequences, starts, strict=True):
        steps = compiled.steps()
        slot = steps.admit(model.init_state(1), start)
        alone.append([steps.step([slot], [token])[0] for token in tokens])
    for threads, rows in itertools.product((1, 2), (1, 3, 4, 32)):
        steps = compiled.steps(threads)
        slots = [steps.admit(model.init_state(1), starts[row]) for row in range(rows)]
        for place in range(40):
            # in a different order each time, and not all rows in each step
            order = np.random.default_rng(place).permutation(rows).tolist()
            for part in (order[: rows // 2], order[rows // 2 :]):
                if not part:
                    continue
                made = steps.step([slots[r] for r in part], [sequences[r][place] for r in part])
                for row, logits in zip(part, made, strict=True):
                    assert (logits == alone[row][place]).all()


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_rings_after_a_prompt_equal_those_that_steps_write(precision):
    """The sizes of the model are not multiples of the groups."""
    model = big_decoder(encoding=AlgebraicConfig(), attention=WindowedAttentionConfig(span=13))
    steps, tokens = CompiledDecoder(model, precision).steps(), torch.randint(97, (11,))
    stepped_to = steps.admit(model.init_state(1), 0)
    for token in tokens.tolist():
        steps.step([stepped_to], [token])
    read = steps.admit(prefill(model, model.init_state(1), tokens[None]), 11)
    keys, values, scales = (array[[stepped_to, read]] for array in steps._memory[-3:])
    assert scales.shape[-1] == 16
    if precision == "int8":
        np.testing.assert_allclose(scales[0], scales[1], rtol=0.03)
        for ring in (keys, values):
            assert np.abs(ring[0].astype(int) - ring[1]).max() <= 6
            assert np.abs(ring).max() == LARGEST_WEIGHT
    else:
        for ring in (keys, values):
            np.testing.assert_allclose(ring[0], ring[1], atol=1e-4, rtol=1e-4)
            assert np.abs(ring).max() > 1


def test_slots_are_forked_and_reused():
    model = big_decoder(encoding=AlgebraicConfig(), attention=WindowedAttentionConfig(span=13))
    steps = CompiledDecoder(model).steps()
    fresh = stepped(steps, model, torch.arange(30), 10)
    slot = steps.admit(prefill(model, model.init_state(1), torch.arange(10)[None]), 10)
    for token in range(10, 20):
        steps.step([slot], [token])
    copy = steps.fork(slot)
    steps.step([slot], [50])  # does not affect the copy
    made = [steps.step([copy], [token])[0] for token in range(20, 30)]
    assert (made[-1] == fresh[-1]).all()
    held = len(steps._positions)
    for used in (slot, copy):
        steps.release(used)
    for _ in range(5):
        assert (stepped(steps, model, torch.arange(30), 10) == fresh).all()
    assert len(steps._positions) == held


def test_positions_beyond_the_cached_codes_are_correct(monkeypatch):
    model = big_decoder(encoding=ConvSPEConfig(taps=(9,), num_realizations=8))
    compiled = CompiledDecoder(model)

    def written() -> np.ndarray:
        steps = compiled.steps()
        slots = [steps.admit(model.init_state(1), 100 * row) for row in range(7)]
        return np.stack([steps.step(slots, [place] * 7) for place in range(40)])

    many = written()
    monkeypatch.setattr(position_codes, "CODE_BYTES", 2 * 32 * 2 * 2 * 34 * 8 * 4)
    assert (written() == many).all()


def test_unsupported_models_are_refused():
    for name in ("rope softmax", "siren windowed", "events: selective rope delta, windowed"):
        model = decoder(name)
        with pytest.raises(ValueError, match="cannot be compiled"):
            CompiledDecoder(model)
        with pytest.raises(ValueError, match="use the backend torch"):
            choose_steps(model, "compiled")
        chosen = choose_steps(model)
        assert chosen.name == "torch float32"
        assert chosen.fell_back
        assert isinstance(chosen.make(), PlainSteps)


def test_exponentials():
    x = np.concatenate([np.linspace(-86.9, 87.9, 20_001), [0.0, -0.0, -1e-30]]).astype(np.float32)
    made = np.array([exp(value) for value in x], np.float64)
    np.testing.assert_allclose(made, np.exp(x.astype(np.float64)), rtol=2.5e-7)
    assert exp(np.float32(0.0)) == 1
    assert exp(np.float32(-88.0)) == 0
    assert exp(np.float32(-np.inf)) == 0
    assert np.isfinite(exp(np.float32(1e30)))


@pytest.mark.parametrize("size", [1, 7, 704, 100_000])
def test_integer_sums_fit_into_32_bits(size):
    x = np.random.default_rng(0).normal(size=size).astype(np.float32)
    x[:] = np.sign(x)  # all have the maximum magnitude
    whole = np.empty(size, np.int16)
    step = narrowed(x, whole)
    np.testing.assert_allclose(whole * step, x, rtol=1e-6)
    assert np.abs(whole.astype(np.int64)).sum() * LARGEST_WEIGHT < 2**31
    assert narrowed(np.zeros(size, np.float32), whole) == 0
    assert not whole.any()
    whole[:] = 1
    x[0] = np.nan
    assert np.isnan(narrowed(x, whole))


def test_ids_beyond_the_vocabulary_and_slots_that_are_not_in_use_are_refused():
    model = decoder("sine relu")
    steps = CompiledDecoder(model).steps()
    slot = steps.admit(model.init_state(1), 0)
    for token in (-1, 11):
        with pytest.raises(ValueError, match="expected 0 to 10"):
            steps.step([slot], [token])
    for wrong in ([slot, slot], [slot + 1], [-1]):
        with pytest.raises(ValueError, match="in use"):
            steps.step(wrong, [1] * len(wrong))
    steps.release(slot)
    for misuse in (steps.release, steps.fork):
        with pytest.raises(ValueError, match="in use"):
            misuse(slot)


def logits_of_a_process(folder, **variables: str) -> np.ndarray:
    """Logits of the released model piano, computed in another process."""
    code = (
        "import sys, numpy as np, torch; from relpe.decoding.compiled import CompiledDecoder;"
        "from relpe.models.checkpoint import find_checkpoint, load_model;"
        "model = load_model(find_checkpoint('piano'), 'cpu'); torch.manual_seed(5);"
        "steps = CompiledDecoder(model).steps(); slot = steps.admit(model.init_state(1), 0);"
        "tokens = torch.randint(model.config.vocabulary_size, (400,)).tolist();"
        "np.save('made.npy', [steps.step([slot], [token])[0] for token in tokens])"
    )
    folder.mkdir(exist_ok=True)
    environment = {"NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True)
    return np.load(folder / "made.npy")


@pytest.mark.slow
def test_processors_without_avx2_and_later_processes_have_the_same_numbers(tmp_path):
    first = logits_of_a_process(tmp_path / "host")
    np.testing.assert_array_equal(logits_of_a_process(tmp_path / "host"), first)
    variables = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    other = logits_of_a_process(tmp_path / "generic", **variables)
    np.testing.assert_allclose(other, first, atol=1e-3, rtol=1e-3)


def test_steps_that_are_not_cached_are_compiled_by_another_process(monkeypatch):
    model = decoder("sine relu")
    made, commands = CompiledDecoder(model).steps(), []
    step = made._step

    class Uncached:
        """The step, as if it had not been compiled yet."""

        signatures = ()

        def compile(self, signature: object) -> None:
            assert step.signatures == [signature]  # the only one, also of calls
            if not commands:
                with trigger_event("numba:compile", {"dispatcher": self}):
                    pytest.fail("compiled in this process")

        def __call__(self, *given: object) -> None:
            step(*given)

    expected = made.step([made.admit(model.init_state(1), 0)], [3])
    monkeypatch.setattr(made, "_step", Uncached())
    monkeypatch.setattr("subprocess.run", lambda command, **_: commands.append(command))
    found = made.step([made.admit(model.init_state(1), 0)], [3])
    np.testing.assert_array_equal(found, expected)
    assert len(commands) == 1
    assert "compile_steps('int8')" in commands[0][-1]


class Places(NamedTuple):
    """Coordinates for tests: the number of tokens 7 so far, and the tokens since the last one."""

    sevens: int = -2
    since: int = 0

    def read(self, ids: np.ndarray) -> tuple[np.ndarray, Places]:
        found, (sevens, since) = np.zeros((len(ids), 2), np.int64), self
        for row, token in zip(found, ids.tolist(), strict=True):
            sevens, since = (sevens + 1, 0) if token == 7 else (sevens, since + 1)
            row[:] = sevens, since
        return found, Places(sevens, since)


class Anything(NamedTuple):
    """A rule that allows all tokens."""

    allowed: np.ndarray

    def advance(self, token: int) -> Anything:
        return self


@pytest.mark.parametrize(
    ("encoding", "events"),
    [
        (AlgebraicConfig(structure=GridStructure()), None),
        (AlgebraicConfig(structure=GridStructure()), EVENTS),
        (ConvSPEConfig(taps=(3, 3), num_realizations=6), None),
    ],
)
def test_layers_read_coordinates(encoding, events, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(noise_products, "SHARED_CODE_BYTES", 0)  # as if codes were large
    attention = WindowedAttentionConfig(span=13)
    windowed = LayerConfig(attention=attention, encoding=encoding, axes=(1, 2))
    layers = (LayerConfig(), windowed)
    model = decoder("sine relu").config
    model = replace(model, layers=layers, events=events).build().eval()
    assert model.num_axes == 3
    tokens = torch.randint(11, (90,))
    others, _ = Places().read(tokens.numpy())
    places = torch.cat([torch.arange(90)[:, None], torch.from_numpy(others)], 1)[None]
    with torch.no_grad():
        expected, _ = model(tokens[None], places, model.init_state(1))
        _, state = model(tokens[None, :20], places[:, :20], model.init_state(1))
    for steps in (CompiledDecoder(model, "float32").steps(), PlainSteps(model)):
        slot = steps.admit(state, 20)
        made = [steps.step([slot], [int(tokens[i])], others[i : i + 1])[0] for i in range(20, 90)]
        np.testing.assert_allclose(made, expected[0, 20:], atol=2e-5, rtol=1e-4)
        with pytest.raises(ValueError, match="have 1 axes, but the model reads 3"):
            steps.step([slot], [0])
    rule = Anything(np.ones(11, bool))
    samples = []
    for maker in (choose_steps(model, "compiled", "float32"), choose_steps(model, "torch")):
        generation: Generation[Anything] = Generation(model, maker.make())
        [sample] = generation.add(Request(tokens[:30].numpy(), rule, coordinates=Places()))
        while len(sample.tokens) < 40:
            generation.step()
        samples.append(sample.tokens)
    assert samples[0] == samples[1]
