"""Admits jobs to a shared resource: in order of arrival, and fairly among users."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from app.errors import BusyError

WorkT = TypeVar("WorkT")
POLL_SECONDS = 0.25
"""Interval at which a waiting job checks whether it was stopped, and reports its
place in the queue."""


class Owner(NamedTuple):
    """The user of a job."""

    user: str = ""
    """An account or an address; empty if unknown, and then no limit per user applies."""
    session: str = ""


NO_OWNER = Owner()


@dataclass(eq=False)
class Ticket(Generic[WorkT]):
    """A job in a queue, admitted or waiting."""

    work: WorkT
    rows: int
    """The part of the capacity that it occupies."""
    owner: Owner = NO_OWNER
    admitted: bool = False


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How many jobs may be in a queue; None: any number."""

    waiting: int | None = None
    waiting_of_user: int | None = None
    of_session: int | None = None
    """Maximum number of admitted and waiting jobs of a session."""


class Queue(Generic[WorkT]):
    """A queue for a resource of limited capacity.

    The next job is that of the user who occupies the least, then of the session that occupies the
    least, then the oldest one. Jobs are admitted while they fit into the capacity together. A job
    that exceeds the whole capacity is admitted alone.
    """

    def __init__(self, name: str, capacity: int, bounds: Bounds | None = None) -> None:
        """Create an empty queue. Messages call the resource `name`."""
        self.name, self.capacity, self.bounds = name, capacity, bounds or Bounds()
        self._tickets: list[Ticket[WorkT]] = []  # in order of arrival
        self._changed = threading.Condition()  # with a re-entrant lock

    def check(self, work: WorkT, rows: int = 1, owner: Owner = NO_OWNER) -> None:
        """Raise the errors of `enter`, which a job that prepares itself first then skips."""
        with self._changed, self.enter(work, rows, owner):
            pass

    @contextmanager
    def enter(
        self, work: WorkT, rows: int = 1, owner: Owner = NO_OWNER, *, checked: bool = False
    ) -> Iterator[Ticket[WorkT]]:
        """Return a context with a ticket in the queue, which is removed when the context ends.

        `checked`: `check` has accepted the job; it is not refused now.

        Raises:
            BusyError: too many jobs are waiting already, or this user or session has too many.
        """
        ticket = Ticket(work, rows, owner)
        with self._changed:
            if not checked:
                self._check_session(ticket)
            self._tickets.append(ticket)
            self._admit()
            if not (ticket.admitted or checked):
                self._tickets.remove(ticket)
                self._check_waiting(ticket)
                self._tickets.append(ticket)
        try:
            yield ticket
        finally:
            with self._changed:
                self._tickets.remove(ticket)
                self._admit()
                self._changed.notify_all()

    def _check_session(self, ticket: Ticket[WorkT]) -> None:
        most = self.bounds.of_session
        has = sum(other.owner.session == ticket.owner.session for other in self._tickets)
        if ticket.owner.session and most is not None and has >= most:
            raise BusyError(
                f"This page has {has} jobs already, expected fewer than {most}; wait until one of "
                "them has ended"
            )

    def _check_waiting(self, ticket: Ticket[WorkT]) -> None:
        running, waiting = self.counts
        most = self.bounds.waiting
        if most is not None and waiting >= most:
            raise BusyError(
                f"The queue for {self.name} is full: found {running} running and {waiting} "
                f"waiting jobs, expected at most {most} waiting; try again in a minute"
            )
        most = self.bounds.waiting_of_user
        has = sum(
            other.owner.user == ticket.owner.user and not other.admitted for other in self._tickets
        )
        if ticket.owner.user and most is not None and has >= most:
            raise BusyError(
                f"The queue for {self.name} has {has} jobs of your account or address already, "
                f"expected fewer than {most}; wait until one of them has ended"
            )

    def wait(self, ticket: Ticket[WorkT], seconds: float | None = None) -> bool:
        """Wait at most `seconds` until the ticket is admitted; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: ticket.admitted, seconds)

    def ahead_of(self, ticket: Ticket[WorkT]) -> list[Ticket[WorkT]]:
        """Return all tickets before this one: those that are admitted, or would be earlier."""
        with self._changed:
            ahead = [other for other in self._tickets if other.admitted and other is not ticket]
            for other in () if ticket.admitted else self._in_turn():
                if other is ticket:
                    break
                ahead.append(other)
            return ahead

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of admitted and of waiting jobs."""
        with self._changed:
            running = sum(ticket.admitted for ticket in self._tickets)
            return running, len(self._tickets) - running

    def _admit(self) -> None:
        rows = sum(ticket.rows for ticket in self._tickets if ticket.admitted)
        for ticket in list(self._in_turn()):
            if rows and rows + ticket.rows > self.capacity:
                return
            ticket.admitted = True
            rows += ticket.rows

    def _in_turn(self) -> Iterator[Ticket[WorkT]]:
        """Return the waiting tickets, in the order in which they are admitted."""
        of_user, of_session = Counter[str](), Counter[Owner]()
        waiting: list[Ticket[WorkT]] = []
        for ticket in self._tickets:
            if ticket.admitted:
                of_user[ticket.owner.user] += ticket.rows
                of_session[ticket.owner] += ticket.rows
            else:
                waiting.append(ticket)
        while waiting:
            following = min(
                waiting, key=lambda one: (of_user[one.owner.user], of_session[one.owner])
            )  # in a tie, the oldest job
            waiting.remove(following)
            of_user[following.owner.user] += following.rows
            of_session[following.owner] += following.rows
            yield following
