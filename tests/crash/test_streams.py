"""Worker processes are killed in the middle of streams and behind steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.status import Outcome
from tests.crash.app import app, counts, pays_once
from tests.support.crew import crew
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


async def test_a_reader_of_a_stream_whose_workers_are_killed_misses_and_doubles_nothing(
    url: str, tmp_path: Path
) -> None:
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            workers.hire()
            # However slow the reader is, the worker to be killed is not done by then, nor does the next one get far.
            gates = {1300: tmp_path / "first", 2300: tmp_path / "second"}
            job = await counts.submit(4000, {number: str(gate) for number, gate in gates.items()})
            seen, kills = list[int](), 0
            async for item in job.stream().items():
                assert not item.restarted
                seen.append(item.value)
                if item.number >= 1000 * (kills + 1) and kills < 2:
                    workers.kill(workers.members[-1])
                    [*gates.values()][kills].touch()
                    kills += 1
                    workers.hire()
            assert seen == list(range(1, 4001))
            assert kills == 2
            assert await job.result(timeout=60) == 4000
            outcomes = [one.outcome for one in (await app.jobs.history(job.id)).attempts]
            assert outcomes[-1] is Outcome.COMPLETED
            assert outcomes.count(Outcome.LOST) >= 2


async def test_a_step_that_was_kept_is_not_run_again_after_its_worker_was_killed(url: str, tmp_path: Path) -> None:
    gate, note = tmp_path / "go", tmp_path / "note"
    with app.override(url=url), crew(url, tmp_path) as workers:
        async with app:
            first = workers.hire()
            job = await pays_once.submit(str(gate), str(note))
            await until(lambda: note.exists() and "stepped" in note.read_text(), within=90)
            workers.kill(first)
            workers.hire()
            await until(lambda: note.read_text().count("stepped") == 2, within=90)
            gate.touch()
            assert await job.result(timeout=60) == first.pid
            assert note.read_text().split().count("paid") == 1
