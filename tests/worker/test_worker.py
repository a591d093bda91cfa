"""Workers: running, stopping, cancelling, timing out, buffering, being buried."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace import App
from headrace.core.change import Applied, Change, Verdict
from headrace.core.defaults import Rules
from headrace.core.entry import Kind
from headrace.core.job import Job
from headrace.core.lifecycle import actions as acts
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Outcome, Reason, Status
from headrace.engine import Alive, Claimed, Dead, Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import ConfigError, GiveUp, RetryLater, Snooze, StoreLost, Unavailable, Unstorable
from headrace.runtime.host import Host
from headrace.worker import delayed_starts
from headrace.worker.claim import fetcher
from headrace.worker.execution.context import Context
from headrace.worker.worker import TICK_SECONDS
from tests.core.stand import stand
from tests.support.faults import LosesReplies
from tests.support.shop import ENGINES, Shop, make_engine, open_shop
from tests.support.until import until


async def test_async_and_plain_handlers_run_and_their_results_are_kept(shop: Shop) -> None:
    names: list[str] = []

    async def double(n: int) -> int:
        return 2 * n

    def triple(ctx: Context, n: int) -> int:
        names.append(threading.current_thread().name)
        assert Context.current() is ctx
        return 3 * n

    shop.task(double)
    shop.task(triple)
    a, b = await shop.submit("double", payload={"n": 4}), await shop.submit("triple", payload={"n": 4})
    async with shop.worker():
        first, second = await shop.ended(a), await shop.ended(b)
    assert (first.status, first.result) == (Status.COMPLETED, 8)
    assert (second.status, second.result) == (Status.COMPLETED, 12)
    assert names[0].startswith("headrace-handler")
    (attempt,) = (await shop.history(a)).attempts
    assert attempt.outcome is Outcome.COMPLETED
    assert attempt.started_at is not None
    assert attempt.worker is not None


async def test_a_failure_is_retried_and_every_attempt_is_on_record(shop: Shop) -> None:
    calls = []

    async def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError(f"no {len(calls)}")
        return "ok"

    shop.task(flaky)
    id = await shop.submit("flaky")
    async with shop.worker():
        job = await shop.ended(id)
    assert job.status is Status.COMPLETED
    assert (job.attempt, job.charged) == (3, 3)
    attempts = (await shop.history(id)).attempts
    assert [attempt.outcome for attempt in attempts] == [Outcome.FAILED, Outcome.FAILED, Outcome.COMPLETED]
    assert attempts[0].error is not None
    assert attempts[0].error.type == "ValueError"
    assert "in flaky" in (attempts[0].error.traceback or "")


async def test_the_last_failure_is_a_dead_letter(shop: Shop) -> None:
    async def hopeless() -> None:
        raise ValueError("never")

    shop.task(hopeless)
    id = await shop.submit("hopeless", retry=Retry(1, backoff="fixed", initial=0))
    async with shop.worker():
        job = await shop.ended(id)
    assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.RETRIES_EXHAUSTED, 2)
    assert job.error is not None
    assert job.error.message == "never"


async def test_give_up_retry_later_and_snooze(shop: Shop) -> None:
    seen: dict[str, int] = {}

    async def wayward(how: str) -> str:
        seen[how] = seen.get(how, 0) + 1
        if how == "give up":
            raise GiveUp("no use")
        if seen[how] < 3:
            raise Snooze(0) if how == "snooze" else RetryLater(0)
        return "done"

    shop.task(wayward)
    ids = {how: await shop.submit("wayward", payload={"how": how}) for how in ("give up", "snooze", "later")}
    async with shop.worker():
        jobs = {how: await shop.ended(id) for how, id in ids.items()}
    assert (jobs["give up"].status, jobs["give up"].reason) == (Status.FAILED, Reason.NON_RETRYABLE)
    assert (jobs["snooze"].status, jobs["snooze"].charged, jobs["snooze"].attempt) == (Status.COMPLETED, 1, 3)
    assert (jobs["later"].status, jobs["later"].charged) == (Status.COMPLETED, 3)
    snoozes = (await shop.history(ids["snooze"])).attempts
    assert [(one.outcome, one.count) for one in snoozes] == [(Outcome.SNOOZED, 2), (Outcome.COMPLETED, 1)]


async def test_a_payload_that_is_bad_at_run_time_fails_without_retries_and_is_kept(shop: Shop) -> None:
    async def strict(n: int) -> int:
        return n

    shop.task(strict)
    id = await shop.submit("strict", payload={"n": "one"})
    async with shop.worker():
        job = await shop.ended(id)
    assert (job.status, job.reason, job.attempt) == (Status.FAILED, Reason.INVALID_PAYLOAD, 1)
    assert job.payload == {"n": "one"}
    assert job.error is not None
    assert job.error.details == {"field": "n"}


async def test_a_result_that_is_not_json_fails_without_retries(shop: Shop) -> None:
    async def odd() -> object:
        return object()

    shop.task(odd)
    id = await shop.submit("odd")
    async with shop.worker():
        job = await shop.ended(id)
    assert (job.status, job.reason) == (Status.FAILED, Reason.INVALID_RESULT)


def _cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.parametrize("how", ["raise SystemExit", "raise CancelledError", "cancel its task"])
async def test_a_handler_cannot_take_the_worker_along(shop: Shop, how: str) -> None:
    async def nasty() -> None:
        if how == "cancel its task":
            _cancel_this_task()
            await asyncio.sleep(60)
        raise SystemExit(3) if how == "raise SystemExit" else asyncio.CancelledError

    async def fine() -> str:
        return "fine"

    shop.task(nasty)
    shop.task(fine)
    bad = await shop.submit("nasty", retry=Retry(0))
    async with shop.worker():
        assert (await shop.ended(bad)).status is Status.FAILED
        assert (await shop.ended(await shop.submit("fine"))).result == "fine"


async def test_a_handler_that_cancels_its_task_and_is_done_has_ended(shop: Shop) -> None:
    async def odd() -> str:
        logging.getLogger("odd").warning("this is written when it is done")
        _cancel_this_task()
        return "done"

    shop.task(odd)
    id = await shop.submit("odd")
    async with shop.worker():
        assert (await shop.ended(id)).result == "done"
        assert len(await shop.engine.entries.tail(id, Kind.LOG)) == 1


def test_a_loop_that_is_torn_down_hands_back_what_runs(tmp_path: Path) -> None:
    async def leave_all_behind() -> UUID:
        engine = make_engine("sqlite", tmp_path)
        await engine.open()
        shop, began = Shop(engine, Host()), asyncio.Event()

        async def slow() -> None:
            began.set()
            await asyncio.sleep(60)

        shop.task(slow)
        id = await shop.submit("slow")
        await shop.worker().start()
        await began.wait()
        return id

    async def look(id: UUID) -> tuple[Job, list[str]]:
        async with open_shop("sqlite", tmp_path) as shop:
            return await shop.get(id), await shop.outcomes(id)

    job, outcomes = asyncio.run(look(asyncio.run(leave_all_behind())))
    assert (job.status, job.charged) == (Status.QUEUED, 0)
    assert outcomes == ["released"]


async def test_an_async_handler_is_really_stopped_when_its_time_is_up(shop: Shop) -> None:
    stopped = asyncio.Event()

    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.stopping == "timed_out"
            stopped.set()

    shop.task(slow)
    id = await shop.submit("slow", timeout=0.1, retry=Retry(0))
    async with shop.worker():
        job = await shop.ended(id)
        await until(stopped.is_set)  # while a loop is blocked, its heartbeat ends the attempt first
    assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)
    assert await shop.outcomes(id) == ["timed_out"]


async def test_a_thread_that_outlives_its_attempt_keeps_its_slot_and_is_counted(shop: Shop) -> None:
    gate = threading.Event()

    def stubborn() -> None:
        gate.wait(45)

    shop.task(stubborn)
    id = await shop.submit("stubborn", timeout=0.1, retry=Retry(0))
    try:
        async with shop.worker(concurrency=3, grace=0.1) as worker:
            job = await shop.ended(id)
            assert job.reason is Reason.TIMEOUT
            await until(lambda: worker.stats.stuck_threads == 1)
            assert worker.stats.busy == 1

            async def shown() -> bool:
                return any(row.beat.stuck_threads == 1 for row in await shop.engine.workers.list())

            await until(shown)
            gate.set()
            await until(lambda: worker.stats.busy == 0)
    finally:
        gate.set()


async def test_a_worker_leaves_when_threads_that_cannot_be_stopped_hold_half_its_slots(shop: Shop) -> None:
    gate = threading.Event()

    def stubborn() -> None:
        gate.wait(45)

    shop.task(stubborn)
    await shop.submit("stubborn", timeout=0.05, retry=Retry(0))
    try:
        worker = shop.worker(concurrency=2, grace=0.1)
        await asyncio.wait_for(worker.run(), 45)
        assert worker.exhausted
    finally:
        gate.set()


async def test_cancelling_a_running_job_stops_its_handler(shop: Shop) -> None:
    running, stopped = asyncio.Event(), asyncio.Event()

    async def endless(ctx: Context) -> None:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.stopping == "cancelled"
            stopped.set()

    shop.task(endless)
    id = await shop.submit("endless")
    async with shop.worker():
        await asyncio.wait_for(running.wait(), 45)
        await shop.cancel(id)
        job = await shop.ended(id)
        assert stopped.is_set()
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.USER)
    assert await shop.outcomes(id) == ["cancelled"]


async def test_a_thread_cooperates_with_cancel_by_checking(shop: Shop) -> None:
    running, gate = threading.Event(), threading.Event()

    def patient(ctx: Context) -> None:
        running.set()
        while not gate.wait(0.01):
            ctx.check()

    shop.task(patient)
    id = await shop.submit("patient")
    try:
        async with shop.worker() as worker:
            await until(running.is_set)
            await shop.cancel(id)
            job = await shop.ended(id)
            await until(lambda: worker.stats.busy == 0)
    finally:
        gate.set()
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.USER)


async def test_a_job_that_completes_after_a_cancel_was_requested_is_completed(shop: Shop) -> None:
    running = asyncio.Event()

    async def determined() -> str:
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "done anyway"
        return "?"

    shop.task(determined)
    id = await shop.submit("determined")
    async with shop.worker():
        await asyncio.wait_for(running.wait(), 45)
        await shop.cancel(id)
        job = await shop.ended(id)
    assert (job.status, job.result) == (Status.COMPLETED, "done anyway")


async def test_a_graceful_stop_lets_jobs_finish_and_hands_the_rest_back_uncharged(shop: Shop) -> None:
    quick_gate, running = asyncio.Event(), asyncio.Event()

    async def quick() -> str:
        await quick_gate.wait()
        return "finished"

    async def endless() -> None:
        running.set()
        await asyncio.sleep(60)

    shop.task(quick)
    shop.task(endless)
    a, b = await shop.submit("quick"), await shop.submit("endless")
    worker = shop.worker(concurrency=2, grace=2.0)
    await worker.start()
    await asyncio.wait_for(running.wait(), 45)
    worker.request_stop()
    quick_gate.set()
    await worker.stop()
    assert (await shop.get(a)).result == "finished"
    left = await shop.get(b)
    assert (left.status, left.charged, left.worker) == (Status.QUEUED, 0, None)
    assert await shop.outcomes(b) == ["released"]
    assert await shop.engine.workers.list() == []


async def test_a_second_request_stops_at_once(shop: Shop) -> None:
    running = asyncio.Event()

    async def endless() -> None:
        running.set()
        await asyncio.sleep(60)

    shop.task(endless)
    id = await shop.submit("endless")
    worker = shop.worker(grace=600)
    await worker.start()
    await asyncio.wait_for(running.wait(), 45)
    worker.request_stop()
    worker.request_stop()
    await asyncio.wait_for(worker.done(), 45)
    assert (await shop.get(id)).status is Status.QUEUED


async def test_burst_ends_when_there_is_nothing_left_to_do(shop: Shop) -> None:
    async def noop() -> None:
        return None

    shop.task(noop)
    ids = await shop.submit_many("noop", 300)
    later = await shop.submit("noop", delay=3600)
    await asyncio.wait_for(shop.worker(burst=True).run(), 30)
    assert {job.status for job in await shop.all_ended(ids)} == {Status.COMPLETED}
    assert (await shop.get(later)).status is Status.SCHEDULED


async def test_a_job_that_falls_due_is_run_in_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def noop() -> None:
        return None

    monkeypatch.setattr(fetcher, "POLL_FIRST_SECONDS", 600.0)  # so that it is not found by chance
    monkeypatch.setattr(fetcher, "POLL_MAX_SECONDS", 600.0)
    shop.task(noop)
    async with shop.worker():
        id = await shop.submit("noop", delay=0.2)
        job = await shop.ended(id)
    assert job.started_at is not None
    assert job.started_at >= job.available_at


async def test_nothing_is_hoarded_when_jobs_are_slow(shop: Shop) -> None:
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()

    shop.task(slow)
    ids = await shop.submit_many("slow", 20)
    async with shop.worker(concurrency=2) as worker:
        await until(lambda: worker.stats.busy == 2)

        async def others_left() -> bool:
            jobs = await shop.engine.jobs.get(ids)
            return sum(job is not None and job.status is Status.QUEUED for job in jobs) == 18

        await until(others_left)
        gate.set()
        await shop.all_ended(ids)


async def test_newcomers_of_higher_priority_go_first(shop: Shop) -> None:
    ran: list[int] = []
    began, gate = asyncio.Event(), asyncio.Event()

    async def note(n: int) -> None:
        ran.append(n)
        if n < 0:
            began.set()
            await gate.wait()

    shop.task(note)
    await shop.submit("note", payload={"n": -1})
    async with shop.worker(concurrency=1):
        await asyncio.wait_for(began.wait(), 45)
        # All of them come while the only slot is taken, the most urgent last.
        ids = [await shop.submit("note", payload={"n": n}, priority=10 + n) for n in range(5)]
        gate.set()
        await shop.all_ended(ids)
    assert ran == [-1, 4, 3, 2, 1, 0]


class Stopped:
    """A clock that stands still until it is set; what never steps goes on."""

    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        """As it was set."""
        return self.time

    def monotonic(self) -> float:
        """The machine's own."""
        return time.monotonic()


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_long_run_is_recorded_as_running_within_a_second(kind: str, tmp_path: Path) -> None:
    gate, began = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        began.set()
        await gate.wait()

    async with open_shop(kind, tmp_path, Rules()) as shop:  # no heartbeat takes the loop for blocked, and writes it
        shop.task(slow)
        id = await shop.submit("slow")
        shop.host.clock = clock = Stopped()
        async with shop.worker():
            await asyncio.wait_for(began.wait(), 45)
            job = await shop.get(id)
            assert job.status is Status.ACCEPTED, "as far as the store knows"
            # The last look within the second comes no earlier than this, and nobody sets the clock on.
            assert TICK_SECONDS < 1.0
            clock.time += timedelta(seconds=1.0 - TICK_SECONDS)
            job = await shop.reaches(id, Status.RUNNING)
            assert job.attempt == 1
            gate.set()
            await shop.ended(id)


