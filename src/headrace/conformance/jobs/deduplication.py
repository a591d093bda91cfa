"""Dedup keys that are held for a period, and submits that replace the holder's work."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Failed
from headrace.core.batch import Batch
from headrace.core.change import Change, Conflict, KeyEffect
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.decision import held_until
from headrace.core.lifecycle.deduplication import meet
from headrace.core.lifecycle.retention import Kept
from headrace.core.stats.verification import BOOKS
from headrace.core.status import ENDED, Status, Verb
from headrace.engine import Claimed, Duplicated, Engine, InsertAnswer, Inserted, Refused
from headrace.engine.transactions import walk_async
from headrace.errors import Unavailable
from headrace.runtime.writes.duplicates import meeting

__all__ = ["Uniqueness"]

PERIOD_SECONDS = 600.0


def wanted(lab: Lab, payload: str = '{"n":2}', **options: Any) -> Job:
    """Return a job that replaces the work of its key's holder."""
    return lab.job(payload=payload, dedup="k", on_duplicate="replace", **options)


async def submit(lab: Lab, job: Job, engine: Engine | None = None) -> InsertAnswer:
    """Submit as a session does: the fate of a holder is decided, applied, and decided again if it moved."""
    store = engine or lab.engine

    async def insert() -> InsertAnswer:
        answer: InsertAnswer = Refused(Unavailable("not yet"))
        while _refused(answer):
            [answer] = await store.jobs.insert([job], lab.now)
        return answer

    async def execute(change: Change | None) -> Any:
        return await insert() if change is None else (await store.jobs.apply([lab.stamp(change)], lab.now))[0]

    return await walk_async(meeting(job, await insert(), lambda: lab.now), execute)


def _refused(answer: InsertAnswer) -> bool:
    """Return whether another job has the key now, so that the job is submitted again."""
    return isinstance(answer, Refused) and isinstance(answer.error, Unavailable)


async def verify(lab: Lab) -> None:
    """Assert that redundant data agrees."""
    for name in BOOKS.keys() - {"waits"}:
        book = await lab.engine.records.verify(name)
        assert not book.wrong, book


