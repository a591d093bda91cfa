"""Checks: a sound database is said to be sound, and each ill has its finding."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.engine import Check
from headrace.engines.postgres import PostgresEngine
from headrace.engines.postgres.store import checks
from headrace.engines.postgres.store import schema as migrate
from headrace.engines.sql.schema import Migration
from headrace.errors import Unavailable
from headrace.runtime.host import Host
from tests.engines.postgres.conftest import Connect
from tests.support.servers.postgres import Server, shared


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with the settings it comes with, but few connections."""
    server = Server.start(tmp_path, max_connections="12")
    yield server
    server.stop()


async def findings(engine: PostgresEngine, later: float = 0.0) -> dict[str, Check]:
    found = await engine.check(Host().clock.now() + timedelta(seconds=later))
    assert all(one.remedy for one in found if one.level != "ok")
    return {one.name: one for one in found}


async def test_all_is_well(server: Server) -> None:
    engine = PostgresEngine(server.url(server.create_database()), rules=Rules(), host=Host())
    await engine.open()
    found = await findings(engine)
    await engine.close()
    assert set(found) >= {"server", "schema", "durability", "clock", "transactions", "vacuum", "connections", "ledger"}
    assert {one.level for one in found.values()} == {"ok"}
    assert server.version in found["server"].message


async def test_a_schema_that_is_not_there_yet_is_not_made_by_looking(server: Server) -> None:
    engine = PostgresEngine(server.url(server.create_database()), rules=Rules(), host=Host())
    assert (await findings(engine))["schema"].level == "warn"
    assert not await engine.exists()


async def test_an_old_schema_is_told_with_the_command(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PostgresEngine(server.url(server.create_database()), rules=Rules(), host=Host())
    await engine.migrate()
    known = migrate.available()
    monkeypatch.setattr(migrate, "available", lambda: (*known, Migration("9999_later", "")))
    found = await findings(engine)
    assert (found["schema"].level, "headrace migrate" in str(found["schema"].remedy)) == ("fail", True)


async def test_less_durable_writes_are_told(lab: Lab) -> None:
    assert isinstance(lab.engine, PostgresEngine)
    [(fsync,)] = shared().execute("SHOW fsync")
    assert (await findings(lab.engine))["durability"].level == ("ok" if fsync == "on" else "warn")


async def test_jobs_that_are_unaccounted_for_are_told(lab: Lab, schema: str, connect: Connect) -> None:
    assert isinstance(lab.engine, PostgresEngine)
    await lab.put()
    assert (await findings(lab.engine))["ledger"].level == "ok"
    await (await connect()).execute(f"INSERT INTO {schema}.ledger VALUES (5, 0)")
    assert (await findings(lab.engine))["ledger"].level == "fail"


async def test_a_clock_that_is_off_is_told(lab: Lab) -> None:
    assert isinstance(lab.engine, PostgresEngine)
    assert (await findings(lab.engine))["clock"].level == "ok"
    assert (await findings(lab.engine, later=60))["clock"].level == "warn"


async def test_a_transaction_open_for_long_is_told_with_its_process(
    lab: Lab, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(lab.engine, PostgresEngine)
    monkeypatch.setattr(checks, "_OLD_TRANSACTION_SECONDS", 0.0)
    user = await connect()
    async with user.transaction(isolation="repeatable_read"):
        await user.execute("SELECT 1")
        found = (await findings(lab.engine))["transactions"]
        assert found.level == "warn"
        assert "pg_terminate_backend" in str(found.remedy)


async def test_a_server_about_to_run_out_of_connections_is_told(server: Server) -> None:
    database = server.create_database()
    engine = PostgresEngine(server.url(database), rules=Rules(), host=Host())
    await engine.open()
    taken = [await asyncpg.connect(server.url(database)) for _ in range(11)]
    assert (await findings(engine))["connections"].level == "warn"
    for connection in taken:
        await connection.close()
    await engine.close()


async def test_a_server_without_a_connection_left_is_refused_for_now_and_recovers(server: Server) -> None:
    database = server.create_database()
    engine = PostgresEngine(server.url(database), rules=Rules(), host=Host())
    await engine.open()
    taken = [await asyncpg.connect(server.url(database)) for _ in range(12)]
    with pytest.raises(Unavailable, match=r"too many clients|for now|out of reach") as caught:
        await engine.records.ledger()
    assert caught.value.outcome == "refused"
    for connection in taken:
        await connection.close()
    assert (await engine.records.ledger()).accepted == 0
    await engine.close()