async def test_a_start_is_durable_before_the_call_when_the_job_may_not_be_repeated(shop: Shop) -> None:
    seen: list[Status] = []

    async def once(ctx: Context) -> None:
        seen.append((await shop.get(ctx.job_id)).status)

    shop.task(once)
    id = await shop.submit("once", retry=Retry(0))
    async with shop.worker():
        await shop.ended(id)
    assert seen == [Status.RUNNING]


async def test_progress_is_stored_while_the_job_runs(shop: Shop) -> None:
    gate = asyncio.Event()

    async def steady(ctx: Context) -> None:
        for percent in range(51):
            ctx.progress(percent, f"at {percent}", step="half")
        await ctx.flush()
        await gate.wait()

    shop.task(steady)
    id = await shop.submit("steady")
    async with shop.worker():

        async def told() -> bool:
            progress = (await shop.get(id)).progress
            return progress is not None and progress.percent == 50 and progress.message == "at 50"

        await until(told)
        gate.set()
        job = await shop.ended(id)
    assert job.progress is not None
    assert job.progress.percent == 100


async def test_a_buried_worker_stops_its_handlers_and_registers_anew(shop: Shop) -> None:
    running, why = asyncio.Event(), []

    async def endless(ctx: Context) -> None:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            why.append(ctx.stopping)

    shop.task(endless)
    id = await shop.submit("endless")
    async with shop.worker(grace=0.1) as worker:
        await asyncio.wait_for(running.wait(), 45)
        before = worker.id
        await shop.bury(before)
        await until(lambda: worker.id != before and why)
        assert why == ["lost"]
        alive = [one.info.id for one in await shop.engine.workers.list() if one.alive]
        assert alive == [worker.id]
        assert (await shop.get(id)).ended is False