class Uniqueness(Part):
    """What engines promise about periods and replacements."""

    # -- for a period

    async def test_a_completed_job_holds_its_key_for_its_period(self, lab: Lab) -> None:
        done = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        again = lab.job(dedup="k")
        assert await lab.insert(again) == [Duplicated(done)]
        lab.later(PERIOD_SECONDS - 0.000001)
        assert await submit(lab, again) == Duplicated(done), "until the last moment"
        await verify(lab)
        lab.later(0.000001)
        answer = await submit(lab, again)
        assert isinstance(answer, Inserted)
        assert answer.job.id == again.id
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(answer.job)], "which holds the key now"
        assert (await lab.get(done)).status is Status.COMPLETED
        await verify(lab)

    @pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
    async def test_one_that_did_not_complete_lets_go_at_once(self, lab: Lab, status: Status) -> None:
        await lab.stand(status, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        assert isinstance((await lab.insert(lab.job(dedup="k")))[0], Inserted)
        await verify(lab)

    async def test_one_that_completes_after_its_period_lets_go_at_once(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), dedup="k", dedup_for=PERIOD_SECONDS)
        lab.later(PERIOD_SECONDS)
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(await lab.get(job))], "while it is live"
        await lab.finish(job)
        assert isinstance((await lab.insert(lab.job(dedup="k")))[0], Inserted)

    async def test_a_discarded_job_lets_go(self, lab: Lab) -> None:
        done = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        await lab.do(actions.discard(done, lab.now))
        assert isinstance((await lab.insert(lab.job(dedup="k")))[0], Inserted)
        await verify(lab)

    async def test_one_that_was_completed_by_hand_holds_its_key_too(self, lab: Lab) -> None:
        job = await lab.put(dedup="k", dedup_for=PERIOD_SECONDS)
        done = await lab.do(actions.resolve(job, lab.now, result_text="1"))
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(done)]
        await verify(lab)

    async def test_keys_for_a_period_are_those_of_a_customer_and_a_task(self, lab: Lab) -> None:
        await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS, customer="a")
        others = [lab.job(dedup="k"), lab.job(dedup="k", customer="b"), lab.job("other", dedup="k", customer="a")]
        assert all(isinstance(answer, Inserted) for answer in await lab.insert(*others))

    async def test_a_job_is_kept_as_long_as_it_holds_its_key(self, lab: Lab) -> None:
        done = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        other = await lab.stand(Status.COMPLETED, "other", dedup="k", dedup_for=1.0)
        lab.later(PERIOD_SECONDS)
        until = held_until(done)
        assert until is not None
        before = dict.fromkeys(ENDED, until)
        assert await lab.engine.jobs.delete({**before, Status.COMPLETED: lab.at(-0.000001)}) == 1
        assert await lab.gone(other), "its period was over by then"
        assert (await lab.get(done)) == done
        assert await lab.engine.jobs.delete(before) == 1
        assert await lab.gone(done)
        assert isinstance((await lab.insert(lab.job(dedup="k")))[0], Inserted)
        await verify(lab)

    async def test_its_own_retention_counts_from_the_end_of_its_period_too(self, lab: Lab) -> None:
        done = await lab.stand(
            Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS, retention=Kept(completed=5.0)
        )
        free = await lab.stand(Status.COMPLETED, "free", retention=Kept(completed=5.0))
        before = dict.fromkeys(ENDED, lab.at(-3600))
        lab.later(PERIOD_SECONDS + 4.999999)
        assert await lab.engine.jobs.delete(before, now=lab.now) == 1
        assert await lab.gone(free)
        assert await lab.get(done) == done
        lab.later(0.000001)
        assert await lab.engine.jobs.delete(before, now=lab.now) == 1
        assert await lab.gone(done)

    async def test_a_retry_is_refused_while_a_period_runs(self, lab: Lab) -> None:
        failed = await lab.stand(Status.FAILED, "work", dedup="k")
        done = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        assert await lab.apply(actions.retry(failed, lab.now)) == [Conflict(failed, done)]

    # -- replacing

    @pytest.mark.parametrize("status", [Status.WAITING, Status.SCHEDULED, Status.QUEUED, Status.RETRYING])
    async def test_who_waits_does_what_was_submitted_last(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work", dedup="k", payload='{"n":1}', tags=("t",))
        lab.later(1)
        new = wanted(lab, delay=30, priority=90, queue="q", not_after=60, tags=("u",))
        answer = await submit(lab, new)
        assert isinstance(answer, Duplicated)
        found = await lab.get(job)
        assert answer == Duplicated(found, replaced=True)
        assert await lab.gone(new)
        assert (found.id, found.payload_text) == (job.id, '{"n":2}')
        assert (found.queue, found.priority, found.not_after) == ("q", 90, new.not_after)
        assert (found.available_at, found.charged) == (lab.at(30), 0)
        assert found.status is (Status.WAITING if status is Status.WAITING else Status.SCHEDULED)
        assert found.spec == job.spec, "what was asked for first stays"
        [event] = (await lab.engine.records.history(job.id)).events
        assert (event.verb, event.at) == (Verb.REPLACE, lab.now)
        assert event.details is not None
        assert event.details["submit"] == str(new.id)
        assert (await lab.engine.records.ledger()).accepted == 1
        await verify(lab)

    @pytest.mark.parametrize(
        "text",
        ['{"a" : 1,  "a":2 }', '{"nul":"\\u0000","half":"\\ud83d"}', '{"t":"\N{ALCHEMICAL SYMBOL FOR FIRE}\'\\""}'],
        ids=["spaces", "escapes", "unicode"],
    )
    async def test_the_payload_is_kept_to_the_letter(self, lab: Lab, text: str) -> None:
        await lab.put(dedup="k")
        await submit(lab, wanted(lab, text))
        assert (await lab.claim(await lab.worker()))[0].payload_text == text

    async def test_it_is_claimed_where_and_when_the_last_submit_wants_it(self, lab: Lab, worker: UUID) -> None:
        job = await lab.put(dedup="k", delay=10)
        rest = await lab.put("other", queue="q", priority=70)
        lab.later(5)
        await submit(lab, wanted(lab, delay=10, queue="q", priority=90))
        lab.later(6)
        assert [one.id for one in await lab.claim(worker)] == [rest.id], "the delay counts anew"
        later = await lab.put("other", queue="q", priority=70)
        lab.later(5)
        claimed = await lab.claim(worker, queues=("q",))
        assert [one.id for one in claimed] == [job.id, later.id]
        assert claimed[0].payload_text == '{"n":2}'
        await verify(lab)

    async def test_who_is_in_line_and_is_to_run_at_once_keeps_its_place(self, lab: Lab) -> None:
        first = await lab.put(dedup="k")
        lab.later(1)
        await lab.put("other")
        lab.later(1)
        await submit(lab, wanted(lab))
        claimed = await lab.claim(await lab.worker())
        assert [one.task for one in claimed] == ["work", "other"]
        assert (claimed[0].id, claimed[0].arrived_at, claimed[0].payload_text) == (
            first.id,
            first.arrived_at,
            '{"n":2}',
        )

    async def test_a_delayed_job_is_run_at_once_if_the_last_submit_says_so(self, lab: Lab) -> None:
        job = await lab.put(dedup="k", delay=60)
        lab.later(1)
        answer = await submit(lab, wanted(lab))
        assert isinstance(answer, Duplicated)
        assert (answer.job.status, answer.job.arrived_at) == (Status.QUEUED, lab.now)
        assert [one.id for one in await lab.claim(await lab.worker())] == [job.id]

    async def test_a_job_with_a_concurrency_key_stands_where_it_is_moved_to(self, lab: Lab, worker: UUID) -> None:
        job = await lab.put(dedup="k", concurrency_key="c")
        await lab.put(concurrency_key="c", queue="q")
        await submit(lab, wanted(lab, queue="q", priority=90, concurrency_key="c"))
        await verify(lab)
        assert (await lab.claim(worker, 1, queues=("q",)))[0].id == job.id
        await verify(lab)

    @pytest.mark.parametrize("status", [Status.ASSIGNED, Status.ACCEPTED, Status.RUNNING])
    async def test_who_runs_lets_go_of_the_key_and_a_new_job_holds_it(self, lab: Lab, status: Status) -> None:
        job = await lab.stand(status, "work", dedup="k", payload='{"n":1}')
        new = wanted(lab)
        answer = await submit(lab, new)
        assert isinstance(answer, Inserted)
        assert answer.job.id == new.id
        found = await lab.get(job)
        assert (found.status, found.worker, found.epoch) == (job.status, job.worker, job.epoch)
        assert found.payload_text == '{"n":1}'
        assert await lab.insert(lab.job(dedup="k")) == [Duplicated(answer.job)]
        [event] = (await lab.engine.records.history(job.id)).events
        assert event.details == {"new_job": str(new.id)}
        await verify(lab)
        end = execution.finish(found, Completed(), lab.now, 0.5, lab.rules, started_at=lab.now)
        if status is not Status.ASSIGNED:
            await lab.do(end)
            assert await lab.insert(lab.job(dedup="k")) == [Duplicated(answer.job)], "its end takes no key from others"
            await verify(lab)

    async def test_who_let_go_may_fail_and_run_beside_the_new_one(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), dedup="k")
        new = wanted(lab)
        await submit(lab, new)
        late = await lab.finish(await lab.get(job), Failed(error=OOPS))
        assert late.status is Status.RETRYING
        await verify(lab)
        assert isinstance(await submit(lab, replace(wanted(lab), id=lab.new_id())), Duplicated)
        assert (await lab.get(late)) == late, "the key leads to the new one"
        dead = await lab.do(actions.resolve(late, lab.now, error=OOPS))
        [verdict] = await lab.apply(actions.retry(dead, lab.now))
        assert isinstance(verdict, Conflict)
        assert verdict.holder is not None
        assert verdict.holder.id == new.id

    async def test_what_completed_is_not_replaced_while_its_period_runs(self, lab: Lab) -> None:
        done = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        new = wanted(lab)
        assert await submit(lab, new) == Duplicated(done)
        lab.later(PERIOD_SECONDS)
        assert isinstance(await submit(lab, new), Inserted)

    async def test_a_request_that_is_repeated_changes_nothing(self, lab: Lab) -> None:
        first = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=1.0, request_key="r", request_hash="h")
        lab.later(2)
        again = lab.job(dedup="k", request_key="r", request_hash="h")
        assert await submit(lab, again) == Duplicated(first), "its period is over, but it is the same request"
        other = lab.job(dedup="k", request_key="s", request_hash="h")
        assert isinstance(await submit(lab, other), Inserted)

    async def test_a_rerun_of_what_completed_is_not_kept_away_by_the_period(self, lab: Lab) -> None:
        done = await lab.stand(Status.COMPLETED, "work", dedup="k", dedup_for=PERIOD_SECONDS)
        again = actions.rerun(done, lab.new_id(), lab.now)
        answer = await submit(lab, again)
        assert isinstance(answer, Inserted)
        assert answer.job.id == again.id
        assert isinstance(await submit(lab, actions.rerun(done, lab.new_id(), lab.now)), Duplicated), (
            "but by a live job"
        )
        await verify(lab)

    # -- again

    async def test_a_submit_that_was_merged_is_not_applied_again_over_a_newer_one(self, lab: Lab) -> None:
        job = await lab.put(dedup="k", delay=60)
        one, two = wanted(lab, '{"n":1}', delay=60), wanted(lab, '{"n":2}', delay=60)
        await submit(lab, one)
        await submit(lab, two)
        for repeated in (one, two, one):
            assert await submit(lab, repeated) == Duplicated(await lab.get(job), replaced=True)
        assert (await lab.get(job)).payload_text == '{"n":2}'
        assert len((await lab.engine.records.history(job.id)).events) == 2

    async def test_a_submit_that_was_merged_is_known_while_its_job_is_kept(self, lab: Lab) -> None:
        job = await lab.put(dedup="k")
        new = wanted(lab)
        await submit(lab, new)
        [claimed] = await lab.claim(await lab.worker())
        assert await submit(lab, new) == Duplicated(claimed, replaced=True), "while it runs"
        done = await lab.finish(await lab.start(claimed))
        assert await submit(lab, new) == Duplicated(done, replaced=True), "and when it has ended"
        assert (await lab.engine.records.ledger()).accepted == 1
        lab.later(1)
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 1
        assert await lab.gone(job)
        assert isinstance(await submit(lab, new), Inserted), "it goes with the job"
        await verify(lab)

    async def test_a_lost_reply_is_found_out(self, lab: Lab) -> None:
        job = await lab.put(dedup="k", delay=60)
        one, two = wanted(lab, '{"n":1}', delay=60), wanted(lab, '{"n":2}', delay=60)
        change = lab.stamp(meet(job, one, lab.now) or pytest.fail("it can be replaced"))
        [first] = await lab.engine.jobs.apply([change], lab.now)
        assert await lab.engine.jobs.apply([change], lab.now) == [first], "the same write, sent again"
        await submit(lab, two)
        [late] = await lab.engine.jobs.apply([change], lab.now)
        assert isinstance(late, Conflict), "it came before, and others have changed the job since"
        assert await lab.insert(one) == [Duplicated(await lab.get(job), replaced=True)]

    async def test_a_decision_from_an_older_copy_changes_nothing(self, lab: Lab) -> None:
        job = await lab.put(dedup="k", payload='{"n":1}')
        change = meet(job, wanted(lab), lab.now)
        assert change is not None
        [claimed] = await lab.claim(await lab.worker())
        assert await lab.apply(change) == [Conflict(claimed)]
        assert (await lab.get(job)) == claimed
        assert claimed.payload_text == '{"n":1}'
        assert await lab.insert(replace(wanted(lab), id=change.merges or job.id)) == [Duplicated(claimed)]
        freeing = meet(claimed, wanted(lab), lab.now)
        assert freeing is not None
        assert freeing.key is KeyEffect.RELEASE
        done = await lab.finish(await lab.start(claimed))
        assert await lab.apply(freeing) == [Conflict(done)]
        assert await lab.gone(freeing.inserts[0])

    # -- together with others

    async def test_of_several_in_one_call_the_first_is_stored_and_the_others_replace_it(self, lab: Lab) -> None:
        jobs = [wanted(lab, f'{{"n":{n}}}') for n in range(3)]
        answers = await lab.insert(*jobs)
        assert isinstance(answers[0], Inserted)
        assert answers[1:] == [Duplicated(answers[0].job)] * 2
        for job in jobs[1:]:
            assert isinstance(await submit(lab, job), Duplicated)
        assert (await lab.get(jobs[0])).payload_text == '{"n":2}'
        assert await lab.insert(*jobs) == [
            Inserted(found := await lab.get(jobs[0])),
            Duplicated(found, replaced=True),
            Duplicated(found, replaced=True),
        ]
        rest = lab.job()
        batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
        answers = await lab.engine.jobs.insert([jobs[1], rest], lab.now, batch, whole=True)
        assert answers[0] == Duplicated(found, replaced=True)
        assert isinstance(answers[1], Inserted)
        answers = await lab.engine.jobs.insert([jobs[2]], lab.now, companions={jobs[2].id: [new := lab.job()]})
        assert answers == [Duplicated(found, replaced=True)]
        assert await lab.gone(new), "companions come with a new job only"

    async def test_a_replaced_job_stays_what_it_is_to_others(self, lab: Lab, worker: UUID) -> None:
        batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
        parent = await lab.put("parent")
        job = lab.job(dedup="k", batch=batch.id, parent=parent.id, after=(parent.id,), waits=1)
        await lab.engine.jobs.insert([job], lab.now, batch)
        waiter = await lab.put("waiter", after=(job.id,), waits=1)
        answer = await submit(lab, wanted(lab))
        assert isinstance(answer, Duplicated)
        assert (answer.job.status, answer.job.waits, answer.job.spec) == (Status.WAITING, 1, job.spec)
        await lab.finish(await lab.start((await lab.claim(worker))[0]))
        await lab.process_notes()
        [claimed] = await lab.claim(worker)
        assert (claimed.id, claimed.payload_text) == (job.id, '{"n":2}')
        await lab.finish(await lab.start(claimed))
        await lab.process_notes()
        assert (await lab.get(waiter)).status is Status.QUEUED
        [found] = await lab.engine.families.batches([batch.id])
        assert found is not None
        assert (found.tally.total, found.tally.completed) == (1, 1)
        await verify(lab)

    async def test_suspects_stay_so(self, lab: Lab) -> None:
        job = replace(lab.job(dedup="k"), suspect=1, attempt=1, charged=1)
        await lab.insert(job)
        answer = await submit(lab, wanted(lab, queue="q"))
        assert isinstance(answer, Duplicated)
        assert (answer.job.suspect, answer.job.charged, answer.job.queue) == (1, 0, "q")
        assert await lab.get(job) == answer.job

    # -- at the same time

    async def test_of_many_that_replace_at_once_each_is_merged_once(self, lab: Lab) -> None:
        async with lab.sessions(2) as others:
            sessions = (lab.engine, *others)
            jobs = [wanted(lab, f'{{"n":{n}}}', delay=60) for n in range(9)]
            answers = await asyncio.gather(*(submit(lab, job, sessions[n % 3]) for n, job in enumerate(jobs)))
        stored = [answer.job for answer in answers if isinstance(answer, Inserted)]
        assert len(stored) == 1
        merged = [answer.job for answer in answers if isinstance(answer, Duplicated) and answer.replaced]
        assert len(merged) == 8
        last = max(merged, key=lambda job: job.rev)
        found = await lab.get(stored[0])
        assert (found.rev, found.payload_text) == (last.rev, last.payload_text)
        events = (await lab.engine.records.history(found.id)).events
        assert {event.details["submit"] for event in events if event.details} == {
            str(job.id) for job in jobs if job.id != found.id
        }
        await verify(lab)

    async def test_who_claims_meanwhile_gets_all_of_a_submit_or_nothing_of_it(self, lab: Lab) -> None:
        """A worker runs what was submitted last before its claim; later submits run after it."""
        worker, ran = await lab.worker(), list[Job]()

        async def claims(other: Engine) -> None:
            for request in range(1000, 1012):
                profiles = frozenset(one.id for one in (await other.documents.profiles()).profiles)
                ask = ClaimRequest(n=8, free=8, profiles=profiles)
                claimed = await other.jobs.claim(worker, ask, request, lab.now)
                assert isinstance(claimed, Claimed)
                ran.extend(claimed.jobs)

        async def submits() -> list[InsertAnswer]:
            return [await submit(lab, wanted(lab, f'{{"n":{n}}}')) for n in range(24)]

        async with lab.sessions() as [other]:
            answers, _ = await asyncio.gather(submits(), claims(other))
        ran += await lab.claim(worker)
        assert ran[-1].payload_text == '{"n":23}', "the last word counts"
        assert len({job.id for job in ran}) == len(ran) == sum(isinstance(one, Inserted) for one in answers)
        for job in ran:
            seen = [
                n for n, answer in enumerate(answers) if not isinstance(answer, Refused) and answer.job.id == job.id
            ]
            assert job.payload_text == f'{{"n":{max(seen)}}}', "it ran what was merged into it last"
        await verify(lab)
