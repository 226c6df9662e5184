"""Who wants sound: one is made after the other, and what several want is made once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import TYPE_CHECKING

from app.audio.synth.soundfont import SoundError
from app.server.line import SECONDS_BETWEEN_LOOKS, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

SOUNDS_AT_ONCE = 1
"""Each keeps a core busy, and takes up to 423 MB."""
MOST_CALLS = 24
"""Each holds one of the 40 threads that answer what takes no time."""
MOST_CALLS_OF_SESSION = 8


class SoundCalls:
    """The line for the sound of all jobs, and the calls of the page that wait in it."""

    def __init__(self) -> None:
        self._line: Line[None] = Line("sound", SOUNDS_AT_ONCE)
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._coming: dict[Hashable, tuple[str, Future[None]]] = {}

    @contextmanager
    def turn(self, given_up: Callable[[], bool]) -> Iterator[bool]:
        """A place in the line, until its turn comes or it is given up; whether it has come."""
        with self._line.enter(None) as turn:
            while not (given_up() or self._line.wait(turn, SECONDS_BETWEEN_LOOKS)):
                pass
            yield not given_up()

    @contextmanager
    def call(self, session: str) -> Iterator[None]:
        """A call of the page, which holds a thread. Raises SoundError where there are too many."""
        with self._lock:
            of_all, of_session = self._calls.total(), self._calls[session]
            if of_all >= MOST_CALLS or of_session >= MOST_CALLS_OF_SESSION:
                raise SoundError(
                    f"too many wait for sound: found {of_all} calls, {of_session} of this page, "
                    f"expected fewer than {MOST_CALLS} and {MOST_CALLS_OF_SESSION}; try again in a "
                    "minute"
                )
            self._calls[session] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls[session] -= 1
                self._calls += Counter()  # without those that have none

    def once(self, session: str, key: Hashable, make: Callable[[], object]) -> None:
        """Calls `make` when its turn comes; who wants the same meanwhile waits for this one.

        Raises:
            LookupError: the session has left before.
        """
        mine: Future[None] = Future()
        with self._lock:
            _, coming = self._coming.setdefault(key, (session, mine))
        if coming is mine:
            try:
                with self.turn(mine.cancelled):
                    if mine.set_running_or_notify_cancel():
                        make()
                        mine.set_result(None)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
                mine.set_exception(error)
            finally:
                with self._lock:
                    del self._coming[key]
        try:
            coming.result()
        except CancelledError:
            raise LookupError("the page was left") from None

    def leave(self, session: str) -> None:
        """The session is over: its calls wait no more."""
        with self._lock:
            for owner, coming in self._coming.values():
                if owner == session:
                    coming.cancel()
