"""Searching: by index where there is one, whatever is asked for."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import ErrorInfo, Failed
from headrace.core.query import Filter, matches
from headrace.core.status import Reason, Status
from headrace.engines.postgres.records import Finding
from headrace.engines.postgres.store.pool import SEARCH, Pool
from tests.support.servers.postgres import shared

QUESTIONS: dict[str, list[Any]] = {
    "status": [frozenset(), frozenset({Status.QUEUED}), frozenset({Status.CANCELLED, Status.SCHEDULED})],
    "task": [frozenset(), frozenset({"work"})],
    "queue": [frozenset(), frozenset({"b"})],
    "tag": [None, "red"],
    "schedule": [None, "nightly"],
    "text": [None, "NEEDLE"],
}


async def test_every_combination_finds_what_matches(lab: Lab) -> None:
    jobs = []
    for n in range(64):
        job = await lab.put(
            ("work", "other")[n % 2],
            queue="ab"[n // 2 % 2],
            tags=("red",) if n // 4 % 2 else (),
            schedule="nightly" if n // 8 % 2 else None,
            payload='{"a":"needle"}' if n // 16 % 2 else "{}",
            delay=0.0 if n < 40 else 10.0,
        )
        jobs.append(await lab.cancel(job) if n % 5 == 0 else job)
    lab.later(5)
    for values in itertools.product(*QUESTIONS.values()):
        wanted = Filter(**dict(zip(QUESTIONS, values, strict=True)))
        found = (await lab.engine.records.find(wanted, lab.now, 100)).items
        assert [job.id for job in found] == [job.id for job in reversed(jobs) if matches(job, wanted, lab.now)], wanted


@pytest.mark.parametrize("strange", ["a\0b", "\ud800"])
async def test_what_no_text_can_hold_is_not_found_and_no_error(lab: Lab, strange: str) -> None:
    await lab.put(tags=("a",), schedule="a")
    for wanted in (
        Filter(task=frozenset({strange})),
        Filter(queue=frozenset({strange})),
        Filter(tag=strange),
        Filter(schedule=strange),
        Filter(text=strange),
    ):
        assert (await lab.engine.records.find(wanted, lab.now)).items == ()
    assert await lab.engine.documents.settings(strange) == []


async def test_what_a_handler_said_may_hold_anything(lab: Lab) -> None:
    job = await lab.running(await lab.worker())
    error = ErrorInfo("Oops", "a \0 and more")
    failed = await lab.finish(job, Failed(error=error, reason=Reason.NON_RETRYABLE))
    await lab.put()
    assert [found.id for found in (await lab.engine.records.find(Filter(text="A \0"), lab.now)).items] == [failed.id]


class Explained(Finding):
    """Keeps the plans of what it is asked, and answers that there is much of everything."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], schema: str) -> None:
        super().__init__(cast(Pool, self), schema)
        self._connection, self.plans = connection, list[str]()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Explained]:
        yield self

    async def fetch(self, text: str, *args: Any) -> list[Any]:
        plan = await self._connection.fetch(f"EXPLAIN {text}", *args)
        self.plans.append("\n".join(row[0] for row in plan))
        return [] if "payload" in text else [(5000,)] if "count(*)" in text or "OFFSET" in text else [(1,), (2,)]


ID = UUID(int=1)


async def test_searches_go_by_index(lab: Lab, schema: str) -> None:
    await lab.put("rare", tags=("rare",))
    for _ in range(5):
        await lab.put_all(*(lab.job(tags=("common",)) for _ in range(1000)))
    connection = await asyncpg.connect(shared().url(), server_settings=SEARCH)
    await connection.execute(f"SET search_path = {schema}; ANALYZE jobs, bodies, labels, subqueue_blocks, time_blocks")
    for wanted, indexes in (
        (Filter(tag="rare"), {"labelled"}),
        (Filter(schedule="rare"), {"labelled"}),
        (Filter(tag="rare", text="x"), {"labelled"}),
        (Filter(tag="rare", queue=frozenset({"b"})), {"labelled"}),
        (Filter(customer=frozenset({"x"})), {"labelled"}),
        (Filter(status=frozenset({Status.FAILED})), {"unlucky"}),
        (Filter(status=frozenset({Status.WAITING})), {"unlucky"}),
        (Filter(reason=frozenset({Reason.TIMEOUT})), {"reasons", "unlucky"}),
        (Filter(fingerprint=frozenset({"x"})), {"fingerprints"}),
        (Filter(suspect=True), {"suspects"}),
        (Filter(worker=frozenset({ID})), {"held"}),
        (Filter(finished_before=lab.now), {"finished"}),
        (Filter(task=frozenset({"rare"})), {"jobs_pkey"}),
        (Filter(created_before=lab.now), {"jobs_pkey"}),
    ):
        explained = Explained(connection, schema)
        await explained.find(wanted, lab.now, 50, None)
        plans = "\n\n".join(explained.plans)
        # On an empty index another will do as well.
        assert any(index in plans for index in indexes), plans
    await connection.close()
