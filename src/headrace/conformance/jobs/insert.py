"""Inserts: ids, order numbers and dedup keys."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.lifecycle import actions
from headrace.core.status import ENDED, LIVE, Status
from headrace.engine import MAX_BATCH, Duplicated, Inserted

__all__ = ["Inserting"]


class Inserting(Part):
    """What ``insert`` promises."""

    async def test_a_job_is_kept_as_given_with_an_order_number(self, lab: Lab) -> None:
        job = lab.job(payload='{"n":1}')
        [answer] = await lab.insert(job)
        assert isinstance(answer, Inserted)
        assert answer.job.seq > 0
        assert answer.job == replace(job, seq=answer.job.seq)
        assert await lab.get(job) == answer.job

    async def test_nothing_to_insert_is_no_error(self, lab: Lab) -> None:
        assert await lab.insert() == []
        assert (await lab.engine.records.ledger()).accepted == 0

    @pytest.mark.parametrize("status", [Status.PENDING, Status.WAITING, Status.SCHEDULED, Status.QUEUED])
    async def test_a_new_job_may_stand_anywhere_before_a_claim(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work")
        assert job.status is status
        assert await lab.get(job) == job

    async def test_order_numbers_grow_in_the_order_given(self, lab: Lab) -> None:
        jobs = [lab.job(f"t{n % 3}", priority=n) for n in range(20)]
        stored = await lab.put_all(*jobs[:10]) + await lab.put_all(*jobs[10:])
        assert [job.id for job in stored] == [job.id for job in jobs]
        numbers = [job.seq for job in stored]
        assert numbers == sorted(set(numbers))

    async def test_a_full_batch_is_one_insert(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job(payload=f'{{"n":{n}}}') for n in range(MAX_BATCH)))
        assert await lab.engine.jobs.get([job.id for job in jobs]) == jobs
        assert (await lab.engine.records.ledger()).live == MAX_BATCH

    # -- ids

    async def test_an_id_that_is_here_is_answered_with_the_job_as_it_stands(self, lab: Lab, worker: UUID) -> None:
        job = lab.job()
        await lab.insert(job)
        [taken] = await lab.claim(worker)
        assert await lab.insert(job) == [Inserted(taken)]
        done = await lab.finish(await lab.start(taken))
        assert await lab.insert(replace(job, payload_text='{"other":1}')) == [Inserted(done)]
        assert await lab.get(job) == done
        assert (await lab.engine.records.ledger()).accepted == 1

    async def test_an_id_twice_in_one_batch_is_one_job(self, lab: Lab) -> None:
        job = lab.job()
        first, other, again = await lab.insert(job, lab.job(), job)
        assert isinstance(first, Inserted)
        assert again == first
        assert isinstance(other, Inserted)
        assert (await lab.engine.records.ledger()).accepted == 2

    async def test_a_repeated_batch_with_some_new_ones_adds_only_these(self, lab: Lab) -> None:
        jobs = [lab.job() for _ in range(5)]
        first = await lab.insert(*jobs[:3])
        again = await lab.insert(*jobs)
        assert again[:3] == first
        assert (await lab.engine.records.ledger()).accepted == 5

    async def test_one_id_inserted_by_many_at_once_is_one_job(self, lab: Lab) -> None:
        job = lab.job(dedup="k")
        answers = await asyncio.gather(*(lab.insert(job) for _ in range(8)))
        assert {answer[0].job.seq for answer in answers if isinstance(answer[0], Inserted)} == {
            (await lab.get(job)).seq
        }
        assert all(isinstance(answer[0], Inserted) for answer in answers)
        assert (await lab.engine.records.ledger()).accepted == 1

    # -- dedup keys

    @pytest.mark.parametrize("status", sorted(LIVE))
    async def test_a_live_job_holds_its_key(self, lab: Lab, status: Status) -> None:
        holder = await lab.stand(status, "work", dedup="k")
        second = lab.job(dedup="k")
        assert await lab.insert(second) == [Duplicated(holder)]
        assert await lab.gone(second)
        assert (await lab.engine.records.ledger()).accepted == 1

    @pytest.mark.parametrize("status", sorted(ENDED))
    async def test_an_ended_job_holds_no_key(self, lab: Lab, status: Status) -> None:
        await lab.stand(status, "work", dedup="k")
        second = await lab.put(dedup="k")
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(second)]

    async def test_keys_are_those_of_a_task(self, lab: Lab) -> None:
        await lab.put("one", dedup="k")
        await lab.put("two", dedup="k")
        await lab.put("one", dedup="K")
        await lab.put("one", dedup="")
        await lab.put("one")
        await lab.put("one")
        assert isinstance((await lab.insert(lab.job("one", dedup="")))[0], Duplicated)
        assert (await lab.engine.records.ledger()).accepted == 6

    async def test_a_key_taken_earlier_in_the_batch_is_held(self, lab: Lab) -> None:
        one, two, three = lab.job(dedup="a"), lab.job(dedup="b"), lab.job(dedup="a")
        first, second, third = await lab.insert(one, two, three)
        assert isinstance(first, Inserted)
        assert isinstance(second, Inserted)
        assert third == Duplicated(first.job)
        assert await lab.gone(three)

    async def test_a_duplicate_in_a_batch_leaves_the_others_alone(self, lab: Lab) -> None:
        holder = await lab.put(dedup="k")
        before, double, after = await lab.insert(lab.job(), lab.job(dedup="k"), lab.job())
        assert isinstance(before, Inserted)
        assert isinstance(after, Inserted)
        assert double == Duplicated(holder)
        assert before.job.seq < after.job.seq

    async def test_repeating_the_holder_itself_is_no_duplicate(self, lab: Lab) -> None:
        holder = await lab.put(dedup="k")
        assert await lab.insert(holder) == [Inserted(holder)]

    async def test_repeating_an_ended_holder_meets_its_own_id_first(self, lab: Lab) -> None:
        old = await lab.stand(Status.COMPLETED, "work", dedup="k")
        await lab.put(dedup="k")
        assert await lab.insert(old) == [Inserted(old)]

    async def test_of_many_at_once_one_takes_the_key(self, lab: Lab) -> None:
        answers = await asyncio.gather(*(lab.insert(lab.job(dedup="k")) for _ in range(8)))
        named = [answer.job.id for [answer] in answers if isinstance(answer, Inserted | Duplicated)]
        assert len(named) == 8
        assert len(set(named)) == 1
        assert sum(isinstance(answer[0], Inserted) for answer in answers) == 1

    async def test_a_job_put_away_by_hand_frees_its_key(self, lab: Lab) -> None:
        job = await lab.put(dedup="k")
        await lab.do(actions.resolve(job, lab.now, error=OOPS))
        await lab.put(dedup="k")
