from __future__ import annotations

import math

import pytest
import torch

from relpe.encodings.offset.t5 import T5Config
from tests.support.offsets_in_pieces import table_of

# relative_position_bucket(-distance, bidirectional=False, num_buckets=32, max_distance=128) of the
# published code (Raffel et al., 2020): the first distance of each bucket after the exact ones
FIRST = [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]


def test_buckets_are_those_of_the_published_code() -> None:
    encoding = T5Config().build(num_heads=2, head_dim=4)
    found = encoding.buckets(torch.arange(500)).tolist()
    assert found[:16] == list(range(16))
    assert [found.index(bucket) for bucket in range(16, 32)] == FIRST
    assert found == sorted(found)


def test_buckets_follow_the_formula() -> None:
    for num_buckets, max_distance in ((8, 20), (32, 128), (2, 9)):
        config = T5Config(num_buckets=num_buckets, max_distance=max_distance)
        buckets = config.build(num_heads=1, head_dim=4).buckets(torch.arange(300)).tolist()
        exact = num_buckets // 2
        for distance, bucket in enumerate(buckets):
            wanted = distance
            if distance >= exact:
                share = math.log(distance / exact) / math.log(max_distance / exact)
                wanted = min(num_buckets - 1, exact + int(share * exact))
            assert bucket == wanted


def test_biases_are_those_of_the_buckets_in_every_layer() -> None:
    encoding = T5Config(num_buckets=4, max_distance=8).build(num_layers=2, num_heads=3, head_dim=4)
    torch.nn.init.normal_(encoding.biases)
    for layer in range(2):
        weights = table_of(encoding, 9, layer).log_weight[:9]
        assert torch.equal(weights, encoding.biases[[0, 1, 2, 2, 3, 3, 3, 3, 3]])


def test_impossible_buckets_are_refused() -> None:
    for name, number in (("num_buckets", 3), ("num_buckets", 0), ("max_distance", 16)):
        with pytest.raises(ValueError, match=f"{name} is {number}, expected"):
            T5Config(**{name: number})  # pyright: ignore[reportArgumentType] - one of several fields
