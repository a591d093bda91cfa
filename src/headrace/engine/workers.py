"""Workers: who is alive, and what each of them holds."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.engine.answers import Alive, Beat, Dead, WorkerInfo, WorkerRow

__all__ = ["Workers"]


class Workers(Protocol):
    """Keeps a row for each worker. A beat writes that row, and no job that it names."""

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        """Make the worker known and alive, with beat 0; repeating changes nothing."""
        ...

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        """Raise the worker's beat number and tell it what it should know, if it is alive.

        Of the jobs that it holds and that were assigned two beats (``rules.beat``) ago or earlier, those that the beat
        does not name gain an unnamed beat, and those it names lose their count.
        """
        ...

    async def bury(self, worker: UUID, beats: int) -> bool:
        """Declare the worker dead if its beat number is still this one; whether it was. A dead worker stays known
        until no job names it, so that the sweeper finds its jobs."""
        ...

    async def retire(self, worker: UUID) -> None:
        """Let a worker go that left in good order: dead at once, and forgotten as soon as no job names it."""
        ...

    async def list(self) -> list[WorkerRow]:
        """Every known worker, oldest first; forgets the dead that no job names."""
        ...
