"""Entries of a job that somebody's transaction holds, and of one that is being taken away."""

from __future__ import annotations

import asyncio

from headrace.conformance.entries import items, of
from headrace.conformance.lab import Lab
from headrace.core.entry import Kind
from headrace.engines.postgres.entries import _TEXTS, _document
from headrace.engines.postgres.store.arrays import columns
from headrace.engines.postgres.store.connection import sql
from headrace.runtime.writes.writer import Writer
from tests.engines.postgres.conftest import Connect
from tests.engines.postgres.jobs.test_apply import lock


async def test_a_job_in_an_open_transaction_keeps_nobody_waiting(lab: Lab, schema: str, connect: Connect) -> None:
    worker = await lab.worker()
    held, free = await lab.running(worker, "held"), await lab.running(worker, "free")
    mine = await connect()
    transaction = mine.transaction()
    await transaction.start()
    await lock(mine, schema, held)
    appends = [of(held, *items(lab, 1)), of(free, *items(lab, 1))]
    assert await lab.engine.entries.append(appends, lab.now) == ["busy", "kept"]
    assert await lab.engine.entries.tail(held.id, Kind.ITEM) == []
    waiting = asyncio.create_task(Writer(lab.engine, lab.host).append(appends[0]))
    await asyncio.sleep(0)
    await transaction.rollback()
    assert await asyncio.wait_for(waiting, 45)
    assert await lab.engine.entries.tail(held.id, Kind.ITEM) == list(items(lab, 1))


async def test_a_transaction_that_ends_the_job_leaves_what_comes_after_it_out(
    lab: Lab, schema: str, connect: Connect
) -> None:
    job = await lab.running(await lab.worker())
    mine = await connect()
    transaction = mine.transaction()
    await transaction.start()
    ended = f"UPDATE {schema}.jobs SET status = 'completed', stage = 4, epoch = epoch + 1 WHERE seq = $1"
    await mine.execute(ended, job.seq)
    assert await lab.engine.entries.append([of(job, *items(lab, 1))], lab.now) == ["busy"]
    await transaction.commit()
    assert await lab.engine.entries.append([of(job, *items(lab, 1))], lab.now) == ["stale"]


async def test_who_takes_a_job_away_waits_for_an_append_under_way(lab: Lab, schema: str, connect: Connect) -> None:
    """Else the next owner's entries could be read before the last of this one's are there."""
    job = await lab.running(await lab.worker())
    appending, taking = await connect(), await connect()
    transaction = appending.transaction()
    await transaction.start()
    append = of(job, *items(lab, 1))
    rows = [(0, append.job, append.worker, append.epoch, _document(append))]
    await appending.fetch(sql("append", schema), *columns(rows, _TEXTS))
    free = await taking.fetch(f"SELECT seq FROM {schema}.jobs WHERE seq = $1 FOR NO KEY UPDATE SKIP LOCKED", job.seq)
    assert free == []
    await transaction.commit()
    free = await taking.fetch(f"SELECT seq FROM {schema}.jobs WHERE seq = $1 FOR NO KEY UPDATE SKIP LOCKED", job.seq)
    assert len(free) == 1
