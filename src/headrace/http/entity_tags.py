"""Entity tags of jobs, by which a client finds out whether its copy of a job is current."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headrace.core.job import Job
from headrace.core.words import HEADRACE, Vocabulary

__all__ = ["etag", "is_known", "tagged"]

_TAG = re.compile(r'(?:W/)?("[^"]*")')


def etag(job: Job, words: Vocabulary | None = None) -> str:
    """Return a tag that differs whenever the job differs, as clients see it in these words."""
    shown_in = "" if words is None or words is HEADRACE else f".{words.name}"
    return f'"{job.rev}.{job.updated_at.timestamp() * 1e6:.0f}.{job.status}{shown_in}"'


def is_known(if_none_match: Iterable[str], job: Job, words: Vocabulary | None = None) -> bool:
    """Return whether the client's copy is current: ``If-None-Match`` names the job's tag, as a strong or a weak one."""
    given = ",".join(if_none_match)
    return given.strip() == "*" or etag(job, words) in _TAG.findall(given)


def tagged(job: Job, words: Vocabulary | None = None) -> dict[str, str]:
    """Return the headers of a response that shows the job."""
    return {"ETag": etag(job, words), "Cache-Control": "private, no-cache"}
