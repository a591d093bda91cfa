"""Entity tags of jobs: whether a client has a job as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.core.job import Job

__all__ = ["etag", "is_known", "tagged"]

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def etag(job: Job) -> str:
    """What differs whenever the job does, as it is shown."""
    return f'"{job.rev}.{job.updated_at.timestamp() * 1e6:.0f}.{job.status}"'


def is_known(if_none_match: Iterable[str], job: Job) -> bool:
    """Whether the client has the job as it is: ``If-None-Match`` names its tag, as a strong or a weak one."""
    given = ",".join(if_none_match)
    return given.strip() == "*" or etag(job) in _TAG.findall(given)


def tagged(job: Job) -> dict[str, str]:
    """The headers of an answer that shows the job."""
    return {"ETag": etag(job), "Cache-Control": "private, no-cache"}
