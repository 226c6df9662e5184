"""Reading a prompt; steps of one token are tested with those that are compiled."""

from __future__ import annotations

import pytest
import torch

from relpe.decoding.eager import prefill, prefill_steps
from tests.support.decoders import small_decoder


def test_a_prompt_is_read_in_chunks_to_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, prompt = small_decoder(), torch.arange(40)[None] % 12
    whole = prefill(decoder, decoder.init_state(1), prompt)
    monkeypatch.setattr("relpe.decoding.eager.PREFILL_CHUNK", 7)
    chunked = prefill(decoder, decoder.init_state(1), prompt)
    for a, b in zip(whole.layers, chunked.layers, strict=True):
        torch.testing.assert_close(a.operation.sums.kv, b.operation.sums.kv, rtol=1e-4, atol=1e-5)


def test_reading_shows_how_far_it_is_and_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, prompt = small_decoder(), torch.arange(40)[None] % 12
    monkeypatch.setattr("relpe.decoding.eager.PREFILL_CHUNK", 16)
    steps = []
    for read, state in prefill_steps(decoder, decoder.init_state(1), prompt):
        assert not torch.is_inference_mode_enabled()
        steps.append((read, state))
    assert [read for read, _ in steps] == [16, 32, 40]
    first = prefill(decoder, decoder.init_state(1), prompt[:, :16])
    torch.testing.assert_close(
        steps[0][1].layers[0].operation.sums.kv, first.layers[0].operation.sums.kv
    )
