"""What the examples of operations are about: one job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from headrace.core.job import Job, Spec
from headrace.core.status import Status

__all__ = ["AT", "ID", "JOB", "PATH"]

_BEGIN = datetime(2026, 11, 16, 17, 30, tzinfo=UTC)
_END = _BEGIN + timedelta(seconds=1)

ID = "019a8dce-1740-7d05-9c8e-2f6b8f0e4a11"
AT = "2026-11-16T17:30:01Z"
PATH = {"id": ID}
"""Of the job."""

JOB: dict[str, Any] = Job(
    id=UUID(ID),
    spec=Spec(task="resize", created_at=_BEGIN, queue="images", priority=75, tags=("pictures",)),
    payload_text='{"image": "cat.png", "width": 320}',
    result_text='{"image": "cat-320.png"}',
    status=Status.COMPLETED,
    available_at=_BEGIN,
    arrived_at=_BEGIN,
    updated_at=_END,
    rev=3,
    epoch=1,
    attempt=1,
    charged=1,
    started_at=_BEGIN,
    first_started_at=_BEGIN,
    finished_at=_END,
).to_dict()
"""A job on the wire."""
