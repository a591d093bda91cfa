from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, Every, Retry, Status
from headrace.client import background
from headrace.errors import ConfigError, NotOpen, Unavailable
from headrace.worker.worker import Worker
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.every_engine
async def test_a_worker_runs_what_is_submitted(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    async with sums.app, sums.app.worker(concurrency=4) as worker:
        jobs = [*await sums.add.map([(i, i) for i in range(50)]), *await sums.multiply.map([(2, 3)])]
        assert sum([await job.result(timeout=45) for job in jobs]) == 2456
        assert isinstance(worker, Worker)
        assert [info.name for info in await sums.app.tasks.list()] == ["add", "fail", "multiply"]
        (row,) = await sums.app.workers.list()
        assert (row.info.id, row.info.concurrency) == (worker.id, 4)
    async with sums.app:
        books = (await sums.app.stats.counts()).ledger
        assert (books.live, books.unaccounted) == (0, 0)


async def test_a_burst_ends_when_nothing_is_left() -> None:
    sums = Sums()
    async with sums.app:
        jobs = await sums.add.map([(i,) for i in range(20)])
        await asyncio.wait_for(sums.app.worker(burst=True).run(), 45)
        assert {(await job.refresh()).status for job in jobs} == {Status.COMPLETED}


async def test_a_worker_serves_the_queues_it_is_told() -> None:
    sums = Sums()
    async with sums.app, sums.app.worker(queues=["slow"]):
        other, slow = await sums.add.submit(1), await sums.multiply.submit(2, 3)
        assert await slow.result(timeout=45) == 6
        assert (await other.refresh()).status is Status.QUEUED


def test_a_worker_needs_an_open_app() -> None:
    with pytest.raises(NotOpen):
        App("memory://").worker()


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"queues": "images"},
        {"queues": []},
        {"queues": ["images", ""]},
        {"grace": -1},
        {"grace": "5s"},
    ],
)
async def test_bad_arguments_of_a_worker_are_refused(wrong: dict[str, Any]) -> None:
    async with App("memory://") as app:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            app.worker(**wrong)


async def test_a_worker_imports_what_the_app_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headrace_test_more_tasks.py").write_text(
        "from headrace import Tasks\ntasks = Tasks()\n@tasks.task\ndef imported(a: int) -> int:\n    return a + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app = App("memory://", imports=["headrace_test_more_tasks"])
    assert "headrace_test_more_tasks" not in sys.modules
    async with app:
        app._load()
        app.include(sys.modules["headrace_test_more_tasks"].tasks)
        async with app.worker():
            assert await (await app.submit("imported", {"a": 1})).result(timeout=45) == 2


async def test_imports_that_are_not_there_are_named() -> None:
    async with App("memory://", imports=["headrace_no_such_module.tasks"]) as app:
        with pytest.raises(ConfigError, match="headrace_no_such_module"):
            app.worker()


async def test_handlers_submit_more() -> None:
    app = App("memory://")

    @app.task
    async def child(n: int) -> int:
        return n

    @app.task
    def plain(n: int) -> int:
        return app.wait(child.run(n))

    @app.task
    async def parent(ctx: Context, n: int) -> int:
        return await child.run(n) + await plain.run(n)

    async with app, app.worker():
        assert await (await parent.submit(3)).result(timeout=45) == 6
    await asyncio.to_thread(background.close)


async def test_a_lifespan_opens_the_app_and_runs_a_worker() -> None:
    sums = Sums()
    async with sums.app.lifespan(worker=True)(object()):
        assert await sums.add.run(1, 2) == 3
    with pytest.raises(NotOpen):
        await sums.add.submit(1)
    async with sums.app.lifespan()(object()):
        await sums.add.submit(1)
        assert await sums.app.workers.list() == []