async def test_a_job_is_not_handed_back_that_a_repeated_claim_brings(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[int]()

    async def note() -> None:
        ran.append(1)

    shop.task(note)

    class Late(LosesReplies):
        """The reply of the first claim is lost, that of the second comes after some beats that did not name the job."""

        async def claim(self, *args: Any) -> Any:
            self.calls["claim"] += 1
            answer = await shop.engine.jobs.claim(*args)
            if self.calls["claim"] == 1:
                raise Unavailable("the reply was lost", outcome="unknown")
            if self.calls["claim"] == 2:
                await until(lambda: told >= 3)
            return answer

    store = Shop(cast("Any", Late(shop.engine, {})), shop.host)
    store.handlers = shop.handlers
    id, told = await shop.submit("note"), 0
    worker = store.worker(concurrency=1)
    hear = worker.on_beat_reply

    def heard(who: UUID, answer: Alive | Dead) -> None:
        nonlocal told
        told += isinstance(answer, Alive) and id in {job.id for job in answer.unknown}
        hear(who, answer)

    monkeypatch.setattr(worker, "on_beat_reply", heard)
    async with worker:
        job = await shop.ended(id)
    await store.writer.close()
    assert (len(ran), job.epoch, await shop.outcomes(id)) == (1, 2, ["completed"])


async def test_replies_that_get_lost_neither_double_nor_lose_nor_charge(shop: Shop) -> None:
    ran: list[int] = []

    async def note(n: int) -> int:
        ran.append(n)
        return n

    shop.task(note)
    lossy = LosesReplies(shop.engine, {"insert": 20, "claim": 20, "apply": 7})
    store = Shop(cast(Engine, lossy), shop.host)
    store.handlers = shop.handlers
    async with store.worker(concurrency=5):
        ids = await asyncio.gather(*(store.submit("note", payload={"n": n}) for n in range(300)))
        extra = [await store.submit("note", payload={"n": 300 + n}) for n in range(100)]
        jobs = await shop.all_ended([*ids, *extra])
    await store.writer.close()
    assert sum(lossy.dropped.values()) > 5
    assert all(lossy.dropped[verb] for verb in ("insert", "claim", "apply"))
    assert sorted(ran) == list(range(400))
    assert {(job.status, job.charged, job.attempt) for job in jobs} == {(Status.COMPLETED, 1, 1)}
    ledger = await shop.engine.records.ledger()
    assert (ledger.accepted, ledger.ended, ledger.unaccounted) == (400, 400, 0)


async def test_one_result_that_cannot_be_stored_fails_alone(shop: Shop) -> None:
    async def give(n: int) -> str:
        return f"result {n}"

    shop.task(give)
    ids = [await shop.submit("give", payload={"n": n}) for n in range(100)]

    # What a store refuses differs by store; here the refusal is made certain for one row.
    class Picky(LosesReplies):
        async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
            if any(one.job.result_text == '"result 37"' for one in changes):
                raise Unstorable("this row is not for me")
            return await shop.engine.jobs.apply(changes, now)

    store = Shop(cast(Engine, Picky(shop.engine, {})), shop.host)
    store.handlers = shop.handlers
    async with store.worker(concurrency=100):
        jobs = await shop.all_ended(ids)
    await store.writer.close()
    bad = [job for job in jobs if job.status is not Status.COMPLETED]
    assert [(job.payload["n"], job.status, job.reason) for job in bad] == [(37, Status.FAILED, Reason.NON_RETRYABLE)]


async def test_jobs_given_to_this_worker_that_never_arrived_are_handed_back(shop: Shop) -> None:
    async def noop() -> None:
        return None

    shop.task(noop)
    async with shop.worker() as worker:
        await until(lambda: worker.stats.state == "running")
        # Claimed in the worker's name behind its back, as if the reply had been lost for good.
        id = await shop.submit("noop", queue="elsewhere", delay=0)
        known = await shop.engine.documents.profiles()
        ask = ClaimRequest(n=1, free=1, profiles=frozenset(one.id for one in known.profiles), queues=("elsewhere",))
        await shop.engine.jobs.claim(worker.id, ask, 12345, shop.host.clock.now())
        job = await shop.ended(id)
    assert job.status is Status.COMPLETED


async def test_a_worker_may_be_started_again_and_is_somebody_else_then(shop: Shop) -> None:
    def plain() -> str:
        return "done"

    shop.task(plain)
    worker, ids = shop.worker(), []
    for _ in range(2):
        async with worker:
            assert (await shop.ended(await shop.submit("plain"))).result == "done"
            ids.append(worker.id)
    assert ids[0] != ids[1]


async def test_a_stop_asked_for_before_the_start_is_not_forgotten(shop: Shop) -> None:
    worker = shop.worker()
    worker.request_stop()
    await asyncio.wait_for(worker.run(), 45)
    assert await shop.engine.workers.list() == []


async def test_a_worker_stops_although_the_store_does_not_hear_what_it_can_do(shop: Shop) -> None:
    async def announce() -> None:
        await asyncio.Event().wait()

    worker = shop.worker(announce=announce)
    await worker.start()
    await until(shop.engine.workers.list)
    await asyncio.wait_for(worker.stop(), 45)
    assert await shop.engine.workers.list() == []


async def test_a_worker_that_cannot_say_what_it_can_do_leaves_nothing_behind(shop: Shop) -> None:
    async def announce() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await shop.worker(announce=announce).run()
    assert await shop.engine.workers.list() == []


async def test_a_caller_of_run_that_is_cancelled_stops_the_worker(shop: Shop) -> None:
    worker = shop.worker(grace=0.1)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.stats.state == "running")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert worker.stats.state == "stopped"
    assert await shop.engine.workers.list() == []


