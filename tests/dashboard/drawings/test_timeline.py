"""Attempts to scale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from msgspec.structs import replace

from headrace.core.attempt import Attempt, History
from headrace.core.job import Job, Spec
from headrace.core.status import Outcome, Status
from headrace.dashboard.drawings.timeline import MAX_ATTEMPTS, WIDE, timeline

START = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = uuid4()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def job(**fields: object) -> Job:
    made = Job(
        id=UUID(int=1),
        spec=Spec(task="t", created_at=START),
        payload_text="{}",
        status=Status.QUEUED,
        available_at=START,
        arrived_at=START,
        updated_at=START,
    )
    return replace(made, **fields)


def test_a_retried_job_waits_runs_fails_backs_off_and_completes() -> None:
    first = Attempt(
        number=1,
        epoch=1,
        outcome=Outcome.FAILED,
        worker=WORKER,
        assigned_at=at(10),
        started_at=at(20),
        finished_at=at(40),
        retry_at=at(70),
    )
    second = Attempt(
        number=2,
        epoch=3,
        outcome=Outcome.COMPLETED,
        worker=WORKER,
        assigned_at=at(80),
        started_at=at(80),
        finished_at=at(100),
    )
    found = timeline(job(status=Status.COMPLETED, finished_at=at(100)), History((first, second)), at(999))
    kinds = [[(part.kind, part.seconds) for part in lane.parts] for lane in found.lanes]
    assert kinds == [
        [("waiting", 10), ("assigned", 10), ("ended-failed", 20), ("backoff", 30)],
        [("waiting", 10), ("assigned", 0), ("running", 20)],
    ]
    widths = [round(part.width / (WIDE - 8), 2) for part in found.lanes[0].parts]
    assert widths == [0.1, 0.1, 0.2, 0.3], "to scale"
    assert all(part.width > 0 for lane in found.lanes for part in lane.parts), "whatever happened is seen"


def test_what_runs_goes_on_until_now() -> None:
    running = job(status=Status.RUNNING, worker=WORKER, attempt=1, assigned_at=at(5), started_at=at(6))
    [lane] = timeline(running, History(), at(16)).lanes
    assert [(part.kind, part.seconds) for part in lane.parts] == [("waiting", 5), ("assigned", 1), ("running", 10)]
    [waiting] = timeline(job(), History(), at(30)).lanes
    assert [(part.kind, part.seconds) for part in waiting.parts] == [("waiting", 30)]
    [never] = timeline(job(status=Status.CANCELLED, finished_at=at(3)), History(), at(30)).lanes
    assert [(part.kind, part.seconds) for part in never.parts] == [("waiting", 3)]


def test_of_very_many_attempts_the_last_are_drawn() -> None:
    attempts = tuple(
        Attempt(number=n, epoch=n, outcome=Outcome.FAILED, started_at=at(n), finished_at=at(n + 0.5))
        for n in range(100)
    )
    found = timeline(job(status=Status.FAILED, finished_at=at(100)), History(attempts), at(200))
    assert (len(found.lanes), found.hidden) == (MAX_ATTEMPTS, 100 - MAX_ATTEMPTS)
