"""The schemas that PostgreSQL tests are given: of their own, and like new also if other tests had them before."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.conformance import Lab
from headrace.core.defaults import Rules
from headrace.runtime.host import Host
from tests.support.servers import schemas
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import MODEL, postgres_engine, schema_of


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place whose schema was used, and is the only one to be lent again."""
    monkeypatch.setattr(schemas, "_kept", [])
    place = tmp_path / "used"
    asyncio.run(_use(place))
    return place


async def _use(place: Path) -> None:
    rules, host = Rules(), Host()
    lab = Lab(lambda: postgres_engine(rules, host, place), host, rules)
    await lab.engine.open()
    await lab.put_all(*(lab.job(payload=f'{{"text": "{os.urandom(3000).hex()}"}}') for _ in range(50)))  # many pages
    await lab.finish(await lab.running(await lab.worker(), "other"))
    await lab.engine.documents.put_setting("queue:default", '{"paused": true}', 0)
    await lab.engine.close()


def _there(schema: str) -> bool:
    return shared().execute(f"SELECT to_regnamespace('{schema}') IS NOT NULL") == [(True,)]


def _contents(schema: str) -> dict[str, list[tuple[Any, ...]]]:
    """What is in all tables and sequences."""
    relations = shared().execute(
        "SELECT relname::text, CASE relkind WHEN 'S' THEN 'last_value, is_called' ELSE '*' END FROM pg_class"
        f" WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'S') AND relname <> 'migrations'"
    )
    return {name: shared().execute(f"SELECT {columns} FROM {schema}.{name}") for name, columns in relations}


def test_a_schema_given_back_is_lent_again_and_like_new(used: Path, tmp_path: Path) -> None:
    before = _contents(schema_of(used))
    schemas.give_back(used)
    new = tmp_path / "new"
    postgres_engine(Rules(), Host(), new)
    assert not _there(schema_of(used))
    assert _contents(schema_of(new)) == _contents(MODEL)
    assert {len(before["jobs"]), len(before["settings"])} == {51, 1}  # there was something to remove
    asyncio.run(_use(new))
    assert {name: len(rows) for name, rows in _contents(schema_of(new)).items()} == {
        name: len(rows) for name, rows in before.items()
    }


def test_the_schema_of_a_place_stays_its_own_until_it_is_given_back(used: Path, tmp_path: Path) -> None:
    before = _contents(schema_of(used))
    postgres_engine(Rules(), Host(), used)
    postgres_engine(Rules(), Host(), tmp_path / "new")
    schemas.give_back(used)
    postgres_engine(Rules(), Host(), used)  # before anybody else
    assert _contents(schema_of(used)) == before
    assert not _there(schema_of(tmp_path / "new"))


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE {schema}.mine (x int)",
        "ALTER TABLE {schema}.jobs ADD x int",
        "DROP INDEX {schema}.ready",
        "ANALYZE {schema}.jobs",
        "DELETE FROM {schema}.migrations",
        "DROP SCHEMA {schema} CASCADE",
    ],
)
def test_a_schema_that_a_test_changed_is_not_lent_again(change: str, used: Path, tmp_path: Path) -> None:
    shared().execute(change.format(schema=schema_of(used)))
    schemas.give_back(used)
    postgres_engine(Rules(), Host(), tmp_path / "new")
    assert not _there(schema_of(tmp_path / "new"))
    asyncio.run(_use(tmp_path / "new"))  # it is made as every other


def test_a_schema_is_not_lent_while_somebody_may_write_to_it(used: Path, tmp_path: Path) -> None:
    schemas.give_back(used)
    with psycopg.connect(shared().url()) as late:  # its transaction is open
        late.execute(f"INSERT INTO {schema_of(used)}.gates VALUES ('late')")
        postgres_engine(Rules(), Host(), tmp_path / "one")
        assert not _there(schema_of(tmp_path / "one"))
    postgres_engine(Rules(), Host(), tmp_path / "two")
    assert _contents(schema_of(tmp_path / "two")) == _contents(MODEL)
