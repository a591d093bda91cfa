"""Batches through an App and its workers, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import asyncpg
import pytest
from msgspec.structs import replace

from headrace import App, Context, Duplicate, Job, JobCancelled, JobFailed, JobHandle, ResultTimeout, Retry, Status
from headrace.client.batch import Batch, BatchHandle
from headrace.client.submission.submit import jobs_of
from headrace.core.change import BatchTally
from headrace.core.status import LIVE
from headrace.errors import BatchFailed, ConfigError, HeadraceError, JobNotFound, TransitionRefused
from headrace.testing import harness
from tests.support.apps import ENGINES, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


class Work:
    """Tasks to put together, and what reports on them."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.gate = asyncio.Event()
        self.reports: list[Job] = []

        @self.app.task(retry=Retry(0))
        async def double(n: int) -> int:
            if n < 0:
                raise ValueError(f"no {n}")
            return n * 2

        @self.app.task
        async def wait(n: int) -> int:
            await self.gate.wait()
            return n

        @self.app.task
        def name(n: int) -> str:
            return f"no {n}"

        @self.app.task
        async def report(ctx: Context, to: str) -> None:
            self.reports.append(ctx.job)

        @self.app.task
        async def alert(ctx: Context) -> None:
            self.reports.append(ctx.job)

        self.double, self.wait, self.name, self.report, self.alert = double, wait, name, report, alert

    async def reported(self, n: int) -> list[str]:
        """The tasks of the reports, once there are so many."""
        await until(lambda: len(self.reports) == n, what=f"{n} reports")
        await asyncio.sleep(0.1)  # whatever would come twice
        assert len(self.reports) == n
        return [job.task for job in self.reports]


