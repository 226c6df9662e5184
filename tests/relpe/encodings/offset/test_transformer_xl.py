from __future__ import annotations

import pytest
import torch

from relpe.encodings.offset.transformer_xl import TransformerXLConfig
from tests.support.golden_siren import golden
from tests.support.offsets_in_pieces import table_of


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_features_of_the_baseline_match_the_original(dtype: torch.dtype) -> None:
    length = int(golden("baseline/structure_size")[0])
    config = TransformerXLConfig(num_sinusoids=6, origin=length - 1)
    encoding = config.build(num_layers=1, num_heads=2, head_dim=4).to(dtype)
    (network,) = encoding.networks[0]  # type: ignore[misc]
    with torch.no_grad():
        network.project.weight.copy_(golden("baseline/W"))
        network.project.bias.copy_(golden("baseline/b"))
        offsets = torch.arange(1 - length, length, dtype=torch.float64)[:, None]
        features = encoding.features([offsets], 0)
    assert features is not None
    found = features.flatten(1)
    atol, rtol = (1e-9, 0) if dtype == torch.float64 else (2e-5, 1e-4)
    expected = golden("baseline/E").to(dtype)
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)
    crop = golden("baseline/E_crop9").to(dtype)
    torch.testing.assert_close(found[length - 5 : length + 4], crop, atol=atol, rtol=rtol)


def test_features_of_the_baseline_do_not_depend_on_length_by_default() -> None:
    encoding = TransformerXLConfig(num_sinusoids=6).build(num_layers=2, num_heads=2, head_dim=4)
    short, long = (table_of(encoding, n).features for n in (10, 30))
    assert short is not None
    assert long is not None
    torch.testing.assert_close(short, long[:10])
