"""Inserting into lines: a session remembers the lines that it has interned, until lines are collected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from uuid import UUID

import msgspec

from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.engine import Companions, InsertAnswer, Refused
from headrace.engines.refusing import refuse_jobs
from headrace.engines.sql.groups import NO_GROUPS, Groups
from headrace.engines.sql.record import Place, place_of
from headrace.errors import HeadraceError

__all__ = ["Collected", "Interned", "KnownLines", "Learned"]

Interned = tuple[dict[Place, int], dict[Place, HeadraceError], int]
"""Lines by place, why other places were refused one, and the count of collections for which the lines are valid."""


class Collected(Exception):
    """Lines were collected since this session learned their numbers."""


class Learned(msgspec.Struct, frozen=True):
    """The lines of the places of some jobs at one count of collections, and why other places were refused one."""

    places: list[Place]
    """The place of each job."""
    lines: dict[Place, int]
    collected: int
    refused: dict[Place, HeadraceError]
    by_customer: frozenset[str] = frozenset()
    """The queues in which customers have lines of their own."""

    def line_of(self, job: Job) -> int:
        """The line of a job that was not refused one."""
        return self.lines[place_of(job, self.by_customer)]

    def taken(self, jobs: Sequence[Job]) -> list[Job]:
        """The jobs whose lines were not refused."""
        if not self.refused:
            return list(jobs)
        return [job for job, place in zip(jobs, self.places, strict=True) if place not in self.refused]

    def lines_of_taken(self) -> list[int]:
        """The line of each job whose line was not refused."""
        return [self.lines[place] for place in self.places if place not in self.refused]

    def refusals(self, jobs: Sequence[Job]) -> dict[UUID, HeadraceError]:
        """Why some of the jobs, which were learned of, have no line."""
        if not self.refused:
            return {}
        pairs = zip(jobs, self.places, strict=True)
        return {job.id: self.refused[place] for job, place in pairs if place in self.refused}

    def answers(self, stored: Iterable[InsertAnswer]) -> list[InsertAnswer]:
        """The answers for all jobs: a refusal where the line was refused, and the given answers for the others."""
        if not self.refused:
            return list(stored)
        rest = iter(stored)
        return [Refused(self.refused[place]) if place in self.refused else next(rest) for place in self.places]


class KnownLines:
    """The lines that this session knows; valid for one count of collections, and so is what it knows of queues."""

    def __init__(self) -> None:
        self._lines: dict[Place, int] = {}
        self._collected = -1
        self._by_customer: frozenset[str] = frozenset()

    async def _intern(self, places: list[Place], *, limited: bool) -> Interned:
        """Make lines for these places where there are none; ``limited``: unless they need one profile too many."""
        raise NotImplementedError

    async def _queues(self) -> tuple[int, frozenset[str]]:
        """The count of collections, and the queues in which customers have lines of their own, read after it."""
        raise NotImplementedError

    @property
    def collected(self) -> int:
        """The count of collections for which the lines are valid; -1 if none is known."""
        return self._collected

    def known(self, job: Job) -> int | None:
        """The line of a job, if this session remembers it."""
        return self._lines.get(place_of(job, self._by_customer))

    def forget(self, collected: int) -> None:
        """Forget the lines that were learned at this count, because lines were collected since."""
        if collected == self._collected:
            self._lines.clear()
            self._collected = -1

    def forget_unless(self, collected: int) -> None:
        """Forget the lines, unless they were learned at this count."""
        if collected != self._collected:
            self.forget(self._collected)

    def recall(self, job: Job) -> tuple[int, int] | None:
        """The line of a job and the count of collections for which it is valid, if both are known; from any thread."""
        collected, by_customer = self._collected, self._by_customer
        line = self._lines.get(place_of(job, by_customer))
        # The session's own thread forgets all lines before it learns anew: what is still so was so all the while.
        if line is None or collected != self._collected or by_customer is not self._by_customer:
            return None
        return line, collected

    async def learn(self, jobs: Sequence[Job], *, limited: bool = True) -> Learned:
        """The lines of these jobs; those that this session does not remember are interned.

        ``limited``: those that would need one profile too many are refused.
        """
        refused = dict[Place, HeadraceError]()
        while True:
            if self._collected == -1:
                collected, by_customer = await self._queues()
                self._lines.clear()
                self._collected, self._by_customer = collected, by_customer
                refused.clear()
            places = [place_of(job, self._by_customer) for job in jobs]
            wanted = set(places)
            missing = [place for place in wanted if place not in self._lines and place not in refused]
            if not missing:
                break
            found, none, collected = await self._intern(sorted(missing), limited=limited)
            if collected != self._collected:  # lines were collected, perhaps by this very call, or a queue was set
                self._lines.clear()
                refused.clear()
                self._collected, self._by_customer = await self._queues()
                # Unless all were asked for: to intern the others now could take the room of what was just made.
                if self._collected != collected or len(missing) < len(wanted):
                    continue
            self._lines |= found
            refused |= none
        # A copy: before this insert is written, another one of this session may notice a collection and forget lines.
        lines = {place: self._lines[place] for place in wanted - refused.keys()}
        return Learned(places, lines, self._collected, refused, self._by_customer)

    async def insert(
        self,
        jobs: Sequence[Job],
        batch: Batch | None,
        whole: bool,
        companions: Companions | None,
        write: Callable[[list[Job], Learned, Batch | None, bool, Groups], Awaitable[list[InsertAnswer]]],
    ) -> list[InsertAnswer]:
        """The verb ``Jobs.insert``; ``write`` stores the jobs that have lines, or raises ``Collected``."""
        if companions:
            return await self._insert_groups(jobs, batch, whole, Groups(companions), write)
        refuse_jobs(jobs)
        whole = whole or batch is not None
        while True:
            learned = await self.learn(jobs)
            if whole and learned.refused:
                return [Refused(next(iter(learned.refused.values())))] * len(jobs)
            taken = learned.taken(jobs)
            if not taken and batch is None:
                return learned.answers([])
            try:
                return learned.answers(await write(taken, learned, batch, whole, NO_GROUPS))
            except Collected:
                self.forget(learned.collected)

    async def _insert_groups(
        self,
        jobs: Sequence[Job],
        batch: Batch | None,
        whole: bool,
        groups: Groups,
        write: Callable[[list[Job], Learned, Batch | None, bool, Groups], Awaitable[list[InsertAnswer]]],
    ) -> list[InsertAnswer]:
        """``insert`` where some jobs have companions; a group one of whom is refused a line is refused."""
        joined, whole = groups.joined(jobs), whole or batch is not None
        refuse_jobs(joined)
        while True:
            learned = await self.learn(joined)
            refused = groups.refusals(learned.refusals(joined))
            if refused and whole:
                return [Refused(next(iter(refused.values())))] * len(jobs)
            taken = groups.joined([job for job in jobs if job.id not in refused])
            try:
                stored = await write(taken, learned, batch, whole, groups) if taken or batch is not None else []
            except Collected:
                self.forget(learned.collected)
                continue
            rest = iter(groups.leaders(zip(taken, stored, strict=True)))
            return [Refused(refused[job.id]) if job.id in refused else next(rest) for job in jobs]
