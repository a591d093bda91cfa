"""Children, graphs of jobs and what a cancel reaches, through an App and its workers, on every engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from headrace import App, Context, Draft, Job, JobCancelled, JobFailed, JobHandle, Retry, Status
from headrace.core.defaults import MAX_AFTER_JOBS
from headrace.errors import ConfigError, JobNotFound, TransitionRefused
from headrace.testing import harness
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

NOW = Retry(3, backoff="fixed", initial=0.0, jitter=False)


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)


class Resizing:
    """Pictures that are made small and put together."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.gate = asyncio.Event()

        @self.app.task(retry=Retry(0))
        async def resize(name: str) -> str:
            if name == "slow":
                await self.gate.wait()
            if name == "bad":
                raise ValueError(name)
            return f"small {name}"

        @self.app.task
        async def montage(ctx: Context) -> list[str]:
            return await ctx.results(resize)

        self.resize, self.montage = resize, montage


# Graphs


async def test_a_graph_of_drafts_runs_in_its_order(url: str) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker(concurrency=4):
        a, b = shop.resize.draft("a.png"), shop.resize.draft("b.png")
        m = shop.montage.options(after=[a, b], after_when="succeeded", on_parent_failure="cancel").draft()
        # In any order: what is waited for is stored first.
        handles = await shop.app.submit_many([m, b, a])
        assert [handle.id for handle in handles] == [m.id, b.id, a.id]
        async with asyncio.timeout(45):
            assert await handles[0].result() == ["small a.png", "small b.png"]
        job = await handles[0].refresh()
        assert job.after == (a.id, b.id)
        assert job.waits == 0


async def test_a_rerun_is_given_what_the_first_run_was(url: str) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker():
        first = await shop.montage.options(after=[await shop.resize.submit("a")]).submit()
        assert await first.result(timeout=45) == ["small a"]
        second = await first.rerun()
        assert await second.result(timeout=45) == ["small a"]
        third = await second.rerun()
        assert await third.result(timeout=45) == ["small a"]
        assert (await third.refresh()).after == ()


async def test_results_that_were_pruned_are_not_left_out(url: str) -> None:
    shop, good = Resizing(url), asyncio.Event()

    @shop.app.task(retry=Retry(0))
    async def fussy(ctx: Context) -> list[str]:
        if not good.is_set():
            raise ValueError("not yet")
        return await ctx.results(shop.resize)

    async with shop.app, shop.app.worker(concurrency=4):
        a = shop.resize.draft("a.png")
        first, last = await shop.app.submit_many([a, fussy.options(after=[a]).draft()])
        with pytest.raises(JobFailed, match="not yet"):
            await last.result(timeout=45)
        # What completed is kept for less long than what failed.
        ended = (await first.refresh()).finished_at
        assert ended is not None
        assert await shop.app.session.engine.jobs.delete({Status.COMPLETED: ended}) == 1
        good.set()
        await last.retry()
        with pytest.raises(JobFailed, match=f"{first.id}.*pruned"):
            await last.result(timeout=45)


async def test_one_may_wait_for_jobs_that_are_there_by_handle_job_and_id(url: str) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker(concurrency=4):
        slow, done = await shop.resize.submit("slow"), await shop.resize.submit("done")
        await done.result()
        child = await shop.montage.options(after=[slow, await done.refresh(), str(done.id)]).submit()
        assert child.status is Status.WAITING
        assert (await child.refresh()).status is Status.WAITING
        shop.gate.set()
        async with asyncio.timeout(45):
            assert await child.result() == ["small slow", "small done"]


@pytest.mark.parametrize(("choice", "status"), [("cancel", Status.CANCELLED), ("fail", Status.FAILED)])
async def test_a_failed_parent_ends_the_rest(url: str, choice: Any, status: Status) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker():
        a, b = shop.resize.draft("bad"), shop.resize.draft("slow")
        m = shop.montage.options(after=[a, b], on_parent_failure=choice).draft()
        last = shop.montage.options(after=[m], after_when="ended").draft()
        *_, middle, end = await shop.app.submit_many([a, b, m, last])
        async with asyncio.timeout(45):
            with pytest.raises(JobCancelled if choice == "cancel" else JobFailed):
                await middle.result()
            assert await end.result() == []  # of resize it waited for none
        job = await middle.refresh()
        assert (job.status, job.reason) == (status, "parent")
        shop.gate.set()


