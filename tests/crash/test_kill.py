"""Worker processes are killed, frozen and poisoned; nothing is lost, doubled or blamed wrongly."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Outcome, Reason, Status
from tests.crash.app import app, poison, waits_for, work
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.seed import repeats
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_five_thousand_jobs_survive_workers_killed_at_random(url: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    dice = random.Random(seed)
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            # Until the gate is open somebody holds these, or is about to, however fast all others are done.
            long = [await waits_for.submit(str(gate), str(note)) for _ in range(8)]
            for _ in range(4):
                workers.hire("--concurrency", "20")

            async def at_work() -> bool:
                return await workers.kill_at_work(app, dice)

            async def nemesis() -> None:
                for _ in range(repeats(6)):
                    await asyncio.sleep(dice.uniform(0.3, 0.9))
                    living = [one for one in workers.members if one.poll() is None]
                    workers.kill(dice.choice(living))  # whatever it does, or before it does anything
                    workers.hire("--concurrency", "20")
                    await asyncio.sleep(dice.uniform(0.3, 0.9))
                    await until(at_work, within=60, what="somebody holds something")
                    workers.hire("--concurrency", "20")

            async def submitting() -> None:
                for _ in range(50):
                    await work.map([(dice.uniform(0.01, 0.1),) for _ in range(100)])
                    await asyncio.sleep(0.02)

            async def finished() -> bool:
                return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0) == 5000 + len(long)

            await asyncio.gather(submitting(), nemesis())
            gate.touch()
            await until(finished, within=180, what="5,000 jobs completed")
            histories = await check_store(app.session.engine)
            outcomes = Counter(one.outcome for history in histories.values() for one in history.attempts)
            assert outcomes[Outcome.COMPLETED] == 5000 + len(long), f"seed {seed}"
            assert outcomes[Outcome.LOST] > 0


async def test_a_handler_that_kills_its_process_fails_after_its_budget_and_alone(url: str, tmp_path: Path) -> None:
    note = tmp_path / "starts"
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            neighbours = await work.map([(0.02,) for _ in range(60)])
            bad = await poison.submit(str(note))
            more = await work.map([(0.02,) for _ in range(60)])
            workers.hire("--concurrency", "4", "--processes", "2")
            await until(lambda: _ended(bad.id), within=180)
            job = await app.jobs.get(bad.id)
            assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.LOST, 3)
            history = await app.jobs.history(bad.id)
            # One more may be on record that was not charged: its neighbours may be suspect before it is.
            started = [one for one in history.attempts if one.started_at is not None]
            charged = [one for one in started if one.error is None or (one.error.details or {}).get("charged", True)]
            assert [one.outcome for one in charged] == [Outcome.LOST] * 3
            assert len(started) - len(charged) == job.spared
            for handle in (*neighbours, *more):
                await handle.result(timeout=60)
            await check_store(app.session.engine)


async def test_without_retries_it_is_started_exactly_once(url: str, tmp_path: Path) -> None:
    note = tmp_path / "starts"
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            bad = await poison.options(retry=Retry(0)).submit(str(note))
            workers.hire("--processes", "2")
            await until(lambda: _ended(bad.id), within=180)
            job = await app.jobs.get(bad.id)
            assert (job.status, job.reason, job.attempt) == (Status.FAILED, Reason.LOST, 1)
            assert note.read_text() == "started\n"


async def test_the_late_finish_of_a_frozen_worker_is_stale(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            slow = workers.hire()
            handle = await waits_for.submit(str(gate), str(note))
            await until(note.exists, within=90)
            await until(lambda: _has_status(handle.id, Status.RUNNING))
            await workers.freeze_at_rest(slow)
            quick = workers.hire()
            await until(lambda: len(note.read_text().splitlines()) == 2, within=90)
            gate.touch()
            assert await handle.result(timeout=60) == 2
            before = await app.jobs.get(handle.id)
            workers.thaw(slow)
            await until(lambda: "another owner" in workers.said(slow), within=60)
            assert await app.jobs.get(handle.id) == before
            history = await app.jobs.history(handle.id)
            assert [one.outcome for one in history.attempts] == [Outcome.LOST, Outcome.COMPLETED]
            # Both go on: the thawed one under a new name.
            await until(lambda: _alive(2), within=60)
            for member in (slow, quick):
                member.send_signal(signal.SIGTERM)
                assert member.wait(60) == 0
            await check_store(app.session.engine)


async def test_four_processes_share_one_store_and_each_job_is_finished_once(url: str, tmp_path: Path) -> None:
    # A lease as everybody has it: nobody is killed here, and who is slow on a busy machine must not be taken for dead.
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            for _ in range(4):
                workers.hire("--concurrency", "10")
            await until(lambda: _alive(4), within=90)
            handles = [handle for _ in range(4) for handle in await work.map([(0.02,)] * 500)]
            results = await asyncio.gather(*(handle.result(timeout=90) for handle in handles))
            assert len(set(results)) >= 2  # more than one process had a share
            assert os.getpid() not in results
            histories = await check_store(app.session.engine)
            assert all(len(history.attempts) == 1 for history in histories.values())


async def _ended(id: UUID) -> bool:
    return (await app.jobs.get(id)).ended


async def _has_status(id: UUID, status: Status) -> bool:
    return (await app.jobs.get(id)).status is status


async def _alive(n: int) -> bool:
    return sum(row.alive for row in await app.workers.list()) == n
