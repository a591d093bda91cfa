"""The store stands still for longer than a lease: nobody is buried, nothing is charged, everything goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.status import Outcome, Status
from tests.crash.app import app, waits_for, work
from tests.support.crew import crew
from tests.support.invariants import check_store
from tests.support.until import until

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("freeze")]

FROZEN = 40.0

_HOLD_THE_LOCK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(30000)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


async def test_a_store_frozen_for_forty_seconds_buries_nobody_and_charges_nothing(tmp_path: Path) -> None:
    file, gate, note = tmp_path / "jobs.db", tmp_path / "go", tmp_path / "runs"
    url = f"sqlite:///{file}"
    # Beats and leases as everybody has them: 10 s and 30 s.
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            for _ in range(2):
                workers.hire("--concurrency", "10")
            running = [await waits_for.submit(str(gate), str(note)) for _ in range(6)]
            await until(lambda: note.exists() and len(note.read_text().splitlines()) == 6)
            others = await work.map([(1.0,) for _ in range(40)])
            await until(lambda: _some_running(), within=30)
            names = {row.info.id for row in await app.workers()}
            assert len(names) == 2
            holder = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _HOLD_THE_LOCK, str(file), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            try:
                assert holder.stdout is not None
                await holder.stdout.readline()
                late = asyncio.create_task(work.submit(0.0))  # accepted only once the store moves again
                frozen = asyncio.get_running_loop().time()
                gate.touch()  # handlers end while nothing can be stored
                await until(lambda: asyncio.get_running_loop().time() - frozen > FROZEN, within=FROZEN + 10)
            finally:
                await holder.communicate(b"")
            late_result = await asyncio.gather(late, return_exceptions=True)
            for handle in (*running, *others):
                await handle.result(timeout=60)
            rows = await app.workers()
            assert {row.info.id for row in rows if row.alive} == names
            assert not any("declared dead" in workers.said(member) for member in workers.members)
            histories = await check_store(app.engine)
            outcomes = {one.outcome for history in histories.values() for one in history.attempts}
            assert outcomes == {Outcome.COMPLETED}
            assert {(await app.get(handle.id)).charged for handle in (*running, *others)} == {1}
            # A submit that waited too long was told so, and by its id it can be seen whether it was stored.
            if isinstance(late_result[0], BaseException):
                assert type(late_result[0]).__name__ == "Unavailable"


async def _some_running() -> bool:
    return (await app.stats()).statuses.get(Status.RUNNING, 0) > 6