async def test_a_worker_buried_twice_at_once_is_reborn_once(shop: Shop) -> None:
    async with shop.worker() as worker:
        await until(lambda: worker.stats.state == "running")
        before = worker.id
        await shop.bury(before)
        await asyncio.gather(*(worker.died(before) for _ in range(3)))
        assert [one.info.id for one in await shop.engine.workers.list() if one.alive] == [worker.id]
        assert worker.id != before


async def test_what_a_worker_has_not_begun_when_it_leaves_is_not_missed(shop: Shop) -> None:
    async with shop.worker() as worker:
        await until(lambda: worker.stats.state == "running")
        before, others = worker.id, set(worker._side)
        worker.on_beat_reply(before, Dead())
        (task,) = worker._side - others
        task.cancel()  # as it does when it leaves, here before the task had a turn
        await asyncio.gather(task, return_exceptions=True)
        gc.collect()  # a coroutine that nobody awaited is warned of, which fails the test
        assert worker.id == before


async def test_a_handler_that_acts_has_its_start_recorded_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_starts, "WRITE_SECONDS", 600.0)  # not by the tick that looks for late ones
    gate, acted = asyncio.Event(), asyncio.Event()

    async def acts(ctx: Context) -> None:
        ctx._caller.acted()  # as submitting a job does
        acted.set()
        await gate.wait()

    shop.task(acts)
    id = await shop.submit("acts")
    async with shop.worker():
        await asyncio.wait_for(acted.wait(), 45)
        job = await shop.reaches(id, Status.RUNNING)
        assert job.started_at is not None
        gate.set()
        await shop.ended(id)


