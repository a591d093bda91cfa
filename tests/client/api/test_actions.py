"""What is done to jobs through an App."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import App, Duplicate, InvalidPayload, Retry, Status
from headrace.engine.bus import Topic
from headrace.errors import ConfigError, TransitionRefused
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_time_queue_and_priority_can_be_changed(sums: Sums) -> None:
    job = await sums.add.submit(1)
    assert (await job.postpone(timedelta(hours=1), by="ann")).status is Status.SCHEDULED
    until = datetime.now(UTC) + timedelta(hours=2)
    assert (await job.postpone(until)).available_at == until
    assert (await job.move("slow", by="ann")).queue == "slow"
    last = await job.reprioritise(99)
    assert (last.priority, last.asked_priority, last.asked_queue) == (99, 50, "default")
    assert (await job.run_now()).status is Status.QUEUED
    before = (await job.refresh()).rev
    assert (await job.move("slow")).rev == before, "it is there already"
    events = (await sums.app.jobs.history(job.id)).events
    assert [(event.verb, event.by) for event in events] == [
        ("postpone", "ann"),
        ("postpone", None),
        ("move", "ann"),
        ("reprioritise", None),
        ("run_now", None),
    ]
    page = await sums.app.jobs.list(queue="slow")
    assert [one.id for one in page.items] == [job.id]
    async with sums.app.worker(queues=["slow"]):
        assert await job.result(timeout=45) == 2


async def test_a_moved_job_is_explained_where_it_is_and_keeps_its_key(sums: Sums) -> None:
    job = await sums.add.options(dedup="k").submit(1)
    await sums.app.queues.pause("slow", by="ann")
    await job.move("slow")
    explained = await job.explain()
    assert "It stands in queue 'slow'" in explained
    assert "queue_paused" in explained.codes
    again = await sums.add.options(dedup="k").submit(2)
    assert (again.id, again.duplicate) == (job.id, True)
    [queue] = [one for one in await sums.app.queues.list() if one.counts]
    assert (queue.name, queue.counts) == ("slow", {Status.QUEUED: 1})


async def test_who_waits_for_work_hears_of_new_times() -> None:
    sums, heard = Sums(), list[tuple[str, ...]]()
    async with sums.app:
        job, over = await sums.add.submit(1), await sums.add.submit(2)
        await over.cancel()
        forget = sums.app.session.engine.bus.listen(frozenset({Topic.READY}), lambda hint: heard.append(hint.names))
        for act, queue in (
            (job.postpone(60), "default"),
            (over.retry(delay=60), "default"),
            (job.run_now(), "default"),
            (job.move("slow"), "slow"),
        ):
            heard.clear()
            await act
            await until(lambda: heard)
            assert set(heard) == {(queue,)}
        forget()


async def test_what_is_held_or_over_stays_as_it_is(sums: Sums) -> None:
    job = await sums.add.submit(1)
    async with sums.app.worker():
        await job.result(timeout=45)
    for act in (job.move("slow"), job.reprioritise(1), job.postpone(5), job.run_now()):
        with pytest.raises(TransitionRefused, match="it is completed; rerun makes a new job of it"):
            await act


async def test_arguments_are_checked_by_name(sums: Sums) -> None:
    job = await sums.add.submit(1)
    with pytest.raises(ConfigError, match="priority"):
        await job.reprioritise(101)
    with pytest.raises(ConfigError, match="queue"):
        await job.move("")
    with pytest.raises(ConfigError, match="until must be an aware datetime"):
        await job.postpone(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(ConfigError, match="until must be seconds or a timedelta"):
        await job.postpone("soon")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="delay"):
        await job.retry(delay=-1)
    with pytest.raises(ConfigError, match="by "):
        await job.move("slow", by="x" * 300)


async def test_a_retry_may_wait(sums: Sums) -> None:
    job = await sums.add.submit(1)
    await job.cancel()
    again = await job.retry(delay=timedelta(hours=1), by="ann")
    assert again.status is Status.SCHEDULED
    assert again.available_at - again.updated_at == timedelta(hours=1)


async def test_a_job_can_be_rerun_with_other_arguments_and_options(sums: Sums) -> None:
    job = await sums.add.options(tags=["old"], trace={"traceparent": "00-ab"}, dedup="k").submit(1)
    with pytest.raises(TransitionRefused, match="cannot rerun"):
        await job.rerun(payload={"a": "not a number"})
    await job.move("slow")
    await job.cancel()
    again = await job.rerun(payload={"a": 5, "b": 6}, by="ann", priority=90, delay=60, retry=Retry(1))
    new = await again.refresh()
    assert (new.payload, new.priority, new.status) == ({"a": 5, "b": 6}, 90, Status.SCHEDULED)
    assert (new.tags, new.dedup, new.queue, new.max_attempts) == (("old",), "k", "slow", 2)
    assert (new.rerun_of, new.trace) == (job.id, None)
    event = (await sums.app.jobs.history(job.id)).events[-1]
    assert (event.verb, event.by, event.details) == ("rerun", "ann", {"job": str(again.id)})
    held = await job.rerun()
    assert (held.id, held.duplicate) == (again.id, True)
    assert len((await sums.app.jobs.history(job.id)).events) == 3, "what met a duplicate was not rerun"
    with pytest.raises(Duplicate):
        await job.rerun(on_duplicate="raise")
    with pytest.raises(InvalidPayload, match="a: Expected `int`"):
        await job.rerun(payload={"a": "five"})
    with pytest.raises(ConfigError, match="rerun: after has no place here"):
        await job.rerun(after=[again])
    with pytest.raises(ConfigError, match="unknown option 'prio'; did you mean 'priority'"):
        await job.rerun(prio=3)  # type: ignore[call-arg]


async def test_keys_that_are_templates_follow_the_new_arguments() -> None:
    app = App("memory://")

    @app.task(dedup="report:{year}", concurrency_key="{year}")
    async def report(year: int) -> int:
        return year

    async with app:
        job = await report.submit(2025)
        await job.cancel()
        again = await (await job.rerun(payload={"year": 2026})).refresh()
        assert (again.dedup, again.concurrency_key) == ("report:2026", "2026")
        assert (await (await job.rerun()).refresh()).dedup == "report:2025"


async def test_a_job_can_be_resolved_through_its_handle(sums: Sums) -> None:
    job = await sums.add.submit(1)
    assert (await job.resolve(result=7, by="ann")).result == 7
    other = await sums.add.submit(1)
    assert (await other.resolve(error="given up")).status is Status.FAILED
