from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace import App, Cron, Every, Status
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.retry import Retry
from headrace.engine import Beat, WorkerInfo
from headrace.errors import ConfigError, UnknownSchedule
from headrace.testing import FakeClock
from tests.core.stand import submitted
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
    stats = await sums.app.stats.counts()
    assert stats.statuses == {Status.QUEUED: 2, Status.CANCELLED: 1}
    assert (stats.ledger.accepted, stats.ledger.live, stats.workers_alive) == (3, 2, 0)
    assert stats.oldest_queued is not None


async def test_queues_have_settings_and_jobs(sums: Sums) -> None:
    await sums.multiply.submit(1, 2)
    await sums.app.queues.set("mail", priority=10)
    await sums.app.queues.pause("mail")
    mail, slow = await sums.app.queues.list()
    assert (mail.name, mail.priority, mail.paused, mail.counts) == ("mail", 10, True, {})
    assert (slow.name, slow.priority, slow.counts) == ("slow", 0, {Status.QUEUED: 1})
    await sums.app.queues.resume("mail")
    await sums.app.queues.resume("mail")
    assert not (await sums.app.queues.list())[0].paused
    with pytest.raises(ConfigError, match="queue"):
        await sums.app.queues.pause("")
    with pytest.raises(ConfigError, match="priority"):
        await sums.app.queues.set("mail", priority="high")  # type: ignore[arg-type]


async def test_tasks_from_here_and_elsewhere(sums: Sums, tmp_path: Path) -> None:
    await sums.app.session.engine.documents.put_setting("task:other", '{"name":"other","queue":"q"}', 0)
    infos = {info.name: info for info in await sums.app.tasks.list()}
    assert set(infos) == {"add", "multiply", "fail", "other"}
    assert (infos["add"].here, infos["other"].here, infos["other"].queue) == (True, False, "q")
    assert infos["multiply"].schema["required"] == ["a", "b"]


async def test_schedules_live_in_the_store(sums: Sums) -> None:
    app = sums.app
    made = await app.schedules.set("sums", Cron("0 2 * * *", tz="Europe/Berlin"), sums.add.options(queue="q").draft(1))
    assert (made.task, made.source, made.paused) == ("add", "dynamic", False)
    assert made.next_fire is not None
    assert (await app.schedules.pause("sums")).paused
    assert not (await app.schedules.resume("sums")).paused
    handle = await app.schedules.trigger("sums")
    assert handle.last is not None
    assert (handle.last.queue, handle.last.payload, handle.last.spec.schedule) == ("q", {"a": 1}, "sums")
    assert [one.name for one in await app.schedules.list()] == ["sums"]
    await app.schedules.delete("sums")
    assert await app.schedules.list() == []
    with pytest.raises(UnknownSchedule):
        await app.schedules.delete("sums")
    with pytest.raises(ConfigError, match="delay"):
        await app.schedules.set("later", Every(minutes=1), sums.add.options(delay=5).draft(1))


async def test_schedules_of_code_are_announced() -> None:
    app = App("memory://")

    @app.task(schedule=Every(minutes=5), queue="q")
    def often(a: int = 3) -> None: ...

    async with app:
        await app.tasks.announce()
        await app.tasks.announce()
        (info,) = await app.schedules.list()
        assert (info.name, info.task, info.source, info.rule) == ("often", "often", "code", Every(minutes=5))
        handle = await app.schedules.trigger("often")
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
            assert await sums.app.store.prune() == 0
            clock.advance(days=31)
            assert await sums.app.store.prune() == 3
            assert (await sums.app.stats.counts()).ledger.pruned == 3
            assert (await live.refresh()).status is Status.QUEUED


