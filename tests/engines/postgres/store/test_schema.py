"""Migrations: what a new schema gets is what an old one becomes; made once, and never changed unasked."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner, Result

from headrace import App
from headrace.cli.root import cli
from headrace.conformance.lab import BEGIN
from headrace.core.defaults import Rules
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store import schema as migrate
from headrace.engines.postgres.store.connection import Connection
from headrace.engines.sql.schema import Migration
from headrace.errors import ConfigError, SchemaTooNew, SchemaTooOld
from headrace.runtime.host import Host
from tests.support.servers.postgres import apart, shared

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[4]
NAMES = [step.name for step in migrate.available()]

STEPS = (
    *migrate.available(),
    Migration("9001_more", "CREATE TABLE {schema}.more (x int); ALTER TABLE {schema}.jobs ADD more int"),
    Migration("9002_less", "ALTER TABLE {schema}.more ADD y int; CREATE INDEX more_y ON {schema}.more (y)"),
)
"""With steps as later versions may add them."""
LATER = [step.name for step in STEPS]

CATALOGS = {
    "relations": """
        SELECT c.relname::text, c.relkind::text, c.relpersistence::text, coalesce(c.reloptions::text, '')
        FROM pg_class c WHERE c.relnamespace = $1::regnamespace""",
    "columns": """
        SELECT c.relname::text, a.attnum, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull,
          a.attidentity::text, a.attgenerated::text, coalesce(a.attcollation::regcollation::text, ''),
          coalesce(pg_get_expr(d.adbin, d.adrelid), '')
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = $1::regnamespace AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind <> 'i'""",
    "indexes": """
        SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname::text = $1::text""",
    "constraints": """
        SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
        FROM pg_constraint WHERE connamespace = $1::regnamespace""",
    "views": """
        SELECT viewname::text, definition FROM pg_views WHERE schemaname::text = $1::text""",
    "sequences": """
        SELECT sequencename::text, data_type::text, start_value, increment_by, cycle, coalesce(last_value, 0)
        FROM pg_sequences WHERE schemaname::text = $1::text""",
    "triggers and rules": """
        SELECT tgname::text, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = $1::regnamespace""",
    "functions": """
        SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = $1::regnamespace""",
}


async def catalog(connection: Connection, schema: str) -> dict[str, list[str]]:
    """All the server knows of a schema, without its name."""
    found = {}
    for name, text in CATALOGS.items():
        rows = await connection.fetch(text, schema)
        found[name] = sorted(repr(tuple(row)).replace(schema, "HERE") for row in rows)
    return found


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    """A connection to an empty database."""
    connection = await asyncpg.connect(shared().url(shared().create_database()))
    yield connection
    connection.terminate()


def url_of(connection: Connection, **query: str) -> str:
    return shared().url(_database(connection), **query)


def _database(connection: Connection) -> str:
    return str(connection._params.database)  # type: ignore[attr-defined]  # not told otherwise without a question


def engine_of(connection: Connection, *, migrate: bool = False) -> PostgresEngine:
    return PostgresEngine(url_of(connection), rules=Rules(), host=Host(), migrate=migrate)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of a later version, which knows ``STEPS``."""
    monkeypatch.setattr(migrate, "available", lambda: STEPS)


