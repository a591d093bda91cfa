"""Searches of stores that are too large to be gathered and sorted: here, two jobs are too many."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg
import pytest

from headrace.conformance.lab import Choices, Lab
from headrace.conformance.records.finding import agrees, populate, wish
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.query import Filter
from headrace.core.status import ENDED
from headrace.engine import Engine
from headrace.engines.sql import finding
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host
from tests.support.postgres import shared
from tests.support.schemas import postgres_engine, schema_of

Make = Callable[[Path], Engine]

MAKERS: dict[str, Make] = {
    "sqlite": lambda place: SqliteEngine(place / "store.db", rules=Rules(), host=Host()),
    "postgres": lambda place: postgres_engine(Rules(), Host(), place),
}


@pytest.fixture(params=sorted(MAKERS))
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


@pytest.mark.parametrize("seed", range(2))
def test_searches_agree_with_the_core_when_there_is_much_to_look_at(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, value in (("FEW", 2), ("PEEK", 3), ("LOOK", 5), ("_ROUNDS", (1, 2)), ("BUCKET", finding.BUCKET)):
        monkeypatch.setattr(finding, name, value)

    async def main() -> None:
        lab = Lab(lambda: make(tmp_path), Host(), Rules())
        await lab.engine.open()
        try:
            choose = Choices(seed)
            jobs = await populate(lab, choose, 50)
            for _ in range(60):
                await agrees(lab, wish(lab, choose, jobs), jobs)
            lab.later(10_000_000)
            gone = await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now), 15)
            assert gone == 15
            here = {job.id for job in (await lab.engine.records.find(Filter(), lab.now, 1000)).items}
            jobs = [job for job in jobs if job.id in here]
            for _ in range(30):
                await agrees(lab, wish(lab, choose, jobs), jobs)
        finally:
            await lab.engine.close()

    asyncio.run(main())


INDEXES = ("reasons", "fingerprints", "suspects", "unlisted")
UNDO = {
    "sqlite": [
        "DELETE FROM migrations WHERE name = '0004_finding'",
        "DROP TRIGGER listed_again",
        *(f"DROP INDEX {name}" for name in INDEXES),
        "ALTER TABLE jobs DROP COLUMN created_at",
        "DROP TABLE line_blocks",
        "DROP TABLE time_blocks",
        "DELETE FROM labels WHERE label >= 'c' AND label < 'd' OR label >= 'o' AND label < 'p'",
    ],
    "postgres": [
        "DELETE FROM migrations WHERE name = '0006_finding'",
        "DROP TRIGGER listed_again ON jobs",
        "DROP FUNCTION list_again",
        *(f"DROP INDEX {name}" for name in (*INDEXES, "unlucky")),
        "ALTER TABLE bodies DROP COLUMN created_at",
        "DROP TABLE line_blocks",
        "DROP TABLE time_blocks",
        "DELETE FROM labels WHERE left(label, 1) IN ('c', 'o')",
    ],
}
"""A store as the version before leaves it."""

AS_BEFORE = {
    "sqlite": [
        "UPDATE jobs SET created_at = NULL",
        "DELETE FROM line_blocks",
        "DELETE FROM time_blocks",
        UNDO["sqlite"][-1],
    ],
    "postgres": [
        "UPDATE bodies SET created_at = NULL",
        "DELETE FROM line_blocks",
        "DELETE FROM time_blocks",
        UNDO["postgres"][-1],
    ],
}
"""Jobs as the version before stores them when the schema is the new one."""


def execute(kind: str, place: Path, statements: list[str]) -> None:
    if kind == "sqlite":
        connection = apsw.Connection(str(place / "store.db"))
        for statement in statements:
            connection.execute(statement)
        connection.close()
        return
    with psycopg.connect(shared().url(), options=f"-c search_path={schema_of(place)}") as session:
        for statement in statements:
            session.execute(statement.encode())


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_what_was_stored_before_the_migration_and_by_the_version_before_is_found(kind: str, tmp_path: Path) -> None:
    async def search(lab: Lab, jobs: list[Job], seed: int) -> None:
        choose = Choices(seed)
        for _ in range(30):
            await agrees(lab, wish(lab, choose, jobs), jobs)

    async def main() -> None:
        lab = Lab(lambda: MAKERS[kind](tmp_path), Host(), Rules())
        await lab.engine.open()
        jobs = await populate(lab, Choices(5), 40)
        await lab.engine.close()
        execute(kind, tmp_path, UNDO[kind])
        lab.engine = lab.make()
        assert await lab.engine.migrate() == ["0004_finding" if kind == "sqlite" else "0006_finding"]
        await lab.engine.open()
        try:
            await search(lab, jobs, 6)
            lab.later(1)
            more = await lab.put_all(*(lab.job("abc"[n % 3], customer="ann", rerun_of=jobs[0].id) for n in range(5)))
            await search(lab, [*jobs, *more], 7)
            execute(kind, tmp_path, AS_BEFORE[kind])
            await search(lab, [*jobs, *more], 8)
        finally:
            await lab.engine.close()

    asyncio.run(main())
