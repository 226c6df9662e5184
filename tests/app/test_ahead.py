from __future__ import annotations

import threading
import time

import pytest

from app.ahead import newest


def never() -> bool:
    return False


def test_the_last_one_always_comes_and_they_come_in_order():
    for count in (1, 2, 1000):
        seen = list(newest(lambda _, n=count: iter(range(n)), never))
        assert seen == sorted(set(seen))
        assert seen[-1] == count - 1
    assert list(newest(lambda _: iter(()), never)) == []


def test_work_goes_on_while_its_results_are_shown():
    shown, done = threading.Event(), threading.Event()

    def work(_):
        yield 0
        shown.wait(10)
        yield from range(1, 101)
        done.set()

    results = newest(work, never)
    assert next(results) == 0
    shown.set()
    assert done.wait(10)  # nobody has asked for a second one
    assert list(results)[-1] == 100


def test_closing_ends_the_work():
    ended = threading.Event()

    def work(stopped):
        try:
            while not stopped():
                time.sleep(0.001)
                yield 0
        finally:
            ended.set()

    results = newest(work, never)
    next(results)
    results.close()
    assert ended.is_set()


def test_stop_reaches_the_work():
    stop = threading.Event()

    def work(stopped):
        while not stopped():
            yield "more"
            stop.set()
        yield "end"

    assert list(newest(work, stop.is_set))[-1] == "end"


def test_what_goes_wrong_is_raised_behind_what_was_made():
    def work(_):
        yield 1
        raise ValueError("broken")

    results = newest(work, never)
    assert next(results) == 1
    with pytest.raises(ValueError, match="broken"):
        next(results)
