"""Jobs on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from headrace import Retry
from headrace.core.attempt import ErrorInfo, Progress
from headrace.core.codec.record import schema_of
from headrace.core.job import Job, Spec
from headrace.core.query import Page
from headrace.core.status import Reason, Status
from headrace.hub.api.documents import JobView, job_view, page_view

NOW = datetime(2026, 11, 16, 17, 30, tzinfo=UTC)
QUEUED = Job(
    id=UUID(int=1),
    spec=Spec(task="resize", created_at=NOW, tags=("a",), metadata={"x": 1}, retry=Retry(2, backoff=[1, 2])),
    payload_text='{"image":"é","big":123456789012345678901234567890}',
    status=Status.QUEUED,
    available_at=NOW,
    arrived_at=NOW,
    updated_at=NOW,
)
FAILED = replace(
    QUEUED,
    status=Status.FAILED,
    reason=Reason.RETRIES_EXHAUSTED,
    started_at=NOW,
    finished_at=NOW + timedelta(seconds=1),
    progress=Progress(50.0, "half"),
    error=ErrorInfo("ValueError", "bad"),
    moved_to="slow",
    reprioritised_to=99,
)


@pytest.mark.parametrize(
    "job", [QUEUED, FAILED, replace(QUEUED, status=Status.COMPLETED, result_text='{"ok":[1,2.5,null]}')]
)
def test_a_job_on_the_wire_is_what_to_dict_gives(job: Job) -> None:
    assert msgspec.json.decode(msgspec.json.encode(job_view(job))) == job.to_dict()
    assert list(msgspec.json.decode(msgspec.json.encode(job_view(job)))) == list(job.to_dict())


def test_its_schema_is_that_of_the_record() -> None:
    assert schema_of(JobView)["properties"] == Job._json_schema()["properties"]


def test_a_page_is_items_and_a_cursor() -> None:
    page = Page((QUEUED, FAILED), "next")
    assert msgspec.json.decode(msgspec.json.encode(page_view(page))) == page.to_dict()
