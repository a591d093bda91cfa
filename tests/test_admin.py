from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace import App, Cron, Every, Status
from headrace.errors import ConfigError, UnknownSchedule
from headrace.testing import FakeClock
from tests.support.apps import ENGINES, Sums, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_stats_count_everything(sums: Sums) -> None:
    jobs = await sums.add.map([(1,), (2,), (3,)])
    await jobs[0].cancel()
    stats = await sums.app.stats()
    assert stats.statuses == {Status.QUEUED: 2, Status.CANCELLED: 1}
    assert (stats.ledger.accepted, stats.ledger.live, stats.workers_alive) == (3, 2, 0)
    assert stats.oldest_queued is not None


async def test_queues_have_settings_and_jobs(sums: Sums) -> None:
    await sums.multiply.submit(1, 2)
    await sums.app.set_queue("mail", priority=10)
    await sums.app.pause_queue("mail")
    mail, slow = await sums.app.queues()
    assert (mail.name, mail.priority, mail.paused, mail.counts) == ("mail", 10, True, {})
    assert (slow.name, slow.priority, slow.counts) == ("slow", 0, {Status.QUEUED: 1})
    await sums.app.resume_queue("mail")
    await sums.app.resume_queue("mail")
    assert not (await sums.app.queues())[0].paused
    with pytest.raises(ConfigError, match="queue"):
        await sums.app.pause_queue("")
    with pytest.raises(ConfigError, match="priority"):
        await sums.app.set_queue("mail", priority="high")  # type: ignore[arg-type]


async def test_tasks_from_here_and_elsewhere(sums: Sums, tmp_path: Path) -> None:
    await sums.app.engine.put_setting("task:other", '{"name":"other","queue":"q"}', 0)
    infos = {info.name: info for info in await sums.app.tasks()}
    assert set(infos) == {"add", "multiply", "fail", "other"}
    assert (infos["add"].here, infos["other"].here, infos["other"].queue) == (True, False, "q")
    assert infos["multiply"].schema["required"] == ["a", "b"]


async def test_schedules_live_in_the_store(sums: Sums) -> None:
    app = sums.app
    made = await app.schedule("sums", Cron("0 2 * * *", tz="Europe/Berlin"), sums.add.options(queue="q").draft(1))
    assert (made.task, made.source, made.paused) == ("add", "dynamic", False)
    assert made.next_fire is not None
    assert (await app.pause_schedule("sums")).paused
    assert not (await app.resume_schedule("sums")).paused
    handle = await app.trigger_schedule("sums")
    assert handle.last is not None
    assert (handle.last.queue, handle.last.payload, handle.last.spec.schedule) == ("q", {"a": 1}, "sums")
    assert [one.name for one in await app.schedules()] == ["sums"]
    await app.delete_schedule("sums")
    assert await app.schedules() == []
    with pytest.raises(UnknownSchedule):
        await app.delete_schedule("sums")
    with pytest.raises(ConfigError, match="delay"):
        await app.schedule("later", Every(minutes=1), sums.add.options(delay=5).draft(1))


async def test_schedules_of_code_are_announced() -> None:
    app = App("memory://")

    @app.task(schedule=Every(minutes=5), queue="q")
    def often(a: int = 3) -> None: ...

    async with app:
        await app.announce()
        await app.announce()
        (info,) = await app.schedules()
        assert (info.name, info.task, info.source, info.rule) == ("often", "often", "code", Every(minutes=5))
        handle = await app.trigger_schedule("often")
        assert handle.last is not None
        assert (handle.last.queue, handle.last.payload) == ("q", {})


async def test_pruning_keeps_to_the_retention() -> None:
    clock = FakeClock()
    sums = Sums()
    with sums.app.override(clock=clock):
        async with sums.app:
            for handle in await sums.add.map([(i,) for i in range(3)]):
                await handle.cancel()
            live = await sums.add.submit(1)
            assert await sums.app.prune() == 0
            clock.advance(days=31)
            assert await sums.app.prune() == 3
            assert (await sums.app.stats()).ledger.pruned == 3
            assert (await live.refresh()).status is Status.QUEUED


async def test_the_doctor_finds_what_is_wrong(sums: Sums) -> None:
    healthy = await sums.app.doctor()
    assert {check.name for check in healthy} >= {"ledger", "workers"}
    assert all(check.level != "fail" for check in healthy)
    await sums.add.submit(1)
    await sums.app.pause_queue("default")
    warned = {check.name: check for check in await sums.app.doctor() if check.level == "warn"}
    assert warned["workers"].remedy is not None
    assert "resume default" in (warned["queues"].remedy or "")


async def test_the_doctor_names_tasks_nobody_serves(sums: Sums) -> None:
    async with sums.app.worker():
        with pytest.warns(UserWarning, match="strange"):
            await sums.app.submit("strange", {})

        async def seen() -> bool:
            return any(row.alive for row in await sums.app.workers())

        await until(seen)
        found = [check for check in await sums.app.doctor() if check.name == "tasks"]
    assert len(found) == 1
    assert "strange" in found[0].message


@pytest.mark.parametrize("kind", ENGINES)
async def test_migrating_needs_no_open_app(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    planned = await sums.app.migrate(plan=True)
    assert await sums.app.migrate() == planned
    assert await sums.app.migrate() == []
    async with sums.app:
        assert await sums.app.migrate(plan=True) == []
