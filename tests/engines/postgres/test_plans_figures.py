"""Plans of figures: how long jobs take, and the six metrics, cost the same however many jobs have ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from headrace.client.api.recent_metrics import RecentMetrics
from headrace.client.api.stats import running_times
from headrace.client.session import Session
from headrace.conformance.lab import Lab
from headrace.engines.postgres.store.connection import Connection
from headrace.engines.postgres.store.pool import SEARCH, Pool
from headrace.engines.sql.encoding import micros
from tests.support.servers.postgres import shared

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("plans")]

ENDED_JOBS = 150_000
MAX_PROBED_JOBS = 5000
"""What a search reads at most to find out whether a condition leaves few jobs."""
FULL = frozenset({"jobs", "bodies", "attempts", "rollups"})
"""Tables that grow with history."""

FILL = """
INSERT INTO {schema}.jobs (
  seq, id, arrived_at, available_at, updated_at, finished_at, worker, subqueue, rev, epoch, unstarted_losses, unnamed,
  rank, stage, status, state)
SELECT n, gen_random_uuid(), {at} + n, {at} + n, {at}, {at} + n, NULL, 1 + n % 3, 1, 0, 0, 0, -50, 4, 'completed', NULL
FROM generate_series({first}, {first} + {rows} - 1) n;
INSERT INTO {schema}.bodies (seq, id, payload, spec, created_at)
SELECT seq, id, '{{}}', '{{"task": "work"}}', arrived_at FROM {schema}.jobs
WHERE seq >= {first} AND seq < {first} + {rows};
INSERT INTO {schema}.rollups (step, at, task, queue, data)
SELECT 86400, {at} - n * 86400000000, 'work', 'q' || n % 3, '{{}}' FROM generate_series(30, 30 + {rows} / 100) n
"""


class Watched:
    """A connection that keeps the statements that are made on it."""

    def __init__(self, real: Any, made: list[tuple[str, tuple[Any, ...]]]) -> None:
        self._real, self._made = real, made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def fetch(self, text: str, *args: Any, **options: Any) -> Any:
        self._made.append((text, args))
        return await self._real.fetch(text, *args, **options)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """The statements that engines make, with their values."""
    found = list[tuple[str, tuple[Any, ...]]]()
    fetch, snapshot = Pool.fetch, Pool.snapshot

    async def watched(self: Pool, text: str, *args: Any, **options: Any) -> Any:
        found.append((text, args))
        return await fetch(self, text, *args, **options)

    @asynccontextmanager
    async def watching(self: Pool) -> AsyncIterator[Any]:
        async with snapshot(self) as connection:
            yield Watched(connection, found)

    monkeypatch.setattr(Pool, "fetch", watched)
    monkeypatch.setattr(Pool, "snapshot", watching)
    return found


def steps(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(step for inner in plan.get("Plans", []) for step in steps(inner))]


async def pages(connection: Connection, made: list[tuple[str, tuple[Any, ...]]]) -> int:
    """How many pages these statements touch; none reads much of a table of history."""
    touched = 0
    for text, args in made:
        (found,) = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", *args)
        plan = json.loads(found[0])[0]["Plan"]
        whole = [step for step in steps(plan) if step["Node Type"] == "Seq Scan" and step["Relation Name"] in FULL]
        assert sum(step["Actual Rows"] for step in whole) < MAX_PROBED_JOBS, (text, whole)
        touched += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    made.clear()
    return touched


async def test_figures_cost_the_same_however_many_jobs_have_ended(
    lab: Lab, schema: str, made: list[tuple[str, tuple[Any, ...]]]
) -> None:
    await lab.put_all(*(lab.job(f"task{at}", queue=f"q{at}") for at in range(3)))
    clock = SimpleNamespace(now=lambda: lab.now, monotonic=lambda: 1.0)
    session = cast(Session, SimpleNamespace(engine=lab.engine, host=SimpleNamespace(clock=clock)))
    connection = await asyncpg.connect(shared().url(), server_settings=SEARCH)

    async def figures() -> dict[str, int]:
        made.clear()
        found = dict[str, int]()
        for name, task, queue in (("all", None, None), ("task", "task1", None), ("queue", None, "q1")):
            ran = await running_times(session, task, queue)
            assert not ran.counts, "nothing ended of late"
            found[f"running times: {name}"] = await pages(connection, made)
        await RecentMetrics(session).windows()
        found["metrics"] = await pages(connection, made)
        await lab.engine.records.count(lab.now, history=False)
        await connection.execute("SET enable_seqscan = off")  # as the engine does
        found["depth"] = await pages(connection, made)
        await connection.execute("RESET enable_seqscan")
        return found

    empty = await figures()
    at = micros(lab.now) - 3600 * 10**6
    await connection.execute(FILL.format(schema=schema, at=at, first=1000, rows=ENDED_JOBS))
    for knowledge in ("", "VACUUM ANALYZE"):
        if knowledge:
            await connection.execute(f"{knowledge} {schema}.jobs, {schema}.bodies, {schema}.rollups")
        full = await figures()
        assert full.keys() == empty.keys()
        # Deeper trees, and no more than that.
        assert all(full[name] < 1.5 * empty[name] + 50 for name in full), (knowledge, empty, full)
    await connection.close()
