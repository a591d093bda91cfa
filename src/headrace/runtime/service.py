"""Start and stop, written once for every loop that runs beside the others."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from headrace.errors import StoreLost

__all__ = ["Service"]

_log = logging.getLogger("headrace.service")


class Service(ABC):
    """Something that runs between ``start`` and ``stop``; ``main`` returns soon after ``stopping`` is set."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ran = False

    @abstractmethod
    async def main(self) -> None:
        """What runs."""

    async def start(self) -> None:
        """Begin; a service that runs already is left alone."""
        if self._task is None or self._task.done():
            # Only a service that ran before is over its stopping: a stop requested before the start still counts.
            if self._ran:
                self.stopping = asyncio.Event()
            self._ran = True
            self._task = asyncio.create_task(self.main(), name=type(self).__name__)

    async def stop(self) -> None:
        """Have ``main`` return and wait for it; raises what it raised. May be called twice, or without a start."""
        self.stopping.set()
        await self.done()

    async def done(self) -> None:
        """Wait until ``main`` has returned, for whatever reason."""
        task = self._task
        if task is not None:
            # Shielded: a caller that gives up waiting must not cancel the service for all others.
            await asyncio.shield(task)
            if self._task is task:
                self._task = None

    @property
    def alive(self) -> bool:
        """Whether ``main`` runs."""
        return self._task is not None and not self._task.done()

    async def unless_stopped(self, work: Coroutine[Any, Any, object]) -> bool:
        """Do this, unless a stop is requested before it is done; whether it was done."""
        asked, doing = asyncio.create_task(self.stopping.wait()), asyncio.create_task(work)
        try:
            await asyncio.wait({asked, doing}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                await doing
            return doing.done()
        finally:
            asked.cancel()
            doing.cancel()
            await asyncio.gather(asked, doing, return_exceptions=True)

    def renamed(self, worker: UUID) -> None:  # noqa: B027 - most services do not name the worker
        """Take note that the worker beside which it runs goes on under a new id."""

    async def end(self) -> None:
        """Stop. A service that has broken down is logged, and keeps no other from being stopped."""
        try:
            await self.stop()
        except StoreLost:
            pass  # it was logged when it was noticed
        except Exception:
            _log.exception("%s broke down", type(self).__name__)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
