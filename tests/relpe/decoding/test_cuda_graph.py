"""Steps of rows in tiles; on CPUs, these run without a CUDA graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relpe.decoding.choose import choose_steps
from relpe.decoding.cuda_graph import TileSteps, why_not_tiled
from relpe.decoding.eager import PlainSteps, prefill
from relpe.encodings import ConvSPEConfig
from relpe.models.decoder import DecoderConfig
from tests.support.decoders import decoder, tokens_of

NAMES = ["sine favor, fading", "sine relu, layers of their own", "algebraic windowed"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_at_different_positions_equal_rows_alone(name: str) -> None:
    """Two tiles of three rows: some rows wait, end or enter while others continue."""
    model, tokens = decoder(name), tokens_of(60)[0].tolist()
    tiles, plain = TileSteps(model, rows=3), PlainSteps(model)
    slots: dict[int, int] = {}

    def enter(length: int) -> None:
        prompt = torch.tensor([tokens[:length]])
        state = prefill(model, model.init_state(1), prompt) if length else model.init_state(1)
        slots[tiles.admit(state, length)] = plain.admit(state, length)

    def step(chosen: list[int], at: int) -> None:
        ids = [tokens[at + row] for row in range(len(chosen))]
        made = tiles.step(chosen, ids)
        wanted = plain.step([slots[slot] for slot in chosen], ids)
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=2e-5)

    for length in (0, 3, 1, 30):
        enter(length)
    for at in range(5):
        step([*slots], at)
    step([3, 0], 7)
    step([1, 2], 11)
    forked = tiles.fork(3)
    slots[forked] = plain.fork(slots[3])
    for at in range(20, 26):
        step([*slots], at)
    tiles.release(1)
    plain.release(slots.pop(1))
    enter(12)
    assert set(slots) == {0, 1, 2, 3, 4}
    for at in range(30, 36):
        step([*slots], at)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_independent_bit_for_bit(name: str) -> None:
    model, tokens = decoder(name), tokens_of(6)[0].tolist()

    def steps(*others: int) -> list[np.ndarray]:
        """Logits of a row that begins at 17, beside others; always row 0, which matters on CPUs."""
        tiles = TileSteps(model, rows=32)
        slots = [tiles.admit(model.init_state(1), place) for place in (17, *others)]
        beside = [9] * len(others)
        return [tiles.step(slots, [token, *beside])[0] for token in tokens]

    alone = steps()
    for others in ((0, 300), (17, 40, 1000), tuple(range(31))):
        np.testing.assert_array_equal(steps(*others), alone)


def test_invalid_arguments_are_refused() -> None:
    assert why_not_tiled(decoder("rope softmax"))
    model = DecoderConfig(width=16, num_heads=2, encoding=ConvSPEConfig()).build()
    with pytest.raises(ValueError, match=r"conv_spe has no codes .* use PlainSteps"):
        TileSteps(model)
    steps = TileSteps(decoder("sine relu"))
    slot = steps.admit(decoder("sine relu").init_state(1), 0)
    for wrong in ([slot, slot], [slot + 1]):
        with pytest.raises(ValueError, match="in use"):
            steps.step(wrong, [1] * len(wrong))


def test_tiles_are_not_chosen_on_cpus() -> None:
    assert choose_steps(decoder("sine relu"), "torch").name == "torch float32"
    assert TileSteps(decoder("sine relu")).name == "torch float32 in tiles of 256 on cpu"