async def test_any_end_will_do(url: str) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker():
        bad = await shop.resize.submit("bad")
        m = await shop.montage.options(after=[bad], after_when="ended", retry=Retry(0)).submit()
        async with asyncio.timeout(45):
            with pytest.raises(JobFailed, match="bad"):
                await m.result()  # it ran, and asked for a result that is not there
        assert (await m.refresh()).attempt == 1


async def test_cycles_among_drafts_are_refused_and_nothing_is_stored(url: str) -> None:
    shop = Resizing(url)
    async with shop.app:
        a, b = shop.resize.draft("a"), shop.resize.draft("b")
        one: Draft[Any] = Draft(shop.app, a.id, "montage", "{}", {"after": (b.id,)})
        two: Draft[Any] = Draft(shop.app, b.id, "montage", "{}", {"after": (a.id,)})
        with pytest.raises(ConfigError, match="circle"):
            await shop.app.submit_many([one, two])
        itself: Draft[Any] = Draft(shop.app, a.id, "montage", "{}", {"after": (a.id,)})
        with pytest.raises(ConfigError, match="circle"):
            await shop.app.submit_many([itself])
        assert (await shop.app.stats.counts()).ledger.accepted == 0


async def test_a_graph_is_stored_whole_or_not_at_all(url: str) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker():
        a, b, stranger = shop.resize.draft("a"), shop.resize.draft("b"), shop.resize.draft("c")
        m = shop.montage.options(after=[a, stranger]).draft()
        with pytest.raises(JobNotFound, match=str(stranger.id)):
            await shop.app.submit_many([a, b, m])
        assert (await shop.app.stats.counts()).ledger.accepted == 0
        await stranger.submit()
        *_, last = await shop.app.submit_many([a, b, m])
        assert await last.result(timeout=45) == ["small a", "small c"]
        # Nor with one that is not stored, because another holds its key.
        await shop.resize.options(dedup="k", delay=60).submit("x")
        x, y = shop.resize.options(dedup="k").draft("x"), shop.resize.draft("y")
        with pytest.raises(JobNotFound, match="the job that holds its key"):
            await shop.app.submit_many([y, x, shop.montage.options(after=[x, y]).draft()])
        assert (await shop.app.stats.counts()).ledger.accepted == 5


async def test_a_graph_waits_for_a_key_that_a_transaction_holds(tmp_path: Path) -> None:
    shop = Resizing(url_of("postgres", tmp_path))
    async with shop.app, shop.app.worker():
        connection = await asyncpg.connect(shop.app.settings.url.split("?")[0])
        try:
            transaction = connection.transaction()
            await transaction.start()
            await shop.resize.options(connection=connection, dedup="k").submit("a")
            a, b = shop.resize.options(dedup="k").draft("a"), shop.resize.draft("b")
            graph = [a, b, shop.montage.options(after=[a, b]).draft()]
            submitting = asyncio.create_task(shop.app.submit_many(graph))
            done, _ = await asyncio.wait([submitting], timeout=1)
            assert not done
            # Nothing of it is there before all of it is.
            assert (await shop.app.jobs.list(task="resize")).items == ()
            await transaction.rollback()
            *_, last = await submitting
        finally:
            await connection.close()
        assert await last.result(timeout=45) == ["small a", "small b"]


async def test_what_cannot_be_waited_for_is_refused(url: str) -> None:
    shop = Resizing(url)
    async with shop.app:
        stranger = shop.resize.draft("never submitted")
        with pytest.raises(JobNotFound, match=str(stranger.id)):
            await shop.montage.options(after=[stranger]).submit()
        for wrong in ("text", 5, [5], [None]):
            with pytest.raises(ConfigError, match="after"):
                shop.montage.options(after=wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="use a batch"):
            shop.montage.options(after=[UUID(int=n) for n in range(MAX_AFTER_JOBS + 1)])
        with pytest.raises(ConfigError, match="after_when"):
            shop.montage.options(after_when="later")  # type: ignore[arg-type]


async def test_a_thousand_parents_release_one_child(url: str) -> None:
    shop = Resizing(url)
    async with shop.app, shop.app.worker(concurrency=50):
        parents = [shop.resize.draft(f"p{n}") for n in range(MAX_AFTER_JOBS)]
        child = shop.montage.options(after=parents).draft()
        handles = await shop.app.submit_many([*parents, child])
        async with asyncio.timeout(40):
            assert await handles[-1].result() == [f"small p{n}" for n in range(MAX_AFTER_JOBS)]


