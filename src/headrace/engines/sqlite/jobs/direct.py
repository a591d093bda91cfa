"""A lone job, stored on the thread of its submitter: no other thread is woken, and none wakes this one."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from headrace.core.job import Job
from headrace.engine import Inserted
from headrace.engines.sqlite.jobs.insert import Insertion, LoneInsertion, is_one
from headrace.engines.sqlite.jobs.role import Jobs
from headrace.engines.sqlite.store.thread import DbThread
from headrace.engines.validation import refuse_jobs

__all__ = ["Direct"]


class Direct:
    """The role ``direct`` of one session; it uses the connection of the writer while that is idle."""

    def __init__(self, writer: DbThread, jobs: Jobs) -> None:
        self._writer, self._jobs = writer, jobs

    def insert(self, job: Job, now: datetime) -> Inserted | None:
        alone = is_one(job)
        if not alone:
            if job.spec.dedup is not None or job.spec.request_key is not None:
                return None
            refuse_jobs((job,))
        known = self._jobs.subqueues.recall(job)
        if known is None:
            return None
        subqueue, collected = known
        if alone:
            seq = self._writer.run_at_once(LoneInsertion(job, subqueue, collected, self._jobs.numbers).write_new)
        else:
            insertion = Insertion([job], [subqueue], collected)
            seq = self._writer.run_at_once(insertion.write_new) if insertion.is_plain else None
        return Inserted(replace(job, seq=seq)) if seq else None
