"""How new jobs are written: by three batchers, so that no plain job waits for what another has to read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.decision import expires_soon
from headrace.engine import Companions, Duplicated, Engine, InsertAnswer, Inserted, InsertsOne, Refused
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, EngineError, StoreLost, Unavailable, Unstorable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.writes.batcher import MAX_ROWS, Batcher, unstorable
from headrace.runtime.writes.duplicates import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Duplicates
from headrace.runtime.writes.load import Load
from headrace.runtime.writes.requirements import Requirements
from headrace.runtime.writes.webhooks import Webhooks

__all__ = ["ROW_BYTES", "Inserts", "chunks", "weight_of"]

T = TypeVar("T")

ROW_BYTES = 400
"""About what a row weighs beside its payload or result."""

_MAX_WAITING_JOBS = 20_000
_READY = Topic.READY  # looked up once: in Python 3.11 that is a call


def weight_of(job: Job) -> int:
    """About what a new job weighs."""
    text = job.payload_text
    return ROW_BYTES + (len(text) if text.isascii() else 4 * len(text))  # as ``size_at_most``, without a call


_id, _number = attrgetter("id"), attrgetter("id.int")  # a number is hashed by the interpreter itself, a UUID is not


_Lot = tuple[Batch | None, Sequence[Job], Companions]
"""Jobs that are written all or none, the batch that is made with them, and their companions."""

_NONE: Companions = {}


def _lot_weight(lot: _Lot) -> int:
    _, jobs, companions = lot
    return sum(weight_of(job) for job in jobs) + sum(weight_of(one) for others in companions.values() for one in others)


def _lot_id(lot: _Lot) -> UUID:
    batch, jobs, _ = lot
    return jobs[0].id if batch is None else batch.id


def _is_alone(lot: _Lot) -> bool:
    """Whether it only stores one job with its companions."""
    batch, jobs, _ = lot
    return batch is None and len(jobs) == 1


def _is_looked_up(spec: Spec) -> bool:
    """Whether the store must read other jobs before it has this one."""
    keyed = spec.dedup is not None or spec.request_key is not None
    return keyed or spec.parent is not None or spec.batch is not None or bool(spec.after)


def chunks(jobs: Sequence[Job], companions: Companions) -> list[Sequence[Job]]:
    """The jobs in order, as many together as one write may have, their companions included."""
    if not companions:
        return [jobs[start : start + MAX_ROWS] for start in range(0, len(jobs), MAX_ROWS)]
    chunks, rows = list[list[Job]](), MAX_ROWS
    for job in jobs:
        more = 1 + len(companions.get(job.id, ()))
        if rows + more > MAX_ROWS:
            chunks.append([])
            rows = 0
        chunks[-1].append(job)
        rows += more
    return list(chunks)


async def _each(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T | Exception]:
    """What all of these come to, each for itself."""
    found: list[T | Exception] = []
    for one in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(one, BaseException) and not isinstance(one, Exception):
            raise one
        found.append(one)
    return found


def _all(found: Iterable[Inserted | Duplicated | Exception]) -> list[Inserted | Duplicated]:
    """What all came to; raises the first error."""
    answers = list[Inserted | Duplicated]()
    for one in found:
        if isinstance(one, Exception):
            raise one
        answers.append(one)
    return answers


class Inserts:
    """The writers of new jobs. Plain ones, those that must be looked up, and what is stored whole never wait for one
    another."""

    def __init__(
        self,
        engine: Engine,
        host: Host,
        *,
        timeout: float,
        follow: Callable[[], None],
        apply: Callable[[Change], Awaitable[Verdict]],
        load: Load,
    ) -> None:
        """``follow`` is called when there may be notes to process; ``apply`` writes a change; ``load``: what waits."""
        self.engine, self.host = engine, host
        self._duplicates = Duplicates(host, apply, timeout)
        self._timeout, self._follow = timeout, follow
        self.requirements = Requirements(engine, host)
        """Warns of new jobs that no worker can run."""
        self.webhooks = Webhooks(engine, host)
        """Makes the deliveries of new jobs."""

        self._short = engine.jobs.insert_one if isinstance(engine.jobs, InsertsOne) else None
        bounds: dict[str, Any] = {"capacity": _MAX_WAITING_JOBS, "timeout": timeout, "load": load}
        single = bounds | {"identify": _id, "weigh": weight_of, "distinct": _number}
        begin = None if self._short is None else self._begin
        self._plain: Batcher[Job, InsertAnswer] = Batcher(self._insert, host, name="submits", begin=begin, **single)
        self._looked_up: Batcher[Job, InsertAnswer] = Batcher(self._insert, host, name="related submits", **single)
        self._whole: Batcher[_Lot, list[InsertAnswer]] = Batcher(
            self._insert_lots,
            host,
            name="submits of several",
            identify=_lot_id,
            weigh=_lot_weight,
            distinct=_lot_id,
            **bounds,
        )
        self.batchers: tuple[Batcher[Any, Any], ...] = (self._plain, self._looked_up, self._whole)
        """All of them."""

    async def insert(self, job: Job, companions: Sequence[Job] = ()) -> Inserted | Duplicated:
        """Store one job, and in the same commit its companions: all of them or none, and none if the job is not new."""
        if job.spec.webhook is not None or not self.webhooks.silent:
            job, deliveries = await self.with_deliveries(job)
            companions = (*companions, *deliveries)
        if len(companions) >= MAX_ROWS:
            raise ConfigError(f"a job is stored with at most {MAX_ROWS - 1} others, not with {len(companions)}")
        if companions:
            [stored] = await self._whole.put((None, (job,), {job.id: companions}))
        else:
            stored = await (self._looked_up if _is_looked_up(job.spec) else self._plain).put(job)
        answer = stored if isinstance(stored, Inserted) else await self._settled(job, stored, companions)
        if job.spec.requires:
            await self.requirements.look((job,))
        return answer

    def insert_alone(self, job: Job) -> asyncio.Future[list[InsertAnswer]] | None:
        """Begin to store one job the short way, if it is a plain one without deliveries, and nothing is under way;
        None: ``insert`` stores it. So does that if the reply is another than ``Inserted``."""
        spec = job.spec
        if spec.webhook is not None or spec.requires or _is_looked_up(spec) or not self.webhooks.silent:
            return None
        return self._plain.put_alone(job)

    async def with_deliveries(self, job: Job) -> tuple[Job, Sequence[Job]]:
        """A new job with its webhooks, and the deliveries that are to be stored with it."""
        await self._look([job])
        return self.webhooks.with_deliveries(job)

    async def all_with_deliveries(self, jobs: Sequence[Job]) -> tuple[Sequence[Job], Companions]:
        """The same of many: the jobs, and by the id of each what is to be stored with it."""
        if self.webhooks.silent and all(job.spec.webhook is None for job in jobs):
            return jobs, _NONE
        await self._look(jobs)
        found = [self.webhooks.with_deliveries(job) for job in jobs]
        return [job for job, _ in found], {job.id: deliveries for job, deliveries in found if deliveries}

    async def _look(self, jobs: Sequence[Job]) -> None:
        """Read the subscriptions; :raises Unavailable: the store is away, and these jobs are not stored"""
        if self.webhooks.fresh:
            return
        try:
            await self.surely(self.webhooks.look)
        except Unavailable as error:
            raise type(error)(str(error), outcome="refused", ids=[job.id for job in jobs]) from error

    async def insert_many(self, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store jobs: up to 1,000 in one atomic write, more in chunks of that size, repeatable by id. Where some of a
        chunk wait for others, it is stored whole or not at all: no part of a graph may run alone."""
        answers: list[Inserted | Duplicated] = []
        jobs, companions = await self.all_with_deliveries(jobs)
        for chunk in chunks(jobs, companions):
            if any(job.spec.after for job in chunk):
                stored = await self._put_whole(None, chunk, companions)
            else:
                stored = await self._put_each(chunk, companions)
            answers += _all(await self._each_settled(chunk, stored, companions))
        await self.requirements.look(jobs)
        return answers

    async def insert_each(self, jobs: Sequence[Job]) -> list[Inserted | Duplicated | Exception]:
        """Store jobs, up to 1,000 in one write, but each for itself: what comes of it, or why it was not stored. A
        write that may or may not have happened is ``Unavailable`` for each of its jobs, with ``outcome`` unknown."""
        found: list[Inserted | Duplicated | Exception] = []
        try:
            new, companions = await self.all_with_deliveries(jobs)
        except Unavailable as error:
            return [error] * len(jobs)
        for chunk in chunks(new, companions):
            try:
                answers = await self._put_each(chunk, companions)
            except Unstorable:  # which says nothing of the others
                asked = jobs[len(found) : len(found) + len(chunk)]
                found += await _each(map(self.insert, asked))
            except EngineError as error:
                found += [error] * len(chunk)
            else:
                found += await self._each_settled(chunk, answers, companions)
        await self.requirements.look(jobs)
        return found

    async def _put_each(self, jobs: Sequence[Job], companions: Companions) -> list[InsertAnswer]:
        if companions:
            found = await self._whole.put_many([(None, (job,), {job.id: companions.get(job.id, ())}) for job in jobs])
            return [answer for [answer] in found]
        specs = {id(job.spec): job.spec for job in jobs}.values()
        return await (self._looked_up if any(map(_is_looked_up, specs)) else self._plain).put_many(jobs)

    async def _each_settled(
        self, jobs: Sequence[Job], answers: Sequence[InsertAnswer], companions: Companions
    ) -> list[Inserted | Duplicated | Exception]:
        """What comes of each: most are stored; what is in the way of others is decided, or waited for."""
        rest = [pair for pair in zip(jobs, answers, strict=True) if not isinstance(pair[1], Inserted)]
        settled = iter(await _each(self._settled(job, answer, companions.get(job.id, ())) for job, answer in rest))
        return [answer if isinstance(answer, Inserted) else next(settled) for answer in answers]

    async def _settled(self, job: Job, answer: InsertAnswer, companions: Sequence[Job]) -> Inserted | Duplicated:
        """What comes of a job that was refused, or is a duplicate; of one key, in the order of these calls."""
        stored = await self._accepted(job, companions, answer)
        return await self._duplicates.meet(
            job, stored, partial(self._accepted, job, companions), apart=bool(companions)
        )

    async def insert_batch(self, batch: Batch, jobs: Sequence[Job]) -> list[Inserted | Duplicated]:
        """Store a batch with its jobs: up to 1,000 in one atomic write; more in chunks, and it is sealed after them."""
        new, companions = await self.all_with_deliveries(jobs)
        first = next(iter(chunks(new, companions)), ())
        rest = jobs[len(first) :]
        stored = await self._put_whole(replace(batch, sealed=not rest), first, companions)
        accepted = _all(await self._each_settled(first, stored, companions))
        await self.requirements.look(first)
        if rest:
            accepted += await self.insert_many(rest)
            await self.surely(lambda: self.engine.families.seal(batch.id, self.host.clock.now()))
        self._follow()  # it may have no jobs, or all may have ended
        return accepted

    async def _put_whole(self, batch: Batch | None, jobs: Sequence[Job], companions: Companions) -> list[InsertAnswer]:
        """Store jobs, with their batch, all or none; keys and jobs that others have locked are waited for."""
        pauses = self._pauses()
        while True:
            try:
                answers = await self._whole.put((batch, jobs, companions))
            except Unavailable as error:  # which names the lot, not its jobs
                raise type(error)(str(error), outcome=error.outcome, ids=[job.id for job in jobs]) from error
            except Unstorable as error:
                cause = error.__cause__ if isinstance(error.__cause__, Unstorable) else error
                raise unstorable(cause, jobs, _id) from error
            refused = next((answer.error for answer in answers if isinstance(answer, Refused)), None)
            if refused is None:
                return answers
            if not isinstance(refused, Unavailable) or not await pauses.sleep():
                raise refused

    def _pauses(self) -> Pauses:
        return Pauses(self.host, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, timeout=self._timeout)

    async def surely(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write something that may be repeated; a store that is away is waited for;
        :raises Unavailable: it was, beyond the timeout"""
        pauses = self._pauses()
        while True:
            try:
                return await write()
            except StoreLost:
                raise  # it does not come back
            except Unavailable:
                if not await pauses.sleep():
                    raise

    async def _accepted(
        self, job: Job, companions: Sequence[Job], answer: InsertAnswer | None = None
    ) -> Inserted | Duplicated:
        """Store a job with this reply, or again: until it is more than refused for now, as by a key in a transaction
        that is still open."""
        pauses = self._pauses()
        while answer is None or isinstance(answer, Refused):
            if answer is not None and (not isinstance(answer.error, Unavailable) or not await pauses.sleep()):
                raise answer.error
            if companions:
                [answer] = await self._whole.put((None, (job,), {job.id: companions}))
            else:
                answer = await self._looked_up.put(job)
        return answer

    async def _insert_lots(self, lots: list[_Lot]) -> list[list[InsertAnswer]]:
        answers = list[list[InsertAnswer]]()
        for alone, some in groupby(lots, _is_alone):
            if not alone:
                answers += [await self._insert_call(jobs, others, batch, whole=True) for batch, jobs, others in some]
                continue
            found = list(some)
            companions = {id: others for _, _, given in found for id, others in given.items()}
            for chunk in chunks([jobs[0] for _, jobs, _ in found], companions):
                answers += [[answer] for answer in await self._insert_call(chunk, companions)]
        return answers

    async def _insert_call(
        self, jobs: Sequence[Job], companions: Companions, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        own = {job.id: others for job in jobs if (others := companions.get(job.id))}
        now = self.host.clock.now()
        answers = await self.engine.jobs.insert(jobs, now, batch=batch, whole=whole, companions=own or None)
        self._tell_ready((*jobs, *(one for others in own.values() for one in others)))
        return answers

    async def _insert(self, jobs: list[Job]) -> list[InsertAnswer]:
        answers = await self.engine.jobs.insert(jobs, self.host.clock.now())
        self._tell_ready(jobs)
        return answers

    def _begin(self, job: Job, done: Callable[[InsertAnswer | BaseException | None], None]) -> bool:
        """``_insert`` of one plain job that comes alone, where the engine has a short way for it."""

        def over(answer: InsertAnswer | BaseException | None) -> None:
            done(answer)  # first, so that nothing that happens to the hint keeps the batcher waiting
            if isinstance(answer, Inserted):
                self.engine.bus.send(Hint(_READY, (job.spec.queue,)))
                if job.act_by is not None and expires_soon(job, self.engine.rules):
                    self.engine.bus.send(Hint(Topic.DEADLINE))

        assert self._short is not None
        return self._short(job, job.updated_at, over)  # it was made just now

    def _tell_ready(self, jobs: Iterable[Job]) -> None:
        # A waiting fetcher also needs a hint of a deferred job: it may fall due before the next poll.
        queues, waiting, expiring = set[str](), False, False
        for job in jobs:
            queues.add(job.spec.queue)
            waiting = waiting or job.waits > 0
            expiring = expiring or (job.act_by is not None and expires_soon(job, self.engine.rules))
        self.engine.bus.send(Hint(Topic.READY, tuple(queues)))
        if expiring:
            self.engine.bus.send(Hint(Topic.DEADLINE))
        if waiting:
            self._follow()  # those waited for may have ended already
