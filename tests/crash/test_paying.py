"""What a handler writes in the transaction that completes its job is written exactly once, whoever is killed when."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import apsw
import asyncpg
import pytest

from headrace.core.status import Outcome, Status
from tests.crash.paying import Moment, app, pay, pay_at
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.seed import repeats
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import schema_of, url_of
from tests.support.until import until

pytestmark = [pytest.mark.timeout(480), pytest.mark.xdist_group("crash")]

ENGINES = ("sqlite", "postgres")
MOMENTS: tuple[Moment, ...] = get_args(Moment)


class Till:
    """A table of the user's in the store of the jobs."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._file = kind, folder / "jobs.db"
        self.url = f"sqlite:///{self._file}" if kind == "sqlite" else url_of(folder)
        self.table = "till" if kind == "sqlite" else f"{schema_of(folder)}.till"

    def do(self, sql: str) -> list[Any]:
        if self._kind == "postgres":
            return shared().execute(sql)
        connection = apsw.Connection(str(self._file))
        try:
            connection.set_busy_timeout(30000)
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def rows(self) -> Counter[str]:
        """How often each job was paid."""
        return Counter(row[0] for row in self.do(f"SELECT job FROM {self.table}"))


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_worker_dies_at_the_worst_of_moments(kind: str, tmp_path: Path) -> None:
    till = Till(kind, tmp_path)
    with app.override(url=till.url), crew(till.url, tmp_path, "tests.crash.paying:app") as workers:
        async with app:
            till.do(f"CREATE TABLE {till.table} (job text NOT NULL)")
            jobs = {moment: await pay.submit(till.table, moment) for moment in MOMENTS}
            # One job at a time, each with a worker of its own to be killed by it.
            workers.hire("--concurrency", "1", "--processes", "2")
            for handle in jobs.values():
                await handle.result(timeout=120)
            assert till.rows() == Counter(str(handle.id) for handle in jobs.values())
            for moment, handle in jobs.items():
                outcomes = [one.outcome for one in (await app.jobs.history(handle.id)).attempts]
                # Nothing comes after the commit. Before it, also the others may be lost, by a worker that did not come
                # so far: it died of one of these jobs, or was slower than its short lease.
                assert (moment, outcomes[-1]) == (moment, Outcome.COMPLETED)
                assert (moment, outcomes.count(Outcome.COMPLETED)) == (moment, 1)
                if moment not in ("never", "after the commit"):
                    assert (moment, Outcome.LOST in outcomes) == (moment, True)
            await check_store(app.session.engine)


@pytest.mark.parametrize("kind", ENGINES)
async def test_every_job_is_paid_exactly_once_while_workers_are_killed_at_random(kind: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    dice = random.Random(seed)
    till = Till(kind, tmp_path)
    with app.override(url=till.url), crew(till.url, tmp_path, "tests.crash.paying:app") as workers:
        async with app:
            till.do(f"CREATE TABLE {till.table} (job text NOT NULL)")
            pause = 0.002 if kind == "sqlite" else 0.05
            handles = await pay.map([(till.table, "never", pause)] * 600)
            for _ in range(3):
                workers.hire("--concurrency", "5")
            killed = 0

            async def paid() -> bool:
                return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0) == len(handles)

            while not await paid() and killed < repeats(10, 2):
                await asyncio.sleep(dice.uniform(0.4, 0.9))
                living = [one for one in workers.members if one.poll() is None]
                workers.kill(dice.choice(living))
                killed += 1
                workers.hire("--concurrency", "5")
            await until(paid, within=180, what=f"all paid, seed {seed}")
            assert till.rows() == Counter(str(handle.id) for handle in handles), f"seed {seed}"
            await check_store(app.session.engine)


@asynccontextmanager
async def nobody_beats(folder: Path) -> AsyncIterator[None]:
    """Keep the store from answering any beat or claim."""
    connection = await asyncpg.connect(shared().url())
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {schema_of(folder)}.workers IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


@pytest.mark.parametrize("learns", ["by its write", "by its beat"])
async def test_what_a_frozen_worker_wrote_is_undone_when_another_was_faster(learns: str, tmp_path: Path) -> None:
    till, gate, note = Till("postgres", tmp_path), tmp_path / "go", tmp_path / "paying"

    def noted(*lines: str) -> bool:
        return note.exists() and set(lines) <= set(note.read_text().splitlines())

    async def recorded() -> bool:
        return (await app.jobs.get(handle.id)).started_at is not None

    with app.override(url=till.url), crew(till.url, tmp_path, "tests.crash.paying:app") as workers:
        async with app:
            till.do(f"CREATE TABLE {till.table} (job text NOT NULL)")
            slow = workers.hire()
            handle = await pay_at.submit(till.table, str(gate), str(note))
            await until(lambda: noted(f"{slow.pid} wrote"), within=90)
            # Nothing that it writes later than this may be kept waiting by nobody_beats, but its last word.
            await until(recorded, within=90)
            await workers.freeze_at_rest(slow)
            fast = workers.hire()
            await until(lambda: noted(f"{fast.pid} wrote"), within=90)
            (tmp_path / f"go-{fast.pid}").touch()
            await handle.result(timeout=60)
            assert till.rows() == Counter([str(handle.id)])
            before = await app.jobs.get(handle.id)
            assert not noted(f"{slow.pid} is through")
            if learns == "by its write":  # it may complete the job, and hears nothing of its death before it tries
                async with nobody_beats(tmp_path):
                    (tmp_path / f"go-{slow.pid}").touch()
                    workers.thaw(slow)
                    await until(lambda: "has another owner by now" in workers.said(slow), within=60)
                    assert "declared dead" not in workers.said(slow)
            else:  # it never comes so far: its gate stays closed
                workers.thaw(slow)
                await until(lambda: "declared dead" in workers.said(slow), within=60)
            await until(lambda: noted(f"{slow.pid} is through"), within=60)
            assert till.rows() == Counter([str(handle.id)])
            assert await app.jobs.get(handle.id) == before
            await check_store(app.session.engine)
