"""A budget is a budget: handlers that kill their worker are called as often as it says, whenever they do it."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from headrace.client.handle import JobHandle
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Reason, Status
from tests.crash import dying
from tests.crash.dying import app
from tests.support.crew import Crew, crew
from tests.support.invariants import check_store
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]

MOMENTS = {
    "at once": dying.at_once,
    "after progress": dying.after_progress,
    "while the start is written": dying.while_written,
    "after a second": dying.after_a_second,
    "after a snooze": dying.after_a_snooze,
}
RETRIES = {"sqlite": (0, 1, 3), "postgresql": (1,)}
"""On every store the same law, which is the core's: one of them is asked for all of it."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh store."""
    return schemas.url_of(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


def calls(note: Path) -> int:
    """How often the handler that keeps this note was called."""
    return note.read_text().count("called\n") if note.exists() else 0


async def end(ids: list[UUID], workers: Crew) -> None:
    """Wait until all of these have ended, with a new worker for each that died."""

    async def ended() -> bool:
        for dead in [one for one in workers.members if one.poll() is not None]:
            if dead not in replaced:
                replaced.append(dead)
                workers.hire("--concurrency", "2")
        return all([(await app.jobs.get(id)).ended for id in ids])

    replaced = [one for one in workers.members if one.poll() is not None]
    await until(ended, within=240, what="all jobs ended")


async def test_handlers_that_kill_their_worker_are_called_as_often_as_their_budget_says(
    url: str, tmp_path: Path
) -> None:
    with app.override(url=url), crew(url, tmp_path, "tests.crash.dying:app") as workers:
        async with app:
            jobs: dict[Path, tuple[int, JobHandle[None]]] = {}
            for moment, task in MOMENTS.items():
                for retries in RETRIES[url.split(":")[0]]:
                    note = tmp_path / f"{moment} {retries}"
                    chosen = task.options(retry=Retry(retries, backoff="fixed", initial=0.05))
                    jobs[note] = retries, await chosen.submit(str(note))
            for _ in range(3):
                workers.hire("--concurrency", "2")
            ids = [handle.id for _, handle in jobs.values()]
            await end(ids, workers)
            for note, (retries, handle) in jobs.items():
                job = await app.jobs.get(handle.id)
                assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.LOST, retries + 1), note.name
                # Not at least: a neighbour may kill the process between the start on record and the call.
                # Once the start may not be on record, once more if several workers died at the same time, and once a
                # suspect beside it may be blamed.
                most = retries + 1 + 3 * (retries > 0) + note.name.startswith("after a snooze")
                assert calls(note) <= most, note.name
            # With a new budget nothing is unrecorded any more.
            ends = ("at once 1", "after a snooze 1")
            again = {note: calls(note) for note in jobs if note.name in ends}
            for note in again:
                await app.jobs.handle(jobs[note][1].id).retry()
            await end([jobs[note][1].id for note in again], workers)
            for note, before in again.items():
                spared = (await app.jobs.get(jobs[note][1].id)).spared
                assert calls(note) - before <= 2 + spared, f"{note.name}, after a retry by hand"
            await check_store(app.session.engine)


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_alone_in_its_worker_it_is_called_exactly_as_often(retries: int, tmp_path: Path) -> None:
    url, note = f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path / "calls"
    with app.override(url=url), crew(url, tmp_path, "tests.crash.dying:app") as workers:
        async with app:
            chosen = dying.at_once.options(retry=Retry(retries, backoff="fixed", initial=0.05))
            handle = await chosen.submit(str(note))
            workers.hire("--concurrency", "2")
            await end([handle.id], workers)
            assert calls(note) == retries + 1 + (retries > 0), "its budget, and the one that was not recorded"
            job = await app.jobs.get(handle.id)
            assert (job.reason, job.charged) == (Reason.LOST, retries + 1)
