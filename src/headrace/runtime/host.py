"""The machine underneath: names, threads, sleeps, and how much memory processes have. A simulation supplies its own."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from headrace.runtime.clock import Clock, Dice, SystemClock, SystemDice
from headrace.runtime.store_clock import StoreClock

__all__ = ["Host", "memory_of", "own_memory"]


class _Timed(Protocol):
    async def time(self) -> datetime | None: ...


class Host:
    """Everything a service takes from its surroundings: clock, dice, sleeps, threads.

    Its clock shows the store's time once it has been measured. A clock that is passed in is used as it is.
    """

    def __init__(self, clock: Clock | None = None, dice: Dice | None = None) -> None:
        self.clock: Clock = clock or StoreClock(SystemClock())
        self.dice: Dice = dice or SystemDice()

    @property
    def store_clock(self) -> StoreClock | None:
        """The clock, if it is one that is set by the store's."""
        return self.clock if isinstance(self.clock, StoreClock) else None

    def new_id(self, now: datetime | None = None) -> UUID:
        """An id for a new job."""
        return self.dice.new_id(now or self.clock.now())

    async def measure(self, engine: _Timed) -> None:
        """Set the clock by the store's."""
        if (clock := self.store_clock) is not None:
            await clock.measure(engine.time)

    async def make_sure(self, engine: _Timed) -> None:
        """Set the clock by the store's if the machine slept, or its clock was set: before anything is judged."""
        if (clock := self.store_clock) is not None and clock.is_unsure:
            await clock.measure(engine.time)

    def uptime(self) -> float:
        """Seconds that count on while the machine sleeps; only differences mean something."""
        uptime: Callable[[], float] | None = getattr(self.clock, "uptime", None)
        return self.clock.now().timestamp() if uptime is None else uptime()

    @property
    def name(self) -> str:
        """The machine's name, for people to read; never an identity."""
        return socket.gethostname()

    @property
    def pid(self) -> int:
        """This process, for people to read."""
        return os.getpid()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait for the event, at most so long; whether it happened."""
        if event.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True

    def thread(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> threading.Thread:
        """Run a coroutine on a loop of its own, on a thread of its own, which does not keep the process alive."""
        thread = threading.Thread(target=lambda: asyncio.run(main()), name=name, daemon=True)
        thread.start()
        return thread


_STATM = Path("/proc/self/statm")
"""There on Linux."""


def memory_of(pids: Iterable[int]) -> int:
    """How many bytes these processes have in memory, added up; those that have ended have none."""
    if _STATM.exists():
        return sum(map(_resident, pids))
    listed = subprocess.run(
        ["/bin/ps", "-o", "rss=", "-p", ",".join(map(str, pids))], capture_output=True, text=True, check=False
    )
    return 1024 * sum(int(line) for line in listed.stdout.split())


def own_memory(children: Iterable[int] = ()) -> int | None:
    """How many bytes this process and these children have in memory, found without starting a process. Where the system
    does not report it: the maximum that this process ever had, or None."""
    if _STATM.exists():
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
