"""Submits: what is stored whole, and a store that is away meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.core.batch import Batch
from headrace.core.change import BatchTally
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.engine import Duplicated, Engine, InsertAnswer, Inserted, Refused
from headrace.engine.bus import Hint
from headrace.errors import ConfigError, JobNotFound, TransitionRefused, Unavailable, Unstorable
from headrace.runtime.writes.writer import Writer
from tests.support.apps import Sums
from tests.support.faults import Instead
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
            await made.writer.inserts.insert_many(graph)
        assert (await made.engine.records.ledger()).accepted == 0
        # Above one write, each is whole for itself.
        with pytest.raises(JobNotFound):
            await made.writer.inserts.insert_many([*parents, job(made), job(made), graph[-1]])
        assert (await made.engine.records.ledger()).accepted == 1000
        await made.writer.inserts.insert(missing)
        assert [answer.job.id for answer in await made.writer.inserts.insert_many(graph)] == [one.id for one in graph]
        assert (await made.engine.records.ledger()).accepted == 1002


async def test_of_what_is_stored_whole_all_ids_are_named_if_it_is_not() -> None:
    async with world() as made:
        parent = job(made)
        graph = [parent, job(made, "sum", parent)]
        made.engine.away = True
        with pytest.raises(Unavailable) as caught:
            await made.writer.inserts.insert_many(graph)
        assert caught.value.ids == tuple(one.id for one in graph)
        assert caught.value.outcome == "refused"
        with pytest.raises(Unavailable) as caught:
            await made.writer.inserts.insert_batch(Batch(id=parent.id, created_at=made.now, touched_at=made.now), graph)
        assert caught.value.ids == tuple(one.id for one in graph)


async def test_a_batch_is_not_cancelled_while_the_store_is_away() -> None:
    async with world() as made:
        batch = Batch(id=made.host.dice.new_id(made.now), created_at=made.now, touched_at=made.now)
        members = [job(made, batch=batch.id) for _ in range(3)]
        await made.writer.inserts.insert_batch(batch, members[:2])
        made.engine.away = True
        with pytest.raises(Unavailable):
            await made.writer.cancel_batch(batch.id, "me")
        made.engine.away = False
        found = await made.writer.cancel_batch(batch.id, "me")
        assert found is not None
        assert found.tally == BatchTally(2)
        [after] = await made.engine.families.batches([batch.id])
        assert after is not None
        assert after.tally == BatchTally(2, 0, 0, 2)
        with pytest.raises(TransitionRefused):
            await made.writer.inserts.insert(members[2])
        assert await made.writer.cancel_batch(members[0].id, "me") is None


async def test_companions_are_stored_with_their_job_in_one_write_for_many() -> None:
    async with world() as made:
        jobs = [job(made) for _ in range(20)]
        hooks = {one.id: [job(made, "hook"), job(made, "hook")] for one in jobs}
        answers = await asyncio.gather(*(made.writer.inserts.insert(one, hooks[one.id]) for one in jobs))
        assert [answer.job.id for answer in answers] == [one.id for one in jobs]
        assert all(isinstance(answer, Inserted) for answer in answers)
        assert None not in await made.engine.jobs.get([hook.id for many in hooks.values() for hook in many])
        assert (await made.engine.records.ledger()).accepted == 60


async def test_of_companions_there_are_never_more_in_a_call_than_it_takes() -> None:
    async with world() as made:
        sizes, real = list[int](), made.engine.jobs.insert

        async def insert(jobs: Sequence[Job], now: datetime, **options: Any) -> list[InsertAnswer]:
            sizes.append(len(jobs) + sum(map(len, options["companions"].values())))
            return await real(jobs, now, **options)

        made.writer.inserts.engine = cast(Engine, Instead(made.engine, jobs=Instead(None, insert=insert)))
        jobs = [job(made) for _ in range(5)]
        await asyncio.gather(
            *(made.writer.inserts.insert(one, [job(made, "hook") for _ in range(399)]) for one in jobs)
        )
        assert max(sizes) <= 1000
        assert sum(sizes) == 2000
        with pytest.raises(ConfigError, match="at most 999 others"):
            await made.writer.inserts.insert(job(made), [job(made) for _ in range(1000)])


async def test_companions_of_a_duplicate_or_of_a_refused_job_are_not_stored() -> None:
    async with world() as made:
        first, hook = job(made, dedup="k"), job(made, "hook")
        await made.writer.inserts.insert(first)
        answer = await made.writer.inserts.insert(job(made, dedup="k"), [hook])
        assert isinstance(answer, Duplicated)
        assert answer.job.id == first.id
        with pytest.raises(JobNotFound):
            await made.writer.inserts.insert(job(made), [hook, job(made, "hook", job(made))])
        assert await made.engine.jobs.get([hook.id]) == [None]


async def test_a_job_whose_companion_is_refused_for_now_is_stored_when_it_can_be() -> None:
    async with world() as made:
        real, tries, one = made.engine.jobs.insert, 0, job(made)

        async def insert(jobs: Sequence[Job], now: datetime, **options: Any) -> list[InsertAnswer]:
            nonlocal tries
            tries += 1
            return [Refused(Unavailable("in a transaction"))] if tries < 3 else await real(jobs, now, **options)

        writer = Writer(cast(Engine, Instead(made.engine, jobs=Instead(None, insert=insert))), made.host)
        assert isinstance(await writer.inserts.insert(one, [job(made, "hook")]), Inserted)
        assert tries == 3
        await writer.close()
        assert (await made.engine.records.ledger()).accepted == 2


async def test_a_hint_that_breaks_keeps_nobody_on_the_short_way_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums, broken = Sums(f"sqlite:///{tmp_path}/jobs.db"), list[Any]()

    def send(hint: Hint) -> None:
        raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context["exception"]))
    async with sums.app:
        await sums.add.submit(1)  # which learns the line
        with monkeypatch.context() as patch:
            patch.setattr(sums.app.session.engine.bus, "send", send)
            await sums.add.submit(2)
        assert [type(error) for error in broken] == [ZeroDivisionError]
        await sums.add.submit(3)
        assert (await sums.app.stats.counts()).ledger.accepted == 3


async def test_of_a_write_that_is_not_acknowledged_each_job_hears() -> None:
    async with world() as made:
        jobs = [job(made) for _ in range(3)]
        made.engine.away = True
        found = await made.writer.inserts.insert_each(jobs)
        assert [type(one) for one in found] == [Unavailable] * 3
        made.engine.away = False
        assert [type(one) for one in await made.writer.inserts.insert_each(jobs)] == [Inserted] * 3


async def test_one_that_cannot_be_stored_leaves_the_others_of_its_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made:
        jobs, insert = [job(made) for _ in range(5)], made.engine.jobs.insert

        async def choosy(given: Sequence[Job], *args: Any, **options: Any) -> list[InsertAnswer]:
            if jobs[2] in given:
                raise Unstorable("not this one")
            return await insert(given, *args, **options)

        monkeypatch.setattr(made.engine.jobs, "insert", choosy)
        found = await made.writer.inserts.insert_each(jobs)
        assert [type(one) for one in found] == [Inserted, Inserted, Unstorable, Inserted, Inserted]
