"""A feed: every change that matches, as it is by the time it is read; bounded, and right also without hints."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from headrace import Job
from headrace.core.lifecycle import actions
from headrace.core.query import Filter
from headrace.core.updates import Changed
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, NotOpen, StoreLost, Unavailable
from headrace.runtime.watch import feed as feeds
from headrace.runtime.watch.feed import Feed
from headrace.testing import FakeClock
from tests.crash.app import app, nothing, waits_for
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.crew import crew
from tests.support.until import until

pytestmark = pytest.mark.every_engine


class Told:
    """What a feed gave, read by a task of its own."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.changes = feed, list[Changed]()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for changed in self.feed:
            self.changes.append(changed)

    @property
    def jobs(self) -> list[Job]:
        return [job for changed in self.changes for job in changed.jobs]

    def statuses(self, id: UUID) -> list[str]:
        return [job.status.value for job in self.jobs if job.id == id]

    @property
    def dropped(self) -> int:
        return sum(changed.dropped for changed in self.changes)

    def ended(self) -> set[UUID]:
        return {job.id for job in self.jobs if job.ended}


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


@pytest.fixture
async def here() -> AsyncIterator[Sums]:
    made = Sums()
    async with made.app:
        yield made


async def quietly_cancel(sums: Sums, job: Job) -> None:
    """As another process would whose hint was lost."""
    session = sums.app.session
    change = actions.cancel(job, session.host.clock.now(), session.engine.rules)
    assert change is not None
    await session.engine.jobs.apply([change], session.host.clock.now())


def hint(*jobs: Job, dropped: int = 0) -> Hint:
    return Hint(Topic.CHANGED, tuple(str(job.id) for job in jobs), dropped)


async def test_changes_are_given_as_they_happen(sums: Sums) -> None:
    async with sums.app.jobs.feed() as feed:
        told = Told(feed)
        job = await sums.add.submit(1)
        await until(lambda: told.statuses(job.id) == ["queued"])
        await job.cancel()
        await until(lambda: told.statuses(job.id)[-1] == "cancelled")
        assert next(one for one in reversed(told.jobs)) == await sums.app.jobs.get(job.id)
        await job.retry()
        await until(lambda: told.statuses(job.id)[-1] == "queued")
        async with sums.app.worker():
            await until(lambda: told.statuses(job.id)[-1] == "completed")
        before = len(told.jobs)
        feed._hear(Hint(Topic.CHANGED, (str(job.id),)))  # a hint that comes twice
        await until(lambda: not feed._hinted)
        assert len(told.jobs) == before
    await told.task


async def test_the_worker_of_another_session_is_heard(sums: Sums) -> None:
    other = Sums(sums.app.settings.url)
    if sums.app.settings.url == "memory://":
        other = sums  # a memory store is this App's own
    async with other.app, sums.app.jobs.feed(task="multiply") as feed:
        told = Told(feed)
        async with other.app.worker():
            job, stranger = await sums.multiply.submit(6, 7), await sums.add.submit(1)
            await stranger.result(timeout=30)
            await until(lambda: job.id in told.ended())
        assert {one.task for one in told.jobs} == {"multiply"}
        assert told.jobs[-1].result == 42
    await told.task


async def test_every_end_is_given_also_of_many(sums: Sums) -> None:
    async with sums.app.jobs.feed() as feed:
        told = Told(feed)
        handles = await sums.add.map([(n,) for n in range(300)])
        async with sums.app.worker(concurrency=10):
            await asyncio.gather(*(handle.result(timeout=50) for handle in handles))
        # What was left out is said; what the feed knew to be live it looks at again by itself.
        await until(lambda: {job.id for job in told.jobs} == told.ended())
        assert {handle.id for handle in handles} == told.ended() or told.dropped


async def test_a_filter_is_that_of_jobs(here: Sums) -> None:
    with pytest.raises(ConfigError, match="statuses are"):
        here.app.jobs.feed(status="gone")
    parent = await here.add.submit(1)
    async with here.app.jobs.feed(status=["queued", "failed"], tag="t") as feed:
        told = Told(feed)
        one, other = await here.multiply.submit(1, 2), await here.add.submit(2)
        await until(lambda: told.statuses(one.id) == ["queued"])
        await here.app.jobs.handle(parent.id).cancel()
        await here.app.jobs.handle(one.id).resolve(error="no")
        await until(lambda: told.statuses(one.id) == ["queued", "failed"])
        assert told.statuses(other.id) == told.statuses(parent.id) == []


async def test_a_slow_reader_gets_each_job_once_as_it_is_by_then(here: Sums) -> None:
    async with here.app.jobs.feed() as feed:
        jobs = [await here.add.options(delay=3600).submit(n) for n in range(20)]
        for job in jobs:
            await job.cancel()
            await job.retry()
            await job.cancel()
        await until(lambda: len(feed._hinted) == 20)
        first = await anext(feed)
        assert [job.status.value for job in first.jobs] == ["cancelled"] * 20
        assert first.dropped == 0