async def test_what_a_dead_process_left_untold_the_sweeper_tells(url: str) -> None:
    shop = Resizing(url)
    async with shop.app:
        parent = await shop.resize.submit("a")
        child = await shop.montage.options(after=[parent]).submit()
        await shop.app.session.writer.notes.close()  # as if it were gone: nothing is told after a finish
        await shop.app.jobs.handle(parent.id).resolve(result="by hand")
        assert (await child.refresh()).status is Status.WAITING
    async with shop.app, shop.app.worker():
        async with asyncio.timeout(45):
            assert await child.result() == ["by hand"]


async def test_a_burst_ends_when_nothing_is_left_to_release(url: str) -> None:
    shop = Resizing(url)
    async with shop.app:
        drafts: list[Draft[Any]] = [shop.resize.draft("a")]
        for _ in range(5):
            drafts.append(shop.montage.options(after=[drafts[-1]]).draft())
        handles = await shop.app.submit_many(drafts)
        async with asyncio.timeout(45):
            await shop.app.worker(burst=True).run()
        assert {(await handle.refresh()).status for handle in handles} == {Status.COMPLETED}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.every_engine
async def test_a_parent_may_complete_in_a_transaction(kind: str, tmp_path: Path) -> None:
    app = App(url_of(kind, tmp_path))
    gate = asyncio.Event()

    @app.task
    async def parent(ctx: Context) -> int:
        await gate.wait()
        async with ctx.transaction() as tx:
            tx.complete(5)
        return 0

    @app.task
    async def child(ctx: Context) -> list[int]:
        return await ctx.results(parent)

    async with app, app.worker():
        first = await parent.submit()
        second = await child.options(after=[first]).submit()
        gate.set()
        assert await second.result(timeout=45) == [5]  # told by the worker, long before a sweeper would


# Children


