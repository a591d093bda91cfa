"""Checks: a sound file is said to be sound, and each ill has its finding."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host


async def levels(lab: Lab) -> dict[str, str]:
    return {check.name: check.level for check in await lab.engine.check(lab.now)}


async def test_all_is_well(lab: Lab) -> None:
    await lab.put()
    found = await levels(lab)
    assert set(found) >= {"library", "schema", "journal", "synchronous", "integrity", "disk", "log", "ledger"}
    assert set(found.values()) == {"ok"}
    [synchronous] = [check.message for check in await lab.engine.check(lab.now) if check.name == "synchronous"]
    assert synchronous.startswith("FULL")


async def test_jobs_that_are_unaccounted_for_are_told(lab: Lab) -> None:
    assert isinstance(lab.engine, SqliteEngine)
    await lab.engine._writer.run(lambda connection: connection.execute("UPDATE books SET accepted = 5").get)
    assert (await levels(lab))["ledger"] == "fail"


async def test_less_durable_writes_are_told(file: Path) -> None:
    engine = SqliteEngine(file, rules=Rules(), host=Host(), synchronous="normal")
    await engine.open()
    found = {check.name: check for check in await engine.check(Host().clock.now())}
    await engine.close()
    assert found["synchronous"].level == "warn"
    assert found["synchronous"].message.startswith("NORMAL")
    assert found["synchronous"].remedy


async def test_a_file_that_is_not_there_yet_is_not_made_by_looking(file: Path) -> None:
    engine = SqliteEngine(file, rules=Rules(), host=Host())
    (found,) = await engine.check(Host().clock.now())
    assert found.level == "warn"
    assert file.name not in os.listdir(file.parent)