async def test_the_worker_of_a_lifespan_takes_the_options_of_a_worker() -> None:
    sums = Sums()
    span = sums.app.lifespan(worker=True, concurrency=3, queues=["slow"], grace=timedelta(seconds=2))
    async with span(object()):
        waiting = await sums.add.submit(1)
        assert await sums.multiply.run(2, 3) == 6
        (row,) = await sums.app.workers.list()
        assert (row.info.concurrency, row.info.queues) == (3, ("slow",))
        assert (await waiting.refresh()).status is Status.QUEUED


async def test_a_lifespan_that_ends_gives_running_jobs_the_grace_that_was_asked_for() -> None:
    app, begun = App("memory://"), asyncio.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app:
        lifespan = app.lifespan(worker=True, grace=0.01)(object())
        await lifespan.__aenter__()
        job = await endless.submit()
        await begun.wait()
        async with asyncio.timeout(14):  # the default grace is longer
            await lifespan.__aexit__(None, None, None)
        assert (await job.refresh()).status is Status.QUEUED


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"worker": True, "concurrency": 0}, "concurrency must be a whole number from 1 to "),
        ({"worker": True, "queues": "mail"}, "queues must be a sequence of names"),
        ({"worker": True, "burst": "yes"}, "burst must be True or False, not 'yes'"),
        ({"worker": True, "grace": -1}, "grace"),
        ({"worker": True, "processes": 2}, "a worker has no option processes: its options are concurrency, queues"),
        ({"concurrency": 3}, "lifespan: concurrency is for a worker: say worker=True to have one"),
    ],
)
def test_a_lifespan_refuses_what_no_worker_can_have_when_it_is_made(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Sums().app.lifespan(**options)


async def test_a_worker_waits_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = Sums()
    async with sums.app:
        announce, away = sums.app._announce, [True]

        async def flaky() -> None:
            if away.pop() if away else False:
                raise Unavailable("away")
            await announce()

        monkeypatch.setattr(sums.app, "_announce", flaky)
        async with sums.app.worker():
            assert await sums.add.run(1) == 2


async def test_old_names_stay_runnable() -> None:
    app = App("memory://")

    @app.task(aliases=["before"])
    async def after(a: int) -> int:
        return a

    async with app, app.worker():
        job = await app.submit("before", {"a": 1})
        assert (job.task, await job.result(timeout=45)) == ("after", 1)


async def test_defaults_hold_for_every_task() -> None:
    app = App("memory://", defaults={"queue": "q", "priority": 3, "retry": Retry(1), "timeout": 9})

    @app.task(priority=4)
    def task() -> None: ...

    async with app:
        job = (await task.options(timeout=None).submit()).last
    assert job is not None
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("q", 4, 2, None)


async def test_watching_an_app_s_job_shows_its_progress() -> None:
    app, gate = App("memory://"), asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.progress(40, "on the way")
        await gate.wait()

    async with app, app.worker():
        job = await work.submit()
        percents: list[float] = []

        async def watch() -> None:
            async for seen in app.jobs.watch(job.id):
                if seen.progress is not None:
                    percents.append(seen.progress.percent)  # noqa: PERF401 - looked at while it grows

        watching = asyncio.create_task(watch())
        await until(lambda: 40.0 in percents)
        gate.set()
        await asyncio.wait_for(watching, 45)
    assert percents[-1] == 100.0


async def test_a_renamed_task_takes_its_schedule_along(tmp_path: Path) -> None:
    url = url_of("sqlite", tmp_path)
    before, after = App(url), App(url)

    @before.task(schedule=Every(minutes=5))
    async def poll() -> None: ...

    @after.task(name="poll.all", aliases=["poll"], schedule=Every(minutes=5))
    async def poll_all() -> None: ...

    for app in (before, after):
        async with app:
            await app.tasks.announce()
    async with after:
        fires = {info.name: info.next_fire is not None for info in await after.schedules.list()}
        assert fires == {"poll": False, "poll.all": True}


async def test_a_schedule_takes_a_draft() -> None:
    sums = Sums()
    async with sums.app:
        with pytest.raises(TypeError, match=r"takes a draft, as of task.draft\(...\), not AsyncTask"):
            await sums.app.schedules.set("sums", Every(minutes=5), sums.add)  # type: ignore[arg-type]
