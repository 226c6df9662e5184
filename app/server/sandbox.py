"""Runs functions on untrusted input in a subprocess with limits of time and memory.

A MIDI file of ten megabytes can keep a processor busy for minutes. The page reads uploads in worker
processes, so that other users are not affected. Functions and results are pickled and sent through
pipes. Commands call the same functions directly. The laws:

- A worker is a new interpreter with nothing of the page: never a fork of a process with torch, and
  the script that started the page does not run again, as it would with `multiprocessing`.
- It is reused, and killed if a call takes too much time or memory. One that dies, even while it
  answers, ends only its own call, and is replaced.
- Two calls run, eight wait, and more are refused.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, cast

from app.errors import BusyError
from app.server.admission import Bounds, Queue

P = ParamSpec("P")
T = TypeVar("T")

SECONDS = 20.0
"""Wall-clock limit of a call; the largest files take two or three seconds on an idle machine."""
MAX_BYTES = 1 << 30
"""Limit for the address space of a worker; an idle one takes 170 MB."""
MAX_WORKERS = 2
"""Maximum number of workers; the second one is started when two files arrive at the same time."""
MAX_WAITING = 8
"""Maximum number of calls that wait for a worker; each occupies a thread of the page."""
STARTING_SECONDS = 60.0
_log = logging.getLogger(__name__)


class LimitError(Exception):
    """A call exceeded a limit; the message is a clause, such as "takes over 20 s"."""


class Sandbox:
    """Calls functions in worker processes.

    If none can be started, functions run in this process, without limits.
    """

    def __init__(
        self,
        seconds: float = SECONDS,
        max_bytes: int = MAX_BYTES,
        preload: Sequence[str] = (),
    ) -> None:
        """`preload` names modules that a worker imports before its first call.

        A name such as `module:function` also calls a function, before the limits of the first call.
        """
        self.seconds, self.max_bytes, self.preload = seconds, max_bytes, tuple(preload)
        self._queue: Queue[None] = Queue("reading files", MAX_WORKERS, Bounds(waiting=MAX_WAITING))
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._works: bool | None = None  # None: not known yet
        self._closed = False
        atexit.register(self.close)

    def call(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Return the result of a function defined at the top level of a module.

        Raises:
            LimitError: the call takes too much time or memory.
            BusyError: too many calls are waiting, or no more workers can be started.
            Exception: what the function raises.
        """
        with self._queue.enter(None) as ticket:
            self._queue.wait(ticket)
            worker = self._take()
            if worker is None:
                return function(*arguments, **named)
            try:
                kind, answer = worker.ask((function, arguments, named), self.seconds)
                if kind == "memory":
                    raise LimitError(f"takes over {self.max_bytes >> 20:,} MB of memory")
            except BaseException:
                self._end(worker)
                self.warm_up()
                raise
            with self._lock:
                self._idle.append(worker)
        if kind == "raised":
            raise cast("Exception", answer)
        return cast("T", answer)

    def warm_up(self) -> None:
        """Start a worker if none is idle, without waiting for it."""
        with self._lock:
            if self._idle or self._closed or self._works is False:
                return
            with suppress(OSError):
                self._idle.append(self._start())

    def close(self) -> None:
        """End all workers; calls in progress raise an error, and so do later ones."""
        with self._lock:
            self._closed = True
            workers, self._idle = list(self._all), []
        for worker in workers:
            self._end(worker)

    def _take(self) -> _Worker | None:
        """Return an idle or new worker that is ready; None if none can be started."""
        if self._works is False:
            return None
        worker = None
        try:
            with self._lock:
                while self._idle and worker is None:
                    worker = self._idle.pop()
                    if not worker.alive:  # killed by the system meanwhile
                        self._all.discard(worker)
                        worker.end()
                        worker = None
                worker = worker or self._start()
            worker.wait_until_ready()
            self._works = True
        except (OSError, LimitError) as error:
            if worker is not None:
                self._end(worker)
            if self._works or self._closed:
                raise BusyError(
                    "Files cannot be read at the moment; try again in a minute"
                ) from error
            self._works = False
            _log.warning("files are read without limits of time and memory: %s", error)
            return None
        return worker

    def _start(self) -> _Worker:
        if self._closed:
            raise BusyError("Files cannot be read: the page is closing")
        worker = _Worker(self.max_bytes, self.preload)
        self._all.add(worker)
        return worker

    def _end(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
        worker.end()


class _Worker:
    """A worker process and the pipes to it."""

    def __init__(self, max_bytes: int, preload: Sequence[str]) -> None:
        """Raise OSError if no process can be started."""
        if not sys.executable:
            raise OSError("sys.executable is empty, expected the path of the Python interpreter")
        paths = {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        code = f"from {__name__} import serve; serve({max_bytes}, {list(preload)})"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **paths, **threads},
            start_new_session=True,  # not interrupted by Ctrl+C: it ends when its pipe is closed
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._ready = False

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Wait until the worker has imported its modules. Raises the errors of `ask`."""
        if not self._ready:
            self.ask(None, STARTING_SECONDS)
            self._ready = True

    def ask(self, request: object, seconds: float) -> tuple[str, Any]:
        """Send a request; return the kind of the answer (done, raised or memory), and the answer.

        A request of None waits until the worker is ready. Raises LimitError if the answer takes too
        long, or the process ends.
        """
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            if request is not None:
                pickle.dump(request, self._requests, pickle.HIGHEST_PROTOCOL)
                self._requests.flush()
            answer = pickle.load(self._answers)  # nosec B301 - of the program's own worker
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            if late.is_set():
                raise LimitError(f"takes over {seconds:g} s") from None
            raise LimitError("crashes the process that reads it") from error
        finally:
            timer.cancel()
            timer.join()  # so that it cannot kill the process when it is reused
        if late.is_set():
            raise LimitError(f"takes over {seconds:g} s")
        return answer

    def end(self) -> None:
        """Kill the process and close the pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError, ValueError):  # closing flushes a request
                pipe.close()


def serve(max_bytes: int, preload: Sequence[str]) -> None:
    """Answer calls until the pipe is closed: the main function of a worker."""
    with suppress(ValueError, AttributeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = sys.stdin.buffer
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # keeps printed text out of the answers
        for name in preload:
            module, _, function = name.partition(":")
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        _limit("RLIMIT_AS", max_bytes)
        answer = pickle.dumps(("ready", None))
        while True:
            answers.write(answer)
            answers.flush()
            try:
                function, arguments, named = pickle.load(requests)  # nosec B301 - of the page
            except EOFError:
                return
            answer = _answer(function, arguments, named)


def _answer(function: Callable[..., object], arguments: Any, named: Any) -> bytes:  # noqa: ANN401
    """Call a function; return a pickled pair, the kind of the answer and the answer."""
    try:
        # ends the call even if the page is killed first
        _limit("RLIMIT_CPU", int(time.process_time() + 3 * SECONDS))
        result: tuple[str, object] = "done", function(*arguments, **named)
        return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        return pickle.dumps(("memory", None))
    except Exception as error:  # noqa: BLE001 - raised by the caller
        error.add_note("".join(traceback.format_exception(error)))
        try:
            # some errors cannot be pickled
            result = "raised", pickle.loads(pickle.dumps(error))  # nosec B301 - its own
        except Exception:  # noqa: BLE001
            result = "raised", RuntimeError(f"{type(error).__name__}: {error}")
        return pickle.dumps(result)


def _limit(name: str, limit: int) -> None:
    """Limit a resource of this process, if the system supports it."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (soft, hard))