async def test_the_doctor_finds_what_is_wrong(sums: Sums) -> None:
    healthy = await sums.app.store.doctor()
    assert {check.name for check in healthy} >= {"ledger", "workers"}
    assert all(check.level != "fail" for check in healthy)
    await sums.add.submit(1)
    await sums.app.queues.pause("default")
    found = {check.name: check for check in await sums.app.store.doctor() if check.level != "ok"}
    assert (found["tasks"].level, found["queues"].level) == ("fail", "warn")
    assert found["tasks"].message == "no living worker has the task 'add', and 1 job of it could run now"
    assert "headrace worker" in (found["tasks"].remedy or "")
    assert "resume default" in (found["queues"].remedy or "")


async def test_the_doctor_names_tasks_nobody_serves(sums: Sums) -> None:
    async with sums.app.worker():
        with pytest.warns(UserWarning, match="strange"):
            await sums.app.submit("strange", {})
        with pytest.warns(UserWarning, match="later"):
            await sums.app.submit("later", {}, delay=60)

        async def seen() -> bool:
            return any(row.alive for row in await sums.app.workers.list())

        await until(seen)
        failed, warned = [check for check in await sums.app.store.doctor() if check.name == "tasks"]
    assert (failed.level, warned.level) == ("fail", "warn")
    assert "'strange', and 1 job of it could run now" in failed.message
    assert "'later', and jobs of it wait for their time" in warned.message


class Crew:
    """Workers that are only known to the store, on a clock of the test's."""

    def __init__(self, kind: str, place: Path) -> None:
        self.sums, self.clock = Sums(url_of(kind, place)), FakeClock()

    async def join(self, *tasks: str, **info: Any) -> UUID:
        """A worker that has just beaten."""
        now, id = self.clock.now(), self.sums.app.host.new_id()
        fields: dict[str, Any] = {
            "id": id,
            "host": "mill",
            "pid": 42,
            "started_at": now,
            "concurrency": 2,
            "tasks": tasks,
        }
        await self.sums.app.session.engine.workers.register(WorkerInfo(**fields | info), now)
        return id

    async def findings(self, level: str) -> list[str]:
        """What the doctor says on this level."""
        return [check.message for check in await self.sums.app.store.doctor() if check.level == level]


@pytest.fixture(params=ENGINES)
async def crew(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Crew]:
    made = Crew(request.param, tmp_path)
    with made.sums.app.override(clock=made.clock):
        async with made.sums.app:
            yield made


async def test_a_worker_is_shown_as_it_is_heard_of(crew: Crew) -> None:
    app, clock = crew.sums.app, crew.clock
    worker = await crew.join("add", "multiply", "fail")
    clock.advance(seconds=30)
    [row] = await app.workers.list()
    assert (row.alive, row.silent_since, row.beat.state) == (True, None, "running")
    clock.advance(seconds=1)
    heard = clock.now() - timedelta(seconds=31)
    [row] = await app.workers.list()
    assert (row.alive, row.silent_since, row.beat.state) == (False, heard, "silent")
    stats = await app.stats.counts()
    assert (stats.workers_alive, stats.workers_silent, stats.silent_since) == (0, 1, heard)
    await app.session.engine.workers.beat(worker, Beat(), clock.now())
    assert (await app.stats.counts()).workers_alive == 1


async def test_a_worker_with_a_longer_lease_may_be_silent_for_longer(crew: Crew) -> None:
    await crew.join("add", lease=60.0)
    crew.clock.advance(seconds=45)
    assert [row.alive for row in await crew.sums.app.workers.list()] == [True]
    crew.clock.advance(seconds=16)
    assert [row.alive for row in await crew.sums.app.workers.list()] == [False]


async def test_the_doctor_names_workers_whose_clocks_are_wrong(crew: Crew) -> None:
    right, wrong = await crew.join("add"), await crew.join("add")
    workers, now = crew.sums.app.session.engine.workers, crew.clock.now()
    await workers.beat(right, Beat(clock_apart=-1.9), now)
    await workers.beat(wrong, Beat(clock_apart=-3600.0), now)
    found = [one for one in await crew.findings("warn") if "clock of worker" in one]
    assert found == [f"the clock of worker {wrong} on mill (pid 42) is 60 min behind the store's"]


