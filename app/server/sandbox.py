"""Work on what strangers send: in a process apart, within limits of time and memory.

A MIDI file of ten megabytes can keep a processor busy for minutes. The page has such files read by
a process of its own, which is kept for the next one and ended where it takes too long: everybody
else goes on meanwhile. Functions and their answers go through pipes, so that page and commands have
one code, which the commands call directly.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from app.server.line import BusyError, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 20.0
"""Of the clock, for one call: what the page takes needs two or three on a quiet machine."""
MAX_BYTES = 1 << 30
"""Of addresses, which a process without work has 140 MB of."""
AT_ONCE = 2
"""Processes: one is ready from the start, another comes where two files do."""
MAX_WAITING = 8
"""Calls that may wait for a process; each keeps a thread of the page busy."""
STARTING_SECONDS = 60.0
_log = logging.getLogger(__name__)


class LimitError(Exception):
    """A call took more than it may; the message is a clause, such as "takes over 20 s"."""


class Apart:
    """Calls functions in processes apart; where there can be none, in this one without limits."""

    def __init__(
        self,
        seconds: float = SECONDS,
        max_bytes: int = MAX_BYTES,
        preload: Sequence[str] = (),
    ) -> None:
        """`preload` are modules that are imported before there is work."""
        self.seconds, self.max_bytes, self.preload = seconds, max_bytes, tuple(preload)
        self._line: Line[None] = Line("a file to be read", AT_ONCE, MAX_WAITING)
        self._lock = threading.Lock()
        self._idle: list[_Helper] = []
        self._all: set[_Helper] = set()
        self._works: bool | None = None  # not known yet
        self._closed = False

    def call(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """What a function gives that stands at the top of a module, with all that it takes.

        Raises:
            LimitError: it takes too long, or too much memory.
            BusyError: too many wait already, or no process can be started any more.
            Exception: what the function raises.
        """
        with self._line.enter(None) as turn:
            while not self._line.wait(turn, STARTING_SECONDS):
                pass
            helper = self._ready()
            if helper is None:
                return function(*arguments, **named)
            try:
                kind, answer = helper.ask((function, arguments, named), self.seconds)
            except BaseException:
                self._end(helper)
                self.warm_up()
                raise
            if kind == "memory":  # whatever is left of it goes with the process
                self._end(helper)
                self.warm_up()
                raise LimitError(f"takes over {self.max_bytes >> 20:,} MB of memory")
            with self._lock:
                self._idle.append(helper)
        if kind == "raised":
            raise cast("Exception", answer)
        return cast("T", answer)

    def warm_up(self) -> None:
        """Starts a process where none is ready, and waits for nothing."""
        with self._lock:
            if self._idle or self._closed or self._works is False:
                return
            with suppress(OSError):
                self._idle.append(self._start())

    def close(self) -> None:
        """Ends all processes, and calls under way with an error; there are no more calls."""
        with self._lock:
            self._closed = True
            helpers, self._idle = list(self._all), []
        for helper in helpers:
            self._end(helper)

    def _ready(self) -> _Helper | None:
        """A process that can be asked; None where there can be none."""
        helper = None
        try:
            with self._lock:
                while self._idle:
                    helper = self._idle.pop()
                    if helper.lives:
                        break
                    self._all.discard(helper)
                    helper.end()
                    helper = None
                if helper is None:
                    if self._works is False:
                        return None
                    helper = self._start()
            helper.prepare((_prepare, (self.max_bytes, self.preload), {}))
            self._works = True
        except (OSError, LimitError) as error:
            if helper is not None:
                self._end(helper)
            if self._works or self._closed:
                raise BusyError(
                    "No file can be read at the moment; try again in a minute"
                ) from error
            self._works = False
            _log.warning("files are read without limits of time and memory: %s", error)
            return None
        return helper

    def _start(self) -> _Helper:
        if self._closed:
            raise BusyError("No file can be read any more: the page is closing")
        if not self._all:
            atexit.unregister(self.close)
            atexit.register(self.close)
        helper = _Helper()
        self._all.add(helper)
        return helper

    def _end(self, helper: _Helper) -> None:
        with self._lock:
            self._all.discard(helper)
        helper.end()


class _Helper:
    """One process, and the pipes to it."""

    def __init__(self) -> None:
        """Raises OSError where no process can be started."""
        if not sys.executable:
            raise OSError("this program has no Python of its own")
        paths = {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from app.server.sandbox import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **paths, **alone},
            start_new_session=True,  # Ctrl+C is not for it: it ends with its pipe
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._prepared = False

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def prepare(self, request: object) -> None:
        """Asks for what comes first, once. Raises as `ask`."""
        if not self._prepared:
            kind, answer = self.ask(request, STARTING_SECONDS)
            if kind != "done":
                raise LimitError(f"no process could be started ({kind}: {answer})")
            self._prepared = True

    def ask(self, request: object, seconds: float) -> tuple[str, Any]:
        """The kind of an answer (done, raised or memory), and the answer.

        Raises LimitError where it takes longer, or the process ends.
        """
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(seconds, end)
        clock.daemon = True
        clock.start()
        try:
            pickle.dump(request, self._requests, pickle.HIGHEST_PROTOCOL)
            self._requests.flush()
            kind, answer = pickle.load(self._answers)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            if late.is_set():
                raise LimitError(f"takes over {seconds:g} s") from None
            raise LimitError("ends the process that does it") from error
        finally:
            clock.cancel()
            clock.join()  # it may be about to end the process, which others must not be given then
        if late.is_set():
            raise LimitError(f"takes over {seconds:g} s")
        return kind, answer

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError, ValueError):  # what was not sent cannot be any more
                pipe.close()


def serve() -> None:
    """Answers calls until there are no more: what the process does."""
    with suppress(ValueError, AttributeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what is printed is no answer
        while True:
            try:
                function, arguments, named = pickle.load(requests)
            except EOFError:
                return
            answers.write(_answer(function, arguments, named))
            answers.flush()


def _answer(function: Callable[..., object], arguments: Any, named: Any) -> bytes:  # noqa: ANN401
    """The kind of an answer and the answer, pickled."""
    try:
        _limit_time()
        told: tuple[str, object] = "done", function(*arguments, **named)
        return pickle.dumps(told, pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        return pickle.dumps(("memory", None))
    except Exception as error:  # noqa: BLE001 - the caller gets it
        error.add_note("".join(traceback.format_exception(error)))
        try:
            told = "raised", pickle.loads(pickle.dumps(error))  # some cannot be
        except Exception:  # noqa: BLE001
            told = "raised", RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps(told)


def _prepare(max_bytes: int, modules: Sequence[str]) -> None:
    """Imports, then bounds the memory of this process where the system can."""
    for module in modules:
        importlib.import_module(module)
    with suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        bound = max_bytes if most == resource.RLIM_INFINITY else min(max_bytes, most)
        resource.setrlimit(resource.RLIMIT_AS, (bound, most))


def _limit_time() -> None:
    """Ends this process after a call that the page has not ended, as one that was killed."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + 3 * SECONDS), most))
