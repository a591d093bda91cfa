"""Entries: what runs add to their jobs, which runs may, and the order in which entries are read."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from headrace.conformance.jobs.contents import STRANGE
from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Failed, Released
from headrace.core.entry import Append, Entry, Kept, Kind
from headrace.core.job import Job
from headrace.core.lifecycle import loss
from headrace.core.status import Cause, Status
from headrace.engine import MAX_BATCH

__all__ = ["Entries"]


def item(lab: Lab, number: int, *, attempt: int = 1, kind: Kind = Kind.ITEM, data: str | None = None) -> Entry:
    """Return an entry; its data identifies it."""
    return Entry(kind, attempt, number, data or f'"{kind} {attempt}.{number}"', lab.now)


def items(lab: Lab, *numbers: int, attempt: int = 1) -> tuple[Entry, ...]:
    """Return items of these numbers."""
    return tuple(item(lab, number, attempt=attempt) for number in numbers)


def of(job: Job, *entries: Entry, worker: UUID | None = None, epoch: int | None = None) -> Append:
    """Return an append by the job's owner, or by another worker."""
    owner = worker or job.worker
    assert owner is not None
    return Append(job.id, owner, job.epoch if epoch is None else epoch, entries)


async def keep(lab: Lab, *appends: Append) -> list[Kept]:
    """Append in one call; return the replies."""
    return await lab.engine.entries.append(appends, lab.now)


async def read(lab: Lab, job: Job, kind: Kind = Kind.ITEM) -> list[Entry]:
    """Return all entries of one kind."""
    return await lab.engine.entries.tail(job.id, kind)


