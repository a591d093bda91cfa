"""What a submit does that finds another job with its dedup key: the core decides what becomes of that one, and a
submit that comes too late decides again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from msgspec.structs import replace

from headrace.core.change import Applied, Change, Conflict, Verdict
from headrace.core.job import Job
from headrace.core.lifecycle.deduplication import meet
from headrace.engine import Duplicated, InsertAnswer, Inserted
from headrace.engine.transactions import walk_async
from headrace.errors import Unavailable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses

__all__ = ["FIRST_PAUSE_SECONDS", "MAX_PAUSE_SECONDS", "Duplicates", "meeting"]

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 1.0
"""Seconds between two tries for what is locked just now."""

_MAX_TRIES = 50
_MAX_REMEMBERED_CHANGES = 1000
"""How many changes of a holder are remembered while submits wait for one another; more takes longer, and no more."""

Answer = Inserted | Duplicated


def meeting(job: Job, answer: InsertAnswer, now: Callable[[], datetime]) -> Generator[Change | None, Any, InsertAnswer]:
    """What becomes of a submit with this reply; yields changes to apply, to be sent their verdicts, and None where the
    job is to be inserted again, to be sent the reply to that."""
    for _ in range(_MAX_TRIES):
        if not isinstance(answer, Duplicated) or answer.replaced:
            return answer
        change = meet(answer.job, job, now())
        if change is None:
            return answer
        verdict = yield change
        if change.merges is not None and isinstance(verdict, Applied):
            return Duplicated(verdict.job, replaced=True)
        answer = yield None  # stored with the change, or refused, or the holder has moved: the store knows
    raise Unavailable(
        f"the job with the dedup key {job.dedup!r} changed {_MAX_TRIES} times while this was being submitted"
    )


class _Turn:
    """The submits that want to change the holder of a key, one after the other."""

    def __init__(self, holder: UUID) -> None:
        self.lock, self.holder = asyncio.Lock(), holder
        self.takers = 0
        self.last: Job | None = None
        """The holder, as the last of them left it."""
        self.merged: dict[int, UUID] = {}
        """The revs of the holder that came of their submits, and the ids of these."""

    def since(self, answer: Duplicated, job: Job) -> Duplicated:
        """The reply to a submit, as it would be now, if all that came after it is known, and none of that was the same
        submit: one with a caller that gave up may have been on its way."""
        if self.last is None or self.last.rev <= answer.job.rev:
            return answer
        later = (self.merged.get(rev, job.id) for rev in range(answer.job.rev + 1, self.last.rev + 1))
        return answer if job.id in later else Duplicated(self.last)


class Duplicates:
    """The duplicates of one session. Submits with the same key go one after the other: at the same time, all but one of
    them would come too late, again and again."""

    def __init__(self, host: Host, apply: Callable[[Change], Awaitable[Verdict]], timeout: float) -> None:
        self._host, self._apply, self._timeout = host, apply, timeout
        self._turns: dict[UUID, _Turn] = {}

    async def meet(
        self, job: Job, answer: Answer, insert: Callable[[], Awaitable[Answer]], apart: bool = False
    ) -> Answer:
        """What becomes of a submit with this reply; ``insert`` stores the job; ``apart``: more than the job is stored,
        so that the change of the holder does not store it.

        :raises Unavailable: the holder was in a transaction of others beyond the timeout
        """
        if not isinstance(answer, Duplicated) or answer.replaced or meet(answer.job, job, self._now()) is None:
            return answer
        id = answer.job.id
        turn = self._turns.setdefault(id, _Turn(id))
        turn.takers += 1
        try:
            async with turn.lock:
                answer = await self._meet(turn, job, turn.since(answer, job), insert, apart)
                turn.last = answer.job if answer.job.id == id else None
                return answer
        finally:
            turn.takers -= 1
            if not turn.takers:
                del self._turns[id]

    async def _meet(
        self, turn: _Turn, job: Job, answer: Answer, insert: Callable[[], Awaitable[Answer]], apart: bool
    ) -> Answer:
        pauses = Pauses(self._host, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, timeout=self._timeout)

        async def execute(change: Change | None) -> Verdict | Answer:
            if change is None:
                return await insert()
            try:
                verdict = await self._apply(replace(change, inserts=()) if apart else change)
            except Unavailable as error:  # which names the holder, not the job
                raise type(error)(str(error), outcome=error.outcome, ids=[job.id]) from error
            if isinstance(verdict, Applied) and change.merges is not None and verdict.job.id == turn.holder:
                turn.merged[verdict.job.rev] = job.id
                turn.merged.pop(verdict.job.rev - _MAX_REMEMBERED_CHANGES, None)
            elif isinstance(verdict, Conflict) and verdict.job.rev == change.rev and not await pauses.sleep():
                # It has not moved: a transaction that is still open holds it, or the key.
                message = f"job {verdict.job.id} has the dedup key, and is in a transaction that is still open"
                raise Unavailable(message, ids=[job.id])
            return verdict

        return cast("Answer", await walk_async(meeting(job, answer, self._now), execute))

    def _now(self) -> datetime:
        return self._host.clock.now()
