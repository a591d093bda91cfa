"""Documents that several operations share: jobs as they are on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from headrace.core.job import Job, Spec, document_fields, raw_json
from headrace.core.query import Page

__all__ = ["JobPage", "JobView", "job_view", "job_views", "page_view"]

_FIELDS = document_fields()

if TYPE_CHECKING:

    class JobView(msgspec.Struct, frozen=True):
        """A job: the fields that ``Job.to_dict`` gives, in the same order."""

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
    """Pass it on for the next page; null at the end."""


_NOW = ("queue", "priority")
"""Fields of the spec that may have been changed since: the job says how they are now."""


def _place(name: str) -> str:
    return f"spec.{name}" if name in Spec.__struct_fields__ and name not in _NOW else name


_RAW = {"payload", "result"}
"""These are stored as JSON text, which goes out as it is."""

_values = attrgetter(*(_place(name) if name not in _RAW else f"{name}_text" for name, _ in _FIELDS))
_PAYLOAD, _RESULT = ([name for name, _ in _FIELDS].index(name) for name in ("payload", "result"))


def job_view(job: Job) -> JobView:
    """A job as it is on the wire: the JSON of ``job.to_dict()``, without reading and writing its texts anew."""
    values = list(_values(job))
    values[_PAYLOAD] = raw_json(job.payload_text)
    values[_RESULT] = None if job.result_text is None else raw_json(job.result_text)
    return JobView(*values)


def page_view(page: Page[Job]) -> JobPage:
    """A page of jobs as it is on the wire."""
    return JobPage(job_views(page.items), page.cursor)


def job_views(jobs: Iterable[Job]) -> tuple[JobView, ...]:
    """Jobs as they are on the wire."""
    return tuple(map(job_view, jobs))
