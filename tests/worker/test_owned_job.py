"""What a worker says about one job: in line, decided again on conflict, and never for nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, cast
from uuid import uuid4

from headrace.core.change import Applied, Change, Verdict
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.execution import start
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Reason, Status, Verb
from headrace.engine import Claimed, Engine, WorkerInfo
from headrace.errors import Unavailable, Unstorable
from headrace.worker.execution.context import Context
from tests.support.faults import LosesReplies
from tests.support.shop import Shop
from tests.support.until import until

NEVER = Retry(0)


class Picky(LosesReplies):
    """Refuses the changes of one verb; the store's own taste differs by store."""

    refuses: Verb

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        if any(one.verb is self.refuses and not _plain(one) for one in changes):
            raise Unstorable("this row is not for me")
        return await self._engine.jobs.apply(changes, now)


def _plain(change: Change) -> bool:
    return change.job.error is not None and change.job.error.type == "Unstorable"


def picky(shop: Shop, verb: Verb) -> Shop:
    engine = Picky(shop.engine, {})
    engine.refuses = verb
    store = Shop(cast(Engine, engine), shop.host)
    store.handlers = shop.handlers
    return store


async def test_a_report_that_cannot_be_stored_does_not_cost_the_job(shop: Shop) -> None:
    async def odd(ctx: Context) -> str:
        ctx.progress(10, "unspeakable")
        await ctx.flush()
        return "done"

    shop.task(odd)
    store = picky(shop, Verb.PROGRESS)
    async with store.worker():
        job = await shop.ended(await shop.submit("odd"))
    await store.writer.close()
    assert (job.status, job.result, job.attempt) == (Status.COMPLETED, "done", 1)


async def test_an_error_that_cannot_be_stored_is_an_end_too(shop: Shop) -> None:
    async def fails() -> None:
        raise ValueError("unspeakable")

    shop.task(fails)
    store = picky(shop, Verb.FAIL)
    async with store.worker():
        job = await shop.ended(await shop.submit("fails"))
    await store.writer.close()
    assert (job.status, job.reason, job.attempt) == (Status.FAILED, Reason.NON_RETRYABLE, 1)
    assert job.error is not None
    assert job.error.type == "Unstorable"


async def test_reports_do_not_pile_up_before_a_store_that_is_slow(shop: Shop) -> None:
    gate, enough = asyncio.Event(), asyncio.Event()
    written: list[Verb] = []

    class Slow(LosesReplies):
        async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
            await gate.wait()
            written.extend(one.verb for one in changes)
            return await shop.engine.jobs.apply(changes, now)

    async def talks(ctx: Context) -> None:
        for percent in range(100):
            ctx.progress(percent)
            await asyncio.sleep(0.02)
        enough.set()

    shop.task(talks)
    store = Shop(cast(Engine, Slow(shop.engine, {})), shop.host)
    store.handlers = shop.handlers
    async with store.worker():
        id = await shop.submit("talks")
        await asyncio.wait_for(enough.wait(), 45)
        gate.set()
        await shop.ended(id)
    await store.writer.close()
    assert written.count(Verb.PROGRESS) <= 2


async def test_a_cancel_that_comes_while_the_start_is_being_written_is_not_forgotten(shop: Shop) -> None:
    starting, gate, ran = asyncio.Event(), asyncio.Event(), []

    class Slow(LosesReplies):
        async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
            verdicts = await shop.engine.jobs.apply(changes, now)
            if any(one.verb is Verb.START for one in changes):
                starting.set()
                await gate.wait()
            return verdicts

    async def once() -> None:
        ran.append(1)

    shop.task(once)
    store = Shop(cast(Engine, Slow(shop.engine, {})), shop.host)
    store.handlers = shop.handlers
    async with store.worker() as worker:
        id = await shop.submit("once", retry=NEVER)
        await asyncio.wait_for(starting.wait(), 45)
        await shop.cancel(id)
        await until(lambda: any(run._why is not None for run in worker._slots.runs.values()))
        gate.set()
        job = await shop.ended(id)
    await store.writer.close()
    assert (job.status, job.reason, ran) == (Status.CANCELLED, Reason.USER, [])


async def test_a_finish_whose_reply_was_lost_counts_although_the_job_runs_elsewhere_by_now(shop: Shop) -> None:
    other = uuid4()

    class MovesOn(LosesReplies):
        """The reply to the first failure is lost, and before it is repeated another worker has begun the retry."""

        answers: ClassVar[list[Verdict]] = []

        async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
            verdicts = await shop.engine.jobs.apply(changes, now)
            fails = [place for place, change in enumerate(changes) if change.verb is Verb.FAIL]
            if not fails:
                return verdicts
            self.answers.extend(verdicts[place] for place in fails)
            if len(self.answers) > 1:
                return verdicts
            info = WorkerInfo(id=other, host="elsewhere", pid=1, started_at=now, concurrency=1)
            await shop.engine.workers.register(info, now)
            profiles = frozenset(one.id for one in (await shop.engine.documents.profiles()).profiles)
            due = changes[fails[0]].job.available_at
            claimed = await shop.engine.jobs.claim(other, ClaimRequest(n=1, free=1, profiles=profiles), 1, due)
            assert isinstance(claimed, Claimed)
            await shop.engine.jobs.apply([start(claimed.jobs[0], due, shop.engine.rules)], due)
            raise Unavailable("the reply was lost", outcome="unknown")

    async def fails() -> None:
        raise ValueError("once")

    shop.task(fails)
    engine = MovesOn(shop.engine, {})
    store = Shop(cast(Engine, engine), shop.host)
    store.handlers = shop.handlers
    id = await shop.submit("fails", retry=Retry(3, backoff="fixed", initial=1000))  # due only for the other worker
    async with store.worker() as worker:
        await until(lambda: worker.stats.failed == 1, what="the failure is stored")
        assert worker.stats.stale == 0
        job = await shop.get(id)
    await store.writer.close()
    first, again = engine.answers
    assert isinstance(first, Applied)
    assert again == Applied(first.job)
    assert (job.status, job.worker, job.attempt) == (Status.RUNNING, other, 2)
    assert await shop.outcomes(id) == ["failed"]


async def test_how_long_a_handler_took_is_kept_where_the_record_would_not_tell(shop: Shop) -> None:
    async def rides() -> None:
        return None

    async def first() -> None:
        return None

    def adds() -> None:
        logging.getLogger("adds").warning("a line")

    for task in (rides, first, adds):
        shop.task(task)
    async with shop.worker():
        rode, kept = await shop.submit("rides"), await shop.submit("first", retry=NEVER)
        added = await shop.submit("adds")
        await shop.all_ended([rode, kept, added])
    # Where the start rides with the finish, the handler took the time between the two.
    [of_ride] = (await shop.history(rode)).attempts
    assert of_ride.processing_time is None
    assert of_ride.started_at is not None
    assert of_ride.timed().processing_time == (of_ride.finished_at - of_ride.started_at).total_seconds()
    for id in (kept, added):
        [attempt] = (await shop.history(id)).attempts
        assert attempt.started_at is not None
        assert attempt.processing_time is not None
        assert attempt.processing_time >= 0
