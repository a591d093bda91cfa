"""Jobs that changes insert: stored with them without regard to limits; what is left out is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from headrace.core.change import Change, LeftOut
from headrace.core.job import Job
from headrace.core.webhooks.delivery import unchained
from headrace.engine import InsertAnswer, Refused
from headrace.engine.transactions import Statement, Statements
from headrace.engines.sql.encoding import encode

__all__ = ["Lost", "storing_inserts"]

Lost = dict[UUID, tuple[LeftOut, ...]]
"""What was left out, by the id of the job that was changed."""


def storing_inserts(
    changes: Sequence[Change], insert: Callable[[Sequence[Job]], Statements[list[InsertAnswer]]], record: str
) -> Statements[Lost]:
    """Store what these applied changes insert; ``record``: the statement that stores events of jobs."""
    pairs = [(change, job) for change in changes for job in change.inserts]
    answers = yield from insert([job for _, job in pairs])
    lost = [(*pair, answer.error) for pair, answer in zip(pairs, answers, strict=True) if isinstance(answer, Refused)]
    if not lost:
        return {}
    anew = dict[UUID, Job]()
    for _, job, _ in lost:
        # A delivery is refused if the one that it waits for is gone; and so are those that wait for it.
        if (one := job if anew.keys() & job.spec.after else unchained(job)) is not None:
            anew[job.id] = one
    if anew:
        again = yield from insert(list(anew.values()))
        stored = {id for id, answer in zip(anew, again, strict=True) if not isinstance(answer, Refused)}
        lost = [one for one in lost if one[1].id not in stored]
    found, events = Lost(), list[tuple[int, str]]()
    for change, job, why in lost:
        left = LeftOut.of(job, why)
        found[change.job.id] = (*found.get(change.job.id, ()), left)
        events.append((change.job.seq, encode(left.event(change.job.updated_at))))
    if events:
        yield Statement(record, encode(events))
    return found
