from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace import Context, RetryLater
from headrace.client.session import Session
from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import Status
from headrace.engine import FindsChanged
from headrace.engine.bus import Hint, Topic
from headrace.errors import JobNotFound, NotOpen, ResultTimeout, Unavailable
from headrace.runtime.clock import SystemClock
from headrace.runtime.watch import watcher as following
from headrace.runtime.watch.watcher import POLL_MAX_SECONDS
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


class Store:
    """An open session whose questions are counted."""

    def __init__(self, session: Session) -> None:
        self.session, self.watcher = session, session.watcher
        self.asked: list[int] = []
        self.broken = False
        self._get = session.engine.jobs.get
        session.engine.jobs.get = self.get  # type: ignore[method-assign]

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        self.asked.append(len(ids))
        if self.broken:
            raise Unavailable("away")
        return await self._get(ids)

    async def end(self, job: Job, *, quietly: bool = False) -> None:
        change = actions.cancel(job, self.session.host.clock.now(), self.session.engine.rules)
        assert change is not None
        if quietly:  # as another process would whose hint was lost
            await self.session.engine.jobs.apply([change], self.session.host.clock.now())
        else:
            await self.session.writer.apply(change)


@pytest.fixture
async def sums() -> AsyncIterator[Sums]:
    made = Sums()
    async with made.app:
        yield made


@pytest.fixture
async def store(sums: Sums) -> Store:
    return Store(sums.app.session)


async def submit(sums: Sums, n: int) -> list[Job]:
    return [handle.last for handle in await sums.add.map([(i,) for i in range(n)]) if handle.last]


