"""Effects: an engine writes all effects of a change in one commit, and derives no others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.families.batches import Batched
from headrace.conformance.lab import OOPS, Lab
from headrace.conformance.transactions import Undone, apply
from headrace.core.attempt import Completed, Failed
from headrace.core.change import Applied, BatchTally, Change, Conflict, KeyEffect, Note, WasStale
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import Status

__all__ = ["Effects"]


def with_inserts(change: Change | None, *jobs: Job, **fields: Any) -> Change:
    """Return a change that inserts these jobs."""
    assert change is not None
    return replace(change, inserts=jobs, **fields)


class Effects(Batched):
    """The notes, the tally and the inserted jobs of a change."""

    @pytest.mark.parametrize("ending", [Completed("1"), Failed(error=OOPS)])
    async def test_an_end_is_noted_only_if_the_change_says_so(self, lab: Lab, ending: Completed | Failed) -> None:
        job = await lab.running(await lab.worker())
        [child] = await lab.put_all(lab.job(waits=1, after=(job.id,), after_when="ended"))
        await lab.process_notes()
        await lab.do(replace(lab.end(job, ending), notes=()))
        assert await lab.process_notes() == []
        assert (await lab.get(child)).status is Status.WAITING

    async def test_notes_are_processed_whatever_the_verb(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        [child] = await lab.put_all(lab.job("child", parent=job.id))
        change = lab.end(job, Failed(error=OOPS))
        assert change.notes == ()
        await lab.do(replace(change, notes=(Note.CANCELLED,), job=replace(change.job, cancel_requested_at=lab.now)))
        assert [change.job.id for change in await lab.process_notes()] == [child.id]

    async def test_the_tally_is_added_as_it_is_given(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 3)
        first, second, third = [await lab.start(job) for job in await lab.claim(await lab.worker())]
        await lab.do(replace(lab.end(first, Completed("1")), tally=BatchTally(completed=2, failed=3)))
        await lab.do(replace(lab.end(second, Completed("1")), tally=None))
        assert await self.tally(lab, batch) == BatchTally(3, 2, 3)
        await lab.do(lab.end(third, Completed("1")))
        assert await self.tally(lab, batch) == BatchTally(3, 3, 3)

    async def test_inserted_jobs_are_stored_with_the_change(self, lab: Lab, worker: UUID) -> None:
        done, again = await lab.running(worker), await lab.running(worker, "other")
        ends = lab.job("hook", queue="hooks", tags=("a",)), lab.job("hook", queue="hooks", delay=5)
        retries = lab.job("hook", queue="hooks", payload='{"n":1}')
        await lab.apply(
            with_inserts(lab.end(done, Completed("1")), *ends),
            with_inserts(lab.end(again, Failed(error=OOPS)), retries),
        )
        assert (await lab.get(done)).status is Status.COMPLETED
        assert (await lab.get(again)).status is Status.RETRYING
        assert [job.id for job in await lab.claim(worker, queues=("hooks",))] == [ends[0].id, retries.id]
        assert (await lab.get(ends[1])).status is Status.SCHEDULED
        ledger = await lab.engine.records.ledger()
        assert (ledger.accepted, ledger.unaccounted) == (5, 0)

    async def test_a_repeated_change_inserts_once(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(with_inserts(lab.end(job, Completed("1")), lab.job("hook")))
        for _ in range(3):
            [verdict] = await lab.engine.jobs.apply([change], lab.now)
            assert isinstance(verdict, Applied)
        assert (await lab.engine.records.ledger()).accepted == 2

    async def test_a_change_that_is_not_applied_inserts_nothing(self, lab: Lab, worker: UUID) -> None:
        job, other, gone = await lab.running(worker), await lab.running(worker, "other"), lab.job()
        hooks = [lab.job("hook") for _ in range(3)]
        late, lost = lab.end(job, Completed("1")), lab.end(other, Completed("1"))
        lab.later(1)
        await lab.cancel(job)
        await lab.finish(other)
        never = replace(late, job=gone)
        changes = [with_inserts(change, hook) for change, hook in zip((late, lost, never), hooks, strict=True)]
        kinds = [type(verdict) for verdict in await lab.apply(*changes)]
        assert kinds == [Conflict, WasStale, WasStale]
        assert [await lab.gone(hook) for hook in hooks] == [True] * 3

    async def test_a_job_that_insert_would_refuse_is_left_out(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        holder = await lab.put("hook", dedup="k")
        cancelled = await lab.cancel(await lab.put("parent"))
        taken, orphan, fine = lab.job("hook", dedup="k"), lab.job("child", parent=cancelled.id), lab.job("hook")
        await lab.do(with_inserts(lab.end(job, Completed("1")), taken, orphan, holder, fine))
        assert [await lab.gone(one) for one in (taken, orphan, fine)] == [True, True, False]
        assert await lab.get(holder) == holder

    async def test_a_retry_and_a_taken_key_insert_as_well(self, lab: Lab) -> None:
        ended = await lab.cancel(await lab.put(dedup="k"))
        hook = lab.job("hook")
        change = with_inserts(actions.retry(ended, lab.now), hook)
        assert change.key is KeyEffect.TAKE
        await lab.do(change)
        assert (await lab.get(hook)).task == "hook"

    async def test_an_inserted_job_may_wait_and_be_counted(self, lab: Lab) -> None:
        batch, _ = await self.filled(lab, 1)
        [job] = [await lab.start(job) for job in await lab.claim(await lab.worker())]
        member = lab.job("hook", batch=batch.id, waits=1, after=(job.id,))
        await lab.do(with_inserts(lab.end(job, Completed("1")), member))
        assert await self.tally(lab, batch) == BatchTally(2, 1)
        assert [change.job.id for change in await lab.process_notes()] == [member.id]
        assert (await lab.get(member)).status is Status.QUEUED

    async def test_in_a_transaction_the_inserts_share_its_fate(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        kept, undone = lab.job("hook", queue="new"), lab.job("hook", queue="newer")
        with suppress(Undone):
            async with lab.transactions.transaction() as connection:
                await apply(lab, connection, lab.stamp(with_inserts(lab.end(job, Completed("1")), undone)))
                raise Undone
        async with lab.transactions.transaction() as connection:
            await apply(lab, connection, lab.stamp(with_inserts(lab.end(job, Completed("1")), kept)))
            assert await lab.gone(kept)
        assert [await lab.gone(one) for one in (kept, undone)] == [False, True]
        assert (await lab.get(job)).status is Status.COMPLETED