async def test_what_arrives_after_a_stop_was_asked_for_is_not_begun(shop: Shop) -> None:
    claiming, gate, ran = asyncio.Event(), asyncio.Event(), []

    class Slow(LosesReplies):
        async def claim(self, *args: Any) -> Claimed | Dead:
            answer = await shop.engine.jobs.claim(*args)
            claiming.set()
            await gate.wait()
            return answer

    async def note() -> None:
        ran.append(1)

    shop.task(note)
    ids = await shop.submit_many("note", 5)
    store = Shop(cast(Engine, Slow(shop.engine, {})), shop.host)
    store.handlers = shop.handlers
    worker = store.worker()
    await worker.start()
    await asyncio.wait_for(claiming.wait(), 45)
    worker.request_stop()
    gate.set()
    await asyncio.wait_for(worker.done(), 45)
    await store.writer.close()
    assert ran == []
    assert {(job.status, job.attempt) for job in await shop.engine.jobs.get(ids) if job} == {(Status.QUEUED, 0)}


async def test_a_report_of_any_text_can_be_stored_and_is_kept_short(shop: Shop) -> None:
    async def talks(ctx: Context) -> None:
        ctx.progress(10, "half \ud800 and \x00 and " + "x" * 5000)
        await ctx.flush()

    shop.task(talks)
    id = await shop.submit("talks")
    async with shop.worker():
        job = await shop.ended(id)
    assert job.progress is not None
    assert job.progress.message is not None
    assert job.progress.message.startswith("half \\ud800 and \\x00 and x")
    assert len(job.progress.message) < 600


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_report_says_when_it_will_be_done_and_whatever_else_there_is_to_tell(shop: Shop, kind: str) -> None:
    tokyo = timezone(timedelta(hours=9))

    def report(ctx: Context) -> None:
        rows = {"read": 7, "of": [10, None]}
        ctx.progress(70, "reading", estimated_completion=datetime(2031, 2, 3, 4, tzinfo=tokyo), details={"rows": rows})
        rows["read"] = 8  # the report is as it was made

    async def reads(ctx: Context) -> None:
        report(ctx)
        await ctx.flush()

    shop.task(report if kind == "thread" else reads)
    id = await shop.submit("report" if kind == "thread" else "reads")
    async with shop.worker():
        job = await shop.ended(id)
    assert job.progress is not None
    assert job.progress.details == {"rows": {"read": 7, "of": [10, None]}}
    assert job.progress.estimated_completion == datetime(2031, 2, 2, 19, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"estimated_completion": datetime(2030, 1, 1)}, "estimated_completion must be an aware datetime"),  # noqa: DTZ001
        ({"estimated_completion": "soon"}, "estimated_completion must be a datetime"),
        ({"details": ["a"]}, "details must be a mapping of JSON values"),
        ({"details": {"a": {"b": {1, 2}}}}, r"details\.a\.b must be JSON"),
        ({"details": {"text": "x" * 16 * 1024}}, "details must be at most 16384 bytes as JSON"),
        ({"details": {"a": [{"b": 10**400}]}}, r"details\.a\.b must be a finite number, .* not a number of 1329 bits"),
        ({"details": {"a": -(2**53) - 1}}, r"details\.a must be a finite number, whole ones from -9007199254740992"),
        ({"details": {"a": float("inf")}}, r"details\.a must be"),
    ],
)
def test_a_report_that_cannot_be_kept_is_refused_where_it_is_made(options: dict[str, Any], complaint: str) -> None:
    ctx = Context._detached(stand(Status.RUNNING))
    with pytest.raises(ConfigError, match=complaint):
        ctx.progress(10, **options)


