"""Several processes on one file: nothing is lost, nothing is done twice, nobody is told that the file is locked."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from uuid import UUID

import apsw
import pytest

from headrace.conformance.lab import Lab
from headrace.core.defaults import Rules
from headrace.engines.sqlite import SqliteEngine
from headrace.runtime.host import Host

pytestmark = pytest.mark.timeout(240)

ROOT = Path(__file__).parents[3]


async def child(*words: object) -> Process:
    command = (sys.executable, "-m", "tests.support.programs.sqlite_child", *map(str, words))
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, cwd=ROOT)


async def said(process: Process) -> list[str]:
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().split()


async def test_an_empty_file_may_be_opened_by_many_at_once(file: Path) -> None:
    children = [await child("open", file) for _ in range(4)]
    assert [await said(process) for process in children] == [["open"]] * 4
    connection = apsw.Connection(str(file))
    assert connection.execute("SELECT count(*) FROM books").get == 1
    connection.close()


async def test_what_many_insert_and_many_claim_is_done_once_each(lab: Lab, file: Path) -> None:
    inserters = [await child("insert", file, 300, batch) for batch in (1, 7)]
    drainers = [await child("drain", file, 600) for _ in range(2)]
    inserted = [id for process in inserters for id in await said(process)]
    done = [id for process in drainers for id in await said(process)]
    assert len(inserted) == 600
    assert sorted(done) == sorted(inserted)
    ledger = await lab.engine.records.ledger()
    assert (ledger.accepted, ledger.ended, ledger.unaccounted) == (600, 600, 0)
    history = await lab.engine.records.history(UUID(done[0]))
    assert [attempt.count for attempt in history.attempts] == [1]


async def test_of_one_request_sent_by_many_at_once_comes_one_job(lab: Lab, file: Path) -> None:
    senders = [await child("request", file, 25) for _ in range(2)]
    answered = [id for process in senders for id in await said(process)]
    assert len(answered) == 50
    assert len(set(answered)) == 1
    assert (await lab.engine.records.ledger()).accepted == 1


@pytest.mark.parametrize("after", [1, 60, 250])
async def test_a_killed_process_leaves_every_acknowledged_job(file: Path, after: int) -> None:
    process = await child("insert", file, 100_000, 5)
    assert process.stdout is not None
    acknowledged = [UUID((await process.stdout.readline()).decode().strip()) for _ in range(after)]
    process.kill()
    rest, _ = await process.communicate()
    # The last line may have been cut off in the middle.
    acknowledged += [UUID(line) for line in rest.decode().split("\n")[:-1]]
    engine = SqliteEngine(file, rules=Rules(), host=Host())
    await engine.open()
    for at in range(0, len(acknowledged), 1000):
        assert None not in await engine.jobs.get(acknowledged[at : at + 1000])
    levels = {check.name: check.level for check in await engine.check(Host().clock.now())}
    await engine.close()
    assert (levels["integrity"], levels["ledger"]) == ("ok", "ok")
