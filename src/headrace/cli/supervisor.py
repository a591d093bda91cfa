"""Keeps worker processes alive: starts them, restarts the dead, passes signals on, and takes them along when it goes.

Every child holds the reading end of a pipe whose writing end only the supervisor has. When the supervisor dies, however
suddenly, the pipe ends and the children stop in good order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from headrace.cli.failures import DONE, FAILED, USAGE
from headrace.cli.output import say
from headrace.runtime.clock import SystemDice

__all__ = ["Supervisor"]

FIRST_DELAY = 0.5
LONGEST_DELAY = 30.0
STEADY = 5.0
"""A child that lived this long starts over with the shortest delay."""

SLACK = 10.0
"""How much longer than the workers' own grace the supervisor waits before it kills."""

HURRY = 3.0
"""How long the children may take to hand back what they hold when told to stop at once."""


class Supervisor:
    """Runs ``count`` children; ``command`` makes the argument list of one from its index and its end of the pipe.

    ``naming`` makes more arguments, from the id of the worker in this child, and that of the worker in whose place it
    is started: the supervisor knows that this one's process has ended, and the new worker need not find out.
    """

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        count: int,
        *,
        grace: float,
        burst: bool = False,
        naming: Callable[[UUID, UUID | None], Sequence[str]] = lambda id, after: (),
        tell: Callable[[str], None] = say,
    ) -> None:
        self._command, self._count, self._naming = command, count, naming
        self._dice = SystemDice()
        self._named: dict[int, UUID] = {}
        self._grace, self._burst, self._tell = grace, burst, tell
        self._children: dict[int, Process] = {}
        self._renewed: set[int] = set()
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._proven = False
        self._code = DONE
        self._pipe = (-1, -1)

    async def run(self) -> int:
        """Keep the children alive until told to stop (or, in a burst, until all are done); the exit code."""
        self._pipe = os.pipe()
        keepers = [asyncio.create_task(self._keep(index)) for index in range(self._count)]
        watchdog = asyncio.create_task(self._kill_the_slow())
        try:
            await asyncio.gather(*keepers)
        finally:
            watchdog.cancel()
            for task in keepers:
                task.cancel()
            self.kill()
            for end in self._pipe:
                os.close(end)
        return self._code

    def stop(self) -> None:
        """Let every child finish what it holds and end."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._signal(signal.SIGTERM)

    def hurry(self) -> None:
        """Let every child hand back what it holds and end at once; kill those that do not."""
        self._stopping.set()
        self._hurrying.set()
        # Of the other kind than the first: the same again could be taken for its echo.
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End every child now."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def renew(self) -> None:
        """Replace every child by a new one, in good order."""
        self._renewed = set(self._children)
        self._signal(signal.SIGTERM)

    @property
    def pids(self) -> list[int]:
        """The living children."""
        return [child.pid for child in self._children.values()]

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children.values():
            try:
                child.send_signal(number)
            except ProcessLookupError:
                pass

    async def _kill_the_slow(self) -> None:
        await self._stopping.wait()
        if await _happens(self._hurrying, self._grace + SLACK):
            await asyncio.sleep(HURRY)
        self._tell(f"{len(self._children)} worker processes did not stop in time: killed")
        self._code = FAILED
        self.kill()

    async def _keep(self, index: int) -> None:
        """Keep one place filled."""
        delay = FIRST_DELAY
        while not self._stopping.is_set():
            started = time.monotonic()
            pid, code = await self._live(index)
            lived = time.monotonic() - started
            self._proven = self._proven or lived >= STEADY or code == DONE
            if self._stopping.is_set() or (self._burst and code == DONE):
                return
            if index in self._renewed:
                self._renewed.discard(index)
                continue
            if code == USAGE and not self._proven:
                # It said on stderr what is wrong, and would say it again for ever.
                self._code = USAGE
                self.stop()
                return
            delay = FIRST_DELAY if lived >= STEADY else delay
            self._tell(f"worker process {pid} {_epitaph(code)} after {lived:.1f} s; the next starts in {delay:g} s")
            await _happens(self._stopping, delay)
            delay = min(delay * 2, LONGEST_DELAY)

    async def _live(self, index: int) -> tuple[int, int]:
        """One child from birth to death."""
        reading, _ = self._pipe
        before, id = self._named.get(index), self._dice.new_id(datetime.now(UTC))
        self._named[index] = id
        command = [*self._command(index, reading), *self._naming(id, before)]
        # A process group of its own: Ctrl-C in the terminal is for the supervisor, which passes it on once.
        child = await asyncio.create_subprocess_exec(
            *command, pass_fds=(reading,), process_group=0, stdin=asyncio.subprocess.DEVNULL
        )
        self._children[index] = child
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        try:
            return child.pid, await child.wait()
        finally:
            self._children.pop(index, None)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, at most so long; whether it happened."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _epitaph(code: int) -> str:
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"
