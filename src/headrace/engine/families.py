"""Families: notes that changes leave for other jobs, and batches of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.core.query import Page
from headrace.engine.values import MAX_BATCH, Processed, Refused

__all__ = ["Families"]


class Families(Protocol):
    """Applies to jobs what follows from changes of others, and keeps the counts of batches."""

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        """Process stored notes, oldest first, and return what changed in other jobs.

        A note concerns other jobs: ``Note.ENDED`` those that wait for its job, ``Note.CANCELLED`` the children of its
        job, ``Note.WAITS`` the job itself, ``Note.STOPPED`` the jobs of its batch. The commit that writes what follows
        from a note removes it. A note that concerns very many jobs may be processed part by part: how far it got is
        stored with it.

        It goes in rounds, until ``limit`` jobs were checked. A round takes notes, gives every job that they concern to
        ``core.lifecycle.family.follow``, with all that the notes of the round say of it, and only then writes anything:

        - the statuses of the jobs that it waits for are always given;
        - ``parent_cancelled`` is given for a child of a cancelled job, while that job is gone or
          ``core.lifecycle.family.still_cancelled``; a child that has ended also leaves ``Note.CANCELLED`` for its own
          children, where ``core.lifecycle.family.passes_on`` is true;
        - ``batch`` is given for a job of a cancelled batch that still exists.

        The next round processes the notes of a round's changes. Processing a note twice changes nothing, so two
        sessions may process notes at once. A job that another transaction holds is left for later, with its note.

        It also checks batches that are not settled. Those for which ``core.batch.is_silent`` are sealed and marked as
        abandoned. Those for which ``core.batch.is_over`` are given ``ended_at`` unless they have it, and are in every
        reply until they are settled.
        """

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        """Return the batches of these ids, in order, with exact tallies; None for a missing one."""

    async def find_batches(
        self, limit: int = 50, cursor: str | None = None, customer: str | None = None
    ) -> Page[Batch]:
        """Return all batches, or those of this customer, with exact tallies, the newest first (by creation, then id),
        paged by ``core.batch.newest_first``."""

    async def seal(self, batch: UUID, now: datetime) -> bool:
        """Change the batch by ``core.batch.sealed``; return whether it exists."""

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        """Change the batch by ``core.batch.cancelled`` and store ``Note.STOPPED`` for its jobs in the same commit;
        return the batch as it is then, None if it does not exist. No job is added to it after that."""

    async def settle(self, batch: UUID, now: datetime, jobs: Sequence[Job] = ()) -> Refused | None:
        """Store the jobs that follow the end of the batch, and record that in the same commit: ``process_notes`` no
        longer returns it.

        The jobs are stored as ``Jobs.insert`` stores them, all or none, but not refused for lack of a profile; a
        duplicate is no refusal. Where one of them is refused, nothing is written, and the reply says why. A missing
        batch, or one that was settled before, stays as it is, and nothing is stored.
        """