async def test_the_backlog_of_a_slow_reader_is_bounded_and_what_is_over_is_counted(here: Sums) -> None:
    async with here.app.jobs.feed() as feed:
        for n in range(30):
            feed._hear(Hint(Topic.CHANGED, tuple(str(UUID(int=n * 200 + k)) for k in range(200))))
        assert len(feed._hinted) == feeds.MAX_BACKLOG_JOBS
        assert feed._dropped == 6000 - feeds.MAX_BACKLOG_JOBS
        changed = await anext(feed)
        assert changed == Changed((), 6000 - feeds.MAX_BACKLOG_JOBS)


async def test_reads_are_bounded(here: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    get = here.app.session.engine.jobs.get

    async def counted(ids: Sequence[UUID]) -> list[Job | None]:
        asked.append(len(ids))
        return await get(ids)

    async with here.app.jobs.feed() as feed:
        monkeypatch.setattr(here.app.session.engine.jobs, "get", counted)
        feed._hear(Hint(Topic.CHANGED, tuple(str(UUID(int=n)) for n in range(450))))
        told = Told(feed)
        await until(lambda: not feed._hinted)
        assert asked[:3] == [200, 200, 50]
        # Where senders leave changes out, a sample is enough: the newest.
        monkeypatch.setattr(feeds, "_FLOOD_SECONDS", 600.0)
        asked.clear()
        feed._hear(Hint(Topic.CHANGED, tuple(str(UUID(int=n)) for n in range(120)), 5000))
        await until(lambda: len(asked) >= 2)
        assert asked[:2] == [50, 50]
        assert feed._hinted.keys() <= {str(UUID(int=n)) for n in range(20)}
        await until(lambda: told.dropped == 5000)


async def test_a_lost_hint_is_made_up_for(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "POLL_SECONDS", 0.2)
    before = (await sums.add.submit(0)).last
    assert before is not None
    async with sums.app.jobs.feed() as feed:
        told = Told(feed)
        await quietly_cancel(sums, before)  # it was live when the feed was opened
        await until(lambda: told.statuses(before.id) == ["cancelled"])
        session = sums.app.session
        job = sums.add.draft(1)._job(session.host.clock.now())
        await session.engine.jobs.insert([job], session.host.clock.now())  # nobody is told
        await until(lambda: told.statuses(job.id) == ["queued"])
        stored = (await session.engine.jobs.get([job.id]))[0]
        assert stored is not None
        await quietly_cancel(sums, stored)
        await until(lambda: told.statuses(job.id) == ["queued", "cancelled"])


async def test_a_hint_without_names_is_a_reason_to_look(here: Sums) -> None:
    job = (await here.add.submit(0)).last
    assert job is not None
    async with here.app.jobs.feed() as feed:
        told = Told(feed)
        await quietly_cancel(here, job)
        here.app.session.engine.bus.send(Hint(Topic.CHANGED))
        await until(lambda: told.statuses(job.id) == ["cancelled"])


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_job_that_falls_due_is_shown_as_queued_though_nobody_wrote_that(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its moment, not when everything is looked at anyway."""
    monkeypatch.setattr(feeds, "POLL_SECONDS", 3600.0)
    here, clock = Sums(), FakeClock()
    with here.app.override(url=url_of(kind, tmp_path), clock=clock):
        async with here.app:
            waits = await here.add.options(delay=60).submit(1)
            async with here.app.jobs.feed() as feed:
                told = Told(feed)
                new = await here.add.options(delay=120).submit(1)
                late = await here.add.options(delay=3600).submit(1)
                await until(lambda: told.statuses(late.id) == told.statuses(new.id) == ["scheduled"])
                for due, first in ((waits, ["queued"]), (new, ["scheduled", "queued"])):
                    clock.advance(61)
                    here.app.session.engine.bus.send(
                        Hint(Topic.READY)
                    )  # as the clock of a fake passes for nobody who sleeps
                    await until(lambda due=due, first=first: told.statuses(due.id) == first)  # type: ignore[misc]
                assert told.statuses(late.id) == ["scheduled"]


async def test_it_sleeps_no_longer_than_until_a_job_falls_due(here: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.add.options(delay=3600).submit(1)
    slept = list[float]()

    async def wait(event: asyncio.Event, seconds: float) -> bool:
        slept.append(seconds)
        raise StoreLost("enough")

    async with here.app.jobs.feed() as feed:
        feed._poll_at = float("inf")
        monkeypatch.setattr(here.app.host, "wait", wait)
        with pytest.raises(StoreLost):
            await anext(feed)
    assert 1800 < slept[0] <= 3600


async def test_many_new_jobs_are_given_up_to_a_number_and_counted(here: Sums) -> None:
    async with here.app.jobs.feed() as feed:
        await here.add.map([(n,) for n in range(700)])
        await until(lambda: feed._may_be_new)
        changed = await anext(feed)
        assert len(changed.jobs) == 200
        assert changed.dropped == 500
        assert [job.seq for job in changed.jobs] == sorted(job.seq for job in changed.jobs)
        assert changed.jobs[-1] == (await here.app.jobs.list(limit=1)).items[0]


async def test_a_store_that_is_away_is_waited_for(here: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_STORE_RETRY_SECONDS", 0.02)
    job = (await here.add.submit(0)).last
    assert job is not None
    away, get, find = list[int](), here.app.session.engine.jobs.get, here.app.session.engine.records.find

    async def broken(*words: object) -> list[Job | None]:
        away.append(1)
        raise Unavailable("away")

    async with here.app.jobs.feed() as feed:
        monkeypatch.setattr(here.app.session.engine.jobs, "get", broken)
        monkeypatch.setattr(here.app.session.engine.records, "find", broken)
        told = Told(feed)
        feed._hear(hint(job))
        feed._hear(Hint(Topic.READY))
        await until(lambda: len(away) >= 4)
        await quietly_cancel(here, job)
        assert list(feed._hinted) == [str(job.id)]
        monkeypatch.setattr(here.app.session.engine.jobs, "get", get)
        monkeypatch.setattr(here.app.session.engine.records, "find", find)
        await until(lambda: told.statuses(job.id) == ["cancelled"])

        async def lost(*words: object) -> list[Job | None]:
            raise StoreLost("gone")

        monkeypatch.setattr(here.app.session.engine.jobs, "get", lost)
        feed._hear(hint(job))
        with pytest.raises(StoreLost):
            await told.task


async def test_a_store_that_is_away_at_the_beginning_is_an_error(here: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*words: object) -> object:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(here.app.session.engine.records, "find", broken)
        with pytest.raises(Unavailable):
            await anext(here.app.jobs.feed())
    assert not here.app.session.engine.bus.wanted(Topic.CHANGED)


async def test_it_listens_only_while_it_is_open(here: Sums) -> None:
    bus = here.app.session.engine.bus
    feed = here.app.jobs.feed()
    assert not bus.wanted(Topic.CHANGED)
    told = Told(feed)
    await until(lambda: bus.wanted(Topic.CHANGED))
    await feed.aclose()
    await feed.aclose()
    await asyncio.wait_for(told.task, 30)
    assert not bus.wanted(Topic.CHANGED)
    with pytest.raises(StopAsyncIteration):
        await anext(feed)


async def test_one_that_was_left_listens_no_more(here: Sums) -> None:
    bus, left = here.app.session.engine.bus, list[weakref.ref[Feed]]()

    async def first(feed: Feed) -> None:
        async for _ in feed:
            break

    async def leave() -> None:
        feed = here.app.jobs.feed()
        left.append(weakref.ref(feed))
        reading = asyncio.create_task(first(feed))
        await until(partial(getattr, feed, "_poll_at"))  # it knows what was there before
        del feed
        gc.collect()  # while it is read, it is kept
        assert bus.wanted(Topic.CHANGED)
        await here.add.submit(1)
        await asyncio.wait_for(reading, 30)

    for _ in range(3):
        await leave()
        gc.collect()
        assert left[-1]() is None
        await until(lambda: not bus.wanted(Topic.CHANGED))


async def test_one_that_outlives_its_loop_is_left_in_peace() -> None:
    def unlisten() -> None:
        raise AssertionError("there is no loop to call it on")

    loop = asyncio.new_event_loop()
    loop.close()
    feeds._soon(loop, unlisten)


async def test_closing_the_app_ends_it_with_an_error() -> None:
    sums = Sums()
    async with sums.app:
        feed = sums.app.jobs.feed()
        told = Told(feed)
        await until(lambda: sums.app.session.engine.bus.wanted(Topic.CHANGED))
    with pytest.raises(NotOpen, match="closed"):
        await asyncio.wait_for(told.task, 30)


async def test_pruned_jobs_are_forgotten(here: Sums) -> None:
    job = await here.add.submit(1)
    async with here.app.jobs.feed() as feed:
        told = Told(feed)
        await job.cancel()
        await until(lambda: told.statuses(job.id) == ["cancelled"])
        now = here.app.host.clock.now() + timedelta(days=1)
        assert await here.app.session.engine.jobs.delete({(await here.app.jobs.get(job.id)).status: now}) == 1
        feed._hear(Hint(Topic.CHANGED, (str(job.id),)))
        await until(lambda: job.id not in feed._memory)
        assert feed._filter == Filter()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_work_of_other_processes_is_heard(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in a process of its own, and no polling here: what is given was told by its hints."""
    monkeypatch.setattr(feeds, "POLL_SECONDS", 3600.0)
    url, go, note = url_of(kind, tmp_path), tmp_path / "go", tmp_path / "note"
    with app.override(url=url), crew(url, tmp_path, beat=2.0, lease=20.0) as workers:
        async with app, app.jobs.feed() as feed:
            told = Told(feed)
            workers.hire()

            async def heard() -> bool:
                """Whether a job of theirs was given twice: they know by now that somebody listens."""
                await nothing.submit()
                return any(len(told.statuses(one.id)) > 1 for one in told.jobs if one.ended)

            await until(heard, within=90)
            job = await waits_for.submit(str(go), str(note))
            await until(lambda: told.statuses(job.id)[-1:] == ["running"])
            go.touch()
            await until(lambda: told.statuses(job.id)[-1:] == ["completed"])
