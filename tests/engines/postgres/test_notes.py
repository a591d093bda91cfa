"""Tell on PostgreSQL: beside others who tell, finish and hold jobs at the same time."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from uuid import UUID

import pytest

from headrace.conformance.lab import Lab
from headrace.core.attempt import Completed
from headrace.core.change import Applied
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import Status
from headrace.engine import Engine, Processed
from tests.engines.postgres.test_families import after, insert


@pytest.mark.parametrize("kind", ["waits", "child"])
async def test_a_job_in_an_open_transaction_keeps_nobody_from_being_told(lab: Lab, kind: str) -> None:
    parent = await lab.running(await lab.worker(), "parent")
    related = {"waits": lambda: after(lab, parent), "child": lambda: lab.job("child", parent=parent.id, root=parent.id)}
    one, held, three = await lab.put_all(*(related[kind]() for _ in range(3)))
    await lab.process_notes()
    async with lab.transactions.transaction() as connection:
        await insert(lab, connection, after(lab, held, task="grandchild"))
        await (lab.cancel(parent) if kind == "child" else lab.finish(parent))
        for expected in ({one.id, three.id}, set[UUID]()):
            told = await lab.engine.families.process_notes(lab.now)
            assert {change.job.id for change in told.changes} == expected
            assert not told.more
    [change, *rest] = await lab.process_notes()
    assert change.job.id == held.id
    assert len(rest) == (kind == "child")  # the grandchild waited for it in vain
    assert await lab.process_notes() == []


async def test_a_page_that_ends_within_a_note_is_taken_up_again(lab: Lab) -> None:
    parents = [await lab.put(f"p{n}") for n in range(3)]
    children = await lab.put_all(*(after(lab, parents[n % 3]) for n in range(21)))
    await lab.process_notes()
    for parent in parents:
        await lab.do(actions.resolve(parent, lab.now, result_text="1"))
    heard: list[UUID] = []
    for size in (5, 5, 5, 5, 5):
        told = await lab.engine.families.process_notes(lab.now, size)
        assert len(told.changes) <= size
        heard += [change.job.id for change in told.changes]
    assert not (await lab.engine.families.process_notes(lab.now)).changes
    assert sorted(heard) == sorted(child.id for child in children)


async def test_many_sessions_tell_everybody_once(lab: Lab) -> None:
    parents = await lab.put_all(*(lab.job("parent") for _ in range(60)))
    children = await lab.put_all(*(after(lab, parents[n], parents[(n * 7 + 1) % 60]) for n in range(60)))
    sessions: list[Engine] = [lab.engine, *(lab.make() for _ in range(3))]
    for session in sessions[1:]:
        await session.open()
    changes = [actions.resolve(parent, lab.now, result_text="1") for parent in parents]
    random.Random(3).shuffle(changes)
    told: list[Processed] = []

    async def end(session: Engine, place: int) -> None:
        for change in changes[place :: len(sessions)]:
            [verdict] = await session.jobs.apply([lab.stamp(change)], lab.now)
            assert isinstance(verdict, Applied)
            told.append(await session.families.process_notes(lab.now))

    try:
        await asyncio.gather(*(end(session, place) for place, session in enumerate(sessions)))
        told.append(await lab.engine.families.process_notes(lab.now))
    finally:
        for session in sessions[1:]:
            await session.close()
    assert Counter(change.job.id for one in told for change in one.changes) == Counter(job.id for job in children)
    assert {(await lab.get(child)).status for child in children} == {Status.QUEUED}


async def test_cancels_finishes_and_inserts_of_one_family_at_once(lab: Lab) -> None:
    """Everybody locks in the same order, or waits for nobody: no statement fails."""
    worker, dice = await lab.worker(), random.Random(5)
    sessions: list[Engine] = [lab.engine, *(lab.make() for _ in range(3))]
    for session in sessions[1:]:
        await session.open()

    async def finish(session: Engine, jobs: list[Job]) -> None:
        dice.shuffle(jobs)
        for n in range(0, len(jobs), 10):
            await session.jobs.apply([lab.stamp(lab.end(job, Completed("1"))) for job in jobs[n : n + 10]], lab.now)
            await session.families.process_notes(lab.now)

    async def wait_for(session: Engine, jobs: list[Job]) -> list[Job]:
        made = [after(lab, *dice.sample(jobs, 3), task="late") for _ in range(30)]
        for n in range(0, 30, 5):
            answers = await session.jobs.insert(made[n : n + 5], lab.now)
            assert [type(answer).__name__ for answer in answers] == ["Inserted"] * 5
        return made

    async def cancel(root: Job) -> None:
        await lab.cancel(root)
        await lab.process_notes()

    try:
        for turn in range(3):
            root = await lab.running(worker, f"root{turn}")
            await lab.put_all(*(lab.job("child", parent=root.id, root=root.id) for _ in range(100)))
            jobs = [await lab.start(job) for job in await lab.claim(worker, 100, tasks=("child",))]
            assert len(jobs) == 100
            late, *_ = await asyncio.gather(
                wait_for(sessions[1], jobs),
                finish(sessions[2], jobs[:50]),
                finish(sessions[3], jobs[30:]),
                cancel(root),
            )
            await lab.process_notes()
            for job in [await lab.get(job) for job in jobs]:
                assert job.ended or job.cancel_requested_at is not None
                if not job.ended:
                    await lab.finish(job)
            await lab.process_notes()
            assert {(await lab.get(job)).status for job in late} == {Status.QUEUED}
            await lab.claim(worker, 1000, tasks=("late",))
    finally:
        for session in sessions[1:]:
            await session.close()
