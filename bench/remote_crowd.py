"""Two hundred workers behind one hub, over WebSockets, with jobs that do nothing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil  # type: ignore[import-untyped]

from bench.children import TREE, BrokenDown
from bench.hub import hub_process, line, p99, run
from bench.hub_load import post, pump
from bench.programs import ROOT
from bench.progress import Progress
from bench.stores import Stores

__all__ = ["CrowdFigures", "crowd", "crowd_lines", "remote_workers"]

WORKERS = 200
JOBS = 10_000
EACH = 1_000
"""Jobs in one request."""


@dataclass
class CrowdFigures:
    """Samples of each."""

    rate: list[float] = field(default_factory=list)
    """Jobs a second, claimed and completed."""
    claim_ms: list[float] = field(default_factory=list)
    """The median of how long a claim took, while there were jobs."""
    claim_p99_ms: list[float] = field(default_factory=list)
    end_ms: list[float] = field(default_factory=list)
    """The median of how long it took to complete a job."""
    hub_cpu_ms: list[float] = field(default_factory=list)
    """Of the hub, for each job."""
    load_cpu_ms: list[float] = field(default_factory=list)
    """Of those who play the workers."""
    worker_kib: list[float] = field(default_factory=list)
    """Memory of the hub for each worker that waits."""


def crowd(stores: Stores, *, quick: bool, repeat: int) -> CrowdFigures:
    """Everything, as often as asked for."""
    found, jobs, progress = CrowdFigures(), JOBS // 10 if quick else JOBS, Progress(repeat)
    for _ in range(repeat):
        progress.step(f"remote: {WORKERS} workers behind a hub")
        with stores.fresh() as store, hub_process(store, "--no-access-log", "--no-webhooks") as (address, process):
            _fill(address, jobs // 10 + jobs)
            before = process.memory_info().rss
            with remote_workers(address, WORKERS) as tell:
                found.worker_kib.append((process.memory_info().rss - before) / 1024 / WORKERS)
                tell(jobs // 10)  # the first are slower than the rest
                _measure(found, process, jobs, tell)
    progress.done()
    return found


def _fill(address: str, jobs: int) -> None:
    """Submit so many."""
    size = math.gcd(EACH, jobs)
    request = post("/api/jobs/bulk", {"jobs": [{"task": "noop", "payload": {"n": n}} for n in range(size)]})
    run(pump(address, iter([request] * (jobs // size)), 2))


def _measure(found: CrowdFigures, process: psutil.Process, jobs: int, tell: Any) -> None:
    used = process.cpu_times()
    said = tell(jobs)
    now = process.cpu_times()
    spans = sorted(said["claims"])
    found.rate.append(jobs / said["seconds"])
    found.claim_ms.append(spans[len(spans) // 2] * 1000)
    found.claim_p99_ms.append(p99(spans) * 1000)
    found.end_ms.append(sorted(said["ends"])[jobs // 2] * 1000)
    found.hub_cpu_ms.append((now.user + now.system - used.user - used.system) * 1000 / jobs)
    found.load_cpu_ms.append(said["own_cpu"] * 1000 / jobs)


@contextmanager
def remote_workers(address: str, workers: int) -> Iterator[Any]:
    """The workers, in a process of their own; what has them do so many jobs, and says what came of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.remote_load", address, str(workers)],
        cwd=os.environ.get(TREE, ROOT),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def hear() -> dict[str, Any]:
        assert process.stdout is not None
        text = process.stdout.readline()
        said: dict[str, Any] = json.loads(text) if text else {"failed": "the workers broke down"}
        if said["failed"]:
            raise BrokenDown(said["failed"])
        return said

    def tell(jobs: int) -> dict[str, Any]:
        assert process.stdin is not None
        process.stdin.write(f"{jobs}\n")
        process.stdin.flush()
        return hear()

    try:
        hear()
        yield tell
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def crowd_lines(found: CrowdFigures) -> Iterator[str]:
    """The figures; of several runs the best, as everywhere."""
    yield f"{WORKERS} workers over WebSockets behind one hub, jobs that do nothing"
    yield line("claimed and completed, jobs a second", f"{max(found.rate):,.0f}")
    yield line("a claim, median", f"{min(found.claim_ms):,.1f} ms", f"p99 {min(found.claim_p99_ms):,.1f}")
    yield line("completing, median", f"{min(found.end_ms):,.1f} ms")
    own = f"beside {min(found.load_cpu_ms):.2f} of those who play the workers"
    yield line("processor time of the hub for a job", f"{min(found.hub_cpu_ms):,.2f} ms", own)
    yield line("memory of the hub for a worker", f"{min(found.worker_kib):,.1f} KiB")
