"""Workers that are gone: what is on record of them, its pages, and its removal."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab, Part
from headrace.core.job import Job
from headrace.core.lifecycle.departure import MAX_LOST_IDS, Departure, How
from headrace.engine import Beat, GoneWorker, Renewed, WorkerRow
from headrace.errors import ConfigError

__all__ = ["GoneWorkers"]


async def _departed(lab: Lab, seconds: float = 0.0) -> UUID:
    """Register a worker and let it go, so many seconds from now."""
    worker = await lab.worker()
    await lab.engine.workers.retire(worker, departure=Departure(at=lab.at(seconds)))
    return worker


async def _ids(lab: Lab, limit: int = 50) -> list[UUID]:
    """Read all pages of so many."""
    found, cursor = list[UUID](), None
    while True:
        page = await lab.engine.workers.find_gone(limit, cursor)
        assert len(page.items) <= limit
        found += [one.row.info.id for one in page.items]
        if (cursor := page.cursor) is None:
            return found


def _expected(row: WorkerRow, departure: Departure, held: list[Job]) -> GoneWorker:
    return _shown(GoneWorker.of(row, departure, held))


def _shown(gone: GoneWorker) -> GoneWorker:
    """Return what every engine stores: which jobs the last beat named may be left out."""
    return replace(gone, row=replace(gone.row, beat=replace(gone.row.beat, held=())))


class GoneWorkers(Part):
    """What ``bury`` and ``retire`` leave on record, and how it is read and removed."""

    @pytest.mark.parametrize("end", ["bury", "retire"])
    async def test_the_record_is_what_the_core_makes_of_the_worker_and_its_jobs(self, lab: Lab, end: str) -> None:
        worker, other = await lab.worker(tasks=("a",), name="näme"), await lab.worker()
        held = [await lab.running(worker, "a"), await lab.held(worker, "b")]
        await lab.running(other, "c")
        beat = Beat(done=3, busy=1, renewed=Renewed(concurrency=3, tasks=("b",)))
        await lab.engine.workers.beat(worker, beat, lab.later(1))
        row = next(one for one in await lab.engine.workers.list() if one.info.id == worker)
        departure = Departure(at=lab.later(40), how=How.CUT_OFF, by=other, silent=40.25)
        if end == "bury":
            assert await lab.engine.workers.bury(worker, 1, departure=departure)
        else:
            await lab.engine.workers.retire(worker, departure=departure)
        found = await lab.engine.workers.get_gone(worker)
        assert found is not None
        assert _shown(found) == _expected(row, departure, held)
        assert (found.row.info.concurrency, found.row.holds, found.lost) == (3, 2, tuple(job.id for job in held))
        assert await _ids(lab) == [worker]

    async def test_of_many_jobs_the_first_are_on_record_and_all_are_counted(self, lab: Lab) -> None:
        worker, count = await lab.worker(concurrency=2 * MAX_LOST_IDS), MAX_LOST_IDS + 3
        jobs = await lab.put_all(*(lab.job() for _ in range(count)))
        assert len(await lab.claim(worker, count)) == count
        assert await lab.engine.workers.bury(worker, 0, departure=Departure(at=lab.now, how=How.ENDED))
        found = await lab.engine.workers.get_gone(worker)
        assert found is not None
        assert (found.row.holds, found.lost) == (count, tuple(job.id for job in jobs[:MAX_LOST_IDS]))

    async def test_what_was_not_done_leaves_no_record(self, lab: Lab, worker: UUID) -> None:
        departure = Departure(at=lab.now, how=How.SILENT, silent=30.0)
        assert not await lab.engine.workers.bury(worker, 1, departure=departure)
        assert not await lab.engine.workers.bury(lab.new_id(), 0, departure=departure)
        await lab.engine.workers.retire(lab.new_id(), departure=departure)
        assert await _ids(lab) == []
        assert await lab.engine.workers.get_gone(worker) is None
        assert await lab.engine.workers.bury(worker, 0)  # as a version before this one does
        assert await _ids(lab) == []

    async def test_a_worker_goes_once(self, lab: Lab, worker: UUID) -> None:
        await lab.running(worker)  # so that it stays known
        first = Departure(at=lab.now, how=How.ENDED)
        later = Departure(at=lab.at(5), how=How.SILENT, silent=35.0)
        workers = lab.engine.workers
        answers = await asyncio.gather(*(workers.bury(worker, 0, departure=first) for _ in range(3)))
        assert sorted(answers) == [False, False, True]
        assert not await workers.bury(worker, 0, departure=later)
        await workers.retire(worker, departure=later)
        found = await workers.get_gone(worker)
        assert found is not None
        assert (found.departure, found.row.holds) == (first, 1)
        assert await _ids(lab) == [worker]

    async def test_the_last_to_go_comes_first_page_by_page(self, lab: Lab) -> None:
        moments = [0, 10, 5, 10, 10, -3, 7]
        gone = [(moment, await _departed(lab, moment)) for moment in moments]
        expected = [id for _, id in sorted(gone, reverse=True)]
        for limit in (1, 2, 3, 7, 50):
            assert await _ids(lab, limit) == expected
        page = await lab.engine.workers.find_gone(3)
        await _departed(lab, 20)
        assert [one.row.info.id for one in (await lab.engine.workers.find_gone(3, page.cursor)).items] == expected[3:6]

    async def test_a_strange_cursor_of_gone_workers_is_refused(self, lab: Lab) -> None:
        for cursor in ("", "7", "x-y", f"{'9' * 30}-{lab.new_id()}"):
            with pytest.raises(ConfigError):
                await lab.engine.workers.find_gone(5, cursor)

    async def test_records_are_removed_in_batches_the_first_to_go_first(self, lab: Lab) -> None:
        gone = [await _departed(lab, moment) for moment in (0, 1, 2, 3, 4)]
        workers = lab.engine.workers
        assert await workers.forget_gone(lab.at(-1)) == 0
        assert await workers.forget_gone(lab.at(3), 2) == 2
        assert await _ids(lab) == gone[:1:-1]
        assert await workers.forget_gone(lab.at(3), 3) == 2
        assert await workers.forget_gone(lab.at(3), 3) == 0
        assert await _ids(lab) == gone[4:]
        assert await workers.get_gone(gone[0]) is None

    async def test_the_living_and_their_jobs_do_not_see_it(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        dead = await _departed(lab)
        await lab.engine.workers.forget_gone(lab.at(1))
        assert [row.info.id for row in await lab.engine.workers.list()] == [worker]
        assert [one and one.id for one in await lab.engine.jobs.get([job.id])] == [job.id]
        assert await lab.engine.workers.get_gone(dead) is None
