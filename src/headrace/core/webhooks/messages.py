"""Messages of webhooks, by number: which of a job's recorded messages are missing."""

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
    """Return the ranges of numbers of messages to a target that are missing and cannot have been pruned.

    ``made_at``: when the job was made; ``sent``: the existing messages by number, with when they were made, if known. A
    missing one was made after the existing one before it.
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
    """Yield those of all jobs of a store that recorded messages which are missing, and which ones."""
    everybody = list(jobs)
    sent: dict[tuple[str, ...], dict[int | None, datetime | None]] = {}
    for job in everybody:
        if job.task == TASK and len(job.tags) > 1:
            numbers, number = sent.setdefault(job.tags[:2], {}), _number(job.metadata.get(NUMBER))
            # When a message that is sent again was first made is not known.
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
    """Return the number of a message, by its metadata; 0: there is a value that is no number."""
    return None if said is None else said if type(said) is int else 0
