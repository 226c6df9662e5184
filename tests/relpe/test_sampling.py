from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relpe.decoder import Decoder, DecoderConfig
from relpe.encodings import SineSPEConfig
from relpe.sampling import SamplingOptions, draw, nucleus, prefill, prefill_steps, sample

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "spe.npz", allow_pickle=False)


def test_nucleus_is_that_of_the_original() -> None:
    logits = torch.from_numpy(GOLDEN["nuc_logits"]).double()
    probabilities = (logits / float(GOLDEN["nuc_temp"])).softmax(-1)
    torch.testing.assert_close(
        probabilities, torch.from_numpy(GOLDEN["nuc_probs"]), rtol=1e-6, atol=1e-8
    )
    kept = nucleus(probabilities, float(GOLDEN["nuc_p"]))
    assert sorted(GOLDEN["nuc_candidates"].tolist()) == kept.nonzero()[:, 0].tolist()


@given(
    logits=st.lists(st.floats(-40, 40), min_size=2, max_size=30),
    top_p=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_what_is_drawn_is_allowed_and_likely(logits: list[float], top_p: float, seed: int) -> None:
    values = torch.tensor(logits)
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.rand(len(logits), generator=generator) < 0.6
    allowed[0] = True
    token = draw(values, allowed, SamplingOptions(top_p=top_p), generator)
    assert allowed[token]
    likelier = values.double().masked_fill(~allowed, -torch.inf).softmax(-1)
    assert likelier[likelier > likelier[token]].sum() <= top_p + 1e-9


def test_draws_follow_the_tempered_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, 3.0])
    generator = torch.Generator().manual_seed(0)
    options = SamplingOptions(temperature=2.0, top_p=1.0)
    allowed = torch.tensor([True, True, False, True])
    counts = torch.zeros(4)
    for _ in range(4000):
        counts[draw(logits, allowed, options, generator)] += 1
    wanted = (logits / 2).masked_fill(~allowed, -torch.inf).softmax(-1)
    assert ((counts / 4000 - wanted).abs() < 5 * (wanted * (1 - wanted) / 4000).sqrt() + 1e-9).all()


def test_temperature_zero_takes_the_likeliest() -> None:
    token = draw(
        torch.tensor([5.0, 1.0, 3.0]),
        torch.tensor([False, True, True]),
        SamplingOptions(temperature=0),
        torch.Generator(),
    )
    assert token == 2


class Rising(NamedTuple):
    """Tokens rise, until `last`."""

    last: int
    token: int = -1

    @property
    def allowed(self) -> np.ndarray:
        ids = np.arange(12)
        return (ids > self.token) & (ids <= self.last)

    def advance(self, token: int) -> Rising:
        assert self.allowed[token]
        return self._replace(token=token)


def model() -> Decoder:
    torch.manual_seed(0)
    encoding = SineSPEConfig(num_sines=2, num_realizations=8)
    return (
        DecoderConfig(
            vocabulary_size=12, width=16, num_layers=2, num_heads=2, hidden=24, encoding=encoding
        )
        .build()
        .eval()
    )


def draws(seeds: list[int], lasts: list[int]) -> list[list[int]]:
    decoder = model()
    prompt = torch.arange(8)[None]
    state = prefill(decoder, decoder.init_state(1), prompt[:, :-1]).repeat(len(seeds))
    steps = sample(
        decoder,
        state,
        prompt[:, -1].repeat(len(seeds)),
        7,
        [Rising(last) for last in lasts],
        SamplingOptions(),
        [torch.Generator().manual_seed(seed) for seed in seeds],
    )
    rows: list[list[int]] = [[] for _ in seeds]
    for tokens, _ in steps:
        assert not torch.is_inference_mode_enabled()
        for row, token in zip(rows, tokens.tolist(), strict=True):
            row.append(token)
    return rows


def test_rows_obey_their_rules_and_end_on_their_own() -> None:
    rows = draws([1, 2, 3], [11, 2, 5])
    for row, last in zip(rows, (11, 2, 5), strict=True):
        made = [token for token in row if token >= 0]
        assert made == sorted(set(made))
        assert made[-1] == last
        assert row == made + [-1] * (len(row) - len(made))


def test_a_row_hangs_on_its_own_seed() -> None:
    together = draws([1, 2, 3], [11, 11, 11])
    assert together == draws([1, 2, 3], [11, 11, 11])
    alone = draws([2], [11])[0]
    assert [token for token in together[1] if token >= 0] == alone


def test_a_prompt_is_read_in_chunks_to_the_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, prompt = model(), torch.arange(40)[None] % 12
    whole = prefill(decoder, decoder.init_state(1), prompt)
    monkeypatch.setattr("relpe.sampling.PREFILL_CHUNK", 7)
    chunked = prefill(decoder, decoder.init_state(1), prompt)
    for a, b in zip(whole.layers, chunked.layers, strict=True):
        torch.testing.assert_close(a.operation.sums.kv, b.operation.sums.kv, rtol=1e-4, atol=1e-5)


def test_reading_shows_how_far_it_is_and_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, prompt = model(), torch.arange(40)[None] % 12
    monkeypatch.setattr("relpe.sampling.PREFILL_CHUNK", 16)
    steps = []
    for read, _ in prefill_steps(decoder, decoder.init_state(1), prompt):
        assert not torch.is_inference_mode_enabled()
        steps.append(read)
    assert steps == [16, 32, 40]
    stopped = prefill(decoder, decoder.init_state(1), prompt, stop=lambda: True)
    first = prefill(decoder, decoder.init_state(1), prompt[:, :16])
    torch.testing.assert_close(
        stopped.layers[0].operation.sums.kv, first.layers[0].operation.sums.kv
    )
