from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from headrace import App, JobCancelled, JobFailed, ResultTimeout, Retry, Status
from headrace.errors import InvalidResult, JobNotFound, TransitionRefused
from tests.support.apps import ENGINES, Sums, busy_worker, url_of


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_a_handle_knows_what_it_was_told(sums: Sums) -> None:
    job = await sums.add.submit(1)
    assert (job.task, job.status, job.duplicate) == ("add", Status.QUEUED, False)
    unseen = sums.add.handle(str(job.id))
    assert (unseen.task, unseen.status, unseen.last) == ("add", None, None)
    anonymous = sums.app.jobs.handle(job.id)
    assert (anonymous.task, anonymous.status) == (None, None)
    await anonymous.refresh()
    assert (anonymous.task, anonymous.status) == ("add", Status.QUEUED)
    assert str(job.id) in repr(job)


async def test_results_come_from_anywhere(sums: Sums) -> None:
    job = await sums.add.submit(1, 2)
    async with sums.app.worker():
        assert await job.result(timeout=45) == 3
        assert await job.result() == 3
        assert await sums.app.jobs.handle(job.id).result(timeout=45) == 3
        assert await (await sums.multiply.submit(2, 3)).result(timeout=45) == 6
    assert job.status is Status.COMPLETED


async def test_failures_are_raised_with_the_job(sums: Sums) -> None:
    job = await sums.fail.options(retry=Retry(0)).submit("broken")
    async with sums.app.worker():
        with pytest.raises(JobFailed, match="ValueError: broken") as caught:
            await job.result(timeout=45)
    assert caught.value.job.id == job.id
    assert caught.value.error is not None
    assert caught.value.error.message == "broken"


async def test_a_timeout_leaves_the_job_alone(sums: Sums) -> None:
    job = await sums.add.submit(1)
    with pytest.raises(ResultTimeout) as caught:
        await job.result(timeout=0.05)
    assert (caught.value.id, caught.value.seconds) == (job.id, 0.05)
    with pytest.raises(TimeoutError):
        await job.result(timeout=0)
    assert (await job.refresh()).status is Status.QUEUED


async def test_acts_show_at_once(sums: Sums) -> None:
    job = await sums.add.submit(1)
    waiting = asyncio.create_task(job.result())
    await asyncio.sleep(0)
    await job.cancel(by="me")
    with pytest.raises(JobCancelled, match="user"):
        await waiting
    assert (await job.cancel()).status is Status.CANCELLED
    assert (await job.retry()).status is Status.QUEUED
    assert job.status == "queued"
    with pytest.raises(TransitionRefused):
        await job.discard()
    await job.cancel()
    again = await job.rerun()
    assert again.id != job.id
    assert (await again.refresh()).spec.rerun_of == job.id
    assert [event.verb for event in (await sums.app.jobs.history(job.id)).events] == [
        "cancel",
        "retry",
        "cancel",
        "rerun",
    ]
    assert await again.explain()


async def test_explaining_tells_the_place_in_line_and_the_estimated_start(sums: Sums) -> None:
    first, second = await sums.add.submit(1), await sums.add.submit(2)
    urgent = await sums.add.options(priority=90).submit(3)
    await sums.multiply.submit(1, 2)  # in another queue
    for job, place in ((urgent, 1), (first, 2), (second, 3)):
        facts = {fact.code: fact.data for fact in (await job.explain()).facts}
        assert facts.keys() == {"queued", "no_worker", "position"}
        assert facts["position"]["position"] == place
    async with sums.app.worker():
        await second.result(timeout=45)
    assert "position" not in (await second.explain()).codes
    await busy_worker(sums.app.session.engine, "add")
    await sums.add.submit(4)
    last = await sums.add.submit(5)
    explained = await last.explain()
    assert explained.codes == ("queued", "position", "workers_busy", "estimate")
    estimate = explained.facts[-1].data
    assert estimate["seconds"] * estimate["jobs_per_second"] == pytest.approx(2)
    assert "It may start about" in explained


async def test_explaining_names_whom_a_job_waits_for(sums: Sums) -> None:
    parents = [await sums.add.submit(1), await sums.add.submit(2)]
    waiting = await sums.add.options(after=parents).submit(3)
    explained = await waiting.explain()
    assert explained.codes == ("waiting",)
    assert [one["id"] for one in explained.facts[0].data["waits_for"]] == [one.id for one in parents]
    assert f"It waits for 2 of 2 jobs: add {parents[0].id} (queued), add {parents[1].id} (queued)" in explained


async def test_explaining_names_whose_end_became_its_own(sums: Sums) -> None:
    bad = await sums.fail.options(retry=Retry(0)).submit("broken")
    after = await sums.add.options(after=[bad]).submit(1)
    async with sums.app.worker():
        with pytest.raises(JobCancelled):
            await after.result(timeout=45)
    explained = await after.explain()
    assert explained.codes == ("cancelled", "parent")
    assert f"It waited for fail {bad.id} (failed), which did not succeed." in explained


async def test_an_id_that_is_nobodys_is_not_found(sums: Sums) -> None:
    nobody = sums.app.jobs.handle(UUID(int=7))
    for verb in (
        nobody.refresh,
        nobody.result,
        nobody.cancel,
        nobody.retry,
        nobody.rerun,
        nobody.run_now,
        lambda: nobody.move("b"),
        lambda: nobody.reprioritise(1),
        lambda: nobody.postpone(5),
        nobody.resolve,
        nobody.discard,
        nobody.explain,
    ):
        with pytest.raises(JobNotFound):
            await verb()
    with pytest.raises(JobNotFound):
        async for _ in nobody.watch():
            pass


async def test_watching_ends_with_the_job(sums: Sums) -> None:
    job = await sums.multiply.submit(2, 3)
    seen: list[Status] = []

    async def watch() -> None:
        seen.extend([record.status async for record in job.watch()])

    watching = asyncio.create_task(watch())
    async with sums.app.worker():
        await asyncio.wait_for(watching, 45)
    assert seen[-1] is Status.COMPLETED
    assert job.status is Status.COMPLETED
    assert job.last is not None
    assert job.last.result == 6


@dataclass
class Point:
    x: int


async def test_results_are_decoded_into_the_promised_type() -> None:
    app = App("memory://")

    @app.task
    async def point(x: int) -> list[Point]:
        return [Point(x)]

    @app.task(name="other")
    async def other() -> str:
        return "text"

    async with app, app.worker():
        assert await point.run(3) == [Point(3)]
        job = await app.submit("point", {"x": 4})
        assert await job.result(timeout=45) == [Point(4)]
        wrong = point.handle((await other.submit()).id)
        with pytest.raises(InvalidResult, match="stored"):
            await wrong.result(timeout=45)


async def test_the_end_of_a_job_is_waited_for_however_it_ends(sums: Sums) -> None:
    good, bad = await sums.add.submit(1, 2), await sums.fail.options(retry=Retry(0)).submit("why")
    assert await good.ended(timeout=0) is None
    assert (good.last is not None, good.status) == (True, Status.QUEUED)
    async with sums.app.worker():
        done, failed = await good.ended(timeout=45), await bad.ended(timeout=45)
    assert done is not None
    assert failed is not None
    assert (done.status, done.result, failed.status) == (Status.COMPLETED, 3, Status.FAILED)
    assert await good.ended() is done
    with pytest.raises(JobNotFound):
        await sums.app.jobs.handle(UUID(int=7)).ended(timeout=1)
