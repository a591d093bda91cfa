"""What always holds, checked against a whole store."""

from __future__ import annotations

from uuid import UUID

from headrace.core.attempt import Attempt, History
from headrace.core.job import Job
from headrace.core.query import Filter
from headrace.core.status import Outcome, Status
from headrace.engine import Engine
from headrace.runtime.host import Host

_CHARGED = {Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT}


async def all_jobs(engine: Engine) -> list[Job]:
    """Every job of the store."""
    jobs: list[Job] = []
    cursor: str | None = None
    while True:
        page = await engine.records.find(Filter(), Host().clock.now(), 500, cursor)
        jobs += page.items
        cursor = page.cursor
        if cursor is None:
            return jobs


async def check_store(engine: Engine) -> dict[UUID, History]:
    """Assert what always holds, for every job; their histories, for more questions."""
    jobs = await all_jobs(engine)
    ledger = await engine.records.ledger()
    assert ledger.unaccounted == 0, ledger
    assert ledger.live + ledger.ended == len(jobs)
    assert len({job.id for job in jobs}) == len({job.seq for job in jobs}) == len(jobs)
    held_keys = [(job.task, job.dedup) for job in jobs if job.dedup is not None and not job.ended]
    assert len(held_keys) == len(set(held_keys))
    histories = {job.id: await engine.records.history(job.id) for job in jobs}
    for job in jobs:
        _check_attempts(job, histories[job.id])
    return histories


def _check_attempts(job: Job, history: History) -> None:
    attempts = history.attempts
    numbers = [attempt.number for attempt in attempts]
    epochs = [attempt.epoch for attempt in attempts]
    assert numbers == sorted(set(numbers)), job
    assert epochs == sorted(set(epochs)), job
    assert not epochs or epochs[-1] < job.epoch or not job.ended, job
    finishes = [attempt for attempt in attempts if attempt.outcome is Outcome.COMPLETED]
    assert len(finishes) == (job.status is Status.COMPLETED), job
    charged = [one for one in attempts if one.outcome in _CHARGED or _is_charged_loss(one)]
    if job.redrives == 0:
        assert len(charged) == job.charged <= job.max_attempts, (job, attempts)


def _is_charged_loss(attempt: Attempt) -> bool:
    """Whether a lost attempt counts: its start is on record, and no suspect beside it is to blame."""
    if attempt.outcome is not Outcome.LOST or attempt.started_at is None:
        return False
    return attempt.error is None or (attempt.error.details or {}).get("charged", True)