async def test_the_doctor_fails_when_all_who_served_a_task_are_silent(crew: Crew) -> None:
    await crew.join("add", "multiply", "fail")
    await crew.sums.add.submit(1)
    assert await crew.findings("fail") == []
    crew.clock.advance(minutes=4)
    assert await crew.findings("fail") == [
        (
            "no living worker has the task 'add', and 1 job of it could run now; "
            "the last worker that had it has been silent for 4 min"
        )
    ]
    said = [one for one in await crew.findings("warn") if one.startswith("worker ")]
    assert [one.partition(" on ")[2] for one in said] == ["mill (pid 42) has been silent for 4 min, and holds 0 jobs"]
    await crew.join("add")
    assert await crew.findings("fail") == []


async def test_the_doctor_fails_when_jobs_are_held_by_the_silent_and_nobody_lives(crew: Crew) -> None:
    worker = await crew.join("add")
    await crew.sums.add.submit(1)
    engine, now = crew.sums.app.session.engine, crew.clock.now()
    profiles = frozenset(one.id for one in (await engine.documents.profiles()).profiles)
    await engine.jobs.claim(worker, ClaimRequest(n=1, free=1, profiles=profiles), 1, now)
    assert await crew.findings("fail") == []
    crew.clock.advance(minutes=4)
    assert "no worker is alive, and those that are not hold 1 job" in await crew.findings("fail")
    await crew.join("add")
    assert await crew.findings("fail") == []


async def test_the_doctor_fails_when_nobody_serves_the_queue(crew: Crew) -> None:
    await crew.join("add", queues=("mail",))
    await crew.sums.add.options(queue="reports").submit(1)
    assert await crew.findings("fail") == ["no living worker serves the queue 'reports', and 1 job could run now"]
    await crew.sums.app.queues.pause("reports")
    assert await crew.findings("fail") == []


async def test_schedules_of_the_silent_are_unserved(crew: Crew) -> None:
    app = crew.sums.app

    @app.task(schedule=Every(minutes=5))
    def often() -> None: ...

    await app.tasks.announce()
    await crew.join("often")
    assert [one.state for one in await app.schedules.list()] == ["active"]
    crew.clock.advance(seconds=31)
    assert [one.state for one in await app.schedules.list()] == ["unserved"]


@pytest.mark.parametrize("kind", ENGINES)
async def test_migrating_needs_no_open_app(kind: str, tmp_path: Path) -> None:
    sums = Sums(url_of(kind, tmp_path))
    planned = await sums.app.store.migrate(plan=True)
    assert await sums.app.store.migrate() == planned
    assert await sums.app.store.migrate() == []
    async with sums.app:
        assert await sums.app.store.migrate(plan=True) == []


async def test_doctor_finds_requirements_that_nobody_meets() -> None:
    sums = Sums()
    async with sums.app, sums.app.worker(offers={"gpu": 1}) as worker:
        await until(lambda: worker.stats.state == "running")
        await sums.add.options(requires={"gpu": 2}).submit(1)
        await sums.add.options(requires={"gpu": 1}, delay=60).submit(1)
        found = [check for check in await sums.app.store.doctor() if check.name == "requirements"]
    assert [(check.level, check.message) for check in found] == [
        ("fail", f"1 job of 'add' could run now and needs gpu ≥ 2; the nearest worker, {worker.id}, offers 1")
    ]


async def test_doctor_says_when_jobs_are_in_quarantine() -> None:
    sums = Sums()
    async with sums.app:
        for losses in (1, 2):
            job = replace(submitted(retry=Retry(3)), id=UUID(int=losses), suspect=losses, charged=losses)
            await sums.app.session.engine.jobs.insert([job], sums.app.host.clock.now())
        found = [check for check in await sums.app.store.doctor() if check.name == "quarantine"]
    assert [(check.level, check.message.split(":")[0]) for check in found] == [("warn", "1 job in quarantine")]
