"""A search through all jobs keeps nobody waiting who only asks for one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.core.query import Filter
from headrace.engines.sql.search.dialect import Asking
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host


async def test_a_slow_search_keeps_no_get_waiting(tmp_path: Path) -> None:
    host = Host()
    engine = SqliteEngine(tmp_path / "jobs.db", rules=Rules(), host=host)
    await engine.open()
    gate = threading.Event()

    def slow(connection: apsw.Connection) -> None:
        gate.wait(45)

    try:
        searching = asyncio.create_task(engine._searcher.run(slow))
        behind = asyncio.create_task(engine.records.find(Filter(), host.clock.now()))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await engine.jobs.get([host.dice.new_id(host.clock.now())]) == [None]
        assert not behind.done()
        gate.set()
        await searching
        assert (await behind).items == ()
    finally:
        gate.set()
        await engine.close()


async def test_a_search_that_is_given_up_ends_and_the_next_one_sees_what_was_written_since(tmp_path: Path) -> None:
    host = Host()
    lab = Lab(lambda: SqliteEngine(tmp_path / "jobs.db", rules=Rules(), host=host), host, Rules())
    engine = lab.engine
    assert isinstance(engine, SqliteEngine)
    await engine.open()
    begun, gate, asked = threading.Event(), threading.Event(), list[int]()

    def endless() -> Asking[None]:
        while True:
            yield "SELECT count(*) FROM jobs", []
            asked.append(1)
            begun.set()
            gate.wait(45)

    try:
        searching = asyncio.create_task(engine.records._finder.answer(endless))
        assert await asyncio.to_thread(begun.wait, 45)
        searching.cancel()
        await asyncio.wait([searching])
        job = await lab.put()
        gate.set()
        async with asyncio.timeout(30):
            assert (await engine.records.find(Filter(), lab.now)).items == (job,)
        assert asked == [1]
    finally:
        gate.set()
        await engine.close()
