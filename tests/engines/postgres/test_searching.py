"""Searching: by index where there is one, whatever is asked for."""

from __future__ import annotations

import itertools
from typing import Any

import asyncpg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.job import ErrorInfo
from headrace.core.outcome import Failed
from headrace.core.query import Filter, matches
from headrace.core.status import Reason, Status
from headrace.engines.postgres.pool import COLD, Pool
from headrace.engines.postgres.records import Records
from tests.support.postgres import shared

QUESTIONS: dict[str, list[Any]] = {
    "status": [frozenset(), frozenset({Status.QUEUED}), frozenset({Status.CANCELLED, Status.SCHEDULED})],
    "task": [None, "work"],
    "queue": [None, "b"],
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
        Filter(task=strange),
        Filter(queue=strange),
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


class Explained(Pool):
    """Explains what it is asked."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        super().__init__("", size=1, settings=COLD, pgbouncer=False)
        self.alone = connection
        self.plan = ""

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        self.plan = "\n".join(row[0] for row in await self.alone.fetch(f"EXPLAIN {text}", *args))
        return []


async def test_a_rare_tag_is_found_by_its_index(lab: Lab, schema: str) -> None:
    await lab.put(tags=("rare",))
    for _ in range(5):
        await lab.put_all(*(lab.job(tags=("common",)) for _ in range(1000)))
    connection = await asyncpg.connect(shared().url(), server_settings=COLD)
    await connection.execute(f"ANALYZE {schema}.jobs, {schema}.bodies, {schema}.labels")
    explained = Explained(connection)
    records = Records(explained, explained, schema)
    for wanted in (
        Filter(tag="rare"),
        Filter(schedule="rare"),
        Filter(tag="rare", text="x"),
        Filter(tag="rare", queue="b"),
    ):
        await records.find(wanted, lab.now)
        assert "labelled" in explained.plan, explained.plan
        assert "Seq Scan on jobs" not in explained.plan, explained.plan
        assert "jobs_pkey" in explained.plan, explained.plan
    await connection.close()
