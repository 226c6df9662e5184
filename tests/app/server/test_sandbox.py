"""Calls in a subprocess: results, errors and limits."""

from __future__ import annotations

import operator
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

from app.errors import BusyError
from app.server import sandbox
from app.server.sandbox import LimitError, Sandbox
from tests.support.waiting import until
from tokenization.errors import MidiError
from tokenization.midi import read_midi

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are the system's")


def calling(seconds: float = 60.0, max_bytes: int = sandbox.MAX_BYTES) -> closing[Sandbox]:
    return closing(Sandbox(seconds, max_bytes))


@pytest.fixture(scope="module")
def called():
    with calling() as made:
        yield made


def ended(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_calls_return_the_result_of_the_function_or_its_error_and_reuse_one_process(called):
    assert called.call(pow, 2, 10, mod=7) == pow(2, 10, mod=7)
    pid = called.call(os.getpid)
    assert pid != os.getpid()
    assert called.call(print, "what is printed is no answer", flush=True) is None
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        called.call(operator.truediv, 1, 0)
    with pytest.raises(MidiError, match=r"^song\.mid: the file is empty, expected a MIDI file"):
        called.call(read_midi, b"", name="song.mid")
    with pytest.raises(UnicodeDecodeError):
        called.call(bytes.decode, b"\xff")
    assert called.call(os.getpid) == pid
    # nothing of this process: neither its modules nor its script
    assert called.call(eval, "{'torch', 'pytest'} & {*__import__('sys').modules}") == set()
    assert called.call(eval, "getattr(__import__('__main__'), '__file__', None)") is None


def test_a_call_that_takes_too_long_is_ended_and_the_process_replaced():
    with calling() as called:
        pid = called.call(os.getpid)
        called.seconds = 0.1
        with pytest.raises(LimitError, match=r"^takes over 0.1 s$"):
            called.call(time.sleep, 600)
        called.seconds = 60.0
        until(lambda: ended(pid))
        after = called.call(os.getpid)
        assert after not in (pid, os.getpid())
    until(lambda: ended(after))  # with the page


@LINUX
def test_a_call_that_takes_too_much_memory_is_ended_and_the_process_replaced():
    with calling(max_bytes=300 << 20) as called:
        pid = called.call(os.getpid)
        assert len(called.call(bytes, 20 << 20)) == 20 << 20
        with pytest.raises(LimitError, match=r"^takes over 300 MB of memory$"):
            called.call(bytes, 300 << 20)
        until(lambda: ended(pid))
        assert called.call(len, b"abc") == 3


def test_a_process_that_dies_is_reported_and_replaced(called):
    with pytest.raises(LimitError, match=r"^crashes the process that reads it$"):
        called.call(os._exit, 3)
    pid = called.call(os.getpid)
    os.kill(pid, signal.SIGKILL)  # as a system short of memory may do between two calls
    until(lambda: not any(worker.alive for worker in called._idle))
    assert called.call(os.getpid) not in (pid, os.getpid())


def test_a_long_call_does_not_delay_others_unless_too_many_wait():
    with ThreadPoolExecutor(10) as threads, calling() as called:
        calls = [threads.submit(called.call, time.sleep, 600)]
        until(lambda: called._queue.counts == (1, 0))
        assert called.call(abs, -2) == 2
        assert not calls[0].done()
        calls += [threads.submit(called.call, time.sleep, 600) for _ in range(9)]
        until(lambda: called._queue.counts == (2, 8))
        with pytest.raises(BusyError, match=r"is full: found 2 running and 8 waiting jobs"):
            called.call(abs, -1)
        called.close()
        for call in calls:
            with suppress(LimitError, BusyError):  # it may not have begun
                call.result(30)


def test_without_subprocesses_calls_run_in_this_process(monkeypatch, caplog):
    for python in ("", "/nowhere/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", python)
        with calling() as called:
            called.warm_up()
            assert [called.call(os.getpid) for _ in range(2)] == [os.getpid()] * 2
        (record,) = caplog.records
        assert record.getMessage().startswith("files are read without limits of time and memory: ")
        caplog.clear()