async def make_old(connection: Connection, upto: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that an earlier version has made."""
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "available", lambda: STEPS[:upto])
        assert await migrate.apply(connection, '"headrace"', BEGIN) == LATER[:upto]


def test_names_are_numbered_in_order_and_say_what_they_do() -> None:
    assert sorted(NAMES) == NAMES
    assert all(re.fullmatch(r"[0-9]{4}_[a-z][a-z_]*", name) for name in NAMES)


@pytest.mark.usefixtures("later")
async def test_a_fresh_schema_is_what_a_schema_becomes_that_went_through_every_step(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await migrate.apply(connection, '"fresh"', BEGIN) == LATER
    for upto in range(1, len(STEPS) + 1):
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "available", lambda upto=upto: STEPS[:upto])
            assert await migrate.apply(connection, '"aged"', BEGIN) == [LATER[upto - 1]]
    fresh, aged = await catalog(connection, "fresh"), await catalog(connection, "aged")
    assert fresh == aged
    assert all(fresh[kind] for kind in ("relations", "columns", "indexes", "constraints", "views", "sequences"))
    assert await migrate.applied(connection, '"fresh"') == await migrate.applied(connection, '"aged"') == LATER


async def test_opening_makes_the_schema_in_an_empty_database(connection: Connection) -> None:
    engine = engine_of(connection)
    assert not await engine.exists()
    await engine.open()
    await engine.close()
    assert await engine.exists()
    assert await engine.migrations() == (NAMES, [])


async def test_opening_makes_the_schema_where_an_empty_one_was_prepared(connection: Connection) -> None:
    await connection.execute("CREATE SCHEMA headrace")
    engine = engine_of(connection)
    await engine.open()
    await engine.close()
    assert await engine.migrations() == (NAMES, [])


_OPEN = """
import asyncio, sys, time
from pathlib import Path
from headrace import App

app = App(sys.argv[1])

async def main():
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.001)
    async with app:
        print((await app.stats.counts()).ledger.accepted)

asyncio.run(main())
"""


@pytest.mark.parametrize("schema", ["headrace", "prepared"])
async def test_an_empty_database_opened_by_many_processes_at_once_is_made_once(
    connection: Connection, tmp_path: Path, schema: str
) -> None:
    await connection.execute("CREATE SCHEMA prepared")
    go = tmp_path / "go"
    command = (sys.executable, "-c", _OPEN, url_of(connection, schema=schema), str(go))
    children = [await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, cwd=ROOT) for _ in range(6)]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    go.touch()
    told = [await child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * 6, told
    assert [out for out, _ in told] == [b"0\n"] * 6
    rows = await connection.fetch(f"SELECT name FROM {schema}.migrations ORDER BY name")
    assert [row[0] for row in rows] == NAMES
    assert await connection.fetchval(f"SELECT count(*) FROM {schema}.books") == 1


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("upto", range(1, len(LATER)))
async def test_an_older_schema_is_refused_with_the_remedy_and_left_alone(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, upto: int
) -> None:
    await make_old(connection, upto, monkeypatch)
    before = await catalog(connection, "headrace")
    with pytest.raises(SchemaTooOld, match=f"{LATER[upto]}.*headrace migrate"):
        await engine_of(connection).open()
    with pytest.raises(SchemaTooOld):
        async with App(url_of(connection)):
            pass
    assert await catalog(connection, "headrace") == before
    assert await engine_of(connection).migrations() == (LATER[:upto], LATER[upto:])


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("upto", range(len(LATER)))
async def test_whoever_asks_for_it_has_it_migrated_at_the_opening(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, upto: int
) -> None:
    if upto:
        await make_old(connection, upto, monkeypatch)
    async with App(url_of(connection, migrate="auto")) as app:
        assert (await app.stats.counts()).statuses == {}
    await migrate.apply(connection, '"other"', BEGIN)
    assert await catalog(connection, "headrace") == await catalog(connection, "other")


@pytest.mark.usefixtures("later")
async def test_many_processes_that_may_migrate_do_so_once(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_old(connection, 1, monkeypatch)
    engines = [engine_of(connection, migrate=True) for _ in range(5)]
    await asyncio.gather(*(engine.open() for engine in engines))
    for engine in engines:
        await engine.close()
    assert await migrate.applied(connection, '"headrace"') == LATER


async def test_a_newer_schema_is_refused(connection: Connection) -> None:
    engine = engine_of(connection)
    await engine.open()
    await engine.close()
    await connection.execute("INSERT INTO headrace.migrations VALUES ('9999_later', '', 0)")
    for attempt in (engine.open, engine.migrate, engine_of(connection, migrate=True).open):
        with pytest.raises(SchemaTooNew, match=r"9999_later.*upgrade"):
            await attempt()


async def test_a_schema_of_a_version_before_the_first_release_is_refused_and_left_alone(connection: Connection) -> None:
    engine = engine_of(connection)
    await engine.migrate()
    await connection.execute("DELETE FROM headrace.migrations")
    await connection.execute("INSERT INTO headrace.migrations VALUES ('0001_jobs', '', 0), ('0002_overview', '', 0)")
    before = await catalog(connection, "headrace")
    attempts = (engine.open, engine.migrate, engine.migrations, engine_of(connection, migrate=True).open)
    for attempt in attempts:
        with pytest.raises(SchemaTooOld, match=r"made by a version of headrace before 0\.1\.0.*use a new store"):
            await attempt()
    assert await catalog(connection, "headrace") == before
    assert await migrate.applied(connection, '"headrace"') == ["0001_jobs", "0002_overview"]


async def test_the_schema_of_somebody_else_is_refused_and_left_alone(connection: Connection) -> None:
    await connection.execute("CREATE SCHEMA headrace; CREATE TABLE headrace.jobs (mine text)")
    before = await catalog(connection, "headrace")
    for attempt in (
        engine_of(connection).open,
        engine_of(connection, migrate=True).open,
        engine_of(connection).migrate,
    ):
        with pytest.raises(ConfigError, match=r"something else \(jobs\).*schema="):
            await attempt()
    assert await catalog(connection, "headrace") == before
    async with App(url_of(connection, schema="elsewhere")) as app:
        assert (await app.stats.counts()).statuses == {}


async def test_a_step_that_fails_leaves_the_schema_as_it_was(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate.apply(connection, '"headrace"', BEGIN)
    before, steps = await catalog(connection, "headrace"), migrate.available()
    broken = Migration("9999_broken", "CREATE TABLE {schema}.fine (x int); CREATE TABLE {schema}.jobs (x int)")
    monkeypatch.setattr(migrate, "available", lambda: (*steps, broken))
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate.apply(connection, '"headrace"', BEGIN)
    assert await catalog(connection, "headrace") == before
    assert await migrate.applied(connection, '"headrace"') == NAMES


async def test_two_schemas_of_one_database_know_nothing_of_each_other(connection: Connection) -> None:
    one, two = App(url_of(connection, schema="one")), App(url_of(connection, schema="Two"))
    for app in (one, two):

        @app.task
        async def add(a: int, b: int) -> int:
            return a + b

    async with one, two:
        await one.submit("add", {"a": 1, "b": 2})
        assert ((await one.stats.counts()).ledger.accepted, (await two.stats.counts()).ledger.accepted) == (1, 0)


# By command


def headrace(*words: str, code: int = 0) -> Result:
    """Type a command; on a thread of its own, because a test's loop runs on this one."""
    result = apart(lambda: CliRunner().invoke(cli, words, prog_name="headrace"))
    assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}"
    return result


