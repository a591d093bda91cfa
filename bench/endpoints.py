"""Endpoints: a route that is a job against the same route that only validates and returns, and what waiting adds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from bench.hub import line, run
from bench.hub_load import post, pump
from bench.progress import Progress
from bench.stores import Stores
from headrace import App

__all__ = ["EndpointFigures", "endpoints", "endpoints_lines"]

CLIENTS = 50
TURNS = 10
_ORDER = {"item": "tea", "count": 3}


@dataclass
class EndpointFigures:
    """Samples of each."""

    plain: list[float] = field(default_factory=list)
    """Requests a second of the route that only validates and returns."""
    accepted: list[float] = field(default_factory=list)
    """The same of the route that stores a job, and answers 202."""
    plain_ms: list[float] = field(default_factory=list)
    """p50 of one client's requests to the first."""
    waited_ms: list[float] = field(default_factory=list)
    """p50 of one client's requests to the second, with ``Prefer: wait``, and a worker in the process."""
    job_ms: list[float] = field(default_factory=list)
    """p50 of such a job that is submitted and waited for in Python."""

    @property
    def added_ms(self) -> float:
        """What the request adds to the job."""
        return min(self.waited_ms) - min(self.job_ms)


def endpoints(stores: Stores, *, quick: bool, repeat: int) -> EndpointFigures:
    """Everything, as often as asked for, by turns."""
    found, count = EndpointFigures(), 1_000 if quick else 20_000
    progress = Progress(2 * repeat)
    for _ in range(repeat):
        progress.step("endpoints: 50 clients, by turns")
        with stores.fresh() as store, _service(store, "plain") as plain, _service(store, "job") as job:
            turns = [(plain, found.plain), (job, found.accepted)]
            for address, _ in turns:
                run(pump(address, iter([_request()] * (count // 10)), CLIENTS))
            for _ in range(TURNS):  # what slows the machine down for a while slows both
                for address, rates in turns:
                    seconds, spans = run(pump(address, iter([_request()] * (count // TURNS)), CLIENTS))
                    rates.append(len(spans) / seconds)
                turns.reverse()
        progress.step("endpoints: Prefer: wait")
        for route, more, into in (
            ("plain", "", found.plain_ms),
            ("job", "Prefer: wait=30\r\n", found.waited_ms),
        ):
            with stores.fresh() as store, _service(store, route, worker=True) as address:
                request = _request(more)
                run(pump(address, iter([request] * (count // 100)), 1))
                _, spans = run(pump(address, iter([request] * (count // 10)), 1))
                into.append(1000 * median(spans))
        with stores.fresh() as store:
            found.job_ms.append(1000 * run(_in_python(_url(store), count // 10)))
    progress.done()
    return found


def _request(more: str = "") -> bytes:
    request = post("/orders/2026", _ORDER)
    return request.replace(b"Host: localhost\r\n", b"Host: localhost\r\nX-User: ann\r\n" + more.encode(), 1)


async def _in_python(url: str, count: int) -> float:
    """The median of how long such a job takes that is submitted and waited for in Python, beside its worker."""
    app, spans = App(url), list[float]()

    @app.task
    async def order(item: str, year: int, user: str) -> dict[str, str | int]:
        return {"item": item, "year": year, "user": user}

    async with app, app.worker():
        for _ in range(count):
            began = time.perf_counter()
            await (await order.submit("tea", 2026, "ann")).result()
            spans.append(time.perf_counter() - began)
    return median(spans)


def _url(store: str) -> str:
    return store if "://" in store else f"sqlite:///{store}"


@contextmanager
def _service(store: str, route: str, *, worker: bool = False) -> Iterator[str]:
    """A service with nothing but this route, and a worker beside it."""
    settings = {"BENCH_STORE": _url(store), "BENCH_ROUTE": route, "BENCH_WORKER": "yes" if worker else "no"}
    environment = {**os.environ, **settings}
    command = [sys.executable, "-m", "bench.endpoints_service"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()


def endpoints_lines(found: EndpointFigures) -> Iterator[str]:
    """The figures as they are printed; what is promised is marked."""
    pairs = [accepted / plain for plain, accepted in zip(found.plain, found.accepted, strict=True)]
    yield f"{CLIENTS} clients, requests a second, medians of {len(pairs)} by turns"
    yield line("FastAPI, validates and returns", f"{median(found.plain):,.0f}")
    ratio = median(pairs)
    yield line("the same as a job, 202", f"{median(found.accepted):,.0f}", f"{ratio:.2f}× (≥ 0.50)", ratio >= 0.5)
    yield "one client, a job that does nothing, p50"
    yield line("FastAPI, validates and returns", f"{min(found.plain_ms):,.1f} ms")
    yield line("Prefer: wait", f"{min(found.waited_ms):,.1f} ms")
    yield line("the same job in Python", f"{min(found.job_ms):,.1f} ms")
    yield line("what the request adds", f"{found.added_ms:,.1f} ms", "(≤ 5)", found.added_ms <= 5)