async def test_a_hint_ends_the_wait(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    waiting = asyncio.create_task(store.watcher.ended(job.id))
    await until(lambda: store.asked)
    await store.end(job)
    ended = await waiting
    assert ended is not None
    assert ended.status is Status.CANCELLED


async def test_without_hints_asking_finds_out(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    waiting = asyncio.create_task(store.watcher.ended(job.id))
    await until(lambda: len(store.asked) >= 3)
    await store.end(job, quietly=True)
    assert (await waiting) is not None


async def test_many_waits_are_one_question(sums: Sums, store: Store) -> None:
    jobs = await submit(sums, 300)
    waiting = [asyncio.create_task(store.watcher.ended(job.id)) for job in jobs]
    await until(lambda: len(store.asked) >= 3)
    assert store.asked[0] == 300
    assert len(store.asked) <= 20
    for job in jobs:
        await store.end(job)
    assert all(await asyncio.gather(*waiting))


async def test_questions_become_rarer(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    assert await store.watcher.ended(job.id, 0.5) is None
    # Every 20 ms would be 25.
    assert 1 <= len(store.asked) <= 12


async def test_strangers_hints_cost_nothing(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    waiting = asyncio.create_task(store.watcher.ended(job.id, 0.2))
    await until(lambda: store.asked)
    for n in range(50):
        store.session.engine.bus.send(Hint(Topic.ENDED, (str(UUID(int=n)),)))
    assert await waiting is None
    assert len(store.asked) <= 12


async def test_several_wait_for_one_job(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    waits = [asyncio.create_task(store.watcher.ended(job.id)) for _ in range(5)]
    await until(lambda: store.asked)
    waits[0].cancel()
    await store.end(job)
    assert all(await asyncio.gather(*waits[1:]))


async def test_an_ended_job_is_answered_at_once(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    await store.end(job)
    assert await store.watcher.ended(job.id, 5)
    assert len(store.asked) == 1


async def test_a_job_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(JobNotFound):
        await store.watcher.ended(UUID(int=1))


async def test_a_store_that_is_away_is_waited_for(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    store.broken = True
    waiting = asyncio.create_task(store.watcher.ended(job.id))
    await until(lambda: store.asked)
    store.broken = False
    await store.end(job)
    assert await waiting


async def test_closing_ends_every_wait(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    waiting = asyncio.create_task(store.watcher.ended(job.id))
    await until(lambda: store.asked)
    await store.watcher.close()
    with pytest.raises(NotOpen):
        await waiting
    with pytest.raises(NotOpen):
        await store.watcher.ended(job.id)


async def test_following_shows_a_due_job_as_queued(sums: Sums, store: Store) -> None:
    class Jumpy(SystemClock):
        ahead = timedelta()

        def now(self) -> datetime:
            """As of the last jump."""
            return super().now() + self.ahead

    clock = store.session.host.clock = Jumpy()
    job = (await sums.add.options(delay=3600).submit(1)).last
    assert job is not None
    following = store.watcher.follow(job.id)
    assert (await anext(following)).status is Status.SCHEDULED
    clock.ahead = timedelta(hours=2)
    assert (await asyncio.wait_for(anext(following), 45)).status is Status.QUEUED
    await store.end(job)
    assert (await asyncio.wait_for(anext(following), 45)).status is Status.CANCELLED
    with pytest.raises(StopAsyncIteration):
        await anext(following)


async def test_following_hears_of_every_change_without_asking(crowd: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each engine, the worker being another session of the store.

    A hint may be lost on a busy machine, and the follower would ask then, which it is kept from here: of three jobs
    one is told of whole.
    """
    for name in ("POLL_FIRST_SECONDS", "HINTED_FIRST_SECONDS", "POLL_MAX_SECONDS", "HINTED_MAX_SECONDS"):
        monkeypatch.setattr(f"headrace.runtime.watch.watcher.{name}", 3600.0)
    worker = crowd if crowd.app.settings.url == "memory://" else Sums(crowd.app.settings.url)
    go = asyncio.Event()

    @worker.app.task
    async def steps(ctx: Context, tries: int) -> int:
        if ctx.attempt == 1:
            raise RetryLater(0.0)
        await go.wait()
        return tries

    async def told() -> list[Job]:
        go.clear()
        job = await steps.submit(2)
        async with aclosing(crowd.app.jobs.watch(job.id)) as following:
            seen = [await anext(following)]
            await until(lambda: worker.app.session.engine.bus.wanted(Topic.CHANGED))
            async with worker.app.worker(), asyncio.timeout(15):
                try:
                    while seen[-1].status is not Status.RUNNING or seen[-1].attempt < 2:
                        seen.append(await anext(following))
                    go.set()
                    seen += [one async for one in following]
                finally:
                    go.set()
        return seen

    async with worker.app:
        for _ in range(3):
            with suppress(TimeoutError):
                seen = await told()
                break
        else:
            raise AssertionError("three times something was not told")
    assert [one.status for one in seen if one.attempt == 2] == [Status.RUNNING, Status.COMPLETED]
    assert [one.rev for one in seen] == sorted({one.rev for one in seen})


async def test_a_change_while_nobody_waits_for_the_next_is_not_forgotten(
    sums: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLL_FIRST_SECONDS", "HINTED_FIRST_SECONDS", "POLL_MAX_SECONDS", "HINTED_MAX_SECONDS"):
        monkeypatch.setattr(f"headrace.runtime.watch.watcher.{name}", 3600.0)
    (job,) = await submit(sums, 1)
    following = store.watcher.follow(job.id)
    assert (await anext(following)).status is Status.QUEUED
    hint = Hint(Topic.CHANGED, (str(job.id),))
    await store.end(job, quietly=True)
    store.watcher._hear_changes(hint)  # between two steps of whoever follows
    assert (await anext(following)).status is Status.CANCELLED


@pytest.fixture
def hints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked but for a hint."""
    for name in ("POLL_FIRST_SECONDS", "HINTED_FIRST_SECONDS", "POLL_MAX_SECONDS", "HINTED_MAX_SECONDS"):
        monkeypatch.setattr(f"headrace.runtime.watch.watcher.{name}", 3600.0)


async def test_a_hint_that_comes_while_its_reader_is_busy_is_kept_for_it(
    sums: Sums, store: Store, hints_alone: None
) -> None:
    job, other = await submit(sums, 2)
    waiting = asyncio.create_task(store.watcher.ended(other.id))  # so that hints are taken meanwhile
    busy = store.watcher.follow(job.id)
    assert (await anext(busy)).status is Status.QUEUED
    await until(lambda: store.asked)
    await store.end(job, quietly=True)
    store.session.engine.bus.send(Hint(Topic.CHANGED, (str(job.id),)))
    await until(lambda: not store.watcher._hinted and store.watcher._told)
    async with asyncio.timeout(30):
        assert (await anext(busy)).status is Status.CANCELLED
    await store.end(other)
    await waiting


async def test_what_another_reader_is_told_meanwhile_is_kept_for_a_busy_one(
    sums: Sums, store: Store, hints_alone: None
) -> None:
    (job,) = await submit(sums, 1)
    busy, quick = (store.watcher.follow(job.id) for _ in range(2))
    for one in (busy, quick):
        assert (await anext(one)).status is Status.QUEUED
    step = asyncio.ensure_future(anext(quick))
    await until(lambda: job.id in store.watcher._watched)
    await store.end(job, quietly=True)
    store.session.engine.bus.send(Hint(Topic.CHANGED, (str(job.id),)))
    assert (await step).status is Status.CANCELLED
    async with asyncio.timeout(30):
        assert (await anext(busy)).status is Status.CANCELLED


async def test_a_hint_that_comes_with_an_answer_is_kept_for_who_gets_that(
    sums: Sums, store: Store, hints_alone: None
) -> None:
    """The answer is on its way to the reader while the store is asked again."""
    (job,) = await submit(sums, 1)
    session, hint = store.session, Hint(Topic.CHANGED, (str(job.id),))
    following = store.watcher.follow(job.id)
    assert (await anext(following)).status is Status.QUEUED
    step = asyncio.ensure_future(anext(following))
    await until(lambda: job.id in store.watcher._watched)
    now = session.host.clock.now()
    change = actions.postpone(job, now + timedelta(hours=1), now)
    await session.engine.jobs.apply([change], now)
    get, answers = session.engine.jobs.get, list[list[Job | None]]()

    async def late(ids: Sequence[UUID]) -> list[Job | None]:
        answer = await get(ids)
        if not answers:
            await store.end(change.job, quietly=True)
            store.watcher._hear_changes(hint)
        else:
            await until(step.done)  # as long as a store may take that is elsewhere
        answers.append(answer)
        return answer

    session.engine.jobs.get = late  # type: ignore[method-assign]
    store.watcher._hear_changes(hint)
    assert (await step).status is Status.SCHEDULED
    await until(lambda: len(answers) == 2)  # of which nobody was there to hear the second
    async with asyncio.timeout(30):
        assert [one.status async for one in following] == [Status.CANCELLED]


async def test_what_was_left_out_of_hints_is_asked_about_for_a_busy_reader_too(
    sums: Sums, store: Store, hints_alone: None
) -> None:
    job, other = await submit(sums, 2)
    waiting = asyncio.create_task(store.watcher.ended(other.id))
    busy = store.watcher.follow(job.id)
    assert (await anext(busy)).status is Status.QUEUED
    await until(lambda: store.asked)
    await store.end(job, quietly=True)
    store.watcher._hear_changes(Hint(Topic.CHANGED, (), 1))
    await until(lambda: not store.watcher._missed)
    async with asyncio.timeout(30):
        assert (await anext(busy)).status is Status.CANCELLED
    await store.end(other)
    await waiting


async def test_when_changes_were_left_out_what_is_followed_is_looked_at(
    sums: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("POLL_FIRST_SECONDS", "HINTED_FIRST_SECONDS", "HINTED_MAX_SECONDS"):
        monkeypatch.setattr(f"headrace.runtime.watch.watcher.{name}", 3600.0)
    monkeypatch.setattr("headrace.runtime.watch.watcher.POLL_MAX_SECONDS", 0.01)
    jobs = await submit(sums, 3)
    for job, hint in zip(jobs, (Hint(Topic.CHANGED), Hint(Topic.CHANGED, ("x",), 5), Hint(Topic.CHANGED)), strict=True):
        following = store.watcher.follow(job.id)
        await anext(following)
        step = asyncio.ensure_future(anext(following))
        await until(lambda job=job: job.id in store.watcher._watched)  # type: ignore[misc]
        await store.end(job, quietly=True)
        store.session.engine.bus.send(hint)
        assert (await step).status is Status.CANCELLED


async def test_while_hints_come_questions_are_rare_and_a_lost_one_makes_them_frequent(sums: Sums, store: Store) -> None:
    watcher = store.watcher
    jobs = await submit(sums, 2)
    waits = [following._Wait(job) for job in jobs]
    assert [watcher._first(wait) for wait in waits] == [following.POLL_FIRST_SECONDS] * 2
    watcher._hear_changes(Hint(Topic.CHANGED, (str(jobs[0].id),)))
    assert watcher._first(waits[0]) == following.HINTED_FIRST_SECONDS
    assert (
        watcher._first(following._Wait[Job](None)) == following.POLL_FIRST_SECONDS
    )  # who waits for a result is not kept waiting
    watched = following._Watched[Job](jobs[0].id, following.POLL_FIRST_SECONDS, None)
    watched.waits.add(waits[0])
    assert watcher._longest(watched) == following.HINTED_MAX_SECONDS
    watched.waits.add(following._Wait(None))
    assert watcher._longest(watched) == following.POLL_MAX_SECONDS
    watching = watcher.follow(jobs[1].id)
    await anext(watching)
    await store.end(jobs[1], quietly=True)
    assert (await anext(watching)).ended  # an end is told by hints of its own
    assert watcher._told
    watcher._polled = frozenset({jobs[0].id})
    watcher._answer(jobs[0].id, waits[0], replace(jobs[0], rev=2))
    assert not watcher._told


async def test_changes_are_listened_for_only_while_somebody_follows(
    sums: Sums, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.runtime.watch.watcher.LINGER_SECONDS", 0.01)
    bus = store.session.engine.bus
    (job,) = await submit(sums, 1)
    waiting = asyncio.create_task(store.watcher.ended(job.id))
    await until(lambda: store.asked)
    assert not bus.wanted(Topic.CHANGED)  # a wait for the end is no reason to hear of everything
    following = store.watcher.follow(job.id)
    await anext(following)
    assert bus.wanted(Topic.CHANGED)
    await following.aclose()
    await until(lambda: not bus.wanted(Topic.CHANGED))
    await store.end(job)
    await waiting


class Counted:
    """An App on a real engine whose questions and subscriptions are counted as they pass."""

    def __init__(self, sums: Sums) -> None:
        engine = sums.app.session.engine
        self.questions: list[int] = []
        """How many jobs or batches each was about."""
        self.subscriptions = 0
        self._began = time.monotonic()
        get, batches, listen = engine.jobs.get, engine.families.batches, engine.bus.listen

        async def counted_get(ids: Sequence[UUID]) -> list[Job | None]:
            self.questions.append(len(ids))
            return await get(ids)

        async def counted_changed(known: Sequence[tuple[UUID, int]]) -> list[UUID]:
            self.questions.append(len(known))
            return await changed(known)

        async def counted_batches(ids: Sequence[UUID]) -> list[Batch | None]:
            self.questions.append(len(ids))
            return await batches(ids)

        def counted_listen(topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
            self.subscriptions += Topic.ENDED in topics
            return listen(topics, listener)

        vars(engine.jobs)["get"] = counted_get
        if isinstance(engine.jobs, FindsChanged):
            changed = engine.jobs.changed
            vars(engine.jobs)["changed"] = counted_changed
        vars(engine.families)["batches"] = counted_batches
        vars(engine.bus)["listen"] = counted_listen

    def clear(self) -> None:
        """Count anew."""
        self.questions.clear()
        self._began = time.monotonic()

    @property
    def by_one_alone(self) -> float:
        """As many as one who waits would ask in this time: a dozen in two seconds, then one in each."""
        return 12 + (time.monotonic() - self._began) / POLL_MAX_SECONDS


@pytest.fixture(params=ENGINES)
async def crowd(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    """An App on each engine."""
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


MANY = 10_000


@pytest.mark.timeout(240)
async def test_ten_thousand_waits_for_as_many_jobs(crowd: Sums) -> None:
    counted = Counted(crowd)
    handles = await crowd.add.map([(i,) for i in range(MANY)])
    waits = [asyncio.create_task(handle.result()) for handle in handles]
    await until(lambda: sum(counted.questions) >= 3 * MANY, within=120)  # nothing moves, and they ask all the same
    # An engine answers a thousand at a time.
    assert len(counted.questions) * 500 <= sum(counted.questions)
    counted.questions.clear()
    async with crowd.app.worker(concurrency=100):
        assert await asyncio.gather(*waits) == [i + 1 for i in range(MANY)]
    assert len(counted.questions) <= MANY // 10
    assert counted.subscriptions == 1


@pytest.mark.timeout(240)
async def test_ten_thousand_waits_for_one_job(crowd: Sums) -> None:
    counted = Counted(crowd)
    handle = await crowd.add.submit(1)
    short = [crowd.add.handle(handle.id).result(timeout=0.5) for _ in range(MANY)]
    assert {type(one) for one in await asyncio.gather(*short, return_exceptions=True)} == {ResultTimeout}
    assert 1 <= len(counted.questions) <= counted.by_one_alone
    counted.clear()
    waits = [asyncio.create_task(crowd.add.handle(handle.id).result()) for _ in range(MANY)]
    await until(lambda: len(counted.questions) >= 3)
    async with crowd.app.worker():
        assert await asyncio.gather(*waits) == [2] * MANY
    assert set(counted.questions) == {1}
    assert len(counted.questions) <= counted.by_one_alone
    assert counted.subscriptions == 1


async def test_ten_thousand_waits_for_one_batch(crowd: Sums) -> None:
    counted = Counted(crowd)
    async with crowd.app.batch() as batch:
        batch.add(crowd.add.draft(1))
    waits = [asyncio.create_task(crowd.app.batches.handle(batch.id).wait()) for _ in range(MANY)]
    await until(lambda: len(counted.questions) >= 3)
    async with crowd.app.worker():
        assert {ended.tally.completed for ended in await asyncio.gather(*waits)} == {1}
    assert set(counted.questions) == {1}
    assert len(counted.questions) <= counted.by_one_alone
    assert counted.subscriptions == 1


async def test_who_has_no_time_looks_once(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    assert await store.watcher.ended(job.id, 0) is None
    await store.end(job)
    ended = await store.watcher.ended(job.id, 0)
    assert ended is not None
    assert ended.status is Status.CANCELLED
    assert store.asked == [1, 1]
    with pytest.raises(JobNotFound):
        await store.watcher.ended(UUID(int=1), 0)


async def test_who_waits_later_shares_the_questions(sums: Sums, store: Store) -> None:
    (job,) = await submit(sums, 1)
    first = asyncio.create_task(store.watcher.ended(job.id))
    await until(lambda: len(store.asked) >= 3)
    later = [asyncio.create_task(store.watcher.ended(job.id)) for _ in range(100)]
    before = len(store.asked)
    await until(lambda: len(store.asked) >= before + 2)
    assert set(store.asked) == {1}
    first.cancel()
    await store.end(job)
    assert all(await asyncio.gather(*later))


async def test_of_many_that_are_followed_only_those_are_read_that_changed(tmp_path: Path) -> None:
    sums = Sums(url_of("sqlite", tmp_path))
    async with sums.app:
        handles = await sums.add.options(delay=600).map([(i,) for i in range(3 * following.MIN_CHECKED_JOBS)])
        store = Store(sums.app.session)
        watcher = store.watcher
        follows = [watcher.follow(handle.id) for handle in handles]
        for follow in follows:
            await anext(follow)
        waits = [asyncio.create_task(anext(follow)) for follow in follows]
        await until(lambda: len(watcher._watched) == len(handles))
        before = handles[7].last
        assert before is not None
        await store.end(before, quietly=True)
        store.asked.clear()
        watcher._hear_changes(Hint(Topic.CHANGED, (), 1))
        assert (await waits[7]).status is Status.CANCELLED
        assert store.asked == [1]
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
