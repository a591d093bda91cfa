"""How new jobs are written: as lanes of group commit, so that none waits for what another has to look for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.engine import Duplicated, Engine, InsertAnswer, Inserted, Refused
from headrace.engine.bus import Hint, Topic
from headrace.errors import StoreLost, Unavailable
from headrace.runtime.batcher import MAX_ROWS, Batcher
from headrace.runtime.host import Host
from headrace.runtime.requirements import Requirements

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "ROW", "Submits"]

T = TypeVar("T")

ROW = 400
"""About what a row weighs beside its payload or result."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds between two tries for what is not to be had just now."""

_WAITING = 20_000


def _weight(job: Job) -> int:
    return ROW + len(job.payload_text)


def _id(job: Job) -> UUID:
    return job.id


def _number(job: Job) -> int:
    return job.id.int  # hashed by the interpreter itself, which a UUID is not


_Lot = tuple[Batch | None, Sequence[Job]]
"""Jobs that are written all or none, and the batch that is made with them."""


def _lot_weight(lot: _Lot) -> int:
    return sum(_weight(job) for job in lot[1])


def _lot_id(lot: _Lot) -> UUID:
    batch, jobs = lot
    return jobs[0].id if batch is None else batch.id


class Submits:
    """The writers of new jobs. Plain, keyed and related ones, and what is stored whole, never wait for one another."""

    def __init__(self, engine: Engine, host: Host, *, patience: float, follow: Callable[[], None]) -> None:
        """``follow`` is called when there may be notes to process."""
        self.engine, self.host = engine, host
        self._patience, self._follow = patience, follow
        self.requirements = Requirements(engine, host)
        """Says of new jobs that nobody meets their requirements."""

        def lane(name: str) -> Batcher[Job, InsertAnswer]:
            return Batcher(
                self._insert,
                host,
                name=name,
                identify=_id,
                weigh=_weight,
                distinct=_number,
                capacity=_WAITING,
                patience=patience,
            )

        self._plain, self._keyed = lane("submits"), lane("keyed submits")
        self._related, self._blocked = lane("related submits"), lane("blocked submits")
        self._lots: Batcher[_Lot, list[InsertAnswer]] = Batcher(
            self._insert_lots,
            host,
            name="batches and graphs",
            identify=_lot_id,
            weigh=_lot_weight,
            capacity=_WAITING,
            patience=patience,
        )
        self.lanes: tuple[Batcher[Any, Any], ...] = (
            self._plain,
            self._keyed,
            self._related,
            self._blocked,
            self._lots,
        )
        """All of them."""

    async def insert(self, job: Job) -> Inserted | Duplicated:
        """Store one job."""
        answer = await self._accepted(job, await self._lane([job]).put(job))
        if job.spec.requires:
            await self.requirements.look((job,))
        return answer

    def _lane(self, jobs: Sequence[Job]) -> Batcher[Job, InsertAnswer]:
        """The lane for these jobs: those that need a look at other jobs have lanes of their own."""
        specs = {id(job.spec): job.spec for job in jobs}.values()
        if any(spec.dedup is not None or spec.request_key is not None for spec in specs):
            return self._keyed
        return self._related if any(spec.parent or spec.after or spec.batch for spec in specs) else self._plain

    async def insert_many(self, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store jobs: up to 1,000 in one atomic write, more in chunks of that size, repeatable by id.

        Where some of a chunk wait for others, it is stored whole or not at all: nobody wants a part of a graph to run.
        """
        answers: list[Inserted | Duplicated] = []
        for start in range(0, len(jobs), MAX_ROWS):
            chunk = jobs[start : start + MAX_ROWS]
            if any(job.spec.after for job in chunk):
                answers += await self._whole(None, chunk)
            else:
                answers += await self._all_accepted(chunk, await self._lane(chunk).put_many(chunk))
        await self.requirements.look(jobs)
        return answers

    async def insert_batch(self, batch: Batch, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store a batch with its jobs: up to 1,000 in one atomic write; more in chunks, and it is sealed after them."""
        first, rest = jobs[:MAX_ROWS], jobs[MAX_ROWS:]
        accepted = await self._whole(replace(batch, sealed=not rest), first)
        await self.requirements.look(first)
        if rest:
            accepted += await self.insert_many(rest)
            await self.surely(lambda: self.engine.families.seal(batch.id, self.host.clock.now()))
        self._follow()  # it may have no jobs, or all may have ended
        return accepted

    async def _whole(self, batch: Batch | None, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store jobs, with their batch, all or none; keys and jobs that others have locked are waited for."""
        pause, until = FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while True:
            try:
                answers = await self._lots.put((batch, jobs))
            except Unavailable as error:  # which knows of the lot, not of its jobs
                raise type(error)(str(error), outcome=error.outcome, ids=[job.id for job in jobs]) from error
            refused = next((answer.error for answer in answers if isinstance(answer, Refused)), None)
            if refused is None:
                return [answer for answer in answers if not isinstance(answer, Refused)]
            if not isinstance(refused, Unavailable) or self.host.clock.monotonic() > until:
                raise refused
            await self.host.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def surely(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write something that may be repeated; a store that is away is waited for.

        :raises Unavailable: it was, for longer than is waited
        """
        pause, until = FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while True:
            try:
                return await write()
            except StoreLost:
                raise  # it does not come back
            except Unavailable:
                if self.host.clock.monotonic() > until:
                    raise
            await self.host.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _insert_lots(self, lots: list[_Lot]) -> list[list[InsertAnswer]]:
        answers = [
            await self.engine.jobs.insert(jobs, self.host.clock.now(), batch, whole=True) for batch, jobs in lots
        ]
        self._tell_ready(job for _, jobs in lots for job in jobs)
        return answers

    async def _all_accepted(self, jobs: Sequence[Job], answers: list[InsertAnswer]) -> list[Inserted | Duplicated]:
        return [
            await self._accepted(job, answer) if isinstance(answer, Refused) else answer
            for job, answer in zip(jobs, answers, strict=True)
        ]

    async def _accepted(self, job: Job, answer: InsertAnswer) -> Inserted | Duplicated:
        """The answer, once there is one: a key in a transaction that is still open is waited for, apart from others."""
        pause, until = FIRST_PAUSE, self.host.clock.monotonic() + self._patience
        while isinstance(answer, Refused):
            if not isinstance(answer.error, Unavailable) or self.host.clock.monotonic() > until:
                raise answer.error
            await self.host.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            answer = await self._blocked.put(job)
        return answer

    async def _insert(self, jobs: list[Job]) -> list[InsertAnswer]:
        answers = await self.engine.jobs.insert(jobs, self.host.clock.now())
        self._tell_ready(jobs)
        return answers

    def _tell_ready(self, jobs: Iterable[Job]) -> None:
        # A waiting fetcher also wants to hear of a deferred job: it may fall due before the next poll.
        queues, waiting = set[str](), False
        for job in jobs:
            queues.add(job.spec.queue)
            waiting = waiting or job.waits > 0
        self.engine.bus.send(Hint(Topic.READY, tuple(queues)))
        if waiting:
            self._follow()  # those waited for may have ended already
