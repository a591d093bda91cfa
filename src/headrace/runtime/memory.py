"""How much memory processes have, without a library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["memory_of", "own_memory"]

_TOLD = Path("/proc/self/statm")
"""There on Linux."""


def memory_of(pids: Iterable[int]) -> int:
    """How many bytes these processes have in memory, added up; those that have ended have none."""
    if _TOLD.exists():
        return sum(map(_resident, pids))
    told = subprocess.run(
        ["/bin/ps", "-o", "rss=", "-p", ",".join(map(str, pids))], capture_output=True, text=True, check=False
    )
    return 1024 * sum(int(line) for line in told.stdout.split())


def own_memory(children: Iterable[int] = ()) -> int | None:
    """How many bytes this process and these children have in memory, found without starting a process.

    Where the system does not tell: the most that this process ever had, or None.
    """
    if _TOLD.exists():
        return memory_of([os.getpid(), *children])
    try:
        import resource  # only Unix has it
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
