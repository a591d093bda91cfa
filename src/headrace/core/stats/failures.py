"""Fingerprints, by which equal errors are recognised, and the groups of jobs that failed alike.

A fingerprint is made of the task, the type of the error, and the place in the user's code: the function and the name of
its file. It survives a deploy. Line numbers and the folders of a release do not, so neither is in it. Nor is the
message, because it names customers, files and numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from uuid import UUID

import msgspec

from headrace.core.attempt import ErrorInfo
from headrace.core.codec.record import Record
from headrace.core.job import Job
from headrace.core.status import Status

__all__ = ["FINGERPRINT_DIGITS", "UNDONE", "FailureGroup", "fingerprint", "group_of", "grouped", "place_of", "seen_at"]

FINGERPRINT_DIGITS = 12
"""Hexadecimal digits of a fingerprint: short enough to be typed, long enough for a million kinds of errors."""

_FRAME = re.compile(r'^[\s|+-]*File "(?P<file>.+)", line \d+(?:, in (?P<function>.+))?$', re.MULTILINE)
_HEAD = re.compile(r"^[\s|+-]*(?:Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE)
_FOREIGN = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]"
    r"|[/\\]lib(?:64)?[/\\](?:python|pypy)3(?:\.\d+)?[/\\]"
    r"|[/\\]python\d*[/\\]lib[/\\]"
    r"|[/\\]src[/\\]headrace[/\\]"
    r"|^<frozen ",
    re.IGNORECASE,
)
"""Files of installed packages, of Python, and of headrace where it runs from its sources. By their names alone: the
fingerprint of an error must be the same on every machine."""


def fingerprint(task: str, error: ErrorInfo | None) -> str | None:
    """Return the fingerprint of the error of a job of this task; None: there is no error."""
    if error is None:
        return None
    text = "\0".join((task, error.type, place_of(error) or ""))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:FINGERPRINT_DIGITS]


def place_of(error: ErrorInfo) -> str | None:
    """Return the place in the user's code, as ``file.py:function``; None without a traceback.

    It is the innermost frame that belongs neither to headrace nor to Python nor to an installed package; if all do, the
    innermost one. For an error that was raised while another was handled, it is the place of the last one.
    """
    if error.traceback is None:
        return None
    for part in reversed(_HEAD.split(error.traceback)):
        frames = [(found["file"], found["function"]) for found in _FRAME.finditer(part)]
        if frames:
            file, function = next((one for one in reversed(frames) if _is_the_users(one[0])), frames[-1])
            name = re.split(r"[/\\]", file)[-1]
            return f"{name}:{function}" if function else name
    return None


def _is_the_users(file: str) -> bool:
    return not _FOREIGN.search(file)


class FailureGroup(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Jobs with the same fingerprint of their last error."""

    fingerprint: str | None
    """None: jobs that failed before fingerprints were kept, grouped by task and type."""
    task: str
    type: str
    place: str | None
    """Where in the user's code, as ``file.py:function``; of the newest job."""
    message: str
    """Of the newest job."""
    jobs: int
    failed: int
    """How many of them have ended ``failed``; the others are to be tried again, or were cancelled."""
    first_seen: datetime
    """When the first of these jobs last failed; actions on it since do not count."""
    last_seen: datetime
    example: UUID
    """The newest job."""


def seen_at(job: Job) -> datetime:
    """Return when the error of a job happened; for a job of an earlier version: its end, or its last change."""
    return job.failed_at or job.finished_at or job.updated_at


def group_key(job: Job) -> tuple[str | None, str, str] | None:
    """Return what the jobs of a group share; None for a job that is in none."""
    if job.error is None:
        return None
    if job.fingerprint is not None:
        return job.fingerprint, "", ""
    return (None, job.task, job.error.type) if job.status in _WITHOUT else None


UNDONE = frozenset({Status.FAILED, Status.CANCELLED})
"""Ended, and perhaps with an error."""
_WITHOUT = UNDONE | {Status.RETRYING}
"""Statuses in which jobs with an error and no fingerprint are grouped: earlier versions stored none."""


def group_of(newest: Job, jobs: int, failed: int, first_seen: datetime, last_seen: datetime) -> FailureGroup:
    """Return the group with this newest job."""
    error = newest.error or ErrorInfo("", "")
    return FailureGroup(
        fingerprint=newest.fingerprint,
        task=newest.task,
        type=error.type,
        place=place_of(error),
        message=error.message,
        jobs=jobs,
        failed=failed,
        first_seen=first_seen,
        last_seen=last_seen,
        example=newest.id,
    )


def grouped(jobs: Iterable[Job], limit: int, among: int | None = None) -> list[FailureGroup]:
    """Return the groups of these jobs, the largest first, then by their newest job; an engine's search must agree with
    it.

    ``among``: of the failed and the cancelled, only so many that ended last are counted.
    """
    groups: dict[tuple[str | None, str, str], list[Job]] = {}
    for job in jobs if among is None else _latest(jobs, among):
        key = group_key(job)
        if key is not None:
            groups.setdefault(key, []).append(job)
    ordered = sorted(groups.values(), key=lambda found: (-len(found), -max(job.seq for job in found)))
    return [_group(found) for found in ordered[:limit]]


def _latest(jobs: Iterable[Job], among: int) -> Iterator[Job]:
    """Yield the live jobs, and the last of those that ended so that they may have an error."""
    ended = list[Job]()
    for job in jobs:
        if job.status in UNDONE:
            ended.append(job)
        else:
            yield job
    yield from sorted(ended, key=lambda job: (job.finished_at or job.updated_at, job.seq), reverse=True)[:among]


def _group(found: Sequence[Job]) -> FailureGroup:
    moments = [seen_at(job) for job in found]
    failed = sum(job.status is Status.FAILED for job in found)
    newest = max(found, key=lambda job: job.seq)
    return group_of(newest, len(found), failed, min(moments), max(moments))
