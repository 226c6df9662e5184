import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from app.audio.synth.cache import ToneCache


@given(sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60000)), max_size=40))
def test_a_cache_returns_the_requested_items_within_its_limit(sizes):
    cache = ToneCache(max_bytes=1 << 20)
    for key, count in sizes:
        found = cache.get(key, count, lambda n, key=key: np.full(n, key, dtype=np.float32))
        assert len(found) >= count
        assert np.all(found == key)
        assert cache.num_bytes <= cache.max_bytes
    # a finished array is made only once
    cache, calls = ToneCache(), []

    def make(count):
        calls.append(count)
        return np.zeros(min(count, 100), dtype=np.float32)

    assert len(cache.get("short", 50, make)) == 100
    assert len(cache.get("short", 10**6, make)) == 100
    assert len(calls) == 1
