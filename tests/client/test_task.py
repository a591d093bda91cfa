from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import App, Context, Duplicate, InvalidPayload, Retry, Status
from headrace.errors import ConfigError, JobFailed, NotOpen, NotSupported
from tests.support.apps import Sums
from tests.support.until import until


async def test_options_reach_the_job_and_change_nothing_in_place() -> None:
    sums, now = Sums(), datetime.now(UTC)
    loud = sums.add.options(priority=90, tags=["a"], metadata={"m": 1}, customer="c", requires={"gpu": True})
    later = loud.options(priority=91, retry=Retry(0), timeout=None, not_before=now + timedelta(days=1))
    async with sums.app:
        plain, job = (await sums.add.submit(1)).last, (await later.submit(1, 2)).last
        slow = (await sums.multiply.submit(2, 3)).last
    assert plain is not None
    assert job is not None
    assert slow is not None
    assert (plain.priority, plain.status) == (50, Status.QUEUED)
    assert (job.priority, job.tags, job.metadata, job.spec.customer) == (91, ("a",), {"m": 1}, "c")
    assert (job.max_attempts, job.timeout, job.status) == (1, None, Status.SCHEDULED)
    assert job.requires == {"gpu": True}
    assert job.payload == {"a": 1, "b": 2}
    assert (slow.queue, slow.priority, slow.tags) == ("slow", 20, ("t",))


async def test_arguments_are_checked_at_submit() -> None:
    sums = Sums()
    async with sums.app:
        with pytest.raises(InvalidPayload, match="a: Expected `int`"):
            await sums.add.submit("1")  # type: ignore[arg-type]
        assert (await sums.app.stats.counts()).ledger.accepted == 0


async def test_a_delay_counts_from_the_submit() -> None:
    sums = Sums()
    draft = sums.add.options(delay=timedelta(minutes=1)).draft(1)
    async with sums.app:
        before = sums.app.host.clock.now()
        job = (await draft.submit()).last
    assert job is not None
    assert job.available_at >= before + timedelta(minutes=1)
    with pytest.raises(ConfigError, match="delay"):
        sums.add.options(delay=1e300).draft(1)._job(before)


async def test_what_is_no_draft_is_named_by_its_index() -> None:
    sums = Sums()
    async with sums.app:
        drafts: list[Any] = [sums.add.draft(1), (1, 2)]
        with pytest.raises(TypeError, match=r"submit_many: item 1 must be a draft, .* not tuple"):
            await sums.app.submit_many(drafts)
        assert (await sums.app.stats.counts()).ledger.accepted == 0


async def test_a_draft_submitted_twice_is_one_job() -> None:
    sums = Sums()
    draft = sums.add.draft(1, b=2)
    async with sums.app:
        first, second = await draft.submit(), await draft.submit()
        (third, fourth) = await sums.app.submit_many([draft, draft])
        assert {first.id, second.id, third.id, fourth.id} == {draft.id}
        assert (await sums.app.stats.counts()).ledger.accepted == 1
        assert not second.duplicate


async def test_dedup_keys_are_filled_from_the_parameters() -> None:
    app = App("memory://")

    @app.task(dedup="report:{year}:{month:02d}")
    def report(year: int, month: int = 3) -> None: ...

    async with app:
        first, same, other = await report.submit(2026), await report.submit(2026, month=3), await report.submit(2027)
        assert first.last is not None
        assert first.last.dedup == "report:2026:03"
        assert (same.id, same.duplicate) == (first.id, True)
        assert (other.id != first.id, other.duplicate) == (True, False)
        literal = await report.options(dedup="{year}").submit(2026)
        assert literal.last is not None
        assert literal.last.dedup == "{year}"
        with pytest.raises(Duplicate) as caught:
            await report.options(on_duplicate="raise").submit(2026)
        assert caught.value.job.id == first.id
        by_name = await app.submit("report", {"year": 2026})
        assert by_name.id == first.id


async def test_map_takes_tuples_and_mappings() -> None:
    sums = Sums()
    async with sums.app:
        handles = await sums.add.map([(1, 2), {"a": 3}, (4,)])
        assert [handle.last.payload for handle in handles if handle.last] == [{"a": 1, "b": 2}, {"a": 3}, {"a": 4}]
        assert await sums.add.map([]) == []
        with pytest.raises(TypeError, match="item 1 must be"):
            await sums.add.map([(1,), [2]])  # type: ignore[list-item]
        with pytest.raises(InvalidPayload) as caught:
            await sums.add.map([(1,), ("2",)])
        assert "item 1" in str(caught.value)
        assert (await sums.app.stats.counts()).ledger.accepted == 3