async def test_a_batch_of_mixed_tasks(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        async with work.app.batch(on_complete=work.report.draft("me"), on_failure=work.alert.draft()) as batch:
            for n in range(3):
                batch.add(work.double.draft(n))
            batch.add(work.name.draft(7))
            with pytest.raises(ConfigError, match="not stored yet"):
                _ = batch.id
        assert await batch.results(timeout=45) == [0, 2, 4, "no 7"]
        assert await work.reported(1) == ["report"]
        assert work.reports[0].payload == {"to": "me"}
        assert work.reports[0].metadata["batch"] == str(batch.id)
        record = await batch.refresh()
        assert (record.tally, record.sealed, record.abandoned) == (BatchTally(4, 4), True, False)
        assert record.ended_at is not None
        # Whoever has the id finds the same.
        assert await work.app.batches.handle(str(batch.id)).results() == [0, 2, 4, "no 7"]
        page = await work.app.jobs.list(batch=batch.id)
        assert {job.id for job in page.items} == {handle.id for handle in batch.handles}
        with pytest.raises(ConfigError, match="no more drafts"):
            batch.add(work.double.draft(1))


async def test_batches_are_listed_newest_first(url: str) -> None:
    work = Work(url)
    async with work.app:
        ids = list[object]()
        for n in range(3):
            async with work.app.batch() as batch:
                batch.add_many(work.double.draft(one) for one in range(n))
            ids.append(batch.id)
        page = await work.app.batches.list(limit=2)
        assert [(one.id, one.tally.total) for one in page.items] == [(ids[2], 2), (ids[1], 1)]
        rest = await work.app.batches.list(cursor=page.cursor)
        assert ([one.id for one in rest.items], rest.cursor) == ([ids[0]], None)
        with pytest.raises(ConfigError, match="limit"):
            await work.app.batches.list(limit=0)


async def test_nothing_is_stored_if_the_block_raises(url: str) -> None:
    work = Work(url)
    async with work.app:
        batch = work.app.batch(on_complete=work.report.draft("me"))

        async def fill() -> None:
            async with batch:
                batch.add(work.double.draft(1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fill()
        assert (await work.app.stats.counts()).ledger.accepted == 0


async def test_the_failures_come_as_one_error(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        async with work.app.batch(on_complete=work.report.draft("me"), on_failure=work.alert.draft()) as batch:
            batch.add_many(work.double.draft(n) for n in (1, -1, 2, -2))
            batch.add(work.wait.draft(1))
        await batch.handles[4].cancel()
        with pytest.raises(BatchFailed, match="3 of the 5") as caught:
            await batch.results(timeout=45)
        assert isinstance(caught.value, HeadraceError)
        assert [type(error) for error in caught.value.exceptions] == [JobFailed, JobFailed, JobCancelled]
        assert "no -1" in str(caught.value.exceptions[0])
        failed, rest = caught.value.split(JobFailed)
        assert isinstance(failed, BatchFailed)
        assert rest is not None
        assert sorted(await work.reported(2)) == ["alert", "report"]
        assert (await batch.refresh()).tally == BatchTally(5, 2, 2, 1)


async def test_jobs_come_as_they_end(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        async with work.app.batch() as batch:
            batch.add(work.wait.draft(1))
            batch.add(work.double.draft(-1))
            batch.add(work.double.draft(5))
        seen = list[JobHandle[Any]]()
        async with asyncio.timeout(45):
            async for job in batch.as_completed():
                seen.append(job)
                if len(seen) == 2:
                    work.gate.set()
        assert seen[2].id == batch.handles[0].id
        assert {job.status for job in seen} == {Status.COMPLETED, Status.FAILED}
        elsewhere = work.app.batches.handle(batch.id)
        assert {job.id async for job in elsewhere.as_completed()} == {job.id for job in seen}


async def test_a_batch_is_watched_to_its_end(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        async with work.app.batch() as batch:
            batch.add(work.wait.draft(1))
            batch.add(work.double.draft(5))
        seen = list[Batch]()
        async with asyncio.timeout(45):
            async for record in work.app.batches.handle(batch.id).watch():
                seen.append(record)
                if record.tally.completed == 1:
                    work.gate.set()
        assert [one.tally.completed for one in seen][-2:] == [1, 2]
        assert all(one != other for one, other in pairwise(seen))
        assert [one.tally async for one in work.app.batches.watch(str(batch.id))] == [seen[-1].tally]
        with pytest.raises(JobNotFound, match="no batch"):
            await anext(work.app.batches.watch(work.app.host.new_id()))


async def test_a_batch_is_cancelled(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker(concurrency=2):
        async with work.app.batch(on_failure=work.alert.draft()) as batch:
            batch.add_many(work.wait.draft(n) for n in range(20))
        await until(lambda: _running(batch.handles), what="two of them run")
        assert await batch.cancel(by="me") == 20
        with pytest.raises(BatchFailed):
            await batch.results(timeout=45)
        assert (await batch.refresh()).tally == BatchTally(20, 0, 0, 20)
        assert await work.reported(1) == ["alert"]
        assert await batch.cancel() == 0


def before_the_second_write(work: Work, act: Callable[[BatchHandle], Awaitable[object]]) -> None:
    """Have something done while the submitter of a batch above one write is adding to it."""
    submits = work.app.session.writer.inserts
    store = submits.insert_many

    async def act_first(jobs: Sequence[Job]) -> Any:
        [id] = {job.batch for job in jobs}
        assert id is not None
        await act(work.app.batches.handle(id))
        return await store(jobs)

    submits.insert_many = act_first  # type: ignore[method-assign]


async def test_cancelling_an_open_batch_stops_its_submitter(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker(concurrency=2):
        before_the_second_write(work, lambda batch: batch.cancel(by="me"))
        batch = work.app.batch(on_complete=work.report.draft("me"), on_failure=work.alert.draft())

        async def fill() -> None:
            async with batch:
                batch.add_many(work.wait.draft(n) for n in range(2500))

        with pytest.raises(TransitionRefused, match="takes no more jobs") as caught:
            await fill()
        assert str(batch.id) in str(caught.value)
        ended = await batch.wait(timeout=45)
        assert (ended.tally, ended.sealed, ended.abandoned) == (BatchTally(1000, 0, 0, 1000), True, False)
        assert ended.cancelled_by == "me"
        assert sorted(await work.reported(2)) == ["alert", "report"]
        assert len(await batch.jobs()) == 1000
        # Nobody can go on with it, and what follows follows once.
        with pytest.raises(TransitionRefused):
            await batch.submit()
        assert (await work.app.stats.counts()).ledger.accepted == 1002
        assert (await batch.refresh()).tally == ended.tally


async def test_an_open_batch_that_was_cancelled_did_not_succeed_though_all_there_is_completed(url: str) -> None:
    work = Work(url)

    async def cancel(batch: BatchHandle) -> None:
        async def ended() -> bool:
            return (await batch.refresh()).tally == BatchTally(1000, 1000)

        await until(ended, what="what is there has completed")
        assert await batch.cancel() == 0

    async with work.app, work.app.worker(concurrency=50):
        before_the_second_write(work, cancel)
        batch = work.app.batch(on_complete=work.report.draft("me"), on_failure=work.alert.draft())
        batch.add_many(work.double.draft(n) for n in range(1001))
        with pytest.raises(TransitionRefused):
            await batch.submit()
        assert (await batch.wait(timeout=45)).tally == BatchTally(1000, 1000)
        assert sorted(await work.reported(2)) == ["alert", "report"]


async def test_whoever_cancels_a_batch_and_dies_is_followed_by_the_sweeper() -> None:
    work = Work("memory://")
    async with harness(work.app, now=datetime(2026, 1, 1, tzinfo=UTC)) as h:
        async with work.app.batch(on_failure=work.alert.draft()) as batch:
            batch.add_many(work.double.options(delay=3600).draft(n) for n in range(20))
        # The cancel is stored, and nobody is left to tell the jobs.
        await work.app.session.engine.families.cancel_batch(batch.id, work.app.host.clock.now(), "me")
        assert (await batch.refresh()).tally == BatchTally(20)
        await h.advance(minutes=2)
        assert (await batch.refresh()).tally == BatchTally(20, 0, 0, 20)
        assert [job.task for job in work.reports] == ["alert"]


async def test_a_cancel_waits_for_a_job_that_could_not_be_told_at_once(tmp_path: Path) -> None:
    work = Work(url_of("postgres", tmp_path))
    async with work.app:
        async with work.app.batch() as batch:
            batch.add_many(work.double.draft(n) for n in range(5))
        url, _, query = work.app.settings.url.partition("?")
        connection = await asyncpg.connect(url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            schema = parse_qs(query)["schema"][0]
            await connection.execute(f'SELECT 1 FROM "{schema}".jobs WHERE id = $1 FOR UPDATE', batch.handles[2].id)
            cancelling = asyncio.create_task(batch.cancel())
            await until(lambda: _cancelled(batch, 4), what="the others are cancelled")
            done, _ = await asyncio.wait([cancelling], timeout=1)
            assert not done
            await transaction.rollback()
            assert await cancelling == 5
        finally:
            await connection.close()
        assert await _cancelled(batch, 5)


async def _cancelled(batch: BatchHandle, n: int) -> bool:
    return (await batch.refresh()).tally == BatchTally(5, 0, 0, n)


async def test_there_is_no_such_batch_to_cancel(url: str) -> None:
    work = Work(url)
    async with work.app:
        with pytest.raises(JobNotFound, match="no batch"):
            await work.app.batches.handle(work.app.host.new_id()).cancel()


async def _running(handles: list[JobHandle[Any]]) -> bool:
    return [(await handle.refresh()).status for handle in handles].count(Status.RUNNING) == 2


async def test_a_batch_above_one_write_ends_only_when_it_is_sealed(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker(concurrency=50):
        async with work.app.batch(on_complete=work.report.draft("me")) as batch:
            batch.add_many(work.double.draft(n) for n in range(2500))
        results = await batch.results(timeout=50)
        assert results == [n * 2 for n in range(2500)]
        assert await work.reported(1) == ["report"]
        assert (await batch.refresh()).tally == BatchTally(2500, 2500)
        assert await work.app.batches.handle(batch.id).results() == results


async def test_a_submitter_that_fell_silent(tmp_path: Path) -> None:
    work = Work("memory://")
    async with harness(work.app, now=datetime(2026, 1, 1, tzinfo=UTC)) as h:
        async with work.app.batch(on_complete=work.report.draft("me")) as batch:
            batch.add(work.double.draft(1))
        open_batch = work.app.batch(on_complete=work.report.draft("you"))
        open_batch.add_many(work.double.draft(n) for n in range(1001))
        submits = work.app.session.writer.inserts
        whole = submits.insert_many

        async def dies(jobs: Any) -> Any:
            raise ConnectionResetError

        submits.insert_many = dies  # type: ignore[method-assign]
        with pytest.raises(ConnectionResetError):
            await open_batch.submit()
        submits.insert_many = whole  # type: ignore[method-assign]
        await h.drain()
        assert [job.payload["to"] for job in work.reports] == ["me"]
        assert (await open_batch.refresh()).tally == BatchTally(1000, 1000)
        await h.advance(minutes=59)
        assert len(work.reports) == 1
        await h.advance(minutes=2)
        assert [job.payload["to"] for job in work.reports] == ["me", "you"]
        record = await open_batch.refresh()
        assert (record.sealed, record.abandoned) == (True, True)
        # It may come back, and finish what it began.
        await open_batch.submit()
        assert (await open_batch.refresh()).tally.total == 1001


async def test_a_batch_is_stored_whole_or_not_at_all(url: str) -> None:
    work = Work(url)
    async with work.app:
        batch, stranger = work.app.batch(on_complete=work.report.draft("me")), work.double.draft(0)
        batch.add_many(work.double.draft(n) for n in range(3))
        batch.add(work.double.options(after=[stranger]).draft(9))
        with pytest.raises(JobNotFound, match=str(stranger.id)):
            await batch.submit()
        assert (await work.app.stats.counts()).ledger.accepted == 0
        await stranger.submit()
        await batch.submit()
        assert (await batch.refresh()).tally.total == 4


async def test_a_batch_waits_for_a_key_that_a_transaction_holds(tmp_path: Path) -> None:
    work = Work(url_of("postgres", tmp_path))
    async with work.app, work.app.worker():
        connection = await asyncpg.connect(work.app.settings.url.split("?")[0])
        try:
            transaction = connection.transaction()
            await transaction.start()
            await work.double.options(connection=connection, dedup="k").submit(1)
            batch = work.app.batch(on_complete=work.report.draft("me"))
            batch.add(work.double.draft(2))
            batch.add(work.double.options(dedup="k").draft(3))
            submitting = asyncio.create_task(batch.submit())
            done, _ = await asyncio.wait([submitting], timeout=1)
            assert not done
            # Nothing of it is there before all of it is.
            assert (await work.app.jobs.list(task="double")).items == ()
            await transaction.rollback()
            await submitting
        finally:
            await connection.close()
        assert await batch.results(timeout=45) == [4, 6]
        assert (await batch.refresh()).tally == BatchTally(2, 2)
        assert await work.reported(1) == ["report"]


async def test_who_asks_while_a_batch_is_open_is_told_of_what_comes(url: str) -> None:
    work = Work(url)
    async with work.app:
        first = work.app.batch()
        first.add(work.double.draft(1))
        await first.submit()
        record = await first.refresh()
        open_one = replace(record, id=work.app.host.new_id(), sealed=False, tally=BatchTally())
        writer = work.app.session.writer
        members = [
            replace(job, id=work.app.host.new_id()) for job in jobs_of([work.double.draft(2)] * 2, record.created_at)
        ]
        members = [replace(job, spec=replace(job.spec, batch=open_one.id)) for job in members]
        await writer.engine.jobs.insert(members[:1], record.created_at, open_one)
        found = work.app.batches.handle(open_one.id)
        assert len(await found.jobs()) == 1
        await writer.inserts.insert_many(members[1:])
        await writer.engine.families.seal(open_one.id, record.created_at)
        async with work.app.worker():
            assert await found.results(timeout=45) == [4, 4]


async def test_an_empty_batch_has_ended(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        async with work.app.batch(on_complete=work.report.draft("me")) as batch:
            pass
        assert await batch.results(timeout=45) == []
        assert await work.reported(1) == ["report"]


async def test_members_may_wait_for_each_other(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        async with work.app.batch() as batch:
            last = work.double.options(after=[first := work.name.draft(1)]).draft(4)
            batch.add(last)
            batch.add(first)
        assert await batch.results(timeout=45) == [8, "no 1"]


async def test_a_duplicate_is_waited_for_and_not_counted(url: str) -> None:
    work = Work(url)
    async with work.app, work.app.worker():
        held = await work.wait.options(dedup="k").submit(1)
        async with work.app.batch() as batch:
            batch.add(work.wait.options(dedup="k").draft(2))
            batch.add(work.double.draft(2))
        assert batch.handles[0].id == held.id
        assert (await batch.refresh()).tally.total == 1
        await batch.wait(timeout=45)
        with pytest.raises(ResultTimeout, match="batch"):
            await batch.results(timeout=0.05)  # the time is that of all it waits for
        work.gate.set()
        assert await batch.results(timeout=45) == [1, 4]
        work.gate.clear()
        await work.wait.options(dedup="k").submit(1)
        batch = work.app.batch()
        batch.add(work.wait.options(dedup="k", on_duplicate="raise").draft(2))
        with pytest.raises(Duplicate):
            await batch.submit()
        work.gate.set()


async def test_a_batch_that_is_waited_for_in_vain(url: str) -> None:
    work = Work(url)
    async with work.app:
        async with work.app.batch() as batch:
            batch.add(work.wait.draft(1))
        with pytest.raises(ResultTimeout, match="batch"):
            await batch.results(timeout=0.05)
        assert (await batch.handles[0].refresh()).status in LIVE
        with pytest.raises(JobNotFound, match="no batch"):
            await work.app.batches.handle(batch.handles[0].id).refresh()


async def test_what_has_no_place_in_a_batch() -> None:
    work, other = Work("memory://"), Work("memory://")
    async with work.app, other.app:
        batch = work.app.batch()
        with pytest.raises(TypeError, match="draft"):
            batch.add(5)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="another App"):
            batch.add(other.double.draft(1))
        with pytest.raises(ConfigError, match="connection"):
            batch.add(work.double.options(connection=object()).draft(1))
        with pytest.raises(ConfigError, match="after"):
            work.app.batch(on_complete=work.report.options(after=[work.double.draft(1)]).draft("me"))
