"""Renewing a worker process: when it has run enough jobs, has grown too large, or with ``--reload`` when files changed.

The process and its supervisor talk over a pair of sockets, a line at a time. The process sends ``up`` when it works,
and ``renew`` when it is due. The supervisor replies ``go`` when it is its turn. The process then claims no more, gives
up its ports, and sends ``left WHY``: another is started in its place, while this one finishes what it runs, and ends.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headrace.runtime.host import memory_of

if TYPE_CHECKING:
    from headrace.worker.worker import Worker
import importlib
from collections.abc import AsyncIterator
from typing import Any

from headrace.cli.output.console import say
from headrace.errors import MissingExtra

__all__ = ["Limits", "changes", "renew_on_change", "renew_when_due", "shown", "size"]


POLL_SECONDS = 0.25
"""Seconds between two checks of what the worker has done; its memory is checked less often."""
POLLS_PER_MEMORY_READ = 4
"""One of so many checks is of the memory."""

MIN_MEMORY_BYTES = 10 * 10**6
"""A process that has done nothing yet is larger. A smaller limit lacks a unit, or is in kilobytes."""

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def size(value: str | int) -> int:
    """Return the size of a process in bytes, from 512MB or 2GiB; an option type of click."""
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMG]I?)?B?", value.strip().upper())
    if found is None or (number := int(float(found[1]) * _UNITS[found[2] or ""])) <= 0:
        raise click.BadParameter(f"{value!r} is no size: say it as 512MB or 2GiB")
    if number < MIN_MEMORY_BYTES:
        raise click.BadParameter(f"{value!r} is {number:,} bytes, and a worker takes more: say it as 512MB or 2GiB")
    return number


def shown(number: int) -> str:
    """Return a size as people read it."""
    return f"{number / 10**9:.1f} GB" if number >= 10**10 else f"{number / 10**6:,.0f} MB"


@dataclass(frozen=True)
class Limits:
    """Limits of a worker process: at the first that it reaches, it is renewed."""

    jobs: int | None = None
    memory: int | None = None
    """In bytes: what the process has in memory, and its child processes, added up."""

    def __bool__(self) -> bool:
        return self.jobs is not None or self.memory is not None

    def flags(self) -> list[str]:
        """Return the same as flags of the command."""
        words = [] if self.jobs is None else ["--max-jobs", str(self.jobs)]
        return words if self.memory is None else [*words, "--max-memory", str(self.memory)]

    def due(self, jobs: int, memory: int | None) -> str | None:
        """Return why the process is due, in words; None: it is not."""
        if self.jobs is not None and jobs >= self.jobs:
            return f"after {jobs:,} {'job' if jobs == 1 else 'jobs'}"
        # Not before it has done something: one that is too large from the start would be renewed for ever.
        if self.memory is not None and memory is not None and memory >= self.memory and jobs:
            return f"at {shown(memory)} of memory (--max-memory {shown(self.memory)})"
        return None


async def renew_when_due(
    worker: Worker, limits: Limits, fd: int, leave: Callable[[], Awaitable[None]], tell: Callable[[str], None]
) -> None:
    """Have the process renewed when it is due; ``leave`` gives up what the next one needs."""
    loop = asyncio.get_running_loop()
    with closing(socket.socket(fileno=fd)) as supervisor:
        supervisor.setblocking(False)
        await _up(worker)
        await loop.sock_sendall(supervisor, b"up\n")
        why = await _due(worker, limits)
        await loop.sock_sendall(supervisor, b"renew\n")
        if not await loop.sock_recv(supervisor, 100):
            return  # the supervisor is gone, and its closed pipe stops the worker
        # By now: it may have waited for its turn, and its memory may have shrunk.
        why = limits.due(worker.stats.done + worker.stats.failed, None) or why
        busy = worker.stats.busy
        tell(f"renewed {why}" + (f": {busy} running finish first" if busy else ""))
        worker.retire()
        await leave()
        await loop.sock_sendall(supervisor, f"left {why}\n".encode())


async def _up(worker: Worker) -> None:
    while True:
        if worker.stats.state != "starting":
            return
        await asyncio.sleep(POLL_SECONDS)


async def _due(worker: Worker, limits: Limits) -> str:
    look, memory = 0, None
    while True:
        if limits.memory is not None and look % POLLS_PER_MEMORY_READ == 0:
            memory = await asyncio.to_thread(memory_of, [os.getpid(), *worker.child_pids])
        why = limits.due(worker.stats.done + worker.stats.failed, memory)
        if why is not None:
            return why
        look += 1
        await asyncio.sleep(POLL_SECONDS)


def changes() -> AsyncIterator[set[tuple[Any, str]]]:
    """Yield batches of changed Python files under the current directory.

    :raises MissingExtra: watchfiles is not installed
    """
    try:
        watchfiles: Any = importlib.import_module("watchfiles")
    except ImportError:
        raise MissingExtra("--reload", "watchfiles", "reload") from None
    found: AsyncIterator[set[tuple[Any, str]]] = watchfiles.awatch(
        os.getcwd(), watch_filter=watchfiles.PythonFilter(), stop_event=asyncio.Event()
    )
    return found


async def renew_on_change(
    batches: AsyncIterator[set[tuple[Any, str]]], renew: Callable[[], None], tell: Callable[[str], None] = say
) -> None:
    """Renew the workers whenever files changed, for ever."""
    here = os.path.join(os.getcwd(), "")
    async for batch in batches:
        names = sorted({path.removeprefix(here) for _, path in batch})
        tell(f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''} changed: renewing workers")
        renew()
