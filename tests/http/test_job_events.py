"""What is told of a job that was seen once so, and then so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from headrace.core.attempt import Attempt, ErrorInfo, History, Progress
from headrace.core.entry import Entry, Kind
from headrace.core.job import Job, Spec
from headrace.core.status import Outcome, Reason, Status
from headrace.core.updates import ResumeToken, Update
from headrace.http.job_events import changes, end_of, ended_as, item_of, log_of, status_of

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
JOB = Job(
    id=UUID(int=7),
    spec=Spec(task="resize", created_at=NOW),
    payload_text="{}",
    status=Status.QUEUED,
    available_at=NOW,
    arrived_at=NOW,
    updated_at=NOW,
)
RUNNING = replace(JOB, status=Status.RUNNING, rev=3, attempt=1, started_at=LATER, updated_at=LATER)
COMPLETED = replace(RUNNING, status=Status.COMPLETED, rev=4, result_text="[1]", finished_at=LATER)
NONE = History()


def told(before: Job | None, job: Job, history: History = NONE) -> list[tuple[str, Any]]:
    news = Update(job=job, before=before, mark=ResumeToken(job.rev, job.updated_at), history=history)
    return list(changes(news))


def plain(document: object) -> Any:
    return json.loads(msgspec.json.encode(document))


def test_nothing_new_is_nothing_told() -> None:
    assert told(JOB, JOB) == []
    assert told(None, JOB) == []


def test_a_change_of_status_is_told() -> None:
    [(kind, document)] = told(JOB, RUNNING)
    assert (kind, document.status, document.attempt, document.ended) == ("status", Status.RUNNING, 1, False)


def test_a_start_that_nobody_saw_is_told_from_the_record() -> None:
    kinds = told(JOB, COMPLETED)
    assert [(kind, one.status) for kind, one in kinds] == [("status", Status.RUNNING), ("status", Status.COMPLETED)]
    assert kinds[0][1].at == LATER
    assert not kinds[0][1].ended
    assert [one.status for _, one in told(RUNNING, COMPLETED)] == [Status.COMPLETED]


def test_progress_is_told_by_itself() -> None:
    progress = Progress(40, "half", "sampling", LATER, {"service": "comfyui"})
    [(kind, document)] = told(RUNNING, replace(RUNNING, progress=progress))
    assert kind == "progress"
    assert plain(document) == {
        "job_id": str(JOB.id),
        "status": "running",
        "attempt": 1,
        "progress": 40,
        "message": "half",
        "current_step": "sampling",
        "estimated_completion": "2026-01-31T08:00:05Z",
        "connector_details": {"service": "comfyui"},
    }


def test_attempts_that_others_follow_are_told_as_retries() -> None:
    attempts = tuple(
        Attempt(number=n, epoch=n, outcome=Outcome.FAILED, finished_at=LATER, error=ErrorInfo("E", str(n)), retry_at=at)
        for n, at in ((1, LATER), (2, LATER), (3, None))
    )
    failed = replace(COMPLETED, status=Status.FAILED, reason=Reason.RETRIES_EXHAUSTED, attempt=3, rev=9)
    found = told(RUNNING, failed, History(attempts))
    assert [(kind, one.attempt) for kind, one in found] == [("retry", 1), ("retry", 2), ("status", 3)]
    assert found[0][1].error == ErrorInfo("E", "1")


def test_a_job_that_fell_due_is_queued_since_then() -> None:
    assert status_of(replace(JOB, arrived_at=LATER)).at == LATER
    assert status_of(JOB).at == NOW


@pytest.mark.parametrize(
    ("job", "kind"),
    [(COMPLETED, "result"), (replace(COMPLETED, status=Status.FAILED, error=ErrorInfo("E", "m")), "error")],
)
def test_an_end_is_told_with_what_it_came_to(job: Job, kind: str) -> None:
    end = end_of(job)
    assert end is not None
    assert end[0] == kind
    whole = plain(ended_as(job))
    assert whole["ended"] is True
    assert whole["result"] == ([1] if kind == "result" else None)
    assert (whole["error"] is None) is (kind == "result")


def test_a_cancelled_job_came_to_nothing() -> None:
    cancelled = replace(JOB, status=Status.CANCELLED, rev=2)
    assert end_of(cancelled) is None
    assert plain(ended_as(cancelled))["result"] is None


def test_entries_are_told_as_they_were_kept() -> None:
    line = log_of(Entry(Kind.LOG, 1, 2, '["WARNING","app","slow"]', NOW))
    assert (line.level, line.logger, line.message, line.attempt, line.number) == ("WARNING", "app", "slow", 1, 2)
    assert plain(item_of(Entry(Kind.ITEM, 1, 3, '{"a":1}', NOW)))["value"] == {"a": 1}
    assert plain(item_of(Entry(Kind.ITEM, 2, 0, "null", NOW))) == {
        "attempt": 2,
        "number": 0,
        "at": "2026-01-31T08:00:00Z",
        "restarted": True,
    }
