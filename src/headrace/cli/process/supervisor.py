"""Keeps worker processes alive: starts them, restarts the dead, passes signals on, and takes them along when it goes.

Every child holds the reading end of a pipe; only the supervisor has its writing end. When the supervisor dies, however
suddenly, the pipe ends and the children stop in good order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from uuid import UUID

from headrace.cli.exit_codes import DONE, FAILED, USAGE
from headrace.cli.output.console import say
from headrace.runtime.clock import SystemDice

__all__ = ["Supervisor"]

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 30.0
STEADY_SECONDS = 5.0
"""A child that lived this long starts over with the shortest delay."""

KILL_SLACK_SECONDS = 10.0
"""How much longer than the workers' own grace the supervisor waits before it kills."""

RELEASE_SECONDS = 3.0
"""How long the children may take to release what they hold when they must stop at once."""


class Supervisor:
    """Runs ``count`` children; ``command`` makes the argument list of one from its index and its end of the pipe.

    ``naming`` makes more arguments, from the id of the worker in this child, and that of its predecessor: that one's
    process has ended, and the new worker need not find out. ``renewing`` makes those of a child that may request its
    renewal (``cli/process/renewal.py``), from its end of two sockets.
    """

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        count: int,
        *,
        grace: float,
        burst: bool = False,
        naming: Callable[[UUID, UUID | None], Sequence[str]] = lambda id, after: (),
        renewing: Callable[[int], Sequence[str]] | None = None,
        tell: Callable[[str], None] = say,
    ) -> None:
        self._command, self._count, self._naming = command, count, naming
        self._dice = SystemDice()
        self._named: dict[int, UUID] = {}
        self._grace, self._burst, self._tell = grace, burst, tell
        self._children: dict[int, Process] = {}
        self._renewing, self._turn, self._turn_of = renewing, asyncio.Lock(), -1
        """The child that has the turn is being renewed: one at a time, until the next is up."""
        self._leaving: dict[int, tuple[Process, asyncio.Task[None]]] = {}
        """By position, the children that have left it to another and still finish what they run."""
        self._renewed: set[int] = set()
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._proven = False
        self._code = DONE
        self._pipe = (-1, -1)

    async def run(self) -> int:
        """Keep the children alive until a stop (or, in a burst, until all are done); return the exit code."""
        self._pipe = os.pipe()
        keepers = [asyncio.create_task(self._keep(index)) for index in range(self._count)]
        watchdog = asyncio.create_task(self._kill_the_slow())
        try:
            await asyncio.gather(*keepers)
            await asyncio.gather(*(task for _, task in self._leaving.values()))
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
        """Let every child release what it holds and end at once; kill those that do not."""
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
        for child in [*self._children.values(), *(child for child, _ in self._leaving.values())]:
            try:
                child.send_signal(number)
            except ProcessLookupError:
                pass

    async def _kill_the_slow(self) -> None:
        await self._stopping.wait()
        if await _happens(self._hurrying, self._grace + KILL_SLACK_SECONDS):
            await asyncio.sleep(RELEASE_SECONDS)
        left = len(self._children) + len(self._leaving)
        self._tell(f"{left} worker {'process' if left == 1 else 'processes'} did not stop in time: killed")
        self._code = FAILED
        self.kill()

    async def _keep(self, index: int) -> None:
        """Keep one position filled."""
        delay = FIRST_DELAY_SECONDS
        while not self._stopping.is_set():
            started = time.monotonic()
            pid, code = await self._live(index)
            if code is None:  # it left its position
                delay, self._proven = FIRST_DELAY_SECONDS, True
                continue
            lived = time.monotonic() - started
            self._proven = self._proven or lived >= STEADY_SECONDS or code == DONE
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
            delay = FIRST_DELAY_SECONDS if lived >= STEADY_SECONDS else delay
            self._tell(f"worker process {pid} {_epitaph(code)} after {lived:.1f} s; the next starts in {delay:g} s")
            await _happens(self._stopping, delay)
            delay = min(delay * 2, MAX_DELAY_SECONDS)

    async def _live(self, index: int) -> tuple[int, int | None]:
        """Run one child until it ends, and return its exit code; None: it left its position to another."""
        reading, _ = self._pipe
        before, id = self._named.get(index), self._dice.new_id(datetime.now(UTC))
        self._named[index] = id
        command = [*self._command(index, reading), *self._naming(id, before)]
        ours, theirs = (None, None) if self._renewing is None else socket.socketpair()
        fds = [reading] if theirs is None else [reading, theirs.fileno()]
        if self._renewing is not None and theirs is not None:
            command += self._renewing(theirs.fileno())
        with ExitStack() as stack:
            if ours is not None:
                stack.callback(ours.close)
            try:
                # A process group of its own: Ctrl-C in the terminal is for the supervisor, which passes it on once.
                child = await asyncio.create_subprocess_exec(
                    *command, pass_fds=fds, process_group=0, stdin=asyncio.subprocess.DEVNULL
                )
            finally:
                if theirs is not None:
                    theirs.close()
            self._children[index] = child
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            ended = asyncio.ensure_future(child.wait())
            left = asyncio.ensure_future(_never() if ours is None else self._leaves(index, child, ours))
            try:
                await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    left.result()
                    self._named.pop(index, None)  # it lives: its successor must not declare it dead
                    self._leaving[index] = child, asyncio.create_task(self._see_off(index, child.pid, ended))
                    return child.pid, None
                self._end_turn(index)
                return child.pid, ended.result()
            finally:
                left.cancel()
                self._children.pop(index, None)

    # -- renewing

    async def _leaves(self, index: int, child: Process, ours: socket.socket) -> None:
        """Exchange messages with a child until it has left its position; for ever if it does not."""
        ours.setblocking(False)
        try:
            if await self._hears_that_it_left(index, child, ours):
                return
        except OSError:
            pass  # it closed the socket without reading: it has died, or stops
        await _never()  # its exit code says the rest

    async def _hears_that_it_left(self, index: int, child: Process, ours: socket.socket) -> bool:
        """Reply to the messages of a child; return whether it left its position, or else closed the socket."""
        loop, said = asyncio.get_running_loop(), b""
        while more := await loop.sock_recv(ours, 1000):
            *lines, said = (said + more).split(b"\n")
            for line in lines:
                word, _, why = line.decode(errors="replace").partition(" ")
                if word == "up":
                    self._end_turn(index)
                elif word == "renew":
                    if index in self._leaving:  # at most one that leaves, for each position
                        await asyncio.wait([self._leaving[index][1]])
                    await self._turn.acquire()
                    self._turn_of = index
                    await loop.sock_sendall(ours, b"go\n")
                elif word == "left":
                    self._tell(f"worker process {child.pid} is renewed {why}")
                    return True
        return False

    def _end_turn(self, index: int) -> None:
        if self._turn_of == index:
            self._turn_of = -1
            self._turn.release()

    async def _see_off(self, index: int, pid: int, ended: asyncio.Future[int]) -> None:
        try:
            code = await ended
        finally:
            self._leaving.pop(index, None)
        if code != DONE and not self._stopping.is_set():
            self._tell(f"worker process {pid}, whose place was taken, {_epitaph(code)}")


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, at most so long; return whether it happened."""
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
