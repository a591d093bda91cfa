"""What workers cost the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from headrace.conformance.lab import Lab
from headrace.core.lifecycle.departure import Departure
from headrace.engine import Beat
from headrace.engines.sqlite import SqliteEngine


@contextmanager
def counted(engine: SqliteEngine) -> Iterator[list[int]]:
    """Count the statements that the engine runs, and the steps of SQLite's machine that they take."""
    total = [0, 0]

    def add(event: dict[str, Any]) -> None:
        total[0] += 1
        total[1] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connections = [thread._begun[0] for thread in engine._threads if thread._begun is not None]
    for one in connections:
        one.trace_v2(apsw.SQLITE_TRACE_PROFILE, add)
    try:
        yield total
    finally:
        for one in connections:
            one.trace_v2(0, None)


async def cost(lab: Lab) -> list[int]:
    """What a round of a worker and of the sweeper takes."""
    assert isinstance(lab.engine, SqliteEngine)
    worker = await lab.worker()
    await lab.insert(lab.job())
    with counted(lab.engine) as total:
        [job] = await lab.claim(worker)
        await lab.engine.workers.beat(worker, Beat(held=(job.id,)), lab.now)
        await lab.engine.workers.list()
        await lab.engine.jobs.overdue(lab.now)
    await lab.finish(await lab.start(job))
    await lab.engine.workers.retire(worker, departure=Departure(at=lab.now))
    return list(total)


async def test_claims_beats_and_sweeps_cost_the_same_however_many_workers_are_gone(lab: Lab) -> None:
    few = [await cost(lab) for _ in range(4)]
    for _ in range(200):
        await lab.engine.workers.retire(await lab.worker(), departure=Departure(at=lab.at(60)))
    many = [await cost(lab) for _ in range(4)]
    assert min(few[1]) > 0
    assert many[1:] == few[1:]  # the first round also prepares statements, or removes rows
