"""A line of jobs for something that has room for some of them: first come, first served."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from app.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

WorkT = TypeVar("WorkT")
SECONDS_BETWEEN_LOOKS = 0.25
"""Of those that wait: whether they are still wanted, and how long it will take."""


class BusyError(UserError):
    """Too many wait already; the message is one sentence for the user."""


@dataclass(eq=False)
class Turn(Generic[WorkT]):
    """One job in a line."""

    work: WorkT
    rows: int
    """How much room it takes."""
    at_work: bool = False


class Line(Generic[WorkT]):
    """Jobs at work, together not larger than the room, and those that wait behind them.

    One that is larger than all the room goes to work alone.
    """

    def __init__(self, name: str, room: int, max_waiting: int | None = None) -> None:
        """`name` is what they wait for, in words; None: any number may wait."""
        self.name, self.room, self.max_waiting = name, room, max_waiting
        self._turns: list[Turn[WorkT]] = []  # those at work first
        self._changed = threading.Condition()  # its lock may be taken twice

    @contextmanager
    def enter(self, work: WorkT, rows: int = 1) -> Iterator[Turn[WorkT]]:
        """A place at the end of the line; it is left with the block.

        Raises:
            BusyError: too many wait already.
        """
        turn = Turn(work, rows)
        with self._changed:
            at_work, waiting = self.counts
            self._turns.append(turn)
            self._admit()
            if not turn.at_work and self.max_waiting is not None and waiting >= self.max_waiting:
                self._turns.remove(turn)
                raise BusyError(
                    f"Too many jobs want {self.name}: found {at_work} at work and {waiting} that "
                    f"wait, expected at most {self.max_waiting} to wait; try again in a minute"
                )
        try:
            yield turn
        finally:
            with self._changed:
                self._turns.remove(turn)
                self._admit()
                self._changed.notify_all()

    def wait(self, turn: Turn[WorkT], seconds: float) -> bool:
        """Until its turn comes, so long at most; whether it has come."""
        with self._changed:
            return self._changed.wait_for(lambda: turn.at_work, seconds)

    def before(self, turn: Turn[WorkT]) -> list[WorkT]:
        """The work of all who came before, at work or not."""
        with self._changed:
            return [other.work for other in self._turns[: self._turns.index(turn)]]

    def place(self, turn: Turn[WorkT]) -> int:
        """1: the next one; 0: at work."""
        with self._changed:
            waiting = [other for other in self._turns if not other.at_work]
            return 0 if turn.at_work else waiting.index(turn) + 1

    @property
    def counts(self) -> tuple[int, int]:
        """How many are at work, and how many wait."""
        with self._changed:
            at_work = sum(turn.at_work for turn in self._turns)
            return at_work, len(self._turns) - at_work

    def _admit(self) -> None:
        rows = sum(turn.rows for turn in self._turns if turn.at_work)
        for turn in self._turns:
            if turn.at_work:
                continue
            if rows and rows + turn.rows > self.room:
                return
            turn.at_work = True
            rows += turn.rows
