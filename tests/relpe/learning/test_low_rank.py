from __future__ import annotations

import copy

import pytest
import torch

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.encodings import NoEncodingConfig
from relpe.encodings.rope import RopeConfig
from relpe.learning.low_rank import RANK, LowRankLinear, add_corrections, merge_corrections
from relpe.models.decoder import DecoderConfig
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig

CONFIG = DecoderConfig(
    vocabulary_size=32,
    width=64,
    num_layers=3,
    num_heads=2,
    hidden=64,
    encoding=RopeConfig(),
    layers=(
        LayerConfig(encoding=NoEncodingConfig()),
        LayerConfig(attention=DeltaAttentionConfig()),
        LayerConfig(attention=WindowedAttentionConfig(span=8)),
    ),
    events=EventsConfig(closing=((20, 32),), hidden=64),
)


def logits(decoder, tokens):
    positions = torch.arange(tokens.shape[1])[None, :, None]
    return decoder(tokens, positions, decoder.init_state(len(tokens)))[0]


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    return CONFIG.build().eval()


def test_corrections_of_low_rank_change_nothing_at_first_and_are_merged_exactly(decoder):
    tokens = torch.randint(0, 32, (2, 12))
    first = copy.deepcopy(decoder)
    learned = add_corrections(decoder)
    assert any(isinstance(module, LowRankLinear) for module in decoder.modules())
    with torch.no_grad():
        assert torch.equal(logits(decoder, tokens), logits(first, tokens))
        for parameter in learned:
            parameter.add_(0.02 * torch.randn_like(parameter))
        corrected = logits(decoder, tokens)
    merge_corrections(decoder)
    assert decoder.state_dict().keys() == first.state_dict().keys()
    assert not any(parameter.requires_grad for parameter in decoder.parameters())
    assert torch.allclose(logits(decoder, tokens), corrected, atol=1e-4)
    assert not torch.allclose(corrected, logits(first, tokens), atol=1e-2)
    changed = 0
    for name, weight in decoder.state_dict().items():
        change = weight - first.state_dict()[name]
        if weight.ndim == 2 and "project" in name:
            assert torch.linalg.matrix_rank(change, rtol=1e-4) <= RANK
            changed += 1
        if "embedding" in name:
            assert not change.any()
    assert changed


def test_few_parameters_learn_and_all_of_them_have_gradients(decoder):
    total = sum(parameter.numel() for parameter in decoder.parameters())
    learned = {id(one): one.numel() for one in add_corrections(decoder)}
    assert sum(learned.values()) < total
    assert learned.keys() == {id(one) for one in decoder.parameters() if one.requires_grad}
    logits(decoder, torch.randint(0, 32, (2, 12))).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
