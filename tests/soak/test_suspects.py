"""One job that kills every worker that calls it, in all the company it may have; and a power cut."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

import psutil  # type: ignore[import-untyped]
import pytest

from headrace.client.handle import JobHandle
from headrace.core.status import Status
from tests.crash.poisoned import app, instant, late_poison, long, poison, poisoned_together, together
from tests.support.crew import ROOT, Crew, crew
from tests.support.poisoning import RETRIES, calls, outlive
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(1800)

STORES = ("sqlite", "postgres")


def url_of(kind: str, place: Path) -> str:
    return schemas.url_of(place) if kind == "postgres" else f"sqlite:///{place / 'jobs.db'}"


@pytest.mark.parametrize("backoff", ["fixed", "default"])
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("concurrency", [10, 20, 40])
@pytest.mark.parametrize("company", ["instant", "long", "bulk"])
@pytest.mark.parametrize("kind", STORES)
async def test_no_innocent_job_fails(
    kind: str, company: str, concurrency: int, number: int, backoff: str, tmp_path: Path
) -> None:
    url, note, policy = url_of(kind, tmp_path), tmp_path / "calls", RETRIES[backoff]
    flags, since = ("--concurrency", str(concurrency)), time.monotonic()
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app") as workers:
        async with app:
            innocents: list[UUID]
            bad: JobHandle[Any]
            match company:
                case "instant":
                    before = await instant.options(retry=policy).map([(n,) for n in range(16)])
                    bad = await poison.options(retry=policy).submit(str(note))
                    after = await instant.options(retry=policy).map([(n,) for n in range(16)])
                    innocents = [one.id for one in (*before, *after)]
                case "long":
                    neighbours = await long.options(retry=policy).map([(n, 1.5) for n in range(concurrency)])
                    bad = await late_poison.options(retry=policy).submit(str(note))
                    innocents = [one.id for one in neighbours]
                case _:
                    near = await poisoned_together.options(retry=policy).map([("",) for _ in range(19)])
                    bad = await poisoned_together.options(retry=policy).submit(str(note))
                    far = await together.options(retry=policy).map([(n,) for n in range(40)])
                    innocents = [one.id for one in (*near, *far)]
            for _ in range(number):
                workers.hire(*flags)
            await outlive(app, workers, bad, innocents, flags=flags, within=600)
            assert calls(note) <= policy.max_attempts + 2
    took = time.monotonic() - since
    print(f"\n{kind}, {company}, concurrency {concurrency}, {number} workers, {backoff}: {took:.0f} s, {calls(note)}×")


JOBS = 30_000
"""How many jobs each drain has. After a power cut all of them were in flight, so that what they cost cannot hide."""

HOLDERS = 6
"""How many workers hold them, and are killed at once."""

ROUNDS = 7
"""How many power cuts there are: the rate of a single drain is off by a tenth and more now and then."""


@pytest.mark.parametrize("kind", STORES)
async def test_a_power_cut_does_not_slow_down_what_comes_after(kind: str, tmp_path: Path) -> None:
    """All jobs are in the hands of workers when these are killed at once: none of them is suspect.

    Nor need their starts be stored before their handlers are called, as after the death of a single worker, which any
    of them may have killed. The usual rate is that of as many new jobs, just before and just after; what counts is the
    median of some power cuts.
    """
    url = url_of(kind, tmp_path)
    rates, costs = list[float](), list[float]()
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app", beat=10, lease=30) as workers:
        async with app:
            await _submit(JOBS)
            before = await _drain(workers)
            for _ in range(ROUNDS):
                await _submit(JOBS)
                await _cut(workers)
                suspects = len((await app.jobs.list(suspect=True, limit=1000)).items)
                assert suspects == 0
                again = await _drain(workers)
                await _submit(JOBS)
                later = await _drain(workers)
                rate, cost = (
                    again[n] / ((before[n] + later[n]) / 2) for n in (0, 1)
                )  # the store grows older meanwhile
                print(f"\n{kind}: {JOBS} were in flight")
                for name, (per_second, micros) in {"before": before, "after the cut": again, "later": later}.items():
                    print(f"  {name}: {per_second:.0f}/s, {micros:.1f} µs of the workers' processor time for each")
                print(f"  {rate:.2f} × the usual rate, {cost:.2f} × the usual processor time")
                rates.append(rate)
                costs.append(cost)
                before = later
    rate = median(rates)
    print(f"\n{kind}: median {rate:.2f} × the usual rate, {median(costs):.2f} × the usual processor time")
    assert rate >= 0.9


async def _submit(n: int) -> None:
    """Submit so many jobs; nobody is given any before the queue is opened."""
    await app.queues.pause("default")
    await instant.map([(number,) for number in range(n)])


async def _open() -> UUID:
    """Open the queue, and submit the last job in line: the hint of it has all workers look at once."""
    await app.queues.resume("default")
    return (await instant.submit(0)).id


async def _hire(workers: Crew, number: int, *flags: str) -> list[subprocess.Popen[bytes]]:
    """Workers that are ready, and wait for jobs."""
    crowd = [workers.hire(*flags) for _ in range(number)]

    async def known() -> bool:
        return {one.pid for one in crowd} <= {row.info.pid for row in await app.workers.list()}

    await until(known, within=120)
    return crowd


async def _cut(workers: Crew) -> None:
    """Have workers claim all jobs, kill them all at once, and have the jobs given back."""
    await app.queues.resume("default")
    holders = [_holder(workers.url) for _ in range(HOLDERS)]
    try:
        said = [await asyncio.to_thread(_line, one) for one in holders]
    finally:
        for one in holders:
            one.kill()
        for one in holders:
            one.communicate()
    assert sum(map(int, said)) == JOBS
    await app.queues.pause("default")
    sweeper = workers.hire("--queues", "nobodys")
    await until(_none_held, within=120)
    sweeper.terminate()
    sweeper.wait()


def _holder(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.soak.holder", str(JOBS // HOLDERS)]
    environment = os.environ | {"HEADRACE_URL": url, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


async def _none_held() -> bool:
    statuses = (await app.stats.counts()).statuses
    return not statuses.get(Status.ACCEPTED, 0) and not statuses.get(Status.RUNNING, 0)


async def _completed() -> int:
    return (await app.stats.counts()).statuses.get(Status.COMPLETED, 0)


async def _drain(workers: Crew) -> tuple[float, float]:
    """How many jobs in a second two workers do, and what each costs them in processor time (µs).

    From the opening of the queue until the last job in line is done. Only that one is looked at meanwhile: to count
    all jobs again and again takes half of the machine.
    """
    crowd = await _hire(workers, 2, "--concurrency", "10")
    before, spent, began = await _completed(), _processor_time(crowd), time.monotonic()
    last = await _open()

    async def done() -> bool:
        return (await app.jobs.get(last)).status is Status.COMPLETED

    await until(done, within=300)
    took, spent = time.monotonic() - began, _processor_time(crowd) - spent
    jobs = await _completed() - before
    await until(_none_held, within=60)
    for one in crowd:
        one.terminate()
        one.wait()
    return jobs / took, 1e6 * spent / jobs


def _processor_time(crowd: list[subprocess.Popen[bytes]]) -> float:
    times = [psutil.Process(one.pid).cpu_times() for one in crowd]
    return float(sum(one.user + one.system for one in times))