async def test_map_goes_beyond_one_write() -> None:
    sums = Sums()
    async with sums.app:
        handles = await sums.add.map((i,) for i in range(2500))
        assert len({handle.id for handle in handles}) == 2500
        assert [handle.last.payload["a"] for handle in handles if handle.last] == list(range(2500))
        assert (await sums.app.stats.counts()).ledger.accepted == 2500


async def test_run_waits_for_the_result() -> None:
    sums = Sums()
    async with sums.app, sums.app.worker():
        assert await sums.add.run(1, 2) == 3
        with pytest.raises(JobFailed, match="ValueError: no"):
            await sums.fail.options(retry=Retry(0)).run("no")


async def test_cancelling_the_caller_of_run_cancels_the_job() -> None:
    sums = Sums()
    async with sums.app:
        caller = asyncio.create_task(sums.add.run(1))

        async def is_there() -> bool:
            return bool((await sums.app.jobs.list(status="queued")).items)

        await until(is_there)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        (job,) = (await sums.app.jobs.list()).items
        assert (job.status, job.reason) == (Status.CANCELLED, "user")


async def test_cancelling_who_waits_for_a_result_leaves_the_job() -> None:
    sums = Sums()
    async with sums.app:
        handle = await sums.add.submit(1)
        waiting = asyncio.create_task(handle.result())
        await until(lambda: sums.app.session.watcher._watched)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await handle.refresh()).status is Status.QUEUED
        async with sums.app.worker():
            assert await handle.result() == 2


async def test_run_does_not_cancel_what_another_submitted() -> None:
    sums = Sums()
    keyed = sums.add.options(dedup="k")
    async with sums.app:
        first = await keyed.submit(1)
        caller = asyncio.create_task(keyed.run(1))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert (await first.refresh()).status is Status.QUEUED


async def test_a_task_is_called_like_its_function() -> None:
    sums = Sums()
    assert await sums.add(1, b=2) == 3
    assert sums.multiply(2, 3) == 6


def test_a_detached_context_knows_the_arguments() -> None:
    seen: list[Context] = []

    @App("memory://").task(name="other.name")
    def look(ctx: Context, value: Any) -> None:
        seen.append(ctx)

    look({"a": 1})
    look(threading.Lock())
    assert [ctx.job.payload for ctx in seen] == [{"value": {"a": 1}}, {}]
    assert (seen[0].job.task, seen[0].stopping) == ("other.name", None)


async def test_connections_need_an_engine_that_can() -> None:
    sums = Sums()
    async with sums.app:
        with pytest.raises(NotSupported, match="connection"):
            await sums.add.options(connection=object()).submit(1)
        shared = sums.add.options(connection=object())
        with pytest.raises(NotSupported, match="connection"):
            await shared.map([(1,), (2,)])
        with pytest.raises(ConfigError, match="share"):
            await sums.app.submit_many([shared.draft(1), sums.add.draft(2)])


async def test_verbs_need_an_open_app() -> None:
    sums = Sums()
    with pytest.raises(NotOpen, match=r"async with app.*app\.wait"):
        await sums.add.submit(1)
    with pytest.raises(NotOpen):
        await sums.add.map([(1,)])


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("delay", "await add.submit(...)"),
        ("apply_async", "await add.options(delay=60, queue=...).submit(...)"),
        ("enqueue", "await add.submit(...)"),
        ("send", "add.submit_sync(...)"),
        ("kiq", "await add.submit(...)"),
        ("defer", "add.submit_sync(...)"),
    ],
)
def test_what_other_systems_call_a_submit_is_answered_with_ours(name: str, ours: str) -> None:
    task: Any = Sums().add
    assert not hasattr(task, name)
    with pytest.raises(AttributeError) as raised:
        getattr(task.options(priority=1), name)
    assert ours in str(raised.value)
    assert (raised.value.name, type(raised.value.obj)) == (name, type(task))


def test_any_other_missing_attribute_is_told_as_ever() -> None:
    task: Any = Sums().add
    with pytest.raises(AttributeError, match=r"^'AsyncTask' object has no attribute 'nothing'$"):
        task.nothing  # noqa: B018  # reading it is what is tried
