"""Calls in a subprocess: results, errors and limits."""

from __future__ import annotations

import operator
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from app.errors import BusyError
from app.server import sandbox
from app.server.sandbox import LimitError, Sandbox
from tokenization.errors import MidiError
from tokenization.midi import read_midi

if TYPE_CHECKING:
    from collections.abc import Iterator

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are the system's")


def calling(seconds: float = 60.0, max_bytes: int = sandbox.MAX_BYTES) -> closing[Sandbox]:
    return closing(Sandbox(seconds, max_bytes))


@pytest.fixture(scope="module")
def called() -> Iterator[Sandbox]:
    with calling() as made:
        yield made


def ended(pid: int) -> bool:
    """Whether a process ends within a moment."""
    for _ in range(1000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_calls_return_the_result_of_the_function_and_reuse_one_process(called):
    assert called.call(pow, 2, 10, mod=7) == pow(2, 10, mod=7)
    pid = called.call(os.getpid)
    assert pid != os.getpid()
    assert called.call(print, "what is printed is no answer", flush=True) is None
    assert called.call(os.getpid) == pid


def test_an_error_of_the_function_is_raised_and_the_process_continues(called):
    pid = called.call(os.getpid)
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        called.call(operator.truediv, 1, 0)
    with pytest.raises(MidiError, match=r"^song\.mid: the file is empty, expected a MIDI file"):
        called.call(read_midi, b"", name="song.mid")
    with pytest.raises(UnicodeDecodeError):
        called.call(bytes.decode, b"\xff")
    assert called.call(os.getpid) == pid


def test_a_call_that_takes_too_long_is_ended_and_the_process_replaced():
    with calling(1.0) as called:
        pid = called.call(os.getpid)
        with pytest.raises(LimitError, match=r"^takes over 1 s$"):
            called.call(time.sleep, 600)
        assert ended(pid)
        assert called.call(os.getpid) not in (pid, os.getpid())


@LINUX
def test_a_call_that_takes_too_much_memory_is_ended_and_the_process_replaced():
    with calling(max_bytes=300 << 20) as called:
        pid = called.call(os.getpid)
        assert len(called.call(bytes, 20 << 20)) == 20 << 20
        with pytest.raises(LimitError, match=r"^takes over 300 MB of memory$"):
            called.call(bytes, 300 << 20)
        assert ended(pid)
        assert called.call(len, b"abc") == 3


def test_a_process_that_dies_is_reported_and_replaced(called):
    with pytest.raises(LimitError, match=r"^crashes the process that reads it$"):
        called.call(os._exit, 3)
    pid = called.call(os.getpid)
    os.kill(pid, signal.SIGKILL)  # as a system short of memory may do between two calls
    while any(worker.alive for worker in called._idle):
        time.sleep(0.01)
    assert called.call(os.getpid) not in (pid, os.getpid())


def test_a_long_call_does_not_delay_others(called):
    gone = threading.Event()
    with ThreadPoolExecutor(1) as threads, calling() as slow:
        long = threads.submit(slow.call, time.sleep, 600)
        while slow._queue.counts != (1, 0):
            gone.wait(0.01)
        assert slow.call(abs, -2) == 2
        assert not long.done()
        slow.close()
        with pytest.raises((LimitError, BusyError)):  # it may not have begun
            long.result(30)


def test_calls_are_refused_while_too_many_wait(monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_WORKERS", 1)
    monkeypatch.setattr(sandbox, "MAX_WAITING", 0)
    with ThreadPoolExecutor(1) as threads, calling() as called:
        long = threads.submit(called.call, time.sleep, 600)
        while called._queue.counts != (1, 0):
            time.sleep(0.01)
        with pytest.raises(BusyError, match=r"^The queue for reading files is full: found 1 r"):
            called.call(abs, -1)
        called.close()
        with suppress(LimitError, BusyError):  # it may not have begun
            long.result(30)


@pytest.mark.parametrize("python", ["", "/nowhere/python", "/bin/false"])
def test_without_subprocesses_calls_run_in_this_process(monkeypatch, caplog, python):
    monkeypatch.setattr(sys, "executable", python)
    with calling() as called:
        called.warm_up()
        assert [called.call(os.getpid) for _ in range(2)] == [os.getpid()] * 2
    (record,) = caplog.records
    assert record.getMessage().startswith("files are read without limits of time and memory: ")


def test_the_process_ends_with_the_page():
    with calling() as called:
        called.warm_up()
        pid = called.call(os.getpid)
    assert ended(pid)
