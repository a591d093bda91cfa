"""Profiles: for how many pairs of task and requirements a customer may have live jobs; jobs that are never refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from headrace.conformance.lab import Lab, Part
from headrace.conformance.transactions import alone, insert
from headrace.core.attempt import Completed
from headrace.core.auth.api_keys import ApiKey, StoredKey
from headrace.core.batch import Batch
from headrace.core.change import Applied, Conflict, LeftOut
from headrace.core.defaults import MAX_CUSTOMER_PROFILES, MAX_CUSTOMERS_PROFILES, MAX_PROFILES
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.query import Filter
from headrace.core.status import LIVE
from headrace.core.webhooks.delivery import NUMBER, QUEUE, TASK, first_told
from headrace.core.webhooks.target import GROUPS, Target
from headrace.engine import MAX_BATCH, Duplicated, Engine, InsertAnswer, Inserted, Refused
from headrace.errors import KeyReused, TooManyProfiles

__all__ = ["Profiled"]

ACME = "acme"


def names(lab: Lab, count: int, customer: str | None = ACME, prefix: str = "name", **spec: Any) -> list[Job]:
    """Return new jobs, each of another task."""
    return [lab.job(f"{prefix} {n}", customer=customer, **spec) for n in range(count)]


def stored(answers: Sequence[InsertAnswer]) -> list[Job]:
    """Return the stored jobs; all others were refused for lack of a profile."""
    refused = [answer.error for answer in answers if not isinstance(answer, Inserted)]  # type: ignore[union-attr]
    assert all(isinstance(error, TooManyProfiles) for error in refused), refused
    return [answer.job for answer in answers if isinstance(answer, Inserted)]


async def allow(
    lab: Lab, profiles: int | None, name: str = "key", customer: str = ACME, until: datetime | None = None
) -> None:
    """Make a key of the customer with this limit."""
    at = datetime(2030, 1, 1, tzinfo=UTC)
    key = ApiKey(
        name=name, prefix="hr_12345678", scopes=("submit",), customer=customer, created_at=at, profiles=profiles
    )
    key = replace(key, expires_at=until)
    await lab.set(f"key:{name}", msgspec.json.encode(StoredKey("0" * 64, key)).decode())


class Profiled(Part):
    """Which profiles count against which limit."""

    async def test_a_customer_has_live_jobs_of_so_many_pairs(self, lab: Lab) -> None:
        answers = await lab.insert(*names(lab, MAX_CUSTOMER_PROFILES + 5))
        assert [isinstance(answer, Inserted) for answer in answers] == [True] * MAX_CUSTOMER_PROFILES + [False] * 5, (
            "first come"
        )
        first = stored(answers)[0]
        [again, bare, other, operator] = await lab.insert(
            lab.job(first.task, customer=ACME),
            lab.job(first.task, customer=ACME, requires={"gpu": 1}),
            lab.job("new", customer="other"),
            lab.job("new"),
        )
        assert isinstance(again, Inserted), "a pair that it has"
        assert isinstance(bare, Refused), "requirements make another pair"
        assert "acme" in str(bare.error), "it names the customer"
        assert "wait until" in str(bare.error), "and what to do"
        assert isinstance(other, Inserted), "another customer's are its own"
        assert isinstance(operator, Inserted)

    async def test_one_call_of_very_many_is_bounded(self, lab: Lab) -> None:
        assert len(stored(await lab.insert(*names(lab, MAX_BATCH)))) == MAX_CUSTOMER_PROFILES
        assert (await lab.engine.records.ledger()).accepted == MAX_CUSTOMER_PROFILES
        assert len((await lab.engine.documents.profiles()).profiles) == MAX_CUSTOMER_PROFILES, (
            "what is refused takes no room"
        )

    async def test_all_or_nothing_holds_here_too(self, lab: Lab) -> None:
        jobs = names(lab, MAX_CUSTOMER_PROFILES + 1)
        assert stored(await lab.engine.jobs.insert(jobs, lab.now, whole=True)) == []
        assert (await lab.engine.records.ledger()).accepted == 0

    async def test_queues_make_no_pairs(self, lab: Lab) -> None:
        await lab.put_all(*(lab.job(customer=ACME, queue=f"q{n}") for n in range(MAX_CUSTOMER_PROFILES + 20)))

    async def test_a_queue_by_customer_counts_the_same(self, lab: Lab) -> None:
        await lab.set("queue:apart", '{"by_customer": true}')
        assert (
            len(stored(await lab.insert(*names(lab, MAX_CUSTOMER_PROFILES + 5, queue="apart"))))
            == MAX_CUSTOMER_PROFILES
        )
        assert len(stored(await lab.insert(*names(lab, MAX_CUSTOMER_PROFILES + 5)))) == MAX_CUSTOMER_PROFILES, (
            "they are the same pairs"
        )

    async def test_a_pair_whose_jobs_have_ended_is_free(self, lab: Lab) -> None:
        jobs = await lab.put_all(*names(lab, MAX_CUSTOMER_PROFILES))
        assert stored(await lab.insert(*names(lab, 2, prefix="new"))) == []
        await lab.cancel(jobs[0])
        assert len(stored(await lab.insert(*names(lab, 2, prefix="new")))) == 1
        assert stored(await lab.insert(lab.job(jobs[0].task, customer=ACME))) == [], "another has its place"

    async def test_what_another_session_remembers_is_no_way_around(self, lab: Lab) -> None:
        async with lab.sessions() as [other]:
            first, second = names(lab, MAX_CUSTOMER_PROFILES), names(lab, MAX_CUSTOMER_PROFILES, prefix="other")
            for job in stored(await other.jobs.insert(first, lab.now)):
                await lab.cancel(job)
            assert len(stored(await lab.insert(*second))) == MAX_CUSTOMER_PROFILES
            again = [replace(job, id=lab.new_id()) for job in first]
            assert stored(await other.jobs.insert(again, lab.now)) == []

    async def test_calls_at_once_are_bounded_together(self, lab: Lab) -> None:
        async def flood(engine: Engine, of: int) -> list[Job]:
            found = list[Job]()
            for n in range(4):
                found += stored(await engine.jobs.insert(names(lab, 30, prefix=f"{of} {n}"), lab.now))
            return found

        async with lab.sessions(2) as others:
            found = await asyncio.gather(*(flood(engine, of) for of, engine in enumerate([lab.engine, *others])))
        assert sum(map(len, found)) == MAX_CUSTOMER_PROFILES

    async def test_a_key_says_how_many(self, lab: Lab) -> None:
        await allow(lab, 3)
        assert len(stored(await lab.insert(*names(lab, 5)))) == 3
        await allow(lab, 5, "another")
        assert len(stored(await lab.insert(*names(lab, 9)))) == 5, "the most that one of its keys says, at once"
        await allow(lab, 50, "of another", customer="other")
        await allow(lab, None, "silent")
        assert len(stored(await lab.insert(*names(lab, 9)))) == 5
        await allow(lab, 4, "another")
        answers = await lab.insert(*names(lab, 6))
        assert len(stored(answers)) == 5, "what it has it may use, however many that is"

    async def test_a_key_that_has_expired_says_nothing(self, lab: Lab) -> None:
        await allow(lab, 2)
        await allow(lab, 9, "expired", until=lab.at(-1))
        await allow(lab, 4, "valid", until=lab.at(1))
        assert len(stored(await lab.insert(*names(lab, 12)))) == 4

    async def test_a_retry_goes_by_the_keys_that_are_valid_then(self, lab: Lab) -> None:
        await allow(lab, 1)
        await allow(lab, 2, "valid", until=lab.at(1))
        first, second = [await lab.cancel(job) for job in await lab.put_all(*names(lab, 2))]
        await lab.put("live", customer=ACME)
        await lab.cancel(await lab.do(actions.retry(first, lab.now)))
        lab.later(1)
        [verdict] = await lab.apply(actions.retry(second, lab.now))
        assert isinstance(verdict, Conflict)
        assert verdict.too_many

    async def test_a_transaction_goes_by_the_keys_that_are_valid_then(self, lab: Lab) -> None:
        if lab.engine.transactions is None:
            return
        await allow(lab, 1)
        await allow(lab, 2, "valid", until=lab.at(1))
        async with lab.transactions.transaction() as connection:
            jobs = stored(await insert(lab, connection, *names(lab, 3)))
        first, second = [await lab.cancel(job) for job in jobs]
        await lab.put("live", customer=ACME)
        verdict = await alone(lab, lab.stamp(actions.retry(first, lab.now)))
        assert isinstance(verdict, Applied)
        await lab.cancel(verdict.job)
        lab.later(1)
        verdict = await alone(lab, lab.stamp(actions.retry(second, lab.now)))
        assert isinstance(verdict, Conflict)
        assert verdict.too_many
        async with lab.transactions.transaction() as connection:
            assert stored(await insert(lab, connection, lab.job("new", customer=ACME))) == []

    async def test_a_retry_needs_its_pair_again(self, lab: Lab) -> None:
        await allow(lab, 2)
        first = [await lab.cancel(job) for job in await lab.put_all(*names(lab, 2))]
        second = await lab.put_all(*names(lab, 2, prefix="new"))
        retry = actions.retry(first[0], lab.now)
        [verdict] = await lab.apply(retry)
        assert isinstance(verdict, Conflict)
        assert verdict.job == await lab.get(first[0]) == first[0], "it is as it was"
        assert "acme" in (verdict.too_many or "")
        await lab.cancel(second[0])
        change = lab.stamp(retry)
        for _ in range(2):
            assert await lab.engine.jobs.apply([change], lab.now) == [Applied(retry.job)], "also if it is repeated"
        [verdict] = await lab.apply(actions.retry(first[1], lab.now))
        assert isinstance(verdict, Conflict)
        assert verdict.too_many
        assert stored(await lab.insert(*names(lab, 2, prefix="newer"))) == [], "what is back counts"
        held = await lab.claim(await lab.worker(), tasks=(first[0].task,))
        assert [job.id for job in held] == [first[0].id]

    async def test_many_retries_in_one_call_are_each_for_itself(self, lab: Lab) -> None:
        await allow(lab, 2)
        ended = list[Job]()
        for turn in range(2):
            ended += [await lab.cancel(job) for job in await lab.put_all(*names(lab, 2, prefix=str(turn)))]
        ended += [await lab.cancel(job) for job in await lab.put_all(*names(lab, 3, None, "operator"))]
        ended += [await lab.cancel(await lab.put(TASK, customer=ACME))]
        verdicts = await lab.apply(*(actions.retry(job, lab.now) for job in ended))
        assert [isinstance(one, Applied) for one in verdicts] == [True, True, False, False, True, True, True, True]

    async def test_a_retry_in_a_transaction_is_the_same(self, lab: Lab) -> None:
        if lab.engine.transactions is None:
            return
        await allow(lab, 1)
        first = await lab.cancel(await lab.put("first", customer=ACME))
        second = await lab.put("second", customer=ACME)
        verdict = await alone(lab, lab.stamp(actions.retry(first, lab.now)))
        assert isinstance(verdict, Conflict)
        assert verdict.too_many
        await lab.cancel(second)
        assert isinstance(await alone(lab, lab.stamp(actions.retry(first, lab.now))), Applied)
        assert stored(await lab.insert(lab.job("third", customer=ACME))) == []

    async def test_what_is_not_new_is_answered_as_ever(self, lab: Lab) -> None:
        await allow(lab, 2)
        await lab.put("other", customer=ACME)
        first = await lab.put("first", customer=ACME, request_key="r", request_hash="h")
        ended = await lab.cancel(first)
        holder = await lab.put("holder", customer=ACME, dedup="k")
        new = lab.job("new", customer=ACME)
        repeats = [
            first,
            lab.job("first", customer=ACME, request_key="r", request_hash="h"),
            lab.job("first", customer=ACME, request_key="r", request_hash="another"),
            lab.job("holder", customer=ACME, dedup="k", requires={"gpu": 1}),
        ]
        for whole in (False, True):
            answers = [(await lab.engine.jobs.insert([job], lab.now, whole=whole))[0] for job in repeats]
            same, again, reused, met = answers
            assert same == Inserted(ended)
            assert again == Duplicated(ended)
            assert isinstance(reused, Refused)
            assert isinstance(reused.error, KeyReused)
            assert met == Duplicated(holder)
            assert stored(await lab.engine.jobs.insert([new], lab.now, whole=whole)) == []
        companions = {first.id: [lab.job("companion", customer=ACME)]}
        answers = await lab.engine.jobs.insert([new, *repeats[:2], holder], lab.now, companions=companions)
        assert isinstance(answers[0], Refused)
        assert answers[1:] == [Inserted(ended), Duplicated(ended), Inserted(holder)]
        assert (await lab.engine.records.ledger()).accepted == 3

    async def test_what_is_not_new_in_a_transaction_is_answered_as_ever(self, lab: Lab) -> None:
        if lab.engine.transactions is None:
            return
        await allow(lab, 1)
        ended = await lab.cancel(await lab.put("first", customer=ACME))
        holder = await lab.put("holder", customer=ACME, dedup="k")
        met = lab.job("holder", customer=ACME, dedup="k", requires={"gpu": 1})
        async with lab.transactions.transaction() as connection:
            answers = await insert(lab, connection, ended, met, lab.job("new", customer=ACME))
        assert answers[:2] == [Inserted(ended), Duplicated(holder)]
        assert stored(answers[2:]) == []

    async def test_what_was_moved_counts_where_it_is(self, lab: Lab) -> None:
        await allow(lab, 2)
        for job in await lab.put_all(*names(lab, 2, queue="a")):
            change = actions.move(job, "b", lab.now)
            assert change is not None
            await lab.do(change)
        assert stored(await lab.insert(*names(lab, 2, prefix="new"))) == []

    async def test_headraces_own_that_requires_something_counts(self, lab: Lab) -> None:
        await allow(lab, 2)
        forged = [lab.job(TASK, customer=ACME, requires={f"x{n}": True}) for n in range(4)]
        assert len(stored(await lab.insert(*forged))) == 2

    async def test_what_headrace_does_by_itself_is_outside(self, lab: Lab) -> None:
        await allow(lab, 1)
        await lab.put("only", customer=ACME)
        target = Target("wh_1", GROUPS["status_change"], ACME)
        job, deliveries = first_told(lab.job("only", customer=ACME, webhook=(target,)))
        [answer] = await lab.engine.jobs.insert([job], lab.now, companions={job.id: deliveries})
        assert isinstance(answer, Inserted), "a delivery"
        await lab.put("fired", customer=ACME, schedule="nightly")
        batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now, sealed=True)
        await lab.engine.jobs.insert([lab.job("only", customer=ACME, batch=batch.id)], lab.now, batch)
        after = lab.job("follow", customer=ACME)
        assert await lab.engine.families.settle(batch.id, lab.now, [after]) is None, "what follows a batch"
        assert await lab.get(after.id)
        assert stored(await lab.insert(lab.job("another", customer=ACME))) == []

    async def test_a_change_stores_all_that_it_inserts(self, lab: Lab) -> None:
        await allow(lab, 1)
        target = Target("wh_1", GROUPS["status_change"], ACME)
        job, deliveries = first_told(lab.job("only", customer=ACME, webhook=(target,)))
        await lab.engine.jobs.insert([job], lab.now, companions={job.id: deliveries})
        [held] = await lab.claim(await lab.worker(), tasks=("only",))
        change = execution.finish(held, Completed("1"), lab.now, 0.5, lab.rules, lab.now)
        more = lab.job("instance", customer=ACME)
        [verdict] = await lab.apply(replace(change, inserts=(*change.inserts, more)))
        assert verdict == Applied(change.job)
        assert await lab.get(more.id)
        page = await lab.engine.records.find(Filter(queue=frozenset({QUEUE})), lab.now, 100)
        assert sorted(one.metadata[NUMBER] for one in page.items) == [1, 2, 3], "submitted, started, completed"
        assert {one.task for one in page.items} == {TASK}

    async def test_what_is_left_out_is_on_record(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker(), "work")
        lost = lab.job("lost", after=(lab.new_id(),), waits=1)
        kept = lab.job("kept")
        change = lab.end(job, Completed("1"))
        [verdict] = await lab.apply(replace(change, inserts=(lost, kept)))
        assert isinstance(verdict, Applied)
        [out] = verdict.left_out
        assert (out.id, out.task) == (lost.id, "lost")
        assert out.why
        assert await lab.gone(lost)
        assert await lab.get(kept.id)
        [event] = (await lab.engine.records.history(job.id)).events
        assert (event.verb, event.at, event.details) == (LeftOut.VERB, change.job.updated_at, out.to_dict())

    async def test_a_message_does_not_wait_for_one_that_is_gone(self, lab: Lab) -> None:
        target = Target("wh_1", GROUPS["status_change"])
        job, _ = first_told(lab.job("work", webhook=(target,)))
        await lab.put_all(job)  # without its delivery, as if that were lost
        [held] = await lab.claim(await lab.worker(), tasks=("work",))
        change = lab.end(held, Completed("1"), started_at=lab.now)
        [verdict] = await lab.apply(change)
        assert verdict == Applied(change.job), "nothing is left out"
        page = await lab.engine.records.find(Filter(queue=frozenset({QUEUE})), lab.now, 100)
        assert sorted((one.metadata[NUMBER], one.waits) for one in page.items) == [(2, 0), (3, 1)]

    async def test_in_a_transaction_it_is_the_same(self, lab: Lab) -> None:
        if lab.engine.transactions is None:
            return
        await allow(lab, 2)
        async with lab.transactions.transaction() as connection:
            assert len(stored(await insert(lab, connection, *names(lab, 4)))) == 2
        assert stored(await lab.insert(*names(lab, 3, prefix="new"))) == []
        for job in (await lab.engine.records.find(Filter(status=LIVE), lab.now, 10)).items:
            await lab.cancel(job)
        async with lab.transactions.transaction() as connection:
            assert len(stored(await insert(lab, connection, *names(lab, 3, prefix="new")))) == 2

    async def test_no_number_of_customers_leaves_no_room_for_the_operator(self, lab: Lab) -> None:
        for first in range(0, MAX_CUSTOMERS_PROFILES // MAX_CUSTOMER_PROFILES, 10):
            some = [
                job for n in range(10) for job in names(lab, MAX_CUSTOMER_PROFILES, f"c{first + n}", f"{first + n}")
            ]
            jobs = await lab.put_all(*some)
        [late, same, operator] = await lab.insert(
            lab.job("late", customer="late"), lab.job(jobs[0].task, customer="late"), lab.job("late")
        )
        assert isinstance(late, Refused)
        assert isinstance(same, Inserted), "a pair that has live jobs takes no room"
        assert isinstance(operator, Inserted)
        await lab.put("fired", customer="late", schedule="nightly")
        await lab.cancel(jobs[1])
        assert len(stored(await lab.insert(lab.job("later", customer="later")))) == 0, "the operator's count as well"
        for job in jobs[2:5]:
            await lab.cancel(job)
        assert len(stored(await lab.insert(lab.job("later", customer="later")))) == 1
        for n in range(MAX_PROFILES - MAX_CUSTOMERS_PROFILES, 0, -MAX_BATCH):
            await lab.put_all(*names(lab, min(n, MAX_BATCH), None, f"operator {n}"))
        await lab.put_all(*names(lab, 9, None, "more than both"))
