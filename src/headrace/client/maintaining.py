"""Maintenance beside a program that is not a worker: its duties, and whether the store answers and takes writes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

from headrace.client.session import Session
from headrace.maintenance import Attendance, services
from headrace.runtime.service import Service

__all__ = ["Maintenance", "ping"]


class Maintenance:
    """Sweeps, prunes and plans while its block lasts, unless somebody else has the duty; any number may stand by.

    If the process dies, others see it as they would see it of a worker, where the kernel or the server can tell. Where
    not, its duties are leased for a few seconds at a time, so that others go on soon, and nothing is left.
    """

    def __init__(self, session: Session) -> None:
        host, engine = session.host, session.engine
        holder = host.dice.new_id(host.clock.now())
        duties = services(engine, session.lanes, host, holder, worker=False)
        # Before the duties, so that it can be seen of whoever has one.
        self._services: Sequence[Service] = (Attendance(engine, host, holder), *duties)

    @property
    def alive(self) -> bool:
        """Whether all of its loops run; one that has ended by itself has said why in the log."""
        return all(service.alive for service in self._services)

    async def __aenter__(self) -> Self:
        for service in self._services:
            await service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in reversed(self._services):
            await service.end()


READY = "ready"
"""What whoever tries to write holds, all under one id: one row that is renewed, however many try."""
_ANYBODY = UUID(int=0)


async def ping(session: Session, *, write: bool = False) -> None:
    """Ask the store for something small that is not known here, or have it write that.

    :raises EngineError: it does not answer, or takes no write: its disk is full, or its role may only read
    """
    now = session.host.clock.now()
    if write:
        await session.engine.documents.lease(READY, _ANYBODY, 1.0, now)
    else:
        await session.engine.documents.holder("duty:sweeper", now)
