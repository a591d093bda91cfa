"""Books: what a store keeps twice agrees, whatever happened and whoever writes meanwhile."""

from __future__ import annotations

import asyncio

from headrace.conformance.lab import Lab, Part
from headrace.core import acts, lifecycle
from headrace.core.batch import Batch
from headrace.core.books import BOOKS, Book
from headrace.core.outcome import Released, Snoozed
from headrace.core.status import ENDED, Cause, Status

__all__ = ["Verifying"]


async def verify(lab: Lab) -> dict[str, Book]:
    """All books, none of which may have a finding."""
    books = {name: await lab.engine.records.verify(name) for name in BOOKS}
    for name, book in books.items():
        assert (book.name, book.holds) == (name, BOOKS[name])
        assert (book.wrong, book.findings) == (0, ()), book
    return books


class Verifying(Part):
    """What ``verify`` promises."""

    async def test_an_empty_store_is_in_order(self, lab: Lab) -> None:
        assert (await verify(lab))["ledger"].checked == 0

    async def test_every_status_is_in_order(self, lab: Lab) -> None:
        for status in Status:
            if status is not Status.WAITING:
                await lab.stand(status, status.value, dedup=status.value, tags=("x",))
                await lab.stand(status, f"{status.value} with a key", concurrency_key="k")
        assert (await verify(lab))["ledger"].checked == 2 * (len(Status) - 1)
        await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now))
        await verify(lab)

    async def test_what_was_tried_is_in_order(self, lab: Lab) -> None:
        worker = await lab.worker()
        job = await lab.running(worker, "snoozed")
        for ending in (Snoozed(1), Snoozed(1), Released()):
            job = await lab.finish(job, ending)
            await verify(lab)
            lab.later(2)
            job = await lab.start((await lab.claim(worker, tasks=("snoozed",)))[0])
            await verify(lab)
        await lab.finish(job)
        lost = await lab.do(lifecycle.lose(await lab.held(worker, "lost"), Cause.START_BY, lab.now, 0.5, lab.rules))
        [again] = await lab.claim(worker, tasks=("lost",))
        assert again.id == lost.id
        await verify(lab)
        gone = await lab.do(lifecycle.lose(await lab.start(again), Cause.LEASE, lab.now, 0.5, lab.rules))
        await verify(lab)
        await lab.do(acts.cancel(gone, lab.now, lab.rules))
        await verify(lab)

    async def test_families_are_in_order(self, lab: Lab) -> None:
        worker, batch = await lab.worker(), Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
        first = lab.job("first", batch=batch.id)
        waiting = lab.job("second", waits=1, after=(first.id,), batch=batch.id)
        await lab.engine.jobs.insert([first, waiting], lab.now, batch)
        assert (await verify(lab))["batches"].checked in (0, 1)
        await lab.process_notes()
        await verify(lab)
        [held] = await lab.claim(worker, tasks=("first",))
        await lab.finish(await lab.start(held))
        await verify(lab)  # the note is not processed yet
        await lab.process_notes()
        await verify(lab)
        [held] = await lab.claim(worker, tasks=("second",))
        await lab.cancel(await lab.start(held))
        await lab.engine.families.seal(batch.id, lab.now)
        await lab.process_notes()
        await verify(lab)

    async def test_there_is_no_false_alarm_while_others_write(self, lab: Lab) -> None:
        worker, other = await lab.worker(), lab.engine.another_session()
        await other.open()
        try:
            checked = asyncio.create_task(verify(lab))
            for n in range(12):
                job = await lab.running(worker, f"t{n}", dedup="d", concurrency_key="k" if n % 2 else None)
                if checked.done():
                    await checked
                    checked = asyncio.create_task(verify(lab))
                await lab.finish(job)
                await other.jobs.delete(dict.fromkeys(ENDED, lab.now))
            await checked
        finally:
            await other.close()
        assert (await lab.engine.records.ledger()).pruned == 12
