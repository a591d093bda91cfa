"""The dashboard: how long each page takes with a million jobs stored, and what five open dashboards cost a drain."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount

from bench.children import ask, crew
from bench.draining import finish
from bench.find import DAYS, fill, maker
from bench.hub import hub_process, url_of
from bench.plan import EngineName
from bench.progress import Progress
from bench.sides.headrace import UVLOOP
from bench.stores import Stores
from headrace import App
from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.dashboard import Dashboard, dashboard
from headrace.dashboard.chart_data import Past
from headrace.engine import Beat
from headrace.runtime.host import Host

__all__ = ["DashboardFigures", "dashboards", "dashboards_lines"]

BOUND, RATIO = 300.0, 0.95
"""Milliseconds for a page, and the share of the drain that must be left beside five dashboards."""
SERIES = 20
"""Tasks of which charts are drawn."""
VIEWERS = 5
LOOKED_AT = ("/", "/jobs", "/queues", "/dead", "/workers")
"""What each of the five has open."""
EVERY = 2.0
"""Seconds after which an open page asks again."""


@dataclass
class DashboardFigures:
    """Samples of each."""

    jobs: int = 0
    pages: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds that the server takes for a page, nothing being shared."""
    alone: list[float] = field(default_factory=list)
    """Jobs a second of a worker beside a hub that nobody looks at."""
    watched: list[float] = field(default_factory=list)
    """The same while five dashboards are open."""
    asked: int = 0
    """How often they were answered meanwhile."""


def dashboards(engine: EngineName, stores: Stores, *, quick: bool, repeat: int) -> DashboardFigures:
    """Everything."""
    found = DashboardFigures(jobs=20_000 if quick else 1_000_000)
    progress = Progress(23 + 2 * repeat)
    with stores.fresh() as store:
        asyncio.run(_pages(engine, stores, store, found, progress))
    jobs = 3_000 if quick else 50_000
    for turn in range(repeat):
        # By turns, and the order too: what the machine does meanwhile hits both alike.
        for watched in (False, True) if turn % 2 else (True, False):
            progress.step(f"drain {'beside five dashboards' if watched else 'alone'}")
            _drain(engine, stores, found, jobs, watched=watched)
    progress.done()
    return found


# -- pages


async def _pages(engine: str, stores: Stores, store: str, found: DashboardFigures, progress: Progress) -> None:
    lab = Lab(maker(engine, store), Host(), Rules())
    await lab.engine.open()
    try:
        now = datetime.now(UTC)
        known = await fill(lab, found.jobs, progress, now - timedelta(days=DAYS))
        await _sums(lab, known["worker"], now)
    finally:
        await lab.engine.close()
    await asyncio.to_thread(stores.settle, store)
    progress.step("dashboard: asking")
    app = App(url_of(store))
    shown = dashboard(app, access=lambda request: "act")
    web = Starlette(routes=[Mount("/d", shown)])
    transport = httpx2.ASGITransport(app=web)
    async with app, httpx2.AsyncClient(transport=transport, base_url="http://bench/d", timeout=120) as client:
        for path in await _paths(app, known):
            found.pages[path] = [await _timed(client, shown, path) for _ in range(5)]


async def _sums(lab: Lab, worker: UUID, now: datetime) -> None:
    """What charts are made of: some tasks that were busy in every minute of a month."""
    waited, ran, lab.now, number = Histogram(), Histogram(), now, 0
    for n in range(15):
        waited.counts[10 + n], ran.counts[20 + n] = n + 1, 15 - n
    totals = Totals(completed=118, failed=2, waited=waited, ran=ran)
    # As they are kept: minutes, hours and days.
    for span, step in ((timedelta(hours=6), 60), (timedelta(days=7), 3600), (timedelta(days=30), 86400)):
        for back in range(0, int(span.total_seconds()), step):
            at, number = begin_of(now - timedelta(seconds=back), Step.MINUTE), number + 1
            rows = tuple(Rollup(Step.MINUTE, at, f"task {n}", f"queue {n % 4}", totals) for n in range(SERIES))
            await lab.engine.workers.beat(worker, Beat(report=number, finished=rows), now)
        while await lab.engine.rollups.roll(now):
            pass


