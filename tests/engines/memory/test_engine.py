"""What only a memory store promises; the rest is the conformance suite."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from headrace.core.defaults import Rules
from headrace.engine.bus import Hint, Topic
from headrace.engines.memory import MemoryEngine
from headrace.errors import NotOpen
from headrace.runtime.host import Host
from tests.core.stand import submitted

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def engine() -> MemoryEngine:
    return MemoryEngine(Rules(), Host())


async def test_a_session_must_be_open() -> None:
    store = engine()
    with pytest.raises(NotOpen):
        await store.records.ledger()
    await store.open()
    await store.jobs.insert([submitted()], NOW)
    await store.close()
    with pytest.raises(NotOpen):
        await store.jobs.insert([submitted()], NOW)


async def test_every_engine_has_a_store_of_its_own() -> None:
    one, other = engine(), engine()
    await one.open()
    await other.open()
    await one.jobs.insert([submitted()], NOW)
    assert (await other.records.ledger()).accepted == 0


async def test_a_check_says_that_jobs_end_with_the_process() -> None:
    store = engine()
    await store.open()
    checks = await store.check(NOW)
    assert [check.level for check in checks] == ["warn", "ok"]
    assert checks[0].remedy


def test_a_hint_for_a_loop_that_is_gone_hurts_nobody() -> None:
    store = engine()
    asyncio.run(store.open())  # and never closed
    other = store.another_session()

    async def send() -> list[Hint]:
        heard: list[Hint] = []
        await other.open()
        other.bus.listen(frozenset({Topic.READY}), heard.append)
        other.bus.send(Hint(Topic.READY, ("q",)))
        await asyncio.sleep(0)
        await other.close()
        return heard

    assert asyncio.run(send()) == [Hint(Topic.READY, ("q",))]
