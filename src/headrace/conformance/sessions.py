"""Sessions: opening and closing, other sessions on other threads, many at once, and hints."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from headrace.conformance.lab import Lab, Part, opened
from headrace.core.attempt import Completed
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.query import Filter
from headrace.engine import Claimed, Engine, Inserted
from headrace.engine.bus import Hint, Topic

__all__ = ["Sessions"]

T = TypeVar("T")


async def on_a_thread(engine: Engine, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
    """Open the session on the loop of another thread, do the work there, close it."""

    async def main() -> T:
        async with opened(engine):
            return await work(engine)

    return await asyncio.to_thread(lambda: asyncio.run(main()))


async def drain(lab: Lab, engine: Engine, worker: UUID, size: int) -> list[UUID]:
    """Claim and complete until nothing is left; return what was claimed."""
    profiles = frozenset(profile.id for profile in (await engine.documents.profiles()).profiles)
    seen: list[UUID] = []
    for request in range(1, 10_000):
        claimed = await engine.jobs.claim(worker, ClaimRequest(n=size, free=size, profiles=profiles), request, lab.now)
        assert isinstance(claimed, Claimed)
        if not claimed.jobs:
            break
        seen += (job.id for job in claimed.jobs)
        changes = [lab.stamp(lab.end(job, Completed("1"), started_at=lab.now)) for job in claimed.jobs]
        await engine.jobs.apply(changes, lab.now)
    return seen


class Sessions(Part):
    """What a session promises beside its verbs."""

    async def test_an_engine_says_what_it_is(self, lab: Lab) -> None:
        assert lab.engine.name
        assert lab.engine.rules == lab.rules
        assert lab.engine.another_session().name == lab.engine.name

    async def test_a_fresh_store_is_healthy_and_up_to_date(self, lab: Lab) -> None:
        assert [check for check in await lab.engine.check(lab.now) if check.level == "fail"] == []
        assert await lab.engine.migrate(plan=True) == []
        assert await lab.engine.migrate() == []

    # -- open and close

    async def test_its_time_runs_like_any_clock_or_it_has_none(self, lab: Lab) -> None:
        clock = lab.host.clock
        asked, first, answered = clock.monotonic(), await lab.engine.time(), clock.monotonic()
        times = [await lab.engine.time() for _ in range(20)]
        again, last, after = clock.monotonic(), await lab.engine.time(), clock.monotonic()
        if first is None or last is None:
            assert {first, *times, last} == {None}, "a store has a clock or it has none"
            return
        assert first.utcoffset() == timedelta(0), "aware, in UTC"
        moments = [first, *(one for one in times if one is not None), last]
        assert len(moments) == 22
        assert moments == sorted(moments), "it does not stand in a transaction that began earlier"
        passed = (last - first).total_seconds()
        assert again - answered - 0.5 <= passed <= after - asked + 0.5

    async def test_a_closed_session_may_be_opened_again(self, lab: Lab, worker: UUID) -> None:
        job, waiting = await lab.running(worker, dedup="k"), await lab.put(delay=5)
        for _ in range(2):
            await lab.engine.close()
            await lab.engine.open()
            assert await lab.get(job) == job
        assert (await lab.engine.records.ledger()).live == 2
        await lab.finish(job)
        lab.later(5)
        assert [taken.id for taken in await lab.claim(worker)] == [waiting.id]
        later = await lab.put()
        assert later.seq > waiting.seq

    async def test_another_engine_on_the_place_finds_the_store_if_it_is_durable(self, lab: Lab) -> None:
        job = await lab.put()
        await lab.engine.close()
        lab.engine = lab.make()
        await lab.engine.open()
        assert await lab.engine.jobs.get([job.id]) == [job if self.durable else None]

    # -- other sessions

    async def test_another_session_sees_everything(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        setting = await lab.engine.documents.put_setting("queue:a", "{}", 0)
        token = await lab.engine.documents.lease("d", worker, 60, lab.now)

        async def look(other: Engine) -> None:
            assert await other.jobs.get([job.id]) == [job]
            assert await other.documents.settings() == [setting]
            assert await other.documents.lease("d", worker, 60, lab.now) == token
            assert [row.info.id for row in await other.workers.list()] == [worker]
            assert (await other.records.find(Filter(), lab.now)).items == (job,)

        await on_a_thread(lab.engine.another_session(), look)

    async def test_what_another_session_does_is_seen_at_once(self, lab: Lab) -> None:
        job = await lab.running(await lab.worker())
        done = lab.end(job, Completed("1"))
        fresh = lab.job()

        async def work(other: Engine) -> Job:
            await other.jobs.apply([lab.stamp(done)], lab.now)
            [answer] = await other.jobs.insert([fresh], lab.now)
            assert isinstance(answer, Inserted)
            return answer.job

        stored = await on_a_thread(lab.engine.another_session(), work)
        assert await lab.get(job) == done.job
        assert await lab.get(fresh) == stored
        assert [taken.id for taken in await lab.claim(await lab.worker())] == [fresh.id]

    async def test_closing_another_session_leaves_this_one_open(self, lab: Lab) -> None:
        async def nothing(_: Engine) -> None: ...

        other = lab.engine.another_session()
        await on_a_thread(other, nothing)
        job = await lab.put()
        await on_a_thread(other, nothing)
        assert await lab.get(job) == job

    # -- many at once

    async def test_concurrent_claims_give_each_job_once(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job() for _ in range(300)))
        workers = [await lab.worker() for _ in range(6)]
        seen = await asyncio.gather(*(drain(lab, lab.engine, worker, 7) for worker in workers))
        assert sorted(id for part in seen for id in part) == [job.id for job in jobs]
        assert (await lab.engine.records.ledger()).ended == len(jobs)

    async def test_claims_of_sessions_on_threads_give_each_job_once(self, lab: Lab) -> None:
        jobs = await lab.put_all(*(lab.job() for _ in range(300)))
        workers = [await lab.worker() for _ in range(3)]
        together = threading.Barrier(len(workers))

        async def work(other: Engine, worker: UUID) -> list[UUID]:
            together.wait(30)  # nothing else runs on this loop yet
            return await drain(lab, other, worker, 7)

        def on_other(worker: UUID) -> Coroutine[Any, Any, list[UUID]]:
            return on_a_thread(lab.engine.another_session(), lambda other: work(other, worker))

        seen = await asyncio.gather(*(on_other(worker) for worker in workers))
        assert sorted(id for part in seen for id in part) == [job.id for job in jobs]
        assert (await lab.engine.records.ledger()).ended == len(jobs)

    async def test_submits_of_sessions_on_threads_lose_nothing(self, lab: Lab) -> None:
        batches = [[lab.job(payload=f'{{"n":{n}}}') for n in range(20)] for _ in range(12)]

        def part(mine: list[list[Job]]) -> Callable[[Engine], Coroutine[Any, Any, None]]:
            async def work(other: Engine) -> None:
                for batch in mine:
                    await other.jobs.insert(batch, lab.now)

            return work

        await asyncio.gather(*(on_a_thread(lab.engine.another_session(), part(batches[n::3])) for n in range(3)))
        assert (await lab.engine.records.ledger()).accepted == 240
        stored = await lab.engine.jobs.get([job.id for batch in batches for job in batch])
        assert len({job.seq for job in stored if job is not None}) == 240

    # -- hints

    async def test_hints_reach_this_session_and_another_on_their_own_threads(self, lab: Lab) -> None:
        heard: list[tuple[str, Hint, int]] = []
        hint = Hint(Topic.READY, ("a", "ü"))

        def note(name: str) -> Callable[[Hint], None]:
            return lambda got: heard.append((name, got, threading.get_ident()))

        lab.engine.bus.listen(frozenset({Topic.READY}), note("here"))
        wrong = lab.engine.bus.listen(frozenset({Topic.ENDED}), note("wrong topic"))
        ended = lab.engine.bus.listen(frozenset({Topic.READY}), note("no longer"))
        ended()

        async def work(other: Engine) -> int:
            other.bus.listen(frozenset({Topic.READY, Topic.CANCEL}), note("other"))
            # A hint may be lost, so it is sent until both have received one.
            async with asyncio.timeout(45):
                while {name for name, _, _ in heard} < {"here", "other"}:
                    other.bus.send(hint)
                    await asyncio.sleep(0.01)
            return threading.get_ident()

        there = await on_a_thread(lab.engine.another_session(), work)
        wrong()
        assert {name for name, _, _ in heard} == {"here", "other"}
        # Without names, where a bus cannot know whether it missed some: all may poll.
        assert {got for _, got, _ in heard} - {Hint(Topic.READY)} == {hint}
        threads = {name: thread for name, _, thread in heard}
        assert threads == {"here": threading.get_ident(), "other": there}

    async def test_hints_of_changes_carry_how_many_were_left_out(self, lab: Lab) -> None:
        heard: list[Hint] = []
        hint = Hint(Topic.CHANGED, tuple(str(lab.new_id()) for _ in range(200)), 1234)
        leave = lab.engine.bus.listen(frozenset({Topic.CHANGED}), heard.append)

        async def work(other: Engine) -> None:
            async with asyncio.timeout(20):
                while not any(got.names for got in heard):
                    # A session knows of a listener, or assumes one because it cannot know.
                    if other.bus.wanted(Topic.CHANGED):
                        other.bus.send(hint)
                    await asyncio.sleep(0.01)

        await on_a_thread(lab.engine.another_session(), work)
        leave()
        assert {got for got in heard if got.names} == {hint}

    async def test_a_hint_may_count_changes_without_naming_any(self, lab: Lab) -> None:
        heard: list[Hint] = []
        lab.engine.bus.listen(frozenset({Topic.CHANGED}), heard.append)

        async def work(other: Engine) -> None:
            async with asyncio.timeout(20):
                while not any(got.dropped for got in heard):
                    other.bus.send(Hint(Topic.CHANGED, (), 7))
                    await asyncio.sleep(0.01)

        await on_a_thread(lab.engine.another_session(), work)
        assert {got for got in heard if got.dropped} == {Hint(Topic.CHANGED, (), 7)}
