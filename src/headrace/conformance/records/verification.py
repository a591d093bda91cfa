"""Verification: redundant data of a store agrees, whatever happened and whatever is written meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.conformance.lab import Lab, Part
from headrace.core.attempt import Completed, Released, Snoozed
from headrace.core.batch import Batch
from headrace.core.defaults import DELIVERY_RETENTION
from headrace.core.lifecycle import actions, loss
from headrace.core.query import Filter
from headrace.core.stats.verification import BOOKS, Invariant
from headrace.core.status import ENDED, Cause, Status
from headrace.core.webhooks.delivery import NUMBER, QUEUE, TASK, first_told
from headrace.core.webhooks.messages import lost
from headrace.core.webhooks.target import GROUPS, Target

__all__ = ["Verifying"]


async def verify(lab: Lab) -> dict[str, Invariant]:
    """Return all invariants, none of which may have a mismatch."""
    books = {name: await lab.engine.records.verify(name, lab.now) for name in BOOKS}
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

    async def test_what_was_tried_is_in_order(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, "snoozed")
        for ending in (Snoozed(1), Snoozed(1), Released()):
            job = await lab.finish(job, ending)
            await verify(lab)
            lab.later(2)
            job = await lab.start((await lab.claim(worker, tasks=("snoozed",)))[0])
            await verify(lab)
        await lab.finish(job)
        lost = await lab.do(loss.lose(await lab.held(worker, "lost"), Cause.START_BY, lab.now, 0.5, lab.rules))
        [again] = await lab.claim(worker, tasks=("lost",))
        assert again.id == lost.id
        await verify(lab)
        gone = await lab.do(loss.lose(await lab.start(again), Cause.LEASE, lab.now, 0.5, lab.rules))
        await verify(lab)
        await lab.do(actions.cancel(gone, lab.now, lab.rules))
        await verify(lab)

    async def test_messages_that_are_missing_are_found_by_number(self, lab: Lab, worker: UUID) -> None:
        target = Target("wh_1", GROUPS["status_change"])
        whole, others = first_told(lab.job("whole", webhook=(target,)))
        await lab.engine.jobs.insert([whole], lab.now, companions={whole.id: others})
        broken, _ = first_told(lab.job("broken", webhook=(target,)))
        await lab.put_all(broken)  # without the first message
        for job in await lab.claim(worker, tasks=("whole", "broken")):
            await lab.do(lab.end(job, Completed("1"), started_at=lab.now))
        book = await lab.engine.records.verify("messages", lab.now)
        assert book.wrong == 1
        [finding] = book.findings
        assert finding.about == str(broken.id)
        assert finding.what == "of 3 messages to wh_1, 1 are missing, from number 1 on"
        stored = (await lab.engine.records.find(Filter(queue=frozenset({QUEUE})), lab.now, 100)).items
        ours = {one.metadata[NUMBER]: one.created_at for one in stored if one.tags[1] == str(broken.id)}
        [notified] = (await lab.get(broken)).told or ()
        assert lost(notified, broken.created_at, ours, lab.now) == [(1, 1)], "as the core says"
        assert (await lab.engine.records.verify("messages")).wrong == 0, "without the time nothing is known"

    async def test_the_last_messages_are_missed_too(self, lab: Lab) -> None:
        target = Target("wh_1", GROUPS["status_change"])
        job, others = first_told(lab.job("broken", webhook=(target,)))
        await lab.engine.jobs.insert([job], lab.now, companions={job.id: others})
        [held] = await lab.claim(await lab.worker(), tasks=("broken",))
        change = lab.end(held, Completed("1"), started_at=lab.now)
        await lab.apply(replace(change, inserts=()))  # as if both had been left out
        [finding] = (await lab.engine.records.verify("messages", lab.now)).findings
        assert finding.what == "of 3 messages to wh_1, 2 are missing, from number 2 on"

    async def test_a_message_of_no_number_is_no_finding(self, lab: Lab) -> None:
        target = Target("wh_1", GROUPS["status_change"])
        job, others = first_told(lab.job("work", webhook=(target,)))
        await lab.engine.jobs.insert([job], lab.now, companions={job.id: others})
        wrong: list[Any] = ["abc", "7", True, 1.5, 0, -3, 10**12, [1], {"a": 1}]
        for number in wrong:
            await lab.put(others[0].task, tags=others[0].tags, metadata={**others[0].metadata, NUMBER: number})
        assert (await lab.engine.records.verify("messages", lab.now)).wrong == 0
        [held] = await lab.claim(await lab.worker(), tasks=("work",))
        await lab.apply(replace(lab.end(held, Completed("1"), started_at=lab.now), inserts=()))
        [finding] = (await lab.engine.records.verify("messages", lab.now)).findings
        assert finding.what == "of 3 messages to wh_1, 2 are missing, from number 2 on"

    async def test_messages_that_are_old_may_be_gone(self, lab: Lab, worker: UUID) -> None:
        target = Target("wh_1", GROUPS["status_change"])
        job, others = first_told(lab.job("work", webhook=(target,)))
        await lab.engine.jobs.insert([job], lab.now, companions={job.id: others})
        [sent] = await lab.claim(worker, tasks=(TASK,))
        await lab.do(lab.end(sent, Completed("1"), started_at=lab.now))
        lab.later(DELIVERY_RETENTION.total_seconds() + 60)
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.at(-86_400)), now=lab.now) == 1
        await verify(lab)
        [held] = await lab.claim(worker, tasks=("work",))
        await lab.do(lab.end(held, Completed("1"), started_at=lab.now))
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
        worker = await lab.worker()
        async with lab.sessions() as [other]:
            checked = asyncio.create_task(verify(lab))
            for n in range(12):
                job = await lab.running(worker, f"t{n}", dedup="d", concurrency_key="k" if n % 2 else None)
                if checked.done():
                    await checked
                    checked = asyncio.create_task(verify(lab))
                await lab.finish(job)
                await other.jobs.delete(dict.fromkeys(ENDED, lab.now))
            await checked
        assert (await lab.engine.records.ledger()).pruned == 12
