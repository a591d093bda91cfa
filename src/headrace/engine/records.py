"""Records: queries of people and programs for jobs. None of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.core.attempt import History
from headrace.core.explain.position import MAX_COUNTED_JOBS, PACE_WINDOW_SECONDS, Position
from headrace.core.job import Job
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Bound
from headrace.core.query import Count, Filter, Ledger, Page
from headrace.core.stats.failures import FailureGroup
from headrace.core.stats.load import LOAD_MINUTES, MAX_LOAD_JOBS, Loads
from headrace.core.stats.verification import Invariant

__all__ = ["Records"]


class Records(Protocol):
    """Finds and counts jobs. A search may have to read many jobs; it must not keep claims and finishes waiting.

    A page, a number and a list of groups are each as of one moment, whatever is written meanwhile.
    """

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """Return the jobs that ``core.query.matches``, newest first, as ``core.query.as_seen`` shows them.

        A page may have fewer than ``limit`` and still a cursor, if there is too much to search at once.
        """

    async def count_matching(self, filter: Filter, now: datetime, most: int | None = None) -> int:
        """Return how many jobs ``core.query.matches``; ``most``: or this number, if there are more.

        With ``most`` the number of other jobs must matter as little as to ``find``: pages request this repeatedly.
        """

    async def failures(
        self, filter: Filter, now: datetime, limit: int = 50, among: int | None = None
    ) -> list[FailureGroup]:
        """Return the jobs that ``core.query.matches``, as ``core.stats.failures.grouped`` groups them.

        With ``among`` the number of other ended jobs must not matter: pages request this repeatedly.
        """

    async def count(self, now: datetime, *, history: bool = True) -> list[Count]:
        """Return how many jobs each queue has in each status, as seen now, with the first arrival of live ones; sorted.

        Headrace's own jobs (``core.own_tasks.is_own``) are counted apart, as a ``Count`` of their own.

        Without ``history``, completed and cancelled jobs are left out, and must not slow it down: it is called often.
        """

    async def history(self, id: UUID) -> History:
        """Return the attempts and events of one job, oldest first; empty for a missing job."""

    async def ledger(self, *, users: bool = False) -> Ledger:
        """Return how many jobs were ever stored, and how they ended. ``unaccounted`` is 0 at every moment.

        ``users``: without headrace's own jobs, also of those that are pruned.
        """

    async def verify(self, book: str, now: datetime | None = None) -> Invariant:
        """Check one of ``core.stats.verification.BOOKS``, as of one moment, while others write.

        What was written whole agrees at every moment, so a mismatch is a fault of the engine, or of a program that
        wrote past it. It may have to read every job. ``messages`` also reports what was left out with a change; it uses
        ``now``, as messages are pruned (``core.webhooks.messages.missing``), and without that finds nothing.
        """

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        """Return how many jobs are held of each queue, task and concurrency key, and what was used of these rates."""

    async def position(
        self, job: Job, now: datetime, window: float = PACE_WINDOW_SECONDS, most: int = MAX_COUNTED_JOBS
    ) -> Position:
        """Return the position of a queued or due job, and what its queue did in the last ``window`` seconds.

        Before it are the queued jobs of its queue, as seen now, that come first by ``core.lifecycle.claim.order`` and
        have not expired, whether they have concurrency keys or not. Done are jobs that were claimed and ended as in
        ``core.explain.position.BY_WORK``. No engine needs to read more than ``most`` jobs before it, ``most`` that are
        due but not promoted (the longest due first), ``most`` keys, and ``most`` that ended, of any queue (the last
        first): then ``more`` says that there may be more, ``ahead`` is ``most`` or less, and ``since`` is the end of
        the first job that is not counted.
        """

    async def load(
        self, now: datetime, minutes: int = LOAD_MINUTES, most: int = MAX_LOAD_JOBS, recent: int = MAX_COUNTED_JOBS
    ) -> Loads:
        """Return the jobs that wait, are held and ended in the last minutes, by ``core.stats.load.loads_of``.

        It is called often, whatever waits or has ended. No engine needs to count more than ``most`` queued jobs of a
        kind, the first in the order of claims (or, with concurrency keys, those of some keys), nor more than ``most``
        that are due but not promoted: then there are ``more``, and ``oldest`` is that of the counted ones. Nor does it
        need to count more than ``recent`` jobs that ended, of all kinds, the last first: then ``since`` is the end of
        the first that is not counted.
        """
