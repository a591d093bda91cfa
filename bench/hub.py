"""The hub: submits over HTTP, a thousand who listen, ten thousand who say nothing."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]

from bench.children import TREE
from bench.hub_flower import SUBMIT, facts, flower
from bench.hub_load import connected, get, post, pump, subscribed, upgrade
from bench.hub_shop import app as shop
from bench.programs import ROOT, Missing
from bench.progress import Progress
from bench.stores import Stores
from headrace.worker.process.loops import fast_loop

__all__ = ["CLIENTS", "SUBMIT_ONE", "HubFigures", "hub", "hub_lines", "hub_process", "line", "p99", "run", "url_of"]

CLIENTS = 50
LISTENERS, PER_SECOND, HELD = 1000, 200, 0.3
"""Subscribers, jobs a second that they listen to, and the seconds that each of these runs."""
IDLE = 10_000
CROWDED = 10.0
"""Milliseconds that are as usual, however quick the hub is without them."""
TURNS = 10
SUBMIT_ONE = post("/api/jobs", {"task": "noop", "payload": {"n": 1}})
T = TypeVar("T")


@dataclass
class HubFigures:
    """Samples of each."""

    bare: list[float] = field(default_factory=list)
    """Requests a second of the route that only validates and answers."""
    submits: list[float] = field(default_factory=list)
    logged: list[float] = field(default_factory=list)
    """The same with the access log, which goes nowhere."""
    bulk: list[float] = field(default_factory=list)
    peer: str = ""
    """What the peer is, or why it was not run."""
    peer_submits: list[float] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)
    """p99 of how long the start of a job was under way to its subscriber."""
    end_ms: list[float] = field(default_factory=list)
    unheard: int = 0
    alone: list[float] = field(default_factory=list)
    """Jobs a second of a worker beside an idle hub."""
    listened: list[float] = field(default_factory=list)
    """The same while a thousand subscribers listen to other jobs."""
    idle: int = 0
    """How many idle sockets there were."""
    idle_kib: list[float] = field(default_factory=list)
    """Memory for each."""
    usual_ms: list[float] = field(default_factory=list)
    """p99 of a request."""
    crowded_ms: list[float] = field(default_factory=list)
    """The same beside idle sockets."""


def hub(stores: Stores, *, quick: bool, repeat: int) -> HubFigures:
    """Everything, as often as asked for; what is compared is measured by turns."""
    found, size = HubFigures(), 0.1 if quick else 1.0
    try:
        found.peer = facts()
        runs_peer = True
    except Missing as why:
        found.peer, runs_peer = f"not run: {why}", False
    progress = Progress((7 if runs_peer else 6) * repeat)
    for _ in range(repeat):
        if runs_peer:
            progress.step("hub: submits to flower")
            with flower() as address:
                found.peer_submits.append(_submits(address, int(5_000 * size), SUBMIT))
        progress.step("hub: submits over HTTP, by turns with a route that only answers")
        with stores.fresh() as store, _bare() as bare, hub_process(store, "--no-access-log") as (address, _):
            turns = [(bare, found.bare), (address, found.submits)]
            for where, _ in turns:
                _submits(where, 1000)
            for _ in range(TURNS):  # what slows the machine down for a while slows both
                for where, rates in turns:
                    rates.append(_submits(where, int(40_000 * size / TURNS)))
                turns.reverse()
        progress.step("hub: submits, with the access log")
        with stores.fresh() as store, hub_process(store) as (address, _):
            found.logged.append(_submits(address, int(20_000 * size)))
        progress.step("hub: bulk")
        with stores.fresh() as store, hub_process(store, "--no-access-log") as (address, _):
            found.bulk.append(_bulk(address, int(100 * size)))
        progress.step(f"hub: {LISTENERS:,} subscribers")
        with stores.fresh() as store:
            _listen(found, store)
        progress.step("hub: drains, with and without subscribers")
        with stores.fresh() as store:
            _drains(found, store, *((20_000, 2) if quick else (80_000, 8)))
        progress.step(f"hub: {IDLE:,} idle sockets")
        with stores.fresh() as store:
            _crowd(found, store, int(IDLE * (0.1 if quick else 1)), int(3_000 * size))
    progress.done()
    return found


# -- processes


def url_of(store: str) -> str:
    """The URL of a store."""
    return store if "://" in store else f"sqlite:///{store}"


@contextmanager
def _process(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A command of ours that tells its events, and the first of them."""
    command = [sys.executable, "-m", "headrace", *words, "--json"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=clean)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.terminate()
        process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


