"""Tell: pages of notes, jobs that hear two at once, and what is read for it."""

from __future__ import annotations

from typing import Any

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.batch import Batch
from headrace.core.change import BatchTally
from headrace.core.status import ENDED, Reason, Status
from headrace.engines.sqlite import SqliteEngine
from headrace.engines.sqlite.store.connection import ask
from tests.engines.sqlite.relations import after, counted


async def notes(lab: Lab) -> list[tuple[Any, ...]]:
    assert isinstance(lab.engine, SqliteEngine)
    query = "SELECT kind, seq, cursor FROM notes ORDER BY id"
    return await lab.engine._reader.run(lambda connection: connection.execute(query).fetchall())


async def test_a_note_that_concerns_many_remembers_how_far_it_got(lab: Lab) -> None:
    worker = await lab.worker()
    root = await lab.running(worker, "root")
    children = await lab.put_all(*(lab.job("child", parent=root.id, root=root.id) for _ in range(7)))
    await lab.cancel(root)
    first = await lab.engine.families.process_notes(lab.now, 3)
    assert [change.job.id for change in first.changes] == [job.id for job in children[:3]]
    assert first.more
    assert await notes(lab) == [("cancelled", root.seq, children[2].seq)]
    second = await lab.engine.families.process_notes(lab.now, 3)
    third = await lab.engine.families.process_notes(lab.now, 3)
    assert [change.job.id for one in (second, third) for change in one.changes] == [job.id for job in children[3:]]
    assert (second.more, third.more) == (True, False)
    assert await notes(lab) == []


async def test_a_page_ends_where_a_note_ends(lab: Lab) -> None:
    parents = [await lab.put(f"p{n}") for n in range(2)]
    children = await lab.put_all(*(after(lab, parent) for parent in parents for _ in range(3)))
    await lab.process_notes()
    for parent in parents:
        await lab.cancel(parent)
    first = await lab.engine.families.process_notes(lab.now, 3)
    assert [change.job.id for change in first.changes] == [job.id for job in children[:3]]
    assert await notes(lab) == [("ended", parents[1].seq, 0)]
    assert [change.job.id for change in await lab.process_notes()] == [job.id for job in children[3:]]


async def test_whose_parent_was_cancelled_is_not_released_first(lab: Lab) -> None:
    worker = await lab.worker()
    root, parent = await lab.running(worker, "root"), await lab.running(worker, "parent")
    [child] = await lab.put_all(after(lab, parent, parent=root.id, root=root.id))
    await lab.process_notes()
    await lab.finish(parent)
    await lab.cancel(root)
    changes = await lab.process_notes()
    assert [change.job.status for change in changes] == [Status.CANCELLED]
    found = await lab.get(child)
    assert (found, found.reason) == (changes[-1].job, Reason.PARENT)


async def test_the_children_of_a_job_that_was_pruned_are_told_of_its_cancel(lab: Lab) -> None:
    worker = await lab.worker()
    root = await lab.running(worker, "root")
    child = await lab.put("child", parent=root.id, root=root.id)
    asked = await lab.cancel(root)
    await lab.finish(asked, Completed())
    lab.later(1)
    assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 1
    await lab.process_notes()
    assert (await lab.get(child)).status is Status.CANCELLED


async def test_what_is_told_is_counted(lab: Lab) -> None:
    parent = await lab.put("a")
    batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now, sealed=True)
    await lab.engine.jobs.insert([after(lab, parent, batch=batch.id) for _ in range(3)], lab.now, batch)
    await lab.cancel(parent)
    told = await lab.engine.families.process_notes(lab.now)
    [over] = told.over
    assert (over.id, over.tally) == (batch.id, BatchTally(3, 0, 0, 3))


async def test_a_job_that_waits_for_nobody_is_released(lab: Lab) -> None:
    job = await lab.put(waits=1)
    await lab.process_notes()
    assert (await lab.get(job)).status is Status.QUEUED


async def test_while_others_run_a_job_with_many_parents_is_not_read(lab: Lab) -> None:
    worker = await lab.worker()
    parents = [await lab.running(worker, f"p{n}") for n in range(3)]
    await lab.put_all(after(lab, *parents))
    read = []
    for parent in parents:
        await lab.finish(parent)
        async with counted(lab) as seen:
            await lab.process_notes()
        read.append(ask("records") in seen)
    assert read == [False, False, True]
