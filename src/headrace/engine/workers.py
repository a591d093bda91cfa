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
        """Make the worker known and alive, with beat number 0; one that is known stays as it is, dead or alive."""
        ...

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        """Raise the worker's beat number, keep the beat, and answer what the worker should know, if it is alive.

        Of the jobs that the worker holds and that were assigned two beats (``2 * rules.beat`` seconds) ago or earlier,
        those that the beat does not name gain an unnamed beat and are answered as ``unknown``; those that it names
        begin again at 0. Younger jobs are left out, since the answer to their claim may still be under way. A beat that
        is repeated counts as another beat.
        """
        ...

    async def bury(self, worker: UUID, beats: int) -> bool:
        """Declare the worker dead if its beat number is still this one; whether it was.

        From then on no claim of this worker is given anything: see ``Jobs.claim``. Its jobs stay its own until the
        sweeper has taken them, so a result that it writes meanwhile counts. A dead worker stays known until no job
        names it, so that the sweeper finds its jobs.
        """
        ...

    async def retire(self, worker: UUID) -> None:
        """Let a worker go that left in good order: dead at once, and forgotten as soon as no job names it."""
        ...

    async def list(self) -> list[WorkerRow]:
        """Every known worker, oldest first; forgets the dead that no job names."""
        ...
