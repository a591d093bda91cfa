"""A worker process is killed and nobody is left to bury it: everything that shows workers says so."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.core.status import Outcome, Status
from headrace.core.times import length
from tests.crash.app import app, waits_for, work
from tests.support.crew import ROOT, crew
from tests.support.forks import run
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

LEASE = 1.5
SILENT = r"silent for \d+ (?:s|min)"
"""What is said of it, however long a busy machine takes to come to it."""
STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


class Operator:
    """Somebody at a terminal, who has set nothing but the URL."""

    def __init__(self, url: str) -> None:
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
        self._url = url

    def sees(self, *words: str, code: int = 0) -> str:
        """What a command prints."""
        done = run(*words, "--url", self._url, cwd=ROOT, env=self._env)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def reads(self, *words: str, code: int = 0) -> Any:
        """The document it prints with --json."""
        return json.loads(self.sees(*words, "--json", code=code))


async def test_a_killed_worker_is_silent_until_somebody_buries_it(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path, lease=LEASE) as workers:
        async with app:
            first = workers.hire("--concurrency", "1")
            held = await waits_for.submit(str(gate), str(note))

            async def is_running() -> bool:
                return (await app.jobs.get(held.id)).status is Status.RUNNING

            await until(is_running, within=90)
            queued = await work.submit(0.01)

            async def is_alive() -> bool:
                return [row.alive for row in await app.workers.list()] == [True]

            await until(is_alive, within=60)  # with a lease as short as this it may be late with a beat
            workers.kill(first)

            async def long_silent() -> bool:
                [row] = await app.workers.list()
                return row.silent_since is not None and (app.host.clock.now() - row.silent_since).seconds >= 3 * LEASE

            await until(long_silent, within=60)
            _shown(Operator(url), str(held.id), str(queued.id))
            [dead] = await app.workers.list()
            assert dead.silent_since == dead.beat_at

            second = workers.hire("--concurrency", "2")
            await until(lambda: len(note.read_text().splitlines()) == 2, within=90)
            [lost] = (await app.jobs.history(held.id)).attempts
            assert (lost.outcome, lost.worker) == (Outcome.LOST, dead.info.id)
            assert lost.error is not None
            assert lost.error.details is not None
            silent = (lost.finished_at - dead.beat_at).total_seconds()
            assert lost.error.details["silent_seconds"] == pytest.approx(silent, abs=0.001)
            assert lost.error.message == f"the worker is dead: it was silent for {length(silent)}"
            # Whichever is found first, with a lease as short as this.
            assert re.search(rf"is dead: (its process has ended|{SILENT}), holding 1 job", workers.said(second))
            gate.touch()
            await held.result(timeout=60)
            await queued.result(timeout=60)


def _shown(operator: Operator, held: str, queued: str) -> None:
    assert re.search(SILENT, operator.sees("workers"))
    assert re.search(rf"worker +\S+ \({SILENT}\)", operator.sees("show", held))
    [row] = operator.reads("workers")
    assert (row["alive"], row["beat"]["state"], row["silent_since"]) == (False, "silent", row["beat_at"])
    assert re.search(rf"workers +0 alive, 1 {SILENT}", operator.sees("stats"))
    stats = operator.reads("stats")
    assert (stats["workers_alive"], stats["workers_silent"], stats["silent_since"]) == (0, 1, row["beat_at"])
    findings = {check["name"]: check for check in operator.reads("doctor", code=1) if check["level"] == "fail"}
    assert "no living worker has the task 'work', and 1 job of it could run now" in findings["tasks"]["message"]
    assert "headrace worker" in findings["tasks"]["remedy"]
    text = operator.sees("doctor", code=1)
    assert re.search(rf"✗ tasks .*the last worker that had it has been {SILENT}", text)
    assert re.search(rf"! workers .*has been {SILENT}, and holds 1 job", text)
    assert re.search(rf"That worker has been {SILENT}; no other is alive", operator.sees("explain", held))
    assert "No worker is heard of any more" in operator.sees("explain", queued)
