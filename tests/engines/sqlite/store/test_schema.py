"""Migrations: what a new file gets is what an old one becomes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import apsw
import pytest

from headrace.conformance.lab import BEGIN
from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.store import schema as migrate
from headrace.errors import SchemaTooOld
from headrace.runtime.host import Host

LATER = (
    migrate.Migration("0998_more", "CREATE TABLE more (x INTEGER) STRICT; ALTER TABLE jobs ADD COLUMN more INTEGER"),
    migrate.Migration("0999_less", "ALTER TABLE more ADD COLUMN y INTEGER; CREATE INDEX more_y ON more (y)"),
)
"""Steps as later versions may add them."""


def schema(connection: apsw.Connection) -> set[tuple[str, str, str]]:
    """What a file holds, however its statements were spaced."""
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    return {
        (str(kind), str(name), re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", str(text)))) for kind, name, text in rows
    }


def test_names_are_numbered_in_order_and_say_what_they_do() -> None:
    names = [step.name for step in migrate.available()]
    assert names == sorted(names)
    assert all(re.fullmatch(r"[0-9]{4}_[a-z][a-z_]*", name) for name in names)


def test_a_fresh_file_is_what_a_file_becomes_that_went_through_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (*migrate.available(), *LATER)
    fresh, old = (apsw.Connection(str(tmp_path / name)) for name in ("fresh.db", "old.db"))
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "available", lambda: steps)
        migrate.apply(fresh, tmp_path / "fresh.db", BEGIN)
    for upto in range(1, len(steps) + 1):
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "available", lambda upto=upto: steps[:upto])
            assert migrate.apply(old, tmp_path / "old.db", BEGIN) == [steps[upto - 1].name]
    assert schema(fresh) == schema(old)
    assert migrate.applied(fresh) == migrate.applied(old) == [step.name for step in steps]


def test_applying_twice_does_nothing_more(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    assert migrate.apply(connection, tmp_path, BEGIN)
    before = schema(connection)
    assert migrate.apply(connection, tmp_path, BEGIN) == []
    assert schema(connection) == before


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = migrate.available()
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    migrate.apply(connection, tmp_path, BEGIN)
    before = schema(connection)
    broken = migrate.Migration("0999_broken", "CREATE TABLE fine (x INTEGER) STRICT; CREATE TABLE jobs (x)")
    monkeypatch.setattr(migrate, "available", lambda: (*steps, broken))
    with pytest.raises(apsw.SQLError):
        migrate.apply(connection, tmp_path, BEGIN)
    connection.execute("ROLLBACK")
    assert schema(connection) == before


async def test_a_plan_touches_nothing(file: Path) -> None:
    engine = SqliteEngine(file, rules=Rules(), host=Host())
    names = [step.name for step in migrate.available()]
    assert await engine.migrate(plan=True) == names
    assert await engine.migrations() == ([], names)
    assert file.name not in os.listdir(file.parent)
    assert await engine.migrate() == names
    assert await engine.migrations() == (names, [])
    assert await engine.migrate(plan=True) == []


def test_a_file_made_by_another_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    mine, other = (apsw.Connection(str(path)) for _ in range(2))
    assert migrate.is_empty(mine)
    migrate.apply(other, path, BEGIN)
    assert migrate.apply(mine, path, BEGIN) == []


async def test_a_file_of_a_version_before_the_first_release_is_refused_and_left_alone(file: Path) -> None:
    engine = SqliteEngine(file, rules=Rules(), host=Host())
    await engine.migrate()
    connection = apsw.Connection(str(file))
    connection.execute(
        "DELETE FROM migrations; INSERT INTO migrations VALUES ('0001_jobs', '', 0), ('0002_entries', '', 0)"
    )
    before = schema(connection)
    for attempt in (engine.open, engine.migrate, engine.migrations, lambda: engine.migrate(plan=True)):
        with pytest.raises(SchemaTooOld, match=r"made by a version of headrace before 0\.1\.0.*use a new store"):
            await attempt()
    assert schema(connection) == before
    assert migrate.applied(connection) == ["0001_jobs", "0002_entries"]
    connection.close()