class Entries(Part):
    """What ``append`` and ``tail`` promise."""

    async def test_entries_come_back_as_they_were(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        given = (
            Entry(Kind.STEP, 1, 1, '{"a":[1,null,"\\u0000"]}', lab.now, "charge"),
            Entry(Kind.STEP, 1, 2, json.dumps(STRANGE, ensure_ascii=False), lab.at(1)),
            Entry(Kind.STEP, 1, 3, "null", lab.at(0.000001), STRANGE),
        )
        assert await keep(lab, of(job, *given)) == ["kept"]
        assert await read(lab, job, Kind.STEP) == list(given)

    async def test_kinds_are_apart(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        each = [item(lab, 1, kind=kind) for kind in Kind]
        assert await keep(lab, of(job, *each)) == ["kept"]
        for entry in each:
            assert await read(lab, job, entry.kind) == [entry]

    async def test_jobs_are_apart(self, lab: Lab, worker: UUID) -> None:
        one, two = await lab.running(worker, "one"), await lab.running(worker, "two")
        assert await keep(lab, of(two, *items(lab, 1, 2)), of(one, *items(lab, 1))) == ["kept", "kept"]
        assert await read(lab, one) == list(items(lab, 1))
        assert await read(lab, two) == list(items(lab, 1, 2))

    async def test_repeating_changes_nothing(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        first = of(job, *items(lab, 1, 2))
        assert await keep(lab, first) == ["kept"]
        assert await keep(lab, first) == ["kept"]
        assert await keep(lab, of(job, item(lab, 2, data='"other"'), item(lab, 3))) == ["kept"]
        assert await read(lab, job) == list(items(lab, 1, 2, 3))

    async def test_appending_is_no_change_of_the_job(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        await keep(lab, of(job, *items(lab, 1)))
        assert await lab.get(job) == job
        await lab.finish(job)

    async def test_nothing_is_appended_to_nothing(self, lab: Lab) -> None:
        assert await keep(lab) == []
        job = await lab.running(await lab.worker())
        assert await keep(lab, of(job)) == ["kept"]
        assert await lab.engine.entries.tail(lab.new_id(), Kind.ITEM) == []

    # -- who may append

    async def test_a_stranger_is_refused(self, lab: Lab, worker: UUID, other: UUID) -> None:
        job, mine = await lab.running(worker), await lab.running(other, "mine")
        assert await keep(
            lab,
            of(job, *items(lab, 1), worker=other),
            of(mine, *items(lab, 1)),
        ) == ["stale", "kept"]
        assert await keep(lab, of(job, *items(lab, 1), epoch=job.epoch + 1)) == ["stale"]
        assert await keep(lab, Append(lab.new_id(), worker, 1, items(lab, 1))) == ["stale"]
        assert await read(lab, job) == []
        assert await read(lab, mine) == list(items(lab, 1))

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.RUNNING}))
    async def test_only_a_running_job_is_added_to(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work")
        owner = job.worker or lab.new_id()
        assert await keep(lab, of(job, *items(lab, 1), worker=owner)) == ["stale"]
        assert await read(lab, job) == []

    @pytest.mark.parametrize(
        "ending", [Completed(), Failed(error=OOPS), Released()], ids=lambda one: type(one).__name__
    )
    async def test_an_attempt_that_is_over_is_not_added_to(
        self, lab: Lab, ending: Completed | Failed | Released
    ) -> None:
        job = await lab.running(await lab.worker())
        await keep(lab, of(job, *items(lab, 1)))
        await lab.finish(job, ending)
        assert await keep(lab, of(job, *items(lab, 2))) == ["stale"]
        assert await read(lab, job) == list(items(lab, 1))

    async def test_a_former_owner_is_refused_and_the_next_goes_on(self, lab: Lab) -> None:
        old = await lab.running(await lab.worker())
        await keep(lab, of(old, *items(lab, 1, 2)))
        await lab.do(loss.lose(old, Cause.LEASE, lab.now, 0.5, lab.rules))
        lab.later(1000)
        [taken] = await lab.claim(await lab.worker())
        assert await keep(lab, of(old, *items(lab, 3))) == ["stale"], "it is held, but not started"
        new = await lab.start(taken)
        assert await keep(lab, of(old, *items(lab, 3))) == ["stale"]
        assert await keep(lab, of(new, *items(lab, 1, attempt=2))) == ["kept"]
        assert [entry.cursor for entry in await read(lab, old)] == [(1, 1), (1, 2), (2, 1)]

    async def test_a_cancel_that_was_requested_refuses_nothing(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        await lab.cancel(job)
        assert await keep(lab, of(job, *items(lab, 1))) == ["kept"]

    # -- reading

    async def test_reading_goes_on_behind_a_cursor(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        await keep(lab, of(job, *items(lab, *range(1, 8)), *items(lab, 0, 1, attempt=2)))
        tail, seen, cursor = lab.engine.entries.tail, list[tuple[int, int]](), (0, -1)
        while found := await tail(job.id, Kind.ITEM, cursor, 2):
            assert len(found) <= 2
            seen += [entry.cursor for entry in found]
            cursor = found[-1].cursor
        assert seen == [(1, number) for number in range(1, 8)] + [(2, 0), (2, 1)]
        assert [entry.cursor for entry in await tail(job.id, Kind.ITEM, (1, 6))] == [(1, 7), (2, 0), (2, 1)]
        assert [entry.cursor for entry in await tail(job.id, Kind.ITEM, (1, 100), 1)] == [(2, 0)]

    async def test_the_newest_are_the_last_in_order(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        await keep(lab, of(job, *items(lab, 1, 2, 3), *items(lab, 1, attempt=2)))

        async def newest(after: tuple[int, int], limit: int) -> list[tuple[int, int]]:
            found = await lab.engine.entries.tail(job.id, Kind.ITEM, after, limit, newest=True)
            return [entry.cursor for entry in found]

        assert await newest((0, -1), 2) == [(1, 3), (2, 1)]
        assert await newest((0, -1), 9) == [(1, 1), (1, 2), (1, 3), (2, 1)]
        assert await newest((1, 3), 9) == [(2, 1)]
        assert await newest((2, 1), 9) == []

    async def test_a_full_batch(self, lab: Lab, worker: UUID) -> None:
        jobs = [await lab.running(worker, f"task {n}") for n in range(3)]
        whole = items(lab, *range(1, MAX_BATCH + 1))
        assert await keep(lab, *(of(job, *whole) for job in jobs)) == ["kept"] * 3
        for job in jobs:
            assert await read(lab, job) == list(whole)

    async def test_nothing_appears_behind_a_cursor_while_owners_change(self, lab: Lab) -> None:
        """A reader races the owner, who races a sweeper that takes the job away."""
        job = await lab.running(await lab.worker())
        cursor, seen = (0, -1), list[tuple[int, int]]()
        enough, over = asyncio.Event(), asyncio.Event()

        async def write(owned: Job, attempt: int) -> None:
            for number in range(1, 20):
                answer: Kept = "busy"
                while answer == "busy":
                    [answer] = await keep(lab, of(owned, *items(lab, number, attempt=attempt)))
                if answer == "stale":
                    return

        async def look() -> None:
            nonlocal cursor
            while True:
                last = over.is_set()
                found = await lab.engine.entries.tail(job.id, Kind.ITEM, cursor, 3)
                seen.extend(entry.cursor for entry in found)
                if len(seen) > 3:
                    enough.set()
                if found:
                    cursor = found[-1].cursor
                elif last:
                    return
                await asyncio.sleep(0)

        reading, writing = asyncio.create_task(look()), asyncio.create_task(write(job, 1))
        await enough.wait()
        await lab.do(loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules))
        lab.later(1000)
        [taken] = await lab.claim(await lab.worker())
        await asyncio.gather(writing, write(await lab.start(taken), 2))
        over.set()
        await reading
        assert seen == [entry.cursor for entry in await read(lab, job)]
        assert [number for attempt, number in seen if attempt == 2] == list(range(1, 20))

    # -- deletion

    async def test_they_go_with_their_job(self, lab: Lab, worker: UUID) -> None:
        gone, stays = await lab.running(worker, "gone"), await lab.running(worker, "stays")
        await keep(lab, of(gone, *items(lab, 1)), of(stays, *items(lab, 1)))
        await lab.finish(gone)
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.now}) == 1
        assert await read(lab, gone) == []
        assert await read(lab, stays) == list(items(lab, 1))
