"""Maintenance beside a program that is not a worker: its duties, and whether the store answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

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


async def ping(session: Session) -> None:
    """Ask the store for something small that is not known here; :raises EngineError: it does not answer"""
    await session.engine.documents.holder("duty:sweeper", session.host.clock.now())
