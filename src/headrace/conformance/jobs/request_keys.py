"""Request keys: one request makes one job, for as long as the job is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Lab, Part
from headrace.core.attempt import Completed
from headrace.core.batch import Batch
from headrace.core.change import Applied
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.lifecycle.deduplication import hash_of
from headrace.core.status import ENDED, Status
from headrace.engine import Duplicated, Engine, InsertAnswer, Inserted, Refused
from headrace.errors import KeyReused, Unavailable

__all__ = ["Requests"]


def asked(lab: Lab, key: str = "r", payload: str = '{"n":1}', task: str = "work", **spec: Any) -> Job:
    """Return a job for a request."""
    return lab.job(task, payload=payload, request_key=key, request_hash=hash_of(payload), **spec)


def reused(answer: InsertAnswer, first: Job) -> bool:
    """Return whether the reply says that this job used the key before."""
    return isinstance(answer, Refused) and isinstance(answer.error, KeyReused) and answer.error.job.id == first.id


class Requests(Part):
    """What ``insert`` promises about request keys."""

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_a_request_has_one_job_whatever_became_of_it(self, lab: Lab, status: Status) -> None:
        spec = {"payload": '{"n":1}', "request_key": "r", "request_hash": hash_of('{"n":1}')}
        first = await lab.stand(status, "work", **spec)
        again = asked(lab)
        assert await lab.insert(again) == [Duplicated(first)]
        assert await lab.gone(again)
        [answer] = await lab.insert(asked(lab, payload='{"n":2}'))
        assert reused(answer, first)
        assert await lab.insert(first) == [Inserted(first)], "its own id comes first"
        assert (await lab.engine.records.ledger()).accepted == 1

    async def test_keys_are_those_of_a_customer_and_a_task(self, lab: Lab) -> None:
        pairs = [(None, "r"), ("a", "r"), ("ar", ""), ("b", "r"), (None, "\x1f1:ar"), (None, "\x1f\x1f1:ar"), ("", "r")]
        wishes: list[dict[str, Any]] = [
            {"task": task, "customer": who, "key": key} for task in ("one", "two") for who, key in pairs
        ]
        stored = await lab.put_all(*(asked(lab, **wish) for wish in wishes))
        assert await lab.insert(*(asked(lab, **wish) for wish in wishes)) == [Duplicated(job) for job in stored]

    async def test_long_keys_are_told_apart_at_their_ends(self, lab: Lab) -> None:
        long = "\N{GRINNING FACE}" * 511
        wishes = [(who + one, long + two) for who in ("", long) for one in "ab" for two in "ab"]
        stored = await lab.put_all(*(asked(lab, key, customer=who) for who, key in wishes))
        assert await lab.insert(*(asked(lab, key, customer=who) for who, key in wishes)) == [
            Duplicated(job) for job in stored
        ]

    async def test_each_of_a_bulk_has_its_own_verdict(self, lab: Lab) -> None:
        [first] = await lab.put_all(asked(lab, "old"))
        jobs = [
            asked(lab, "new"),
            lab.job(),
            asked(lab, "old"),
            asked(lab, "new"),
            asked(lab, "new", payload="{}"),
            asked(lab, "old", payload="{}"),
            asked(lab, "last"),
        ]
        answers = await lab.insert(*jobs)
        assert isinstance(answers[0], Inserted)
        assert isinstance(answers[1], Inserted)
        assert answers[2] == Duplicated(first)
        assert answers[3] == Duplicated(answers[0].job)
        assert reused(answers[4], jobs[0])
        assert reused(answers[5], first)
        assert isinstance(answers[6], Inserted)
        assert (await lab.engine.records.ledger()).accepted == 4

    async def test_what_is_stored_whole_is_not_stored_with_a_key_for_something_else(self, lab: Lab) -> None:
        [first] = await lab.put_all(asked(lab))
        rest, double = lab.job(), asked(lab)
        made = await lab.engine.jobs.insert([rest, double], lab.now, whole=True)
        assert isinstance(made[0], Inserted)
        assert made[1] == Duplicated(first)
        one, other = lab.job(), asked(lab, payload="{}")
        batch = Batch(id=lab.new_id(), created_at=lab.now, touched_at=lab.now)
        for answer in await lab.engine.jobs.insert([one, other], lab.now, batch):
            assert reused(answer, first)
        twice = [asked(lab, "two"), asked(lab, "two", payload="{}")]
        for answer in await lab.engine.jobs.insert(twice, lab.now, whole=True):
            assert reused(answer, twice[0])
        assert await lab.gone(one)
        assert await lab.gone(twice[0])
        assert await lab.engine.families.batches([batch.id]) == [None]

    async def test_the_request_comes_before_the_dedup_key(self, lab: Lab) -> None:
        [first] = await lab.put_all(asked(lab, "one", dedup="d"))
        await lab.cancel(first)
        [second] = await lab.put_all(asked(lab, "two", dedup="d"))
        assert await lab.insert(asked(lab, "one", dedup="d")) == [Duplicated(await lab.get(first))]
        assert await lab.insert(asked(lab, "two", dedup="d")) == [Duplicated(second)]
        assert reused((await lab.insert(asked(lab, "one", payload="{}", dedup="d")))[0], first)

    async def test_a_request_that_met_a_dedup_key_made_no_job_and_has_none(self, lab: Lab) -> None:
        holder = await lab.put(dedup="d")
        assert await lab.insert(asked(lab, dedup="d")) == [Duplicated(holder)]
        await lab.cancel(holder)
        [made] = await lab.insert(asked(lab, payload="{}", dedup="d"))
        assert isinstance(made, Inserted)

    async def test_a_retry_keeps_the_request_and_a_rerun_has_none(self, lab: Lab) -> None:
        [first] = await lab.put_all(asked(lab))
        ended = await lab.cancel(first)
        again = actions.rerun(ended, lab.new_id(), lab.now)
        assert again.spec.request_key is None
        assert isinstance((await lab.insert(again))[0], Inserted)
        alive = await lab.do(actions.retry(ended, lab.now))
        assert await lab.insert(asked(lab)) == [Duplicated(alive)]

    async def test_a_key_is_free_when_its_job_is_pruned(self, lab: Lab) -> None:
        [old] = await lab.put_all(asked(lab))
        await lab.cancel(old)
        lab.later(60)
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 1
        [new] = await lab.put_all(asked(lab, payload='{"n":2}'))
        assert reused((await lab.insert(asked(lab)))[0], new)

    async def test_with_a_change_a_repeated_request_makes_no_second_job(self, lab: Lab) -> None:
        [first] = await lab.put_all(asked(lab, task="other"))
        job = await lab.running(await lab.worker())
        again, reuse, new = asked(lab, task="other"), asked(lab, task="other", payload="{}"), asked(lab, "n")
        done = execution.finish(job, Completed(), lab.now, 0.5, lab.rules)
        [verdict] = await lab.apply(replace(done, inserts=(again, reuse, new)))
        assert isinstance(verdict, Applied)
        assert await lab.gone(again)
        assert await lab.gone(reuse)
        assert (await lab.get(new)).spec.request_key == "n"
        assert await lab.get(first) == first

    async def test_fifty_at_once_make_one_job(self, lab: Lab) -> None:
        async def submit(session: Engine, job: Job) -> InsertAnswer:
            while True:
                answer, _ = await session.jobs.insert([job, beside], lab.now)
                if not (isinstance(answer, Refused) and isinstance(answer.error, Unavailable)):
                    return answer

        beside = lab.job()
        async with lab.sessions(4) as others:
            sessions, texts = (lab.engine, *others), ('{"a":1,"b":2}', '{ "b": 2, "a": 1.0 }')
            wishes = [asked(lab, payload=texts[n % 2]) for n in range(50)]
            answers = await asyncio.gather(*(submit(sessions[n % 5], job) for n, job in enumerate(wishes)))
        assert sorted(type(answer).__name__ for answer in answers) == ["Duplicated"] * 49 + ["Inserted"]
        assert len({answer.job.id for answer in answers if not isinstance(answer, Refused)}) == 1
        assert (await lab.engine.records.ledger()).accepted == 2
