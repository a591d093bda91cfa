"""Wrong clocks, clocks that are set, and a machine that sleeps, with real workers: nobody is charged for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from headrace.core.lifecycle.clock_steps import SETTING, Steps
from headrace.core.status import Outcome, Status
from headrace.runtime.clock import Clock
from headrace.runtime.store_clock import StoreClock
from tests.crash.wrong_clock_scene import BUSY, LEASE, Scene, play
from tests.crash.wrong_clocks import app, begins, waits
from tests.support.crew import Crew, crew
from tests.support.servers.postgres import shared
from tests.support.servers.server_clock import ServerClock
from tests.support.until import until
from tests.support.wrong_clock import SharedClock

pytestmark = pytest.mark.timeout(240)

HOUR = 3600.0


@pytest.mark.xdist_group("crash postgres")
async def test_workers_with_wrong_clocks_run_nothing_early_late_or_expired(tmp_path: Path) -> None:
    figures = await play(tmp_path, Scene(seconds=5))
    assert figures.moved < BUSY


async def on_record() -> list[float]:
    settings = await app.session.engine.documents.settings(SETTING)
    return [round(step.by / 60) * 60.0 for one in settings for step in Steps.from_text(one.value).steps]


async def step_under_running_jobs(folder: Path, workers: Crew, step: Callable[[], object], by: float) -> None:
    """Fourteen jobs run when time steps, and end when the sweeper has had every opportunity to judge them."""
    gate = folder / "gate"
    handles = [await waits.options(timeout=60).submit(str(gate)) for _ in range(14)]

    async def running() -> bool:
        return all(job is not None and job.status is Status.RUNNING for job in await app.session.engine.jobs.get(ids))

    ids = [handle.id for handle in handles]
    await until(running, within=60, what="all run")
    step()
    before = {row.info.id: row.beats for row in await app.session.engine.workers.list()}

    async def judged() -> bool:
        """Six beats are as many looks of the sweeper, and two are enough to judge a deadline."""
        rows = {row.info.id: row.beats for row in await app.session.engine.workers.list() if row.alive}
        assert rows.keys() == before.keys(), "somebody was buried"
        return await on_record() == [by] and all(rows[id] >= before[id] + 6 for id in rows)

    await until(judged, within=60, what="the step is on record, and the sweeper has looked again and again")
    assert await running()
    gate.touch()
    for handle in handles:
        assert await handle.result(timeout=60) in {member.pid for member in workers.members}
        assert [one.outcome for one in (await app.jobs.history(handle.id)).attempts] == [Outcome.COMPLETED]
    assert await (await begins.submit()).result(timeout=60) > 0


@contextmanager
def at_work(url: str, folder: Path, clock: Clock, **environment: str) -> Iterator[Crew]:
    with (
        app.override(url=url, clock=StoreClock(clock)),
        crew(url, folder, "tests.crash.wrong_clocks:app", lease=LEASE) as workers,
    ):
        for _ in range(2):
            workers.hire("--concurrency", "10", **environment)
        yield workers
        workers.stop()


@pytest.mark.xdist_group("crash sqlite")
@pytest.mark.parametrize(("verb", "by"), [("set", HOUR), ("set", -HOUR), ("sleep", HOUR)])
async def test_a_step_of_the_clock_on_one_machine_charges_nobody(verb: str, by: float, tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path / 'jobs.db'}", SharedClock(tmp_path / "clock")
    with at_work(url, tmp_path, clock, CLOCK=str(tmp_path / "clock")) as workers:
        async with app:
            await step_under_running_jobs(tmp_path, workers, partial(getattr(clock, verb), by), by)


@pytest.mark.xdist_group("crash postgres")
@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_a_step_of_the_servers_clock_charges_nobody(by: float, tmp_path: Path) -> None:
    server = ServerClock(shared())
    with at_work(server.url, tmp_path, SharedClock(tmp_path / "clock")) as workers:
        async with app:
            await step_under_running_jobs(tmp_path, workers, partial(server.set, by), by)
