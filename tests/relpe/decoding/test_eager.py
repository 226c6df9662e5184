"""Prompts are read in chunks, and plain steps compute the same logits as the decoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relpe.decoding.eager import PlainSteps, prefill, prefill_steps
from relpe.encodings import SineSPEConfig
from tests.support.decoders import big_decoder, decoder, logits_of, small_decoder


def test_reading_in_chunks_reports_progress_and_gives_the_same_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, prompt = small_decoder(), torch.arange(40)[None] % 12
    whole = [prefill(model, model.init_state(1), prompt[:, :end]) for end in (16, 32, 40)]
    monkeypatch.setattr("relpe.decoding.eager.PREFILL_CHUNK", 16)
    ends = []
    for (read, state), expected in zip(
        prefill_steps(model, model.init_state(1), prompt), whole, strict=True
    ):
        assert not torch.is_inference_mode_enabled()
        ends.append(read)
        for a, b in zip(state.layers, expected.layers, strict=True):
            torch.testing.assert_close(
                a.operation.sums.kv, b.operation.sums.kv, rtol=1e-4, atol=1e-5
            )
    assert ends == [16, 32, 40]


@pytest.mark.parametrize("name", ["sine relu", "algebraic windowed", "rope softmax"])
def test_plain_steps_match_the_decoder(name):
    model, tokens = decoder(name), torch.randint(11, (20,))
    steps = PlainSteps(model)
    first = steps.admit(prefill(model, model.init_state(1), tokens[None, :5]), 5)
    others = [steps.fork(first) for _ in range(3)]
    wanted = logits_of(model, tokens, 0)
    for place in range(5, 12):
        made = steps.step([first, *others], tokens[place].expand(4).tolist())
        np.testing.assert_allclose(made, wanted[place][None].repeat(4, 0), atol=1e-5, rtol=1e-4)
    steps.release(others[1])
    made = steps.step(
        [others[2], first], [int(tokens[12])] * 2
    )  # the remaining row is not advanced
    np.testing.assert_allclose(made[1], wanted[12], atol=1e-5, rtol=1e-4)
    made = steps.step([others[0]], [int(tokens[12])])
    np.testing.assert_allclose(made[0], wanted[12], atol=1e-5, rtol=1e-4)
    made = steps.step([first, others[0], others[2]], [int(tokens[13])] * 3)
    np.testing.assert_allclose(made, wanted[13][None].repeat(3, 0), atol=1e-5, rtol=1e-4)


def test_rows_of_plain_steps_equal_rows_alone():
    model = big_decoder(encoding=SineSPEConfig(num_realizations=24))
    steps = PlainSteps(model)
    slot = steps.admit(model.init_state(1), 0)
    slots = [slot, *(steps.fork(slot) for _ in range(6))]
    alone = PlainSteps(model)
    single = alone.admit(model.init_state(1), 0)
    for token in range(20):
        assert (steps.step(slots, [token] * 7) == alone.step([single], [token])).all()
