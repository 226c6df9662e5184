"""Work that goes on while what it has come to is being shown."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def newest(
    work: Callable[[Callable[[], bool]], Iterator[T]], stop: Callable[[], bool]
) -> Generator[T, None, None]:
    """What `work` yields, made in a thread of its own: the newest whenever asked, and the last.

    `work` takes the question whether it is to stop; it is where `stop` says so, and where this
    iterator is closed, which waits for its end. What it raises is raised here.
    """
    closed = threading.Event()
    changed = threading.Condition()
    made: list[T] = []  # the newest, where nobody has taken it
    ends: list[BaseException | None] = []  # that nothing more comes, and what went wrong

    def run() -> None:
        error: BaseException | None = None
        try:
            items = work(lambda: closed.is_set() or stop())
            for item in items:
                with changed:
                    made[:] = [item]
                    changed.notify()
                if closed.is_set():
                    break
            if isinstance(items, Generator):
                items.close()
        except BaseException as raised:  # noqa: BLE001 - whoever asks for the next one gets it
            error = raised
        with changed:
            ends.append(error)
            changed.notify()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while True:
            with changed:
                changed.wait_for(lambda: made or ends)
                taken = made[:]
                made.clear()
                over = bool(ends)
            yield from taken
            if over:
                break
        if ends[0] is not None:
            raise ends[0]
    finally:
        closed.set()
        thread.join()
