"""How long a page of jobs takes, by each filter, in a store with a long history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from bench.progress import Progress
from bench.stores import Stores
from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed, ErrorInfo, Failed
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.query import Filter
from headrace.core.status import Reason, Status
from headrace.engine import Engine
from headrace.engines.postgres import PostgresEngine
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host

__all__ = ["Case", "Found", "fill", "find", "find_lines", "maker"]

BOUND = 50.0
"""Milliseconds for a page by one filter."""
CHUNK = 1000
DAYS = 7.0
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
CUSTOMER = frozenset({"big"})


@dataclass(frozen=True)
class Case:
    """A question."""

    name: str
    filter: Filter
    single: bool = True
    """Whether there is one filter, so that the promise holds."""


@dataclass(frozen=True)
class Found:
    """What came of it: milliseconds of each page, and how many jobs match."""

    samples: list[float]
    jobs: int


def _at(part: float) -> datetime:
    return BEGIN + timedelta(days=DAYS * part)


def cases(known: dict[str, Any]) -> list[Case]:
    """The questions; ``known``: what is in the store."""

    def one(name: str, **fields: Any) -> Case:
        return Case(name, Filter(**fields))

    def several(name: str, **fields: Any) -> Case:
        return Case(name, Filter(**fields), single=False)

    def of(*values: Any) -> frozenset[Any]:
        return frozenset(values)

    return [
        one("all"),
        *(one(f"status {status}", status=of(status)) for status in Status),
        one("reason timeout (none)", reason=of(Reason.TIMEOUT)),
        one("reason non_retryable (1 of 50)", reason=of(Reason.NON_RETRYABLE)),
        one("task: nearly all", task=of("common")),
        one("task: the older half", task=of("former")),
        one("task: 1 of 1,000", task=of("sparse")),
        one("task: one job", task=of("once")),
        one("task: none", task=of("never")),
        one("queue: 1 of 1,000", queue=of("aside")),
        one("queue: nearly all", queue=of("default")),
        one("tag: every second", tag="often"),
        one("tag: the older half", tag="former"),
        one("tag: 1 of 1,000", tag="sparse"),
        one("tag: none", tag="never"),
        one("customer: every third", customer=CUSTOMER),
        one("customer: 1 of 1,000", customer=of("small")),
        one("customer: none", customer=of("nobody")),
        one("rerun of: 1 of 1,000", rerun_of=known["rerun_of"]),
        one("worker: what it has", worker=of(known["worker"])),
        one("worker: none", worker=of(UUID(int=1))),
        one("fingerprint: 1 of 1,000", fingerprint=of(known["fingerprint"])),
        one("fingerprint: none", fingerprint=of("0" * 12)),
        one("suspect (none)", suspect=True),
        one("schedule: none", schedule="never"),
        one("created: all", created_after=_at(0)),
        one("created: the last 2 hours", created_after=_at(1) - timedelta(hours=2)),
        one("created: the first half", created_before=_at(0.5)),
        one("created: one second long ago", created_after=_at(0.3), created_before=_at(0.3) + timedelta(seconds=1)),
        one("created: none", created_before=_at(0)),
        one("finished: all", finished_after=_at(0)),
        one("finished: the last 2 hours", finished_after=_at(1) - timedelta(hours=2)),
        one("finished: the first half", finished_before=_at(0.5)),
        one("finished: an hour long ago", finished_after=_at(0.3), finished_before=_at(0.3) + timedelta(hours=1)),
        one("finished: none", finished_before=_at(0)),
        one("text: nearly all", text="number"),
        one("text: none (a page looks at 5,000)", text="never said"),
        several("failed, task 1 of 1,000", status=of(Status.FAILED), task=of("sparse")),
        several("failed, customer every third", status=of(Status.FAILED), customer=CUSTOMER),
        several("completed, customer 1 of 1,000", status=of(Status.COMPLETED), customer=of("small")),
        several("task nearly all, created in the first half", task=of("common"), created_before=_at(0.5)),
        several("tag every second, task 1 of 1,000", tag="often", task=of("sparse")),
        several("customer every third, finished in the first half", customer=CUSTOMER, finished_before=_at(0.5)),
    ]


def _jobs(lab: Lab, chunk: int, chunks: int, rerun_of: UUID | None) -> Iterator[Job]:
    """A thousand jobs, submitted together. Those that are alike share their spec, as submit_many has it."""
    old, last = chunk < chunks // 2, chunk == chunks - 1
    tags = ("often", "former") if old else ("often",)
    plain = lab.job("former" if old and chunk % 2 else "common")
    kinds = {
        0: lab.job("sparse", queue="aside", tags=("sparse",), customer="small", rerun_of=rerun_of),
        1: lab.job("once") if chunk == chunks // 3 else plain,
        2: lab.job("common", delay=1e9) if last else plain,
        3: lab.job("common", waits=1) if last else plain,
    }
    tagged, sold = lab.job("common", tags=tags), lab.job("common", customer="big")
    for n in range(CHUNK):
        like = kinds.get(n) or (tagged if n % 2 else sold if n % 3 == 0 else plain)
        yield replace(like, id=lab.new_id(), payload_text=f'{{"number":{n}}}')


async def fill(lab: Lab, jobs: int, progress: Progress, begin: datetime = BEGIN) -> dict[str, Any]:
    """A history of days: nearly all jobs are completed, 2 of 100 failed, some are live."""
    chunks, worker = jobs // CHUNK, await lab.worker()
    known: dict[str, Any] = {"worker": worker, "rerun_of": None}
    for chunk in range(chunks):
        if chunk % (max(1, chunks // 20)) == 0:
            progress.step(f"find: filling, {chunk * CHUNK:,} jobs")
        lab.now = begin + timedelta(days=DAYS * chunk / chunks)
        stored = await lab.put_all(*_jobs(lab, chunk, chunks, known["rerun_of"]))
        known["rerun_of"] = known["rerun_of"] or stored[5].id
        if chunk == chunks - 1:
            known["held"] = await lab.claim(worker, 20)
            break
        held = await lab.claim(worker, CHUNK)
        lab.later(1)
        ended = [lab.end(job, _ending(n), started_at=lab.now) for n, job in enumerate(held)]
        await lab.apply(*ended)
        known["fingerprint"] = next(one.job.fingerprint for one in ended if one.job.fingerprint is not None)
    return known


def _ending(n: int) -> Completed | Failed:
    if n % 50 != 7:
        return Completed("null")
    place = f'Traceback (most recent call last):\n  File "/app/mail.py", line 1, in step_{n // 50}\n'
    return Failed(error=ErrorInfo("ValueError", f"number {n}", place), reason=Reason.NON_RETRYABLE)


def find(engine: str, stores: Stores, jobs: int, repeat: int = 5) -> tuple[dict[Case, Found], float]:
    """Pages of 50 by each filter, and how long the groups of failures take (milliseconds)."""
    progress = Progress(22)
    with stores.fresh() as store:
        make = maker(engine, store)

        async def main() -> tuple[dict[Case, Found], float]:
            lab = Lab(make, Host(), Rules())
            await lab.engine.open()
            try:
                known = await fill(lab, jobs, progress)
                await asyncio.to_thread(stores.settle, store)
                progress.step("find: asking")
                lab.now = _at(1)
                return await _ask(lab, cases(known), repeat)
            finally:
                await lab.engine.close()

        answer = asyncio.run(main())
    progress.done()
    return answer


def maker(engine: str, store: str) -> Callable[[], Engine]:
    """What opens a session on a store."""
    if engine == "sqlite":
        return lambda: SqliteEngine(store, rules=Rules(), host=Host())
    return lambda: PostgresEngine(store, rules=Rules(), host=Host())


async def _ask(lab: Lab, asked: list[Case], repeat: int) -> tuple[dict[Case, Found], float]:
    records, found = lab.engine.records, dict[Case, Found]()
    for case in asked:
        samples = []
        for _ in range(repeat):
            began = time.perf_counter()
            await records.find(case.filter, lab.now)
            samples.append((time.perf_counter() - began) * 1000)
        found[case] = Found(samples, await records.count_matching(case.filter, lab.now))
    began = time.perf_counter()
    await records.failures(Filter(), lab.now)
    return found, (time.perf_counter() - began) * 1000


def find_lines(found: dict[Case, Found], failures: float) -> Iterator[str]:
    """The times, and whether they are as promised."""
    yield f"a page of 50 jobs, ms: median (worst); promised for one filter: {BOUND:.0f}"
    for case, one in found.items():
        middle, worst = sorted(one.samples)[len(one.samples) // 2], max(one.samples)
        mark = " " if not case.single else "✓" if middle <= BOUND else "✗"
        yield f"  {mark} {case.name:<52} {middle:>7.1f} ({worst:.1f})   of {one.jobs:,}"
    yield f"    {'the groups of all failures':<52} {failures:>7.1f}"