async def _paths(app: App, known: dict[str, Any]) -> list[str]:
    failed = (await app.jobs.list(status="failed", limit=1)).items[0]
    done = (await app.jobs.list(status="completed", limit=1)).items[0]
    return [
        *("/", "/?range=24h&by=queue", "/?range=7d&by=task", "/?range=30d"),
        *("/jobs", "/jobs?status=failed", "/jobs?task=sparse", "/jobs?customer=small&status=completed"),
        *("/jobs?tag=sparse", "/jobs?text=never+said", "/jobs?queue=aside&reason=non_retryable", "/jobs?within=7d"),
        *(f"/jobs?fingerprint={known['fingerprint']}", f"/jobs/{failed.id}", f"/jobs/{done.id}"),
        *("/dead", "/dead?retrying=1", "/queues", "/queues/default", "/limits", "/limits/common", "/tasks"),
        *("/schedules", "/batches", "/workers", f"/workers/{known['worker']}", "/find?q=common", "/find?q=abcdef"),
    ]


async def _timed(client: httpx2.AsyncClient, shown: Dashboard, path: str) -> float:
    """How long a page takes if nobody has asked for anything of late."""
    shown.shared.forget(wholly=True)
    shown.past = Past(shown.app)
    began = time.perf_counter()
    answer = await client.get(path)
    took = (time.perf_counter() - began) * 1000
    await shown.shared.settled()  # what the page did not wait for is not the next one's
    assert answer.status_code in (200, 404), (path, answer.status_code, answer.text[:500])  # what is pruned is gone
    return took


# -- draining


def _drain(engine: EngineName, stores: Stores, found: DashboardFigures, jobs: int, *, watched: bool) -> None:
    os.environ[UVLOOP] = "1"
    try:
        with stores.fresh() as store, hub_process(store, "--no-webhooks", "--no-access-log") as (address, _):
            ask(engine, "headrace", store, "submit", "fill", jobs, 0)
            with _looking(address, found) if watched else nullcontext(), crew(engine, "headrace", store) as workers:
                workers.start()
                rate = finish(workers, jobs)
                workers.stop()
    finally:
        del os.environ[UVLOOP]
    (found.watched if watched else found.alone).append(rate)


@contextmanager
def _looking(address: str, found: DashboardFigures) -> Iterator[None]:
    """Five browsers, each with a page open; they cost next to nothing themselves."""
    over, lock = threading.Event(), threading.Lock()

    def look(path: str) -> None:
        tag = ""
        while not over.wait(EVERY):
            request = urllib.request.Request(address + path, headers={"x-headrace-live": "1", "if-none-match": tag})
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    answer.read()
                    tag = answer.headers.get("etag", "")
            except urllib.error.HTTPError as error:
                if error.code != 304:
                    raise
            with lock:
                found.asked += 1

    threads = [threading.Thread(target=look, args=[path]) for path in LOOKED_AT[:VIEWERS]]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


# -- what is said


def dashboards_lines(found: DashboardFigures) -> Iterator[str]:
    """The figures against what was promised."""
    yield f"a page of the dashboard with {found.jobs:,} jobs stored, ms: median (worst); promised: {BOUND:.0f}"
    for path, samples in found.pages.items():
        middle = statistics.median(samples)
        shown = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", path)
        yield f"  {'✓' if middle <= BOUND else '✗'} {shown:<52} {middle:>7.1f} ({max(samples):.1f})"
    ratio = statistics.median(found.watched) / statistics.median(found.alone)
    yield f"drain, jobs a second, median of {len(found.alone)}: alone {statistics.median(found.alone):,.0f}"
    mark = "✓" if ratio >= RATIO else "✗"
    watched = f"{statistics.median(found.watched):,.0f}: {ratio:.2f} (promised {RATIO})"
    yield f"  {mark} beside {VIEWERS} open dashboards {watched}"
    yield f"    which asked {found.asked:,} times"
