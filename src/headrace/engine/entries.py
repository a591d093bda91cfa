"""Entries: what runs add to their jobs: stream items, log lines, results of durable steps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.engine.values import MAX_BATCH

__all__ = ["Entries"]


class Entries(Protocol):
    """Appends to running jobs, and reads what was appended."""

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        """Store entries of running jobs in one commit; return a reply for each job, in the same order.

        At most one append per job is in a call. The replies:

        - ``kept``: the entries are durable. One that was stored already (same job, kind, attempt and number)
          is left as it is.
        - ``stale``: this worker does not have the job ``running`` at this epoch, and nothing was kept. So a start is
          on record before anything else of its attempt, and nothing is added to an attempt that is over.
        - ``busy``: a transaction that is still open has the job, and nothing was kept. The caller tries again.
        """

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        """Return the first ``limit`` entries of one kind behind the cursor, or (``newest``) the last, by attempt and
        number.

        Nothing ever appears before a returned cursor, as long as the owner of the job appends in order: an append and
        the change that takes the job from its owner never overlap.
        """