@contextmanager
def hub_process(store: str, *flags: str) -> Iterator[tuple[str, psutil.Process]]:
    """A hub of its own process; where it answers."""
    # Its log would be events on stdout, which nobody reads here.
    command = [sys.executable, "-m", "headrace", "hub", "bench.hub_shop:app", "--url", url_of(store), "--port", "0"]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    words = [*command, "--log-format", "json", *flags]
    reading, writing = os.pipe()
    process = subprocess.Popen(words, stderr=writing, text=True, env=clean, cwd=os.environ.get(TREE, ROOT))
    os.close(writing)
    with os.fdopen(reading) as log:
        try:
            address = str(json.loads(log.readline())["url"])
            drain = subprocess.Popen(["cat"], stdin=log, stdout=subprocess.DEVNULL)
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(60)
            drain.wait(10)


@contextmanager
def _bare() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-m", "bench.hub_bare"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def run(work: Awaitable[T]) -> T:
    async def whole() -> T:
        return await work

    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        return runner.run(whole())


# -- what is measured


def _submits(address: str, count: int, request: bytes = SUBMIT_ONE) -> float:
    """Requests a second, of 50 clients with keep-alive."""
    run(pump(address, iter([request] * (count // 10)), CLIENTS))
    seconds, spans = run(pump(address, iter([request] * count), CLIENTS))
    return len(spans) / seconds


def _bulk(address: str, calls: int) -> float:
    """Jobs a second, 1,000 in a request, four clients."""
    request = post("/api/jobs/bulk", {"jobs": [{"task": "noop", "payload": {"n": n}} for n in range(1000)]})
    run(pump(address, iter([request] * 4), 2))
    seconds, spans = run(pump(address, iter([request] * calls), 4))
    return 1000 * len(spans) / seconds


def _listen(found: HubFigures, store: str) -> None:
    """A thousand subscribers, each to a job of its own; 200 of these start in a second."""
    worker = ("worker", "bench.hub_shop:app", "--url", url_of(store), "--concurrency", "150")
    with hub_process(store, "--no-access-log") as (address, _), _process(*worker):
        spans = run(_hear(address, store))
    for status, into in (("running", found.start_ms), ("completed", found.end_ms)):
        into.append(p99(spans[status]) * 1000)
        found.unheard += LISTENERS - len(spans[status])


async def _hear(address: str, store: str) -> dict[str, list[float]]:
    spans: dict[str, list[float]] = {"running": [], "completed": []}
    over = asyncio.Event()

    def told(status: str, seconds: float) -> None:
        if status in spans:
            spans[status].append(seconds)
        if len(spans["completed"]) >= LISTENERS:
            over.set()

    with shop.override(url=url_of(store)), connected() as transports:
        async with shop:
            first = datetime.now(UTC) + timedelta(seconds=10)
            drafts = [
                shop.tasks["hold"]
                .options(not_before=first + timedelta(seconds=n / PER_SECOND))
                .draft(HELD + (n % 10) / 100)
                for n in range(LISTENERS)
            ]
            jobs = await shop.submit_many(drafts)
            await subscribed(address, [f"/api/jobs/{job.id}/events" for job in jobs], told, transports)
            try:
                async with asyncio.timeout(60):
                    await over.wait()
            except TimeoutError:
                pass
    return spans


def _drains(found: HubFigures, store: str, jobs: int, pairs: int) -> None:
    """A worker beside a hub, by turns with and without subscribers to jobs that wait."""
    with hub_process(store, "--no-access-log") as (address, _):
        run(_by_turns(found, address, store, jobs, pairs))


async def _by_turns(found: HubFigures, address: str, store: str, jobs: int, pairs: int) -> None:
    with shop.override(url=url_of(store)):
        async with shop:
            waiting = await shop.tasks["never"].map([(n,) for n in range(LISTENERS)])
            await _drain(store, jobs // 4)  # the first is slower than the rest, whoever listens
            turns = [(found.alone, 0), (found.listened, LISTENERS)]
            for _ in range(pairs):
                for rates, listeners in turns:
                    with connected() as transports:
                        paths = [f"/api/jobs/{job.id}/events" for job in waiting[:listeners]]
                        await subscribed(address, paths, lambda status, seconds: None, transports)
                        rates.append(await _drain(store, jobs))
                turns.reverse()  # what grows as the store fills is shared


async def _drain(store: str, jobs: int) -> float:
    """Jobs a second of one worker; that it starts and ends is counted, as the same for all."""
    for start in range(0, jobs, 1000):
        await shop.tasks["noop"].map([(n,) for n in range(start, min(start + 1000, jobs))])
    command = [sys.executable, "-m", "headrace", "worker", "bench.hub_shop:app", "--url", url_of(store), "--burst"]
    command += ["--queues", "default"]
    began = time.time()
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    return jobs / (time.time() - began)


def _crowd(found: HubFigures, store: str, idle: int, requests: int) -> None:
    """What others notice of so many connections that say nothing, and what they cost."""
    with hub_process(store, "--no-access-log", "--sockets", str(2 * idle)) as (address, process):
        run(_beside(found, address, process, idle, requests))


async def _beside(found: HubFigures, address: str, process: psutil.Process, idle: int, requests: int) -> None:
    asked = [get("/api/version")] * requests
    await pump(address, iter(asked), 10)
    _, spans = await pump(address, iter(asked), 10)
    found.usual_ms.append(p99(spans) * 1000)
    before = process.memory_info().rss
    port = int(address.rpartition(":")[2])
    writers = list[asyncio.StreamWriter]()  # one that nobody has closes its connection
    with connected() as transports:
        for _ in range(0, idle, 200):
            made = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(200)))
            writers += [writer for _, writer in made]
            for reader, writer in made:
                transports.append(writer.transport)  # type: ignore[arg-type]
                writer.write(upgrade("/ws"))
                await reader.readuntil(b"\r\n\r\n")
        found.idle = len(process.net_connections(kind="tcp")) - 1  # one listens
        assert found.idle >= idle
        found.idle_kib.append((process.memory_info().rss - before) / 1024 / len(transports))
        _, spans = await pump(address, iter(asked), 10)
        found.crowded_ms.append(p99(spans) * 1000)


def p99(spans: Sequence[float]) -> float:
    return sorted(spans)[int(len(spans) * 0.99)] if spans else float("nan")


# -- what is said


def hub_lines(found: HubFigures) -> Iterator[str]:
    """The figures against what was promised: medians of what was measured by turns, of all else the best."""
    bare, ours, logged, bulk = median(found.bare), median(found.submits), median(found.logged), max(found.bulk)
    shares = [submits / answers for answers, submits in zip(found.bare, found.submits, strict=True)]
    yield f"submits over HTTP, {CLIENTS} clients with keep-alive, requests a second, medians of {len(shares)} by turns"
    yield line("a route that only validates and answers", f"{bare:,.0f}")
    share = median(shares)
    yield line("the hub", f"{ours:,.0f}", f"{share:.2f}× (≥ 0.50)", share >= 0.5)
    yield line("… with its access log", f"{logged:,.0f}", f"{logged / bare:.2f}×")
    if found.peer_submits:
        peer = max(found.peer_submits)
        yield line("Celery, over flower", f"{peer:,.0f}", f"the hub has {ours / peer:.1f}× as many")
    yield f"    flower: {found.peer}"
    yield "bulk, 1,000 jobs a request, jobs a second"
    yield line("the hub", f"{bulk:,.0f}", "(≥ 20,000)", bulk >= 20_000)
    yield f"{LISTENERS:,} subscribers by SSE, {PER_SECOND} jobs a second: p99 from what happened to the news of it"
    for what, spans in (("start", found.start_ms), ("end", found.end_ms)):
        yield line(what, f"{min(spans):,.0f} ms", "(≤ 250)", min(spans) <= 250)
    yield line("not told", str(found.unheard), "", not found.unheard)
    # One drain is off by a tenth either way, so it is the median of what followed one another.
    pairs = [listened / alone for alone, listened in zip(found.alone, found.listened, strict=True)]
    yield f"drain of one worker beside the hub, jobs a second, medians of {len(pairs)} by turns"
    yield line("nobody listens", f"{median(found.alone):,.0f}")
    ratio = median(pairs)
    yield line(f"{LISTENERS:,} subscribers", f"{median(found.listened):,.0f}", f"{ratio:.2f}× (≥ 0.97)", ratio >= 0.97)
    yield f"{found.idle:,} idle sockets"
    yield line("memory for each", f"{min(found.idle_kib):,.1f} KiB")
    crowded, usual = min(found.crowded_ms), min(found.usual_ms)
    good = crowded <= max(2 * usual, CROWDED)
    more = f"without {usual:.1f} (≤ {CROWDED:g}, or 2×)"
    yield line("p99 of a request beside them", f"{crowded:,.1f} ms", more, good)


def line(what: str, figure: str, more: str = "", good: bool | None = None) -> str:
    mark = " " if good is None else "✓" if good else "✗"
    return f"  {mark} {what:<40} {figure:>10}   {more}".rstrip()