class Family:
    """A handler that submits, and what became of it."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.attempts = 0
        self.stop = asyncio.Event()

        @self.app.task
        async def leaf(n: int) -> int:
            await self.stop.wait()
            return n

        @self.app.task
        async def branch(n: int) -> None:
            await leaf.map([(n * 10 + i,) for i in range(2)])
            await self.stop.wait()

        @self.app.task
        async def tree() -> None:
            await branch.submit(1)
            await branch.submit(2)
            await self.stop.wait()

        self.leaf, self.branch, self.tree = leaf, branch, tree

    async def grown(self, root: JobHandle[Any], n: int) -> list[Job]:
        """Its descendants, once there are so many."""

        async def enough() -> bool:
            return len((await self.app.jobs.list(root=root.id)).items) == n

        await until(enough, what=f"{n} descendants")
        return list((await self.app.jobs.list(root=root.id)).items)


async def test_what_a_handler_submits_is_on_behalf_of_the_same_customer(url: str) -> None:
    app = App(url)

    @app.task
    async def leaf(name: str) -> None: ...

    @app.task
    async def tree() -> list[str]:
        one = await leaf.submit("lone")
        repeated = await leaf.options(request_key="r", on_duplicate="raise").submit("asked")
        await leaf.options(request_key="r", on_duplicate="raise").submit("asked")  # the same request, no duplicate
        many = await leaf.map([("mapped",)])
        by_name = await app.submit("leaf", {"name": "by name"})
        other, nobody = leaf.options(customer="bolt"), leaf.options(customer=None)
        named = [await other.submit("named"), await nobody.submit("nobody's")]
        async with app.batch(on_complete=leaf.draft("then"), on_failure=other.draft("else")) as batch:
            batch.add(leaf.draft("member"))
        record = await batch.refresh()
        assert record.on_complete is not None
        assert record.on_failure is not None
        assert (record.customer, record.on_complete.spec.customer) == ("acme", "acme")
        assert record.on_failure.spec.customer == "bolt", "whoever submits says otherwise"
        return [str(handle.id) for handle in (one, repeated, *many, by_name, *named, *await batch.jobs())]

    async with app, app.worker(concurrency=4):
        whole = await tree.options(customer="acme").submit()
        jobs = [await app.jobs.get(UUID(id)) for id in await whole.result(timeout=45)]
        assert [job.customer for job in jobs] == ["acme"] * 4 + ["bolt", None, "acme"]
        again = await (await app.jobs.handle(jobs[0].id).rerun()).refresh()
        assert again.customer == "acme"


async def test_what_a_handler_submits_are_its_children(url: str) -> None:
    family = Family(url)
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with family.app, family.app.worker(concurrency=10):
        root = await family.tree.options(trace=trace).submit()
        members = await family.grown(root, 6)
        branches = [job for job in members if job.task == "branch"]
        assert {job.parent for job in branches} == {root.id}
        assert {job.parent for job in members if job.task == "leaf"} == {job.id for job in branches}
        assert all(job.trace == trace for job in members)
        found = await family.app.jobs.list(parent=root.id)
        assert [job.payload["n"] for job in found.items] == [2, 1]
        top = await root.refresh()
        assert (top.parent, top.root) == (None, None)
        family.stop.set()
        for job in members:
            await family.app.jobs.handle(job.id).result(timeout=45)
        again = await (await family.app.jobs.handle(members[0].id).rerun()).refresh()
        assert (again.parent, again.root, again.rerun_of) == (None, None, members[0].id)


async def test_plain_functions_have_children_too(url: str) -> None:
    app = App(url)

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task
    def parent() -> str:
        return str(child.submit_sync(1).id)

    async with app, app.worker():
        job = await parent.submit()
        id = await job.result(timeout=45)
        assert (await app.jobs.get(id)).parent == job.id


async def test_a_cancel_reaches_the_whole_subtree(url: str) -> None:
    family = Family(url)
    async with family.app, family.app.worker(concurrency=10):
        root = await family.tree.submit()
        members = await family.grown(root, 6)
        scheduled = await family.leaf.options(delay=3600).submit(99)
        await root.cancel(by="me")
        # The request has reached everybody when the cancel returns.
        for job in members:
            seen = await family.app.jobs.get(job.id)
            assert seen.ended or seen.cancel_requested_at is not None
        for job in [await root.refresh(), *members]:
            with pytest.raises(JobCancelled):
                await family.app.jobs.handle(job.id).result(timeout=45)
        assert (await scheduled.refresh()).status is Status.SCHEDULED


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "thread"])
async def test_a_parent_that_is_handed_back_finds_what_it_ran(url: str, plain: bool) -> None:
    app = App(url)
    gate, runs = asyncio.Event(), list[int]()

    @app.task
    async def child() -> int:
        runs.append(1)
        await gate.wait()
        return 7

    async def _parent() -> int:
        return await child.run() + 1

    def _plain() -> int:
        return app.wait(child.run()) + 1

    parent = app.task(name="parent")(_plain if plain else _parent)
    async with app:
        async with app.worker(grace=0.1):
            job = await parent.submit()
            await until(lambda: bool(runs), what="the child runs")
        # The worker left: its parent was released, and what it ran was not cancelled.
        [kid] = (await app.jobs.list(parent=job.id)).items
        assert kid.cancel_requested_at is None
        assert not kid.ended
        gate.set()
        async with app.worker():
            assert await job.result(timeout=45) == 8
        assert (await job.refresh()).charged == 1


async def test_a_parent_that_timed_out_finds_what_it_ran(url: str) -> None:
    app = App(url)
    gate = asyncio.Event()

    @app.task
    async def child() -> int:
        await gate.wait()
        return 7

    @app.task(timeout=0.3, retry=NOW)
    async def parent(ctx: Context) -> int:
        if ctx.attempt > 1:
            gate.set()
        return await child.run()

    async with app, app.worker():
        job = await parent.submit()
        assert await job.result(timeout=45) == 7
        assert len((await app.jobs.list(parent=job.id)).items) == 1


async def test_what_a_handler_ran_and_left_is_given_another_go(url: str) -> None:
    app = App(url)
    begun, gate = asyncio.Event(), asyncio.Event()
    limits: list[asyncio.Timeout] = []

    @app.task
    async def child() -> int:
        begun.set()
        await gate.wait()
        return 7

    @app.task(retry=NOW)
    async def parent(ctx: Context) -> int:
        if ctx.attempt == 1:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                return await child.run()

        async def left() -> bool:
            return all(job.ended for job in (await app.jobs.list(parent=ctx.job_id)).items)

        await until(left, what="the child was cancelled")
        gate.set()
        return await child.run()

    async with app, app.worker():
        job = await parent.submit()
        await asyncio.wait_for(begun.wait(), 30)
        limits[0].reschedule(0)
        assert await job.result(timeout=45) == 7
        [kid] = (await app.jobs.list(parent=job.id)).items
        assert kid.redrives == 1


async def test_a_cancel_whose_caller_left_reaches_everybody(url: str) -> None:
    family = Family(url)
    async with family.app, family.app.worker(concurrency=10):
        root = await family.tree.submit()
        members = await family.grown(root, 6)
        cancelling = asyncio.create_task(root.cancel())

        async def requested() -> bool:
            return (await root.refresh()).cancel_requested_at is not None

        await until(requested, what="the cancel is stored")
        cancelling.cancel()
        for job in members:
            with pytest.raises(JobCancelled):
                await family.app.jobs.handle(job.id).result(timeout=45)  # long before a sweeper would tell


async def test_children_outlive_whatever_else_becomes_of_their_parent(url: str) -> None:
    app = App(url)
    stop = asyncio.Event()

    @app.task
    async def child() -> None:
        await stop.wait()

    @app.task(retry=Retry(0))
    async def parent(fails: bool) -> None:
        await child.submit()
        if fails:
            raise ValueError

    async with app, app.worker():
        done, failed = await parent.submit(False), await parent.submit(True)
        await done.result(timeout=45)
        with pytest.raises(JobFailed):
            await failed.result(timeout=45)
        stop.set()
        for root in (done, failed):
            [one] = (await app.jobs.list(parent=root.id)).items
            await app.jobs.handle(one.id).result(timeout=45)


async def test_a_cancelled_handler_submits_no_more(url: str) -> None:
    app = App(url)
    refused = list[BaseException]()

    @app.task
    async def child() -> None: ...

    @app.task
    async def parent() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await child.submit()
            except TransitionRefused as error:
                refused.append(error)

    async with app, app.worker():
        job = await parent.submit()
        await until(lambda: _is(job, Status.RUNNING), what="the parent runs")
        await job.cancel()
        with pytest.raises(JobCancelled):
            await job.result(timeout=45)
        await until(lambda: bool(refused), what="the child was refused")
        assert str(job.id) in str(refused[0])
        assert (await app.jobs.list(parent=job.id)).items == ()


async def test_a_retried_parent_finds_its_children(url: str) -> None:
    app = App(url)
    seen = list[list[UUID]]()

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task(retry=NOW)
    async def parent(ctx: Context) -> int:
        mine = [await child.submit(1), await child.submit(1), *await child.map([(2,), (3,)])]
        async with app.batch() as batch:
            batch.add(child.draft(1))
        new = await child.options(derived_id=False).submit(7)
        seen.append([*(job.id for job in mine), *(job.id for job in batch.handles), batch.id, new.id])
        if ctx.attempt < 3:
            raise ValueError(ctx.attempt)
        return sum([await job.result() for job in mine])

    async with app, app.worker():
        assert await (job := await parent.submit()).result(timeout=45) == 7
        assert len(seen) == 3
        assert seen[0][:-1] == seen[1][:-1] == seen[2][:-1]
        assert len(set(seen[0])) == 7
        assert len({ids[-1] for ids in seen}) == 3
        assert len((await app.jobs.list(parent=job.id)).items) == 5 + 3


async def test_whatever_order_the_calls_come_in_a_later_attempt_finds_them(url: str) -> None:
    app, batches = App(url), set[UUID]()

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task(retry=NOW)
    async def parent(ctx: Context) -> None:
        for n in range(5) if ctx.attempt == 2 else (4, 2):
            await child.submit(n)
        async with app.batch() as batch:
            batch.add_many(child.draft(n) for n in ((7, 6, 5) if ctx.attempt == 2 else (5, 6, 7)))
        batches.add(batch.id)
        if ctx.attempt == 1:
            raise ValueError

    async with app, app.worker():
        await (job := await parent.submit()).result(timeout=45)
        found = (await app.jobs.list(parent=job.id)).items
        assert sorted(one.payload["n"] for one in found) == [0, 1, 2, 3, 4, 5, 6, 7]
        assert len(batches) == 1


async def test_the_harness_runs_families() -> None:
    shop = Resizing("memory://")
    async with harness(shop.app) as h:
        a = shop.resize.draft("a")
        m = shop.montage.options(after=[a]).draft()
        _, handle = await shop.app.submit_many([a, m])
        await h.drain()
        assert await handle.result() == ["small a"]


async def test_a_job_of_a_bulk_handler_is_nobodys_child() -> None:
    app = App("memory://")

    @app.task
    async def child() -> None: ...

    @app.bulk(size=10, wait=0.01)
    async def index(docs: list[int]) -> list[int | Exception]:
        await child.submit()
        return [0 for _ in docs]

    async with app, app.worker():
        for job in await index.map([(n,) for n in range(3)]):
            await job.result(timeout=45)
        found = (await app.jobs.list(task="child")).items
        assert found
        assert {job.parent for job in found} == {None}


async def _is(handle: JobHandle[Any], status: Status) -> bool:
    return (await handle.refresh()).status is status
