"""The queue for a shared resource."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from app.errors import BusyError
from app.server.admission import Bounds, Owner, Queue


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


def test_a_session_can_have_a_number_of_jobs():
    queue = Queue("it", 100, Bounds(of_session=2))
    with ExitStack() as jobs:
        for _ in range(2):
            jobs.enter_context(queue.enter(None, owner=Owner("ada", "page")))
        with pytest.raises(BusyError, match="This page has 2 jobs already"):
            jobs.enter_context(queue.enter(None, owner=Owner("ada", "page")))
        assert jobs.enter_context(queue.enter(None, owner=Owner("ada", "other"))).admitted


def test_a_job_that_was_checked_is_not_refused_later():
    queue: Queue[str] = Queue("jobs", 1, Bounds(waiting=1, of_session=2))
    owner = Owner("ada", "page")
    with queue.enter("first", owner=owner):
        queue.check("second", owner=owner)
        assert queue.counts == (1, 0)
        with queue.enter("other", owner=owner), ExitStack() as jobs:
            with pytest.raises(BusyError, match="2 jobs already"):
                queue.check("second", owner=owner)
            with pytest.raises(BusyError, match="1 waiting"):
                queue.check("second")
            second = jobs.enter_context(queue.enter("second", owner=owner, checked=True))
            assert not second.admitted
            assert queue.counts == (1, 2)


def test_one_user_cannot_take_every_place():
    """Jobs of one address, each as a new session, leave places for another address."""
    queue = Queue("the model", 16, Bounds(waiting=8, waiting_of_user=4))
    with ExitStack() as jobs:

        def enter(user, session):
            return jobs.enter_context(queue.enter(None, 4, Owner(user, session)))

        for number in range(8):
            enter("10.0.0.1", str(number))
        assert queue.counts == (4, 4)
        with pytest.raises(BusyError, match="The queue for the model has 4 jobs of your account"):
            enter("10.0.0.1", "another")
        other = enter("10.0.0.2", "page")
        assert len(queue.ahead_of(other)) == 4  # it is the next one
        for number in range(3):
            enter("", str(number))
        with pytest.raises(BusyError, match="is full: found 4 running and 8 waiting"):
            enter("10.0.0.3", "page")


def test_the_user_who_occupies_the_least_is_next_and_jobs_of_one_keep_their_order():
    queue = Queue("it", 2)
    with ExitStack() as jobs:
        running = [jobs.enter_context(ExitStack()) for _ in range(2)]
        for each in running:
            each.enter_context(queue.enter("ada", owner=Owner("ada", "1")))
        owners = [Owner("ada", "1"), Owner("ada", "1"), Owner("ada", "2"), Owner("bob", "3")]
        waiting = [jobs.enter_context(queue.enter(None, owner=owner)) for owner in owners]
        assert [len(queue.ahead_of(ticket)) for ticket in waiting] == [4, 5, 3, 2]
        running[0].close()
        assert [ticket.admitted for ticket in waiting] == [False, False, False, True]
        running[1].close()
        assert [ticket.admitted for ticket in waiting] == [True, False, False, True]
