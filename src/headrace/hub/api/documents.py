"""Documents that several operations share: jobs, lists, warnings, and the job of the examples."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from headrace.client.api.known_names import strange_name
from headrace.core.defaults import MAX_COUNT, MAX_NAME_CHARACTERS
from headrace.core.job import Job, Spec, document_fields, raw_json
from headrace.core.query import Page
from headrace.core.status import Status
from headrace.http.problems import Problem

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.api.limit_settings import Named

__all__ = [
    "AT",
    "ID",
    "JOB",
    "PATH",
    "Amount",
    "JobPage",
    "JobView",
    "Listed",
    "Name",
    "job_view",
    "no_such",
    "page_view",
    "warnings_about",
]


_FIELDS = document_fields()

if TYPE_CHECKING:

    class JobView(msgspec.Struct, frozen=True):
        """A job: the fields that ``Job.to_dict`` returns, in the same order."""

else:
    JobView = msgspec.defstruct(
        "Job",
        _FIELDS,
        frozen=True,
        namespace={"__doc__": "One durable submission of a task, as it stands."},
        module=__name__,
    )


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs, and where the next ones begin."""

    items: tuple[JobView, ...]
    cursor: str | None
    """Pass it for the next page; null at the end."""


_NOW = ("queue", "priority")
"""Fields of the spec that may have changed since: the job has their current values."""


def _place(name: str) -> str:
    return f"spec.{name}" if name in Spec.__struct_fields__ and name not in _NOW else name


_RAW = {"payload", "result"}
"""These are stored as JSON text, which is sent as it is."""

_values = attrgetter(*(_place(name) if name not in _RAW else f"{name}_text" for name, _ in _FIELDS))
_PAYLOAD, _RESULT = ([name for name, _ in _FIELDS].index(name) for name in ("payload", "result"))


def job_view(job: Job) -> JobView:
    """Return a job for the wire: the JSON of ``job.to_dict()``, without decoding and encoding its texts."""
    values = list(_values(job))
    values[_PAYLOAD] = raw_json(job.payload_text)
    values[_RESULT] = None if job.result_text is None else raw_json(job.result_text)
    return JobView(*values)


def page_view(page: Page[Job]) -> JobPage:
    """Return a page of jobs for the wire."""
    return JobPage(job_views(page.items), page.cursor)


def job_views(jobs: Iterable[Job]) -> tuple[JobView, ...]:
    """Return jobs for the wire."""
    return tuple(map(job_view, jobs))


_BEGIN = datetime(2026, 11, 16, 17, 30, tzinfo=UTC)
_END = _BEGIN + timedelta(seconds=1)

ID = "019a8dce-1740-7d05-9c8e-2f6b8f0e4a11"
AT = "2026-11-16T17:30:01Z"
PATH = {"id": ID}
"""Path parameters of the example job."""

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
"""An example of a job."""

T = TypeVar("T")


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """All entries."""

    items: tuple[T, ...]


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
"""The name of a queue, a task, a rate or a schedule."""
Amount = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
"""How many at once, or in a span of time."""


async def warnings_about(app: App, of: Named, name: str, rates: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return warnings about possible typing errors: an unknown name, and undefined rates."""
    strange = await strange_name(app, of, name)
    undefined = await app.rates.undefined() if rates else {}
    named = [f"{undefined[rate]}: it limits nothing until it is set" for rate in rates if rate in undefined]
    return (*([strange] if strange else ()), *named)


def no_such(what: str, detail: str) -> Problem:
    """Return the problem for an unknown name."""
    return Problem(404, "not-found", f"There is no such {what}", detail)
