"""Families: notes that changes leave for other jobs, and batches of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.query import Page
from headrace.engine.answers import MAX_BATCH, Processed

__all__ = ["Families"]


class Families(Protocol):
    """Does to jobs what follows from changes of others, and keeps the counts of batches."""

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        """Process stored notes, each in one commit with what follows from it, as far as ``limit`` other jobs.

        It goes in rounds. A round takes the notes that are there and decides about every job they concern before it
        writes anything:

        - the children of a cancelled job, while ``core.family.still_cancelled`` says so of it, are given to
          ``core.family.cancel_child``; the jobs of a cancelled batch to ``core.batch.stop``; the other jobs, if they
          wait, to ``core.family.release`` with the statuses of those they wait for;
        - a child that has ended gets a note for its own children where ``core.family.passes_on`` says so.

        What the changes of a round leave as notes is for the next round. Batches for which ``core.batch.is_silent`` are
        sealed and marked as abandoned; batches for which ``core.batch.is_over`` are answered, with ``ended_at``, until
        they are settled. Two sessions may process notes at once. A job that another transaction holds is left for
        later, with its note.
        """
        ...

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        """The batches of these ids, in order, with exact tallies; None for what is not here."""
        ...

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        """All batches with exact tallies, newest first by creation and id, as ``core.batch.newest_first`` pages them."""
        ...

    async def seal(self, batch: UUID, now: datetime) -> bool:
        """Make of the batch what ``core.batch.sealed`` says; whether it is here."""
        ...

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        """Make of the batch what ``core.batch.cancelled`` says and store ``Note.STOPPED`` for its jobs in the same
        commit; the batch as it is then, None if it is not here. No job is added to it after that."""
        ...

    async def settle(self, batch: UUID) -> None:
        """Record that what follows the end of the batch was submitted: ``process_notes`` answers it no more."""
        ...