async def test_a_time_out_obeys_the_retry_policy(shop: Shop) -> None:
    async def endless() -> None:
        await asyncio.Event().wait()

    shop.task(endless)
    id = await shop.submit("endless", retry=Retry(give_up_on=[TimeoutError]), timeout=0.05)
    kept = await shop.submit("endless", retry=Retry(1, initial=0, retry_on=[ValueError]), timeout=0.05)
    async with shop.worker():
        job, again = await shop.ended(id), await shop.ended(kept)
    assert (again.status, again.reason, again.charged) == (Status.FAILED, Reason.TIMEOUT, 2), "retry_on is about errors"
    assert (job.status, job.reason, job.charged) == (Status.FAILED, Reason.TIMEOUT, 1)
    assert job.error is not None
    assert "; not retried: " in job.error.message


async def cancel_quietly(shop: Shop, id: UUID) -> bool:
    """Ask for its end past the lanes, which would send a hint; False if its start was recorded in between."""
    now = shop.host.clock.now()
    change = acts.cancel(await shop.get(id), now, shop.engine.rules)
    assert change is not None
    (verdict,) = await shop.engine.jobs.apply([replace(change, id=shop.host.dice.token())], now)
    return isinstance(verdict, Applied)


async def test_a_cancel_the_worker_never_heard_of_is_learned_from_the_store(shop: Shop) -> None:
    running, stopped = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    shop.task(endless)
    id = await shop.submit("endless")
    async with shop.worker():
        await asyncio.wait_for(running.wait(), 45)
        await until(lambda: cancel_quietly(shop, id))
        job = await shop.ended(id)
        assert stopped.is_set()
    assert (job.status, job.reason) == (Status.CANCELLED, Reason.USER)


