"""What limits cost: how fast jobs are claimed and finished where nothing, much, or everything ahead is limited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

from msgspec.structs import replace

from bench.plan import Plan
from bench.progress import Progress
from bench.sides.asynchronous import run
from bench.stores import Stores
from headrace import App, Task
from headrace.core.attempt import Completed
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.execution import finish
from headrace.engine import Claimed, WorkerInfo
from headrace.worker.process.loops import tune_process

__all__ = ["Case", "cases", "limits", "limits_lines"]

KEYS = 1000
MANY_KEYS = 50_000
BATCH, FEW = 500, 10
"""Jobs of one claim, and of one finish; limited jobs are given into free slots only, and a worker has ten."""


@dataclass(frozen=True)
class Case:
    """What is limited, and what lies ahead."""

    name: str
    base: int = 0
    """Which case it is compared with."""
    bound: float = 1.0
    size: int = BATCH
    keys: int = 0
    """As many have jobs in line, one at once of each; 0: jobs without keys."""
    paused: int = 0
    """Jobs in a queue that is paused."""
    full: int = 0
    """Jobs ahead of a key of which one is held, and no more may be."""


def cases(ahead: int) -> list[Case]:
    """The first is what others are compared with."""
    return [
        Case("nothing limited"),
        Case(f"a paused queue with {ahead:,} jobs", bound=0.9, paused=ahead),
        Case(f"{KEYS:,} keys, one job at once of each", bound=0.5, keys=KEYS),
        Case(f"the same behind {ahead:,} jobs of a full key", base=2, bound=0.9, keys=KEYS, full=ahead),
        Case("nothing limited", base=4, size=FEW),
        Case(f"{KEYS:,} keys", base=4, bound=0.4, size=FEW, keys=KEYS),
        Case(f"{MANY_KEYS:,} keys", base=5, bound=0.9, size=FEW, keys=MANY_KEYS),
    ]


class _Shop:
    """An App with a task for each case."""

    def __init__(self, store: str) -> None:
        self.app = App(store if "://" in store else f"sqlite:///{store}")

        @self.app.task
        async def plain(n: int) -> None: ...

        @self.app.task(concurrency_key="{n}", max_per_key=1)
        async def keyed(n: int) -> None: ...

        self.plain, self.keyed = plain, keyed
        self._worker: UUID | None = None
        self._profiles: frozenset[int] = frozenset()
        self._request = 0

    async def fill(self, task: Task[[int], None], count: int, keys: int) -> None:
        for start in range(0, count, 1000):
            await task.map([(n % keys,) for n in range(start, min(start + 1000, count))])

    async def rate(self, case: Case, jobs: int) -> float:
        """Jobs claimed and finished a second."""
        async with self.app as app:
            await app.tasks.announce()
            task = self.keyed if case.keys else self.plain
            if case.paused:
                await app.queues.pause("resting")
                await self.fill(self.plain.options(queue="resting"), case.paused, 1)
            if case.full:
                await self.fill(self.keyed.options(concurrency_key="full"), case.full, 1)
                await self._claim(1)
                self._worker = None
            await self.fill(task, max(jobs, case.keys), case.keys or 1)
            if case.size == FEW:
                # What came while no worker was there is put in order once: not what is asked here.
                await self._turn(case.size)
            began, done, most = time.perf_counter(), 0, jobs if case.size == BATCH else jobs // 5
            while done < most:
                done += await self._turn(case.size)
            return done / (time.perf_counter() - began)

    async def _claim(self, n: int) -> Claimed:
        engine, now = self.app.session.engine, datetime.now(UTC)
        if self._worker is None:
            self._worker = uuid4()
            info = WorkerInfo(id=self._worker, host="bench", pid=1, started_at=now, concurrency=BATCH)
            await engine.workers.register(info, now)
            self._profiles = frozenset(profile.id for profile in (await engine.documents.profiles()).profiles)
        self._request += 1
        ask = ClaimRequest(n=n, free=n, profiles=self._profiles)
        claimed = await engine.jobs.claim(self._worker, ask, self._request, datetime.now(UTC))
        assert isinstance(claimed, Claimed)
        return claimed

    async def _turn(self, size: int) -> int:
        engine, dice = self.app.session.engine, self.app.host.dice
        claimed = await self._claim(size)
        now = datetime.now(UTC)
        changes = [
            replace(finish(job, Completed(), now, 0.5, engine.rules, now), id=dice.token()) for job in claimed.jobs
        ]
        await engine.jobs.apply(changes, now)
        return len(changes)


def limits(plan: Plan, stores: Stores, *, quick: bool) -> dict[Case, list[float]]:
    """Rates of equally many jobs, by what is limited."""
    ahead, jobs = (5_000, 5_000) if quick else (100_000, 20_000)
    rates: dict[Case, list[float]] = {case: [] for case in cases(ahead)}
    progress = Progress(len(rates) * plan.repeat)
    tune_process()
    for _ in range(plan.repeat):
        for case, found in rates.items():
            progress.step(f"claims: {case.name}")
            with stores.fresh() as store:
                shop = _Shop(store)
                work = shop.rate(case, jobs)
                found.append(run(work) if "://" in store else asyncio.run(work))
    progress.done()
    return rates


def limits_lines(rates: dict[Case, list[float]]) -> Iterator[str]:
    """The rates, and their ratios, best against best."""
    bests = [max(found) for found in rates.values()]
    for size in (BATCH, FEW):
        yield f"jobs claimed and finished a second, {size} at a time, by what is limited; best (worst)"
        for case, found in rates.items():
            if case.size != size:
                continue
            ratio = max(found) / bests[case.base]
            mark = "✓" if ratio >= case.bound else "✗"
            of = "the one above" if list(rates)[case.base].keys else "the first"
            yield (
                f"  {mark} {case.name:<45} {max(found):>8,.0f} ({min(found):,.0f})   "
                f"{ratio:.2f}× of {of} (≥ {case.bound:.2f})"
            )
