"""Messages of webhooks, by number: which of those that a job has told of are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from headrace.core.defaults import DELIVERY_RETENTION
from headrace.core.job import Job
from headrace.core.webhooks.delivery import NUMBER, TASK
from headrace.core.webhooks.target import Notified

__all__ = ["lost", "missing"]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def lost(one: Notified, made_at: datetime, sent: Mapping[int, datetime | None], now: datetime) -> list[tuple[int, int]]:
    """The numbers of messages to a target that are missing, from one to another, and cannot have been pruned.

    ``made_at``: when the job was made; ``sent``: by number the messages that are there, with when they were made, as
    far as that is known. One that is missing was made after the one before it that is there.
    """
    oldest, found = now - DELIVERY_RETENTION, list[tuple[int, int]]()
    at, number = made_at, 0
    for following in (*sorted(number for number in sent if 0 < number <= one.count), one.count + 1):
        is_last = following > one.count
        if following > number + 1 and (at > oldest or (is_last and one.at > oldest)):
            found.append((number + 1, following - 1))
        number, at = following, sent.get(following) or _LONG_AGO
    return found


def missing(jobs: Iterable[Job], now: datetime) -> Iterator[tuple[Job, str]]:
    """Those of all jobs of a store that have told of messages which are missing, and which these are."""
    everybody = list(jobs)
    sent: dict[tuple[str, ...], dict[int | None, datetime | None]] = {}
    for job in everybody:
        if job.task == TASK and len(job.tags) > 1:
            numbers, number = sent.setdefault(job.tags[:2], {}), _number(job.metadata.get(NUMBER))
            # Of one that is sent again it is not known when it was first made.
            numbers[number] = numbers.get(number) or (None if job.rerun_of is not None else job.created_at)
    for job in everybody:
        for one in job.told or ():
            there = sent.get((one.target, str(job.id)), {})
            if None in there:  # of a version that did not count them
                continue
            numbered = {number: at for number, at in there.items() if number is not None}
            for first, last in lost(one, job.created_at, numbered, now):
                many = f"of {one.count} messages to {one.target}, {last - first + 1} are missing"
                yield job, f"{many}, from number {first} on"


def _number(said: object) -> int | None:
    """The number of a message, by its metadata; 0: of none, since what is there is no number."""
    return None if said is None else said if type(said) is int else 0