async def test_a_worker_whose_store_is_lost_ticks_on_while_its_handlers_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without ticks its heartbeat would say that a handler blocks the event loop."""
    monkeypatch.setenv("HEADRACE_BEAT", "1")
    monkeypatch.setenv("HEADRACE_LEASE", "4")
    app, begun, go_on = App(f"sqlite:///{tmp_path}/jobs.db"), asyncio.Event(), asyncio.Event()

    @app.task
    async def waits() -> None:
        begun.set()
        await go_on.wait()

    async with app:
        worker = app.worker(concurrency=1)
        running = asyncio.create_task(worker.run())
        await waits.submit()
        await asyncio.wait_for(begun.wait(), 30)
        for file in await asyncio.to_thread(lambda: [one for one in tmp_path.glob("jobs.db*") if one.is_file()]):
            await asyncio.to_thread(file.unlink)
        heartbeat = worker._heartbeat
        assert heartbeat is not None
        await until(lambda: worker.stats.state == "draining" and heartbeat.lost is not None, within=40)
        for _ in range(3):
            last = worker.ticked_at
            await until(lambda last=last: worker.ticked_at > last, within=30)  # type: ignore[misc]
        # A hint comes meanwhile: what follows from it meets the lost store, too, which is logged once all the same.
        worker._hinted(Hint(Topic.CANCEL, tuple(str(UUID(int=id)) for id in worker._slots.owned)))
        assert worker._side
        await until(lambda: not worker._side, within=30)
        go_on.set()
        with pytest.raises(StoreLost):
            await running
    named = [
        one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING and "jobs.db" in one.getMessage()
    ]
    assert [one.partition(":")[0] for one in named] == ["the worker claims no more and stops"]
