"""The positions of followed jobs in their queues: one computation for a queue, not more often than the queue moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from typing import Protocol

from headrace.core.job import Job
from headrace.core.updates import Place
from headrace.errors import HeadraceError
from headrace.runtime.host import Host

__all__ = ["Places", "Placing"]

POLL_FIRST_SECONDS, POLL_MAX_SECONDS, POLL_FACTOR = 1.0, 5.0, 1.6
"""Seconds between two computations for a queue: while its jobs move, and while they do not."""
_MIN_PAUSE_RATIO = 20
"""And at least so many times as long as the last one took."""

_MAX_NOTIFIED_JOBS, _PAUSE_SECONDS = 50, 0.02
"""How many jobs are notified one after another, and for how many seconds the others wait."""

_log = logging.getLogger("headrace.places")

Placing = Callable[[Sequence[Job]], Awaitable[Sequence[Place | None]]]
"""The positions of these jobs of one queue; None for those of which that is not known this time."""


class _Standing(Protocol):
    job: Job

    def stand(self, place: Place) -> bool: ...


class Places:
    """Notifies queued jobs of their positions."""

    def __init__(self, host: Host, placing: Placing, standing: Callable[[], Iterable[_Standing]]) -> None:
        self._host, self._placing, self._standing = host, placing, standing
        self._due: dict[str, float] = {}
        """When the positions in a queue are computed next."""
        self._rests: dict[str, float] = {}
        """Until when they are not, also for new readers, since that took long."""
        self._pause: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def expect(self, queue: str) -> None:
        """Note that a job of this queue is followed."""
        self._pause[queue] = POLL_FIRST_SECONDS
        known, soon = self._due.get(queue), max(self._time() + POLL_FIRST_SECONDS, self._rests.get(queue, 0.0))
        if known is None or known > soon:
            self._due[queue] = 0.0 if known is None else soon
            self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="headrace-places", context=Context())

    def stop(self) -> None:
        """Compute no more."""
        if self._task is not None:
            self._task.cancel()

    def _time(self) -> float:
        # As sleeps take it: where a test moves the clock by hand, it goes on.
        return asyncio.get_running_loop().time()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            lines: dict[str, list[_Standing]] = {}
            for one in self._standing():
                lines.setdefault(one.job.queue, []).append(one)
            for queue in [queue for queue in self._due if queue not in lines]:
                # Not before its time: a reader that comes and goes gets one number a second, not more.
                if self._due[queue] <= self._time():
                    del self._due[queue], self._pause[queue]
                    self._rests.pop(queue, None)
            for queue, line in lines.items():
                if self._due.get(queue, 0.0) <= self._time():
                    await self._place(queue, line)
            if not self._due:
                return
            await self._host.wait(self._wake, max(0.001, min(self._due.values()) - self._time()))

    async def _place(self, queue: str, line: Sequence[_Standing]) -> None:
        began, took, moved = self._time(), 0.0, False
        try:
            places = await self._placing([one.job for one in line])
            took = self._time() - began
            notified = 0
            for one, place in zip(line, places, strict=True):
                if place is not None and one.stand(place):
                    notified, moved = notified + 1, True
                    if notified % _MAX_NOTIFIED_JOBS == 0:  # other updates come in between
                        await self._host.sleep(_PAUSE_SECONDS)
        except HeadraceError as error:
            _log.debug("the places in queue %r are not known for now: %s", queue, error)
        pause = (
            POLL_FIRST_SECONDS
            if moved
            else min(self._pause.get(queue, POLL_FIRST_SECONDS) * POLL_FACTOR, POLL_MAX_SECONDS)
        )
        self._pause[queue] = pause
        self._rests[queue] = self._time() + _MIN_PAUSE_RATIO * took
        self._due[queue] = max(self._time() + pause, self._rests[queue])
