"""One job that kills every worker that calls it, among others that do not: what becomes of all of them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace import App, Retry
from headrace.client.handle import JobHandle
from headrace.core.job import Job
from headrace.core.status import Reason, Status
from tests.support.crew import Crew
from tests.support.invariants import check_store
from tests.support.until import until

RETRIES = {
    "fixed": Retry(3, backoff="fixed", initial=0.3, jitter=False),
    "default": Retry(),
    "one": Retry(1, backoff="fixed", initial=0.3, jitter=False),
}


async def outlive(
    app: App, workers: Crew, poison: JobHandle[Any], innocents: Sequence[UUID], *, flags: Sequence[str], within: float
) -> Job:
    """Wait until all jobs have ended, with a new worker for each that died; none but the poison failed. The poison."""
    replaced: list[subprocess.Popen[bytes]] = []

    async def ended() -> bool:
        for dead in [one for one in workers.members if one.poll() is not None and one not in replaced]:
            replaced.append(dead)
            workers.hire(*flags)
        statuses = (await app.stats.counts()).statuses
        failed, done = statuses.get(Status.FAILED, 0), statuses.get(Status.COMPLETED, 0)
        assert failed <= 1, f"{failed - 1} of {len(innocents)} died of their neighbour"
        return failed + done == 1 + len(innocents)

    await until(ended, within=within, what="all jobs ended")
    histories = await check_store(app.session.engine)
    for id in innocents:
        assert (await app.jobs.get(id)).status is Status.COMPLETED, histories[id]
    job = await app.jobs.get(poison.id)
    assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.LOST, job.max_attempts)
    return job


def calls(note: Path) -> int:
    """How often the poison was called."""
    return note.read_text().count("called\n") if note.exists() else 0