@pytest.mark.usefixtures("later")
async def test_the_command_plans_without_touching_and_migrates(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    url = url_of(connection)
    assert headrace("migrate", "--plan", "--url", url).stdout.split() == LATER
    assert not await engine_of(connection).exists()
    await make_old(connection, 1, monkeypatch)
    before = await catalog(connection, "headrace")
    planned = json.loads(headrace("migrate", "--plan", "--json", "--url", url).stdout)
    assert planned == {"pending": LATER[1:]}
    assert await catalog(connection, "headrace") == before
    refused = headrace("stats", "--url", url, code=5)
    assert "headrace migrate" in refused.output
    assert headrace("migrate", "--url", url).stdout.split() == LATER[1:]
    assert "up to date" in headrace("migrate", "--url", url).output
    headrace("stats", "--url", url)


async def test_the_command_says_what_is_in_the_way(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    await connection.execute("CREATE SCHEMA headrace; CREATE TABLE headrace.mine (x int)")
    assert "something else" in headrace("migrate", "--url", url_of(connection), code=5).output
    gone = shared().url("no_such_database")
    assert "no_such_database" in headrace("migrate", "--url", gone, code=5).output


async def test_the_command_refuses_a_schema_of_a_version_before_the_first_release(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    await engine_of(connection).migrate()
    await connection.execute("UPDATE headrace.migrations SET name = '0001_jobs' WHERE name = '0001_initial'")
    for command, code in (("migrate", 5), ("stats", 5), ("doctor", 1)):
        said = headrace(command, "--url", url_of(connection), code=code).output
        assert "before 0.1.0" in said
        assert "use a new store" in said
        assert "headrace migrate" not in said, "that would not help"
