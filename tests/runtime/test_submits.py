"""Submits: what is stored whole, and a store that is away meanwhile."""

from __future__ import annotations

import pytest

from headrace.core.batch import Batch, Tally
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import submit
from headrace.errors import JobNotFound, TransitionRefused, Unavailable
from tests.support.world import World, world


def job(made: World, task: str = "work", *after: Job, **spec: object) -> Job:
    fields = Spec(task=task, created_at=made.now, after=tuple(one.id for one in after), **spec)  # type: ignore[arg-type]
    return submit(made.host.dice.new_id(made.now), fields, "{}", made.now, waits=len(after))


async def test_a_chunk_whose_jobs_wait_for_others_is_stored_whole() -> None:
    async with world() as made:
        missing = job(made)
        parents = [job(made) for _ in range(999)]
        graph = [*parents, job(made, "sum", *parents[:3], missing)]
        with pytest.raises(JobNotFound, match=str(missing.id)):
            await made.lanes.insert_many(graph)
        assert (await made.engine.records.ledger()).accepted == 0
        # Above one write, each is whole for itself.
        with pytest.raises(JobNotFound):
            await made.lanes.insert_many([*parents, job(made), job(made), graph[-1]])
        assert (await made.engine.records.ledger()).accepted == 1000
        await made.lanes.insert(missing)
        assert [answer.job.id for answer in await made.lanes.insert_many(graph)] == [one.id for one in graph]
        assert (await made.engine.records.ledger()).accepted == 1002


async def test_of_what_is_stored_whole_all_ids_are_named_if_it_is_not() -> None:
    async with world() as made:
        parent = job(made)
        graph = [parent, job(made, "sum", parent)]
        made.engine.away = True
        with pytest.raises(Unavailable) as caught:
            await made.lanes.insert_many(graph)
        assert caught.value.ids == tuple(one.id for one in graph)
        assert caught.value.outcome == "refused"
        with pytest.raises(Unavailable) as caught:
            await made.lanes.insert_batch(Batch(id=parent.id, created_at=made.now, touched_at=made.now), graph)
        assert caught.value.ids == tuple(one.id for one in graph)


async def test_a_batch_is_not_cancelled_while_the_store_is_away() -> None:
    async with world() as made:
        batch = Batch(id=made.host.dice.new_id(made.now), created_at=made.now, touched_at=made.now)
        members = [job(made, batch=batch.id) for _ in range(3)]
        await made.lanes.insert_batch(batch, members[:2])
        made.engine.away = True
        with pytest.raises(Unavailable):
            await made.lanes.cancel_batch(batch.id, "me")
        made.engine.away = False
        found = await made.lanes.cancel_batch(batch.id, "me")
        assert found is not None
        assert found.tally == Tally(2)
        [after] = await made.engine.families.batches([batch.id])
        assert after is not None
        assert after.tally == Tally(2, 0, 0, 2)
        with pytest.raises(TransitionRefused):
            await made.lanes.insert(members[2])
        assert await made.lanes.cancel_batch(members[0].id, "me") is None
