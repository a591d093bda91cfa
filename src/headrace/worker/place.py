"""Where runs are executed, as they see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from headrace.host import Host
from headrace.worker.children import Children
from headrace.worker.owned_job import OwnedJob
from headrace.worker.pools import ThreadPool
from headrace.worker.resources import Resources
from headrace.worker.slot_yielding import YieldingSlot

if TYPE_CHECKING:
    from headrace.worker.run import Run
    from headrace.worker.speaking import Speaking

__all__ = ["Place"]


class Place(Protocol):
    """What a run needs of its worker."""

    host: Host
    threads: ThreadPool
    children: Children
    cancel_grace: float
    resources: Resources
    keeper: asyncio.Task[None] | None

    def concluded(self, run: Run) -> None:
        """The attempt is over and its end is on the way to the store."""
        ...

    def settled(self, run: Run, stored: bool) -> None:
        """The end of the attempt is stored, or never will be."""
        ...

    def left(self, run: Run) -> None:
        """The handler is done."""
        ...

    def stored(self, owned: OwnedJob) -> None:
        """What this worker said last of a job may be worth telling."""
        ...

    def yielding_slot(self, run: Speaking) -> YieldingSlot:
        """What lends the slot that the run is in; asked once, from any thread."""
        ...
