"""Admits jobs to a shared resource, first come, first served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.errors import BusyError

WorkT = TypeVar("WorkT")
POLL_SECONDS = 0.25
"""Interval at which a waiting job checks whether it was stopped, and reports its
place in the queue."""


@dataclass(eq=False)
class Ticket(Generic[WorkT]):
    """A job in a queue, admitted or waiting."""

    work: WorkT
    rows: int
    """The part of the capacity that it occupies."""
    admitted: bool = False


class Queue(Generic[WorkT]):
    """A queue for a resource of limited capacity.

    Jobs are admitted in order of arrival while they fit into the capacity together. A job that
    exceeds the whole capacity is admitted alone.
    """

    def __init__(self, name: str, capacity: int, max_waiting: int | None = None) -> None:
        """Creates an empty queue.

        Messages call the resource `name`. Any number of jobs may wait if `max_waiting` is None.
        """
        self.name, self.capacity, self.max_waiting = name, capacity, max_waiting
        self._tickets: list[Ticket[WorkT]] = []  # admitted ones first
        self._changed = threading.Condition()  # with a re-entrant lock

    @contextmanager
    def enter(self, work: WorkT, rows: int = 1) -> Iterator[Ticket[WorkT]]:
        """A context with a ticket at the end of the queue, which is removed when the context ends.

        Raises:
            BusyError: too many jobs are waiting already.
        """
        ticket = Ticket(work, rows)
        with self._changed:
            running, waiting = self.counts
            self._tickets.append(ticket)
            self._admit()
            if not ticket.admitted and self.max_waiting is not None and waiting >= self.max_waiting:
                self._tickets.remove(ticket)
                raise BusyError(
                    f"The queue for {self.name} is full: found {running} running and {waiting} "
                    f"waiting jobs, expected at most {self.max_waiting} waiting; try again in a "
                    "minute"
                )
        try:
            yield ticket
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                self._admit()
                self._changed.notify_all()

    def wait(self, ticket: Ticket[WorkT], seconds: float | None = None) -> bool:
        """Waits at most `seconds` until the ticket is admitted; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: ticket.admitted, seconds)

    def ahead_of(self, ticket: Ticket[WorkT]) -> list[Ticket[WorkT]]:
        """All tickets before this one, admitted or waiting."""
        with self._changed:
            return self._tickets[: self._tickets.index(ticket)]

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of admitted and of waiting jobs."""
        with self._changed:
            running = sum(ticket.admitted for ticket in self._tickets)
            return running, len(self._tickets) - running

    def _admit(self) -> None:
        rows = sum(ticket.rows for ticket in self._tickets if ticket.admitted)
        for ticket in self._tickets:
            if ticket.admitted:
                continue
            if rows and rows + ticket.rows > self.capacity:
                return
            ticket.admitted = True
            rows += ticket.rows
