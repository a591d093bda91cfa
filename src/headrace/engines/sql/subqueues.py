"""Inserting into subqueues: a session remembers the subqueues that it has interned, until subqueues are collected.

A customer has a stake in each subqueue in which it has, or had, live jobs: these count its pairs of task and
requirements (``core.limits.profiles``). A session remembers them, too. An insert makes sure that they still exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

import msgspec

from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.core.limits.profiles import staked_by
from headrace.engine import Companions, InsertAnswer, Refused
from headrace.engines.sql.companions import NO_GROUPS, Groups
from headrace.engines.sql.encoding import Place, place_of
from headrace.engines.validation import refuse_jobs
from headrace.errors import HeadraceError
from headrace.runtime.clock import Clock

__all__ = ["Collected", "Interned", "KnownSubqueues", "Learned", "Recounts", "Spot", "Stakes", "spot_of", "stakes_of"]

Spot = tuple[Place, str | None]
"""A place, and the customer that it counts for (``staked_by``)."""

Stakes = frozenset[tuple[str, int]]
"""Customers, each with a subqueue in which it has a stake."""

Interned = tuple[dict[Spot, int], dict[Spot, HeadraceError], int]
"""Subqueues by spot, why other spots were refused one, and the count of collections for which they are valid."""


def spot_of(job: Job, by_customer: Container[str]) -> Spot:
    """Return the place of a new job, and the customer that it counts for."""
    return place_of(job, by_customer), staked_by(job.spec)


def stakes_of(jobs: Iterable[Job], subqueues: Iterable[int]) -> Stakes:
    """Return the stakes that jobs in these subqueues need."""
    pairs = zip(jobs, subqueues, strict=True)
    return frozenset(
        (whose, subqueue) for job, subqueue in pairs if job.spec.customer and (whose := staked_by(job.spec))
    )


class Collected(Exception):
    """Subqueues were collected, or stakes given up, since this session learned of them."""


class Recounts:
    """When a session may recount which live jobs a customer has. That reads all jobs of the customer: so it is done
    only when there is a pair too many, and takes a second at once, then a twentieth of the time; for all customers
    together five seconds, then a quarter. Collecting has the same limits, for customers (``OURS``) and for the operator
    (None)."""

    _AT_ONCE, _SHARE, _MOST = 1.0, 20, 1000
    _AT_ONCE_OF_ALL, _SHARE_OF_ALL = 5.0, 4

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: dict[str | None, tuple[float, float]] = {}
        """The time spent for each, as of when."""
        self._spent_in_all = 0.0, 0.0

    def may(self, whose: str | None) -> bool:
        """Return whether it may be done now; the time spent for customers does not count for the operator."""
        now = self._clock.monotonic()
        return self._left(whose, now) < self._AT_ONCE and (
            whose is None or self._left_of_all(now) < self._AT_ONCE_OF_ALL
        )

    @contextmanager
    def counting(self, whose: str | None) -> Iterator[None]:
        """Do it, and count its time."""
        begun = self._clock.monotonic()
        yield
        now = self._clock.monotonic()
        if len(self._spent) >= self._MOST:
            self._spent.clear()
        self._spent[whose] = self._left(whose, now) + now - begun, now
        if whose is not None:
            self._spent_in_all = self._left_of_all(now) + now - begun, now

    def _left(self, whose: str | None, now: float) -> float:
        spent, at = self._spent.get(whose, (0.0, now))
        return max(0.0, spent - (now - at) / self._SHARE)

    def _left_of_all(self, now: float) -> float:
        spent, at = self._spent_in_all
        return max(0.0, spent - (now - at) / self._SHARE_OF_ALL)


class Learned(msgspec.Struct, frozen=True):
    """The subqueues of the spots of some jobs at one count of collections, and why other spots were refused one."""

    spots: list[Spot]
    """The spot of each job."""
    subqueues: dict[Place, int]
    collected: int
    refused: dict[Spot, HeadraceError]
    by_customer: frozenset[str] = frozenset()
    """The queues in which customers have subqueues of their own."""
    stakes: Stakes = frozenset()
    """The stakes that the jobs need which were not refused."""

    def subqueue_of(self, job: Job) -> int:
        """Return the subqueue of a job that was not refused one."""
        return self.subqueues[place_of(job, self.by_customer)]

    def subqueues_of(self, jobs: Sequence[Job]) -> list[int]:
        """Return the subqueues of those of the jobs, in their order, that were not refused one."""
        if len(jobs) == len(self.spots):
            return [self.subqueues[place] for place, _ in self.spots]
        return [self.subqueue_of(job) for job in jobs]

    def refusals(self, jobs: Sequence[Job]) -> dict[UUID, HeadraceError]:
        """Return why some of the learned jobs have no subqueue."""
        if not self.refused:
            return {}
        pairs = zip(jobs, self.spots, strict=True)
        return {job.id: self.refused[spot] for job, spot in pairs if spot in self.refused}


class KnownSubqueues:
    """The subqueues that this session knows; valid for one count of collections, and so is what it knows of queues."""

    def __init__(self) -> None:
        self._subqueues: dict[Place, int] = {}
        self._stakes: set[tuple[str, int]] = set()
        self._collected = -1
        self._by_customer: frozenset[str] = frozenset()

    async def _intern(self, spots: list[Spot], now: datetime | None) -> Interned:
        """Make the missing subqueues and stakes of these spots; ``now``: unless that is a profile too many by the keys
        that are valid then."""
        raise NotImplementedError

    async def _queues(self) -> tuple[int, frozenset[str]]:
        """Return the count of collections, and the queues with subqueues for each customer, read after it."""
        raise NotImplementedError

    @property
    def collected(self) -> int:
        """The count of collections for which the subqueues are valid; -1 if none is known."""
        return self._collected

    def known(self, job: Job) -> int | None:
        """Return the subqueue of a job, if this session remembers it."""
        return self._subqueues.get(place_of(job, self._by_customer))

    def forget(self, collected: int) -> None:
        """Forget the subqueues that were learned at this count, because subqueues were collected since."""
        if collected == self._collected:
            self._subqueues.clear()
            self._stakes.clear()
            self._collected = -1

    def doubt(self, learned: Learned) -> None:
        """Forget what was learned, because it was not valid any more."""
        if learned.stakes:
            self._stakes -= learned.stakes  # interning them again also shows whether subqueues were collected
        else:
            self.forget(learned.collected)

    def forget_unless(self, collected: int) -> None:
        """Forget the subqueues, unless they were learned at this count."""
        if collected != self._collected:
            self.forget(self._collected)

    def recall(self, job: Job) -> tuple[int, int] | None:
        """Return the subqueue of a job and its valid count of collections, if both are known; from any thread."""
        collected, by_customer = self._collected, self._by_customer
        subqueue = self._subqueues.get(place_of(job, by_customer))
        if (
            subqueue is not None
            and job.spec.customer
            and (whose := staked_by(job.spec))
            and (whose, subqueue) not in self._stakes
        ):
            return None
        # The session's own thread forgets all subqueues before it learns again: what is unchanged was valid throughout.
        if subqueue is None or collected != self._collected or by_customer is not self._by_customer:
            return None
        return subqueue, collected

    async def learn(self, jobs: Sequence[Job], *, now: datetime | None) -> Learned:
        """Return the subqueues of these jobs; those that this session does not remember are interned.

        ``now``: those that would need one profile too many by the keys that are valid then are refused; None: none is.
        """
        refused = dict[Spot, HeadraceError]()
        while True:
            if self._collected == -1:
                collected, by_customer = await self._queues()
                self._subqueues.clear()
                self._stakes.clear()
                self._collected, self._by_customer = collected, by_customer
                refused.clear()
            spots = [spot_of(job, self._by_customer) for job in jobs]
            wanted = dict.fromkeys(spots)
            missing = [spot for spot in wanted if spot not in refused and not self._knows(spot)]
            if not missing:
                break
            found, none, collected = await self._intern(missing, now)
            if collected != self._collected:  # subqueues were collected, perhaps by this very call, or a queue was set
                self._subqueues.clear()
                self._stakes.clear()
                refused.clear()
                self._collected, self._by_customer = await self._queues()
                # Unless all were requested: interning the others now could take the room of those just made.
                if self._collected != collected or len(missing) < len(wanted):
                    continue
            for (place, whose), subqueue in found.items():
                self._subqueues[place] = subqueue
                if whose:
                    self._stakes.add((whose, subqueue))
            refused |= none
        # A copy: before this insert is written, another one of this session may notice a collection and forget
        # subqueues.
        subqueues = {spot[0]: self._subqueues[spot[0]] for spot in wanted if spot not in refused}
        stakes = frozenset((spot[1], subqueues[spot[0]]) for spot in wanted if spot[1] and spot not in refused)
        return Learned(spots, subqueues, self._collected, refused, self._by_customer, stakes)

    def _knows(self, spot: Spot) -> bool:
        """Return whether the subqueue of a spot is known, and the stake that it needs."""
        place, whose = spot
        subqueue = self._subqueues.get(place)
        return subqueue is not None and (not whose or (whose, subqueue) in self._stakes)

    async def insert(
        self,
        jobs: Sequence[Job],
        now: datetime,
        batch: Batch | None,
        whole: bool,
        companions: Companions | None,
        write: Callable[[list[Job], Learned, Batch | None, bool, Groups], Awaitable[list[InsertAnswer]]],
        look: Callable[[list[Job]], Awaitable[dict[UUID, InsertAnswer]]],
    ) -> list[InsertAnswer]:
        """Run the verb ``Jobs.insert``; ``write`` stores the jobs that have subqueues, or raises ``Collected``;
        ``look`` returns the replies for those that are not new.

        A group with a member that is refused a subqueue is refused, unless its leader is not new.
        """
        groups = Groups(companions) if companions else NO_GROUPS
        joined, whole = groups.joined(jobs), whole or batch is not None
        refuse_jobs(joined)
        while True:
            learned = await self.learn(joined, now=now)
            out = dict[UUID, InsertAnswer]()
            if learned.refused:
                refused = groups.refusals(learned.refusals(joined))
                out = {id: Refused(why) for id, why in refused.items()}
                out |= await look([job for job in jobs if job.id in refused])
                if whole and (none := [one for one in out.values() if isinstance(one, Refused)]):
                    return [none[0]] * len(jobs)
            taken = groups.joined([job for job in jobs if job.id not in out])
            try:
                stored = await write(taken, learned, batch, whole, groups) if taken or batch is not None else []
            except Collected:
                self.doubt(learned)
                continue
            if groups:
                stored = groups.leaders(zip(taken, stored, strict=True))
            if not out:
                return stored
            rest = iter(stored)
            return [out[job.id] if job.id in out else next(rest) for job in jobs]
