"""Maintenance beside a program that is not a worker: its duties, and whether the store answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from headrace.client.session import Session
from headrace.maintenance import services
from headrace.runtime.service import Service

__all__ = ["Maintenance", "ping"]


class Maintenance:
    """Sweeps, prunes and plans while its block lasts, unless somebody else has the duty; any number may stand by.

    Its duties are leased for a few seconds at a time. So if the process dies, others go on soon, and nothing is left.
    """

    def __init__(self, session: Session) -> None:
        host = session.host
        self._services: Sequence[Service] = services(
            session.engine, session.lanes, host, host.dice.new_id(host.clock.now()), worker=False
        )

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
        for service in self._services:
            await service.end()


async def ping(session: Session) -> None:
    """Ask the store for something small that is not known here; :raises EngineError: it does not answer"""
    await session.engine.documents.holder("duty:sweeper", session.host.clock.now())
