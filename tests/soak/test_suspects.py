"""One job that kills every worker that calls it, in all the company it may have; and a power cut."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.core.status import Status
from headrace.handle import JobHandle
from tests.crash.poisoned import app, instant, late_poison, long, poison, poisoned_together, together
from tests.support import schemas
from tests.support.crew import Crew, crew
from tests.support.poisoning import RETRIES, calls, outlive
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


IN_FLIGHT, WORKERS = 10_000, 6


@pytest.mark.parametrize("kind", STORES)
async def test_a_power_cut_does_not_slow_down_what_comes_after(kind: str, tmp_path: Path) -> None:
    """Ten thousand jobs are in the hands of workers when all of them are killed at once: none of them is suspect.

    Nor need their starts be stored before their handlers are called, as after the death of a single worker, which any
    of them may have killed.
    """
    url, flags = url_of(kind, tmp_path), ("--concurrency", "10")
    with app.override(url=url), crew(url, tmp_path, "tests.crash.poisoned:app") as workers:
        async with app:
            await instant.map([(n,) for n in range(3 * IN_FLIGHT)])
            before = await _rate(workers, flags, 3 * IN_FLIGHT)
            held, left = await _cut(workers, flags)
            suspects = len((await app.jobs(suspect=True, limit=1000)).items)
            again = await _rate(workers, flags, left)
            await instant.map([(n,) for n in range(3 * IN_FLIGHT)])
            later = await _rate(workers, flags, 3 * IN_FLIGHT)
    usual = (before + later) / 2  # the store grows older, and the machine has its moods
    print(
        f"\n{kind}: {held} held, {left} left, {suspects} suspect; usual {before:.0f}/s before and {later:.0f}/s later;"
        f" after the cut {again:.0f}/s, {again / usual:.2f} × of the usual"
    )
    assert suspects == 0
    assert again >= 0.9 * usual


async def _cut(workers: Crew, flags: tuple[str, ...]) -> tuple[int, int]:
    """Kill all workers at a moment at which they hold so many jobs; how many that were, and how many are left."""
    while True:
        await instant.map([(n,) for n in range(6 * IN_FLIGHT)])
        crowd = [workers.hire(*flags) for _ in range(WORKERS)]
        pids = {one.pid for one in crowd}

        async def at_work(pids: set[int] = pids) -> bool:
            holds = [row.holds for row in await app.workers() if row.info.pid in pids]
            return sum(holds) >= IN_FLIGHT or await _completed() == await _all()

        await until(at_work, within=300)
        for one in crowd:
            workers.freeze(one)
        held = sum(row.holds for row in await app.workers() if row.info.pid in pids)
        for one in crowd:
            workers.kill(one)
        if held >= IN_FLIGHT:
            sweeper = workers.hire("--queues", "nobodys")
            await until(_none_held, within=300)
            sweeper.terminate()
            sweeper.wait()
            return held, await _all() - await _completed()


async def _none_held() -> bool:
    statuses = (await app.stats()).statuses
    return not statuses.get(Status.ACCEPTED, 0) and not statuses.get(Status.RUNNING, 0)


async def _completed() -> int:
    return (await app.stats()).statuses.get(Status.COMPLETED, 0)


async def _all() -> int:
    return sum((await app.stats()).statuses.values())


async def _rate(workers: Crew, flags: tuple[str, ...], n: int) -> float:
    """How many of the next n jobs two workers do in a second, from the first that is done until the last."""
    before, moments = await _completed(), list[tuple[float, int]]()
    crowd = [workers.hire(*flags) for _ in range(2)]
    for most in (before + 1, before + n):

        async def done(most: int = most) -> bool:
            return await _completed() >= most

        await until(done, within=600)
        moments.append((time.monotonic(), await _completed()))
    for one in crowd:
        one.terminate()
        one.wait()
    (began, first), (ended, last) = moments
    return (last - first) / (ended - began)
