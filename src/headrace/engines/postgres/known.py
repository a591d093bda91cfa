"""Find which new jobs are stored already, by their ids and by their dedup keys; the keys are locked first."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from headrace.core.job import Job
from headrace.engine.statements import Statement, Statements
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.drivers import Waiting
from headrace.engines.postgres.rows import RECORD_TYPE, Reader, held_key, key_lock
from headrace.engines.sql.record import encode, key_of

__all__ = ["lock_keys", "look"]

_bools = msgspec.json.Decoder(list[bool]).decode
_known = msgspec.json.Decoder(list[tuple[str | None, RECORD_TYPE]]).decode


def lock_keys(schema: str, jobs: Sequence[Job], *, wait: bool) -> Statements[set[UUID]]:
    """Lock the dedup keys until the transaction ends; the ids of the jobs whose keys another has locked."""
    numbers = {job.id: key_lock(schema, job) for job in jobs if job.spec.dedup is not None}
    order = sorted(set(numbers.values()))  # the same for everybody, so that there is no deadlock
    if not order:
        return set()
    trying, document = sql("try_keys", schema), encode(order)
    held = _bools((yield Waiting(sql("lock_keys", schema), document, trying) if wait else Statement(trying, document)))
    free = {number for number, ours in zip(order, held, strict=True) if ours}
    return {id for id, number in numbers.items() if number not in free}


def look(schema: str, jobs: Sequence[Job]) -> Statements[tuple[dict[UUID, Job], list[UUID], dict[str, UUID]]]:
    """The jobs that are stored already, by id or key; which of these ids are stored; and which job has each key."""
    keys = [key for job in jobs if (key := held_key(job)) is not None]
    document = encode({"ids": [job.id for job in jobs], "keys": keys})
    reader, known, here, holders = Reader(), dict[UUID, Job](), list[UUID](), dict[str, UUID]()
    for by, record in _known((yield Statement(sql("known", schema), document))):
        job = reader.job(record)
        known[job.id] = job
        if by is None:
            here.append(job.id)
        elif (key := key_of(job)) is not None:
            holders[key] = job.id
    return known, here, holders
