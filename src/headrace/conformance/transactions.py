"""Transactions: writes of an engine on a connection of the user, who commits it or does not.

For engines that can do it (``Engine.transactions``); other engines skip these tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Ending, Failed, Progress, Released, Snoozed, TimedOut
from headrace.core.change import Applied, Change, Conflict, Verdict, WasStale
from headrace.core.job import Job
from headrace.core.lifecycle import execution
from headrace.core.matching.customers import Customers
from headrace.core.status import Outcome, Status
from headrace.engine import Duplicated, InsertAnswer, Inserted, Refused, Statements
from headrace.errors import KeyReused, NotSupported

__all__ = ["Transactional"]


class Undone(Exception):
    """Rolls back the transaction of a test."""


async def carry(lab: Lab, connection: Any, steps: Statements[Any]) -> Any:
    """Run steps on a connection, as its kind needs it."""
    enlisted = lab.transactions.enlist(connection)
    assert enlisted.open
    return enlisted.run_blocking(steps) if enlisted.blocking else await enlisted.run(steps)


async def insert(lab: Lab, connection: Any, *jobs: Job) -> list[InsertAnswer]:
    answers: list[InsertAnswer] = await carry(lab, connection, await lab.transactions.inserting(jobs, lab.now))
    return answers


async def apply(lab: Lab, connection: Any, change: Change) -> Verdict:
    verdict: Verdict = await carry(lab, connection, await lab.transactions.applying(change, lab.now))
    return verdict


async def alone(lab: Lab, change: Change) -> Verdict:
    """Apply a change in a transaction of its own."""
    async with lab.transactions.transaction() as connection:
        return await apply(lab, connection, change)


def stored(answers: Sequence[InsertAnswer]) -> list[Job]:
    """Return the jobs of replies that must all say that they are stored."""
    assert all(isinstance(answer, Inserted) for answer in answers), answers
    return [answer.job for answer in answers if isinstance(answer, Inserted)]


class Transactional(Part):
    """What ``enlist``, ``inserting``, ``applying`` and ``transaction`` promise."""

    async def test_an_unknown_connection_is_refused(self, lab: Lab) -> None:
        with pytest.raises(NotSupported, match="object"):
            lab.transactions.enlist(object())

    # -- inserting

    async def test_jobs_are_there_from_the_commit_on(self, lab: Lab, worker: UUID) -> None:
        jobs = [lab.job(), lab.job("other", queue="q", requires={"gpu": True}, tags=("t",)), lab.job(delay=5)]
        async with lab.transactions.transaction() as connection:
            made = stored(await insert(lab, connection, *jobs))
            for job in jobs:
                assert await lab.gone(job), "not visible before the commit"
        assert [await lab.get(job) for job in jobs] == made
        assert [job.id for job in made] == [job.id for job in jobs]
        assert (await lab.engine.records.ledger()).accepted == 3
        assert {job.id for job in await lab.claim(worker)} == {jobs[0].id, jobs[1].id}
        later = await lab.put()
        assert later.seq not in {job.seq for job in made}

    async def test_jobs_of_a_transaction_that_is_rolled_back_were_never_there(self, lab: Lab) -> None:
        job = lab.job(dedup="k", tags=("t",))
        with suppress(Undone):
            async with lab.transactions.transaction() as connection:
                stored(await insert(lab, connection, job))
                raise Undone
        assert await lab.gone(job)
        ledger = await lab.engine.records.ledger()
        assert (ledger.accepted, ledger.unaccounted) == (0, 0)
        assert stored(await lab.insert(job))[0].id == job.id, "its key and its id are free"
        assert [taken.id for taken in await lab.claim(await lab.worker())] == [job.id]

    async def test_several_inserts_of_one_transaction_come_in_order(self, lab: Lab) -> None:
        jobs = [lab.job(str(n)) for n in range(5)]
        async with lab.transactions.transaction() as connection:
            made = [stored(await insert(lab, connection, job))[0] for job in jobs]
        assert [await lab.get(job) for job in jobs] == made
        assert [job.id for job in await lab.claim(await lab.worker())] == [job.id for job in jobs]

    async def test_a_key_that_is_held_fails_nothing(self, lab: Lab) -> None:
        holder = await lab.put(dedup="k")
        job, fresh, last = lab.job(dedup="k"), lab.job(dedup="l"), lab.job()
        async with lab.transactions.transaction() as connection:
            answers = await insert(lab, connection, job, fresh)
            assert answers[0] == Duplicated(holder)
            assert stored(answers[1:])[0].id == fresh.id
            stored(await insert(lab, connection, last))
        assert await lab.gone(job)
        assert [one.id for one in (await lab.get(fresh), await lab.get(last))] == [fresh.id, last.id]

    async def test_a_key_taken_in_the_same_transaction_is_held(self, lab: Lab) -> None:
        first, twin, second = lab.job(dedup="k"), lab.job(dedup="k"), lab.job(dedup="k")
        async with lab.transactions.transaction() as connection:
            answers = await insert(lab, connection, first, twin)
            assert [type(answer) for answer in answers] == [Inserted, Duplicated]
            [again] = await insert(lab, connection, second)
            assert isinstance(again, Duplicated)
            assert again.job.id == first.id
        assert await lab.gone(twin)
        assert await lab.gone(second)
        await lab.get(first)

    async def test_a_request_makes_one_job_within_and_without(self, lab: Lab) -> None:
        [old] = await lab.put_all(lab.job(request_key="old", request_hash="1"))
        first, other = (lab.job(request_key="new", request_hash=one) for one in "12")
        async with lab.transactions.transaction() as connection:
            answers = await insert(lab, connection, lab.job(request_key="old", request_hash="1"), first, other)
            assert answers[0] == Duplicated(old)
            assert stored(answers[1:2])[0].id == first.id
            assert isinstance(answers[2], Refused)
            assert isinstance(answers[2].error, KeyReused)
            [again] = await insert(lab, connection, lab.job(request_key="new", request_hash="1"))
            assert isinstance(again, Duplicated)
        assert await lab.insert(lab.job(request_key="new", request_hash="1")) == [Duplicated(await lab.get(first))]
        with suppress(Undone):
            async with lab.transactions.transaction() as connection:
                stored(await insert(lab, connection, lab.job(request_key="undone", request_hash="1")))
                raise Undone
        stored(await lab.insert(lab.job(request_key="undone", request_hash="2")))

    async def test_a_queue_that_was_set_by_customer_since_is_no_obstacle(self, lab: Lab) -> None:
        await lab.put(customer="a")
        async with lab.sessions() as [other]:
            assert await other.documents.put_setting("queue:default", '{"by_customer":true}', 0) is not None
        async with lab.transactions.transaction() as connection:
            [job] = stored(await insert(lab, connection, lab.job(customer="a")))
        ask: dict[str, Any] = {"queues": ("default",), "customers": Customers(allow=frozenset("a"))}
        assert [one.id for one in await lab.claim(await lab.worker(), **ask)] == [job.id]

    async def test_an_id_that_is_here_is_answered_alike_in_a_transaction(self, lab: Lab) -> None:
        job = lab.job()
        async with lab.transactions.transaction() as connection:
            stored(await insert(lab, connection, job))
            assert stored(await insert(lab, connection, job))[0].id == job.id
        held = (await lab.claim(await lab.worker()))[0]
        async with lab.transactions.transaction() as connection:
            assert stored(await insert(lab, connection, job)) == [held]
        assert (await lab.engine.records.ledger()).accepted == 1

    # -- applying

    @pytest.mark.parametrize(
        "ending",
        [Completed('"r"'), Failed(error=OOPS), TimedOut(), Snoozed(5), Released()],
        ids=lambda one: type(one).__name__,
    )
    @pytest.mark.parametrize("started", [True, False])
    async def test_a_change_does_what_it_does_outside(self, lab: Lab, ending: Ending, started: bool) -> None:
        one, other = [
            await lab.running(await lab.worker(), name) if started else await lab.held(await lab.worker(), name)
            for name in ("one", "other")
        ]
        lab.later(1)
        change, twin = (lab.stamp(lab.end(job, ending, started_at=lab.now)) for job in (one, other))
        assert await alone(lab, change) == Applied(change.job)
        assert await lab.engine.jobs.apply([twin], lab.now) == [Applied(twin.job)]
        assert await lab.get(one) == change.job
        assert [a.outcome for a in await lab.attempts(one)] == [a.outcome for a in await lab.attempts(other)]
        assert [a.started_at for a in await lab.attempts(one)] == [a.started_at for a in await lab.attempts(other)]

    async def test_a_start_rides_along(self, lab: Lab) -> None:
        held = await lab.held(await lab.worker(), dedup="k")
        began = lab.now
        lab.later(1)
        change = lab.stamp(lab.end(held, Completed('"r"'), started_at=began))
        assert await alone(lab, change) == Applied(change.job)
        done = await lab.get(held)
        assert (done.status, done.result, done.attempt, done.started_at) == (Status.COMPLETED, "r", 1, began)
        [attempt] = await lab.attempts(held)
        assert (attempt.outcome, attempt.started_at, attempt.number) == (Outcome.COMPLETED, began, 1)
        await lab.put(dedup="k")

    async def test_a_change_that_is_rolled_back_was_never_made(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), dedup="k")
        change = lab.stamp(lab.end(job, Completed('"r"')))
        with suppress(Undone):
            async with lab.transactions.transaction() as connection:
                assert await apply(lab, connection, change) == Applied(change.job)
                assert await lab.get(job) == job, "not visible before the commit"
                raise Undone
        assert await lab.get(job) == job
        assert await lab.attempts(job) == []
        [answer] = await lab.insert(lab.job(dedup="k"))
        assert answer == Duplicated(job), "it holds its key as before"
        await lab.finish(job)

    async def test_a_repeat_is_known_by_its_id(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(lab.end(job, Completed('"r"')))
        for _ in range(2):
            assert await alone(lab, change) == Applied(change.job)
        assert await lab.engine.jobs.apply([change], lab.now) == [Applied(change.job)]
        assert len(await lab.attempts(job)) == 1

    async def test_a_job_that_moved_is_a_conflict(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(lab.end(job, Completed('"r"')))
        asked = await lab.cancel(job)
        async with lab.transactions.transaction() as connection:
            assert await apply(lab, connection, change) == Conflict(asked)
            again = lab.stamp(lab.end(asked, Completed('"r"')))
            assert await apply(lab, connection, again) == Applied(again.job)
        assert (await lab.get(job)).status is Status.COMPLETED

    async def test_a_report_of_progress_is_no_conflict(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(lab.end(job, Completed('"r"')))
        await lab.apply(execution.progress(job, lab.now, Progress(50.0), lab.rules))
        assert await alone(lab, change) == Applied(change.job)

    async def test_a_job_that_has_another_owner_is_stale(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(lab.end(job, Completed('"r"')))
        await lab.finish(job, Released())
        taken = (await lab.claim(await lab.worker()))[0]
        assert await alone(lab, change) == WasStale(taken)
        assert await lab.get(job) == taken
        assert [one.outcome for one in await lab.attempts(job)] == [Outcome.RELEASED]

    async def test_a_job_that_is_gone_is_stale(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        change = lab.stamp(lab.end(job, Completed('"r"')))
        done = await lab.finish(job)
        assert done.finished_at is not None
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.at(1)}) == 1
        assert await alone(lab, change) == WasStale(None)

    async def test_jobs_and_a_change_are_committed_together(self, lab: Lab) -> None:
        parent, child = await lab.running(await lab.worker()), lab.job("child")
        change = lab.stamp(lab.end(parent, Completed('"r"')))
        async with lab.transactions.transaction() as connection:
            stored(await insert(lab, connection, child))
            assert await apply(lab, connection, change) == Applied(change.job)
        assert (await lab.get(parent)).status is Status.COMPLETED
        assert (await lab.get(child)).status is Status.QUEUED
