"""The queue for a shared resource."""

from __future__ import annotations

from app.server.admission import Queue


def test_a_job_larger_than_the_capacity_is_admitted_alone():
    queue = Queue("it", 2)
    with queue.enter("large", 5) as large:
        assert large.admitted
        with queue.enter("small", 1) as small:
            assert not small.admitted
            assert queue.ahead_of(small) == [large]
            assert queue.counts == (1, 1)
            assert not queue.wait(small, 0.01)
    assert queue.counts == (0, 0)
