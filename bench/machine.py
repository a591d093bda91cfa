"""The machine the figures come from."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]

__all__ = ["AWAKE", "awake", "describe", "fdatasync_ms", "filesystem"]

AWAKE = "kept from sleeping by programs of the lowest class, which yield to all others"

_SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[2]):
    for _ in range(100_000):
        pass
"""


@contextmanager
def awake() -> Iterator[None]:
    """Keep all processors from sleeping, as those of a busy machine: one that sleeps takes 20 to 60 µs to answer, which
    is a good part of what a single submit takes, and more on one machine than on another. Linux only."""
    spinning = list[subprocess.Popen[bytes]]()
    try:
        for cpu in sorted(os.sched_getaffinity(0)):
            spinning.append(subprocess.Popen([sys.executable, "-c", _SPIN, str(cpu), str(os.getpid())]))
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def describe(home: Path) -> dict[str, str]:
    """What matters about it, by name."""
    middle, slow = fdatasync_ms(home)
    return {
        "machine": f"{os.cpu_count()} CPUs, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()} "
        f"{platform.machine()}; load {os.getloadavg()[0]:.1f} at the start",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "disk": f"{filesystem(home)}; write + fdatasync of 4 KiB takes {middle:.3f} ms (p99 {slow:.3f})",
    }


def fdatasync_ms(home: Path, times: int = 200) -> tuple[float, float]:
    """How long the disk takes to have 4 KiB for sure: the median and the 99th percentile, in milliseconds."""
    path, spans = home / "fdatasync", []
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(times):
            began = time.perf_counter()
            os.write(fd, b"x" * 4096)
            getattr(os, "fdatasync", os.fsync)(fd)
            spans.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(spans), sorted(spans)[int(times * 0.99)]


def filesystem(home: Path) -> str:
    """The kind of file system a directory is on."""
    mounts = [part for part in psutil.disk_partitions(all=True) if home.resolve().is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown file system"
