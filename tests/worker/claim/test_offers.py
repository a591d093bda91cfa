"""Jobs that require something, from the submit to the worker that offers it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace import App, Context, Status
from headrace.errors import ConfigError, UnknownTask, UnknownWorker
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_job_runs_where_its_requirements_are_met(kind: str, tmp_path: Path) -> None:
    app = App(url_of(kind, tmp_path))

    @app.task
    async def render(ctx: Context, scene: int) -> str:
        return str(ctx.job.worker)

    small = {"hardware": {"gpu_memory_gb": 8}, "regions": ["eu"], "os": "linux"}
    large = {"hardware": {"gpu_memory_gb": 48, "gpus": 2}, "regions": ["us", "eu"], "os": "linux"}
    async with app, app.worker(offers=small) as one, app.worker(offers=large) as two:
        both = {str(one.id), str(two.id)}
        for requires, able in (
            ({"hardware": {"gpu_memory_gb": 24}}, {str(two.id)}),
            ({"hardware": {"gpus": {"max": 2}}}, {str(two.id)}),
            ({"regions": "us"}, {str(two.id)}),
            ({"regions": {"not": "us"}}, {str(one.id)}),
            ({"hardware": {"gpu_memory_gb": {"max": 8}}}, {str(one.id)}),
            ({"regions": ["eu"], "os": {"in": ["linux", "mac"]}}, both),
            ({}, both),
        ):
            jobs = await render.options(requires=requires).map([(n,) for n in range(5)])
            ran = {await job.result(timeout=30) for job in jobs}
            assert ran <= able, f"{requires} ran on {ran}"
        nobody = await render.options(requires={"hardware": {"gpu_memory_gb": 80}}).submit(9)
        explained = await nobody.explain()
        assert "requirements_unmet" in explained.codes
        assert f"needs hardware.gpu_memory_gb ≥ 80; the nearest worker, {two.id} on " in explained
        assert "offers 48." in explained
        told = await app.workers.explain(two.id)
        assert told.codes == ("worker_free", "looked_at", "requirements_unmet")
        assert "1 of 'render' needs hardware.gpu_memory_gb ≥ 80, it offers 48." in told
        async with app.worker(offers={"hardware": {"gpu_memory_gb": 80}}) as three:
            assert await nobody.result(timeout=30) == str(three.id)


async def test_a_worker_runs_only_the_tasks_that_it_is_told(tmp_path: Path) -> None:
    sums = Sums(url_of("sqlite", tmp_path))
    async with sums.app:
        left = await sums.multiply.submit(2, 3)
        async with sums.app.worker(tasks=[sums.add, "fail"]) as worker:
            done = await sums.add.submit(1)
            assert await done.result(timeout=30) == 2
            assert set(worker.handlers) == {"add", "fail"}
            told = await sums.app.workers.explain(worker.id)
            assert "1 job is of tasks that it does not have: 'multiply'." in told
        assert (await left.refresh()).status is Status.QUEUED
        async with sums.app.worker(tasks=["multiply"]):
            assert await left.result(timeout=30) == 6


async def test_what_a_worker_cannot_have_is_said_by_name() -> None:
    sums = Sums()
    async with sums.app:
        with pytest.raises(UnknownTask, match=r"this App has no task 'ad'; did you mean 'add'."):
            sums.app.worker(tasks=["ad"])
        with pytest.raises(ConfigError, match="tasks must be a sequence"):
            sums.app.worker(tasks="add")
        with pytest.raises(ConfigError, match="offers must be a mapping"):
            sums.app.worker(offers=["gpu"])  # type: ignore[arg-type]
        for number in (10**400, 2**53 + 1, float("inf")):
            with pytest.raises(ConfigError, match=r"offers\.gpu\.gb must be a finite number"):
                sums.app.worker(offers={"gpu": {"gb": number}})
        with pytest.raises(ConfigError, match="offers must be JSON values"):
            sums.app.worker(offers={"gpu": object()})
        with pytest.raises(ConfigError, match="headrace keeps that for itself"):
            sums.app.worker(offers={"headrace.suspect": 1})
        with pytest.raises(UnknownWorker, match="headrace workers lists"):
            await sums.app.workers.explain("01990000-0000-7000-8000-0000deadbeef")


async def test_a_task_is_chosen_under_all_its_names() -> None:
    app = App("memory://")

    @app.task(aliases=["old"])
    async def new() -> None: ...

    @app.task
    async def other() -> None: ...

    async with app:
        assert set(app.worker(tasks=["old"]).handlers) == {"new", "old"}


@pytest.mark.parametrize("many", [False, True])
async def test_a_requirement_that_nobody_meets_is_said_once(many: bool, caplog: pytest.LogCaptureFixture) -> None:
    sums = Sums()
    needs = sums.add.options(requires={"gpu_memory_gb": 40})

    async def submit() -> None:
        if many:
            await needs.map([(1,), (2,)])
        else:
            await needs.submit(1)

    with caplog.at_level(logging.WARNING, "headrace.requirements"):
        async with sums.app, sums.app.worker(offers={"gpu_memory_gb": 24}) as worker:
            await until(lambda: worker.stats.state == "running")
            await sums.add.submit(1)
            await sums.add.options(requires={"gpu_memory_gb": 24}).submit(1)
            assert not caplog.messages
            await submit()
            await submit()
    near = f"the nearest worker, {worker.id}, offers 24"
    assert caplog.messages == [
        f"no live worker meets what jobs of 'add' need, so they wait: gpu_memory_gb ≥ 40; {near}"
    ]


async def test_it_is_said_also_if_no_worker_is_alive(caplog: pytest.LogCaptureFixture) -> None:
    sums = Sums()
    async with sums.app, sums.app.batch() as batch:
        batch.add(sums.add.options(requires={"gpu": True}).draft(1))
    assert caplog.messages == [
        "no worker is alive, and jobs of 'add' require gpu = true: they wait for one that meets it"
    ]
