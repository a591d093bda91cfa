"""Bulk handlers: many jobs, one call, an outcome for each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace import App, Context, GiveUp, Job, JobCancelled, JobFailed, JobHandle, Retry, RetryLater, Snooze, Status
from headrace.client.bulk_task import make_handler
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.status import Outcome, Reason
from headrace.engine import Claimed, Dead, Engine, WorkerInfo
from headrace.errors import ConfigError, InvalidPayload, NotSupported
from headrace.testing import harness
from headrace.worker.execution.hooks import CallNext
from headrace.worker.slots import Slots
from tests.support.apps import ENGINES, url_of
from tests.support.faults import Instead, LosesReplies
from tests.support.shop import Shop
from tests.support.until import until

AT_ONCE = Retry(2, backoff="fixed", initial=0.0, jitter=False)


@dataclass
class Doc:
    id: int
    text: str = ""


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An App on an empty store of each kind."""
    return App(url_of(request.param, tmp_path), defaults={"retry": AT_ONCE})


async def ends(*jobs: JobHandle[Any]) -> list[Job]:
    """The jobs once they ended."""
    for job in jobs:
        try:
            await job.result(timeout=45)
        except (JobFailed, JobCancelled):
            pass
    return [await job.refresh() for job in jobs]


async def test_jobs_are_collected_and_done_in_one_call(app: App) -> None:
    calls: list[list[Doc]] = []

    @app.bulk(size=30, wait=0.05)
    async def index(docs: list[Doc]) -> list[int | Exception]:
        calls.append(docs)
        return [10 * doc.id for doc in docs]

    async with app:
        jobs = await index.map([(Doc(n),) for n in range(100)])
        async with app.worker(concurrency=1) as worker:
            assert [await job.result(timeout=45) for job in jobs] == [10 * n for n in range(100)]
            await until(lambda: worker.stats.busy == 0)
        attempts = (await app.session.engine.records.history(jobs[0].id)).attempts
    assert sorted(map(len, calls)) == [10, 30, 30, 30]
    assert all(one.processing_time is not None for one in attempts), "the time of the call, without the wait for it"
    assert sorted(doc.id for docs in calls for doc in docs) == list(range(100))
    assert [one.outcome for one in attempts] == [Outcome.COMPLETED]


async def test_each_job_has_its_own_outcome(app: App) -> None:
    tries: dict[str, int] = {}

    @app.bulk(wait=0.01)
    async def work(hows: list[str]) -> list[str | Exception]:
        def outcome(how: str) -> str | Exception:
            tries[how] = tries.get(how, 0) + 1
            if tries[how] > 1 and how != "fails":
                return how
            return {
                "flaky": ValueError("once"),
                "fails": ValueError("always"),
                "gives up": GiveUp("no use"),
                "later": RetryLater(0),
                "snoozes": Snooze(0),
            }.get(how, how)

        return [outcome(how) for how in hows]

    async with app, app.worker():
        hows = ["works", "flaky", "fails", "gives up", "later", "snoozes"]
        ended = dict(zip(hows, await ends(*await work.map([(how,) for how in hows])), strict=True))
        outcomes = {
            how: [one.outcome.value for one in (await app.jobs.history(job.id)).attempts] for how, job in ended.items()
        }
    assert outcomes == {
        "works": ["completed"],
        "flaky": ["failed", "completed"],
        "fails": ["failed"] * 3,
        "gives up": ["failed"],
        "later": ["failed", "completed"],
        "snoozes": ["snoozed", "completed"],
    }
    assert (ended["fails"].reason, ended["gives up"].reason) == (Reason.RETRIES_EXHAUSTED, Reason.NON_RETRYABLE)
    assert ended["fails"].error is not None
    assert ended["fails"].error.message == "always"
    assert [ended[how].result for how in ("works", "flaky", "later", "snoozes")] == [
        "works",
        "flaky",
        "later",
        "snoozes",
    ]


@pytest.mark.parametrize(
    ("how", "reason", "message"),
    [
        ("raises", Reason.RETRIES_EXHAUSTED, "all of them"),
        ("leaves", Reason.RETRIES_EXHAUSTED, "3"),
        ("is short", Reason.INVALID_RESULT, "work: 1 outcomes for 2 items"),
        ("is no list", Reason.INVALID_RESULT, "returns a list of outcomes, not dict"),
        ("is of the wrong type", Reason.INVALID_RESULT, "Expected `int`"),
    ],
)
async def test_a_call_that_goes_wrong_fails_every_job(app: App, how: str, reason: Reason, message: str) -> None:
    @app.bulk(wait=0.05, retry=Retry(0))
    async def work(numbers: list[int]) -> list[int | Exception]:
        if how == "raises":
            raise ValueError("all of them")
        if how == "leaves":
            raise SystemExit(3)
        wrong: Any = {"is short": [1], "is no list": {}, "is of the wrong type": ["a", "b"]}[how]
        return wrong  # type: ignore[no-any-return]  # that is what is tested

    async with app:
        jobs = await work.map([(1,), (2,)])
        async with app.worker():
            for job in await ends(*jobs):
                assert (job.status, job.reason, job.attempt) == (Status.FAILED, reason, 1)
                assert job.error is not None
                assert message in job.error.message


@pytest.mark.parametrize("how", ["raised", "returned"])
async def test_an_error_that_jobs_share_looks_the_same_to_each_of_them(app: App, how: str) -> None:
    shared = ValueError("all of them")

    @app.bulk(size=20, retry=Retry(0))
    async def work(numbers: list[int]) -> list[int | Exception]:
        if how == "raised":
            raise shared
        return [shared for _ in numbers]

    async with app:
        jobs = await work.map([(number,) for number in range(20)])
        async with app.worker():
            traces = {job.error.traceback for job in await ends(*jobs) if job.error is not None}
    assert len(traces) == 1
    assert str(traces.pop()).count("raise shared") == (how == "raised")


async def test_a_payload_that_does_not_fit_fails_its_own_job_alone(app: App) -> None:
    seen: list[list[Doc]] = []

    @app.bulk(wait=0.05)
    async def index(docs: list[Doc]) -> list[int]:
        seen.append(docs)
        return [doc.id for doc in docs]

    async with app:
        with pytest.raises(InvalidPayload):
            await index.submit("text")  # type: ignore[arg-type]  # that is what is tested
        good, bad = index.draft(Doc(1)), index.draft(Doc(2))
        bad.payload_text = '{"docs": 3}'
        jobs = await app.submit_many([good, bad])
        async with app.worker():
            first, second = await ends(*jobs)
    assert (first.result, second.reason) == (1, Reason.INVALID_PAYLOAD)
    assert seen == [[Doc(1)]]


async def test_a_cancelled_job_leaves_and_the_call_goes_on_for_the_others(app: App) -> None:
    running, gate = asyncio.Event(), asyncio.Event()

    @app.bulk(wait=0.05)
    async def work(numbers: list[int]) -> list[int]:
        running.set()
        await gate.wait()
        return numbers

    async with app:
        one, two = await work.map([(1,), (2,)])
        async with app.worker():
            await asyncio.wait_for(running.wait(), 45)
            await one.cancel()
            await until(lambda: _is(one, Status.CANCELLED))
            assert not gate.is_set()
            gate.set()
            assert await two.result(timeout=45) == 2
        assert (await one.refresh()).reason is Reason.USER


async def _is(job: JobHandle[Any], status: Status) -> bool:
    return (await job.refresh()).status is status


async def test_when_all_are_cancelled_so_is_the_call(app: App) -> None:
    running, stopped = asyncio.Event(), list[Any]()

    @app.bulk(wait=0.05)
    async def work(ctx: Context, numbers: list[int]) -> list[int]:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append((ctx.stopping, len(numbers)))
        return numbers

    async with app:
        jobs = await work.map([(1,), (2,), (3,)])
        async with app.worker() as worker:
            await asyncio.wait_for(running.wait(), 45)
            for job in jobs:
                await job.cancel()
            assert {job.status for job in await ends(*jobs)} == {Status.CANCELLED}
            await until(lambda: worker.stats.busy == 0)
    assert stopped == [("cancelled", 3)]


async def test_the_time_of_the_call_is_the_shortest_of_its_jobs(app: App) -> None:
    stopped: list[Any] = []

    @app.bulk(wait=0.05, retry=Retry(0))
    async def work(ctx: Context, numbers: list[int]) -> list[int]:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(ctx.stopping)
        return numbers

    async with app:
        jobs = await app.submit_many([work.options(timeout=0.2).draft(1), work.options(timeout=600).draft(2)])
        async with app.worker():
            for job in await ends(*jobs):
                assert (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)
    assert stopped == ["timed_out"]


async def test_a_call_takes_one_slot_and_takes_turns_with_other_jobs(app: App) -> None:
    at_once, most = 0, 0
    ran: list[str] = []

    async def busy(what: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        ran.append(what)
        await asyncio.sleep(0.002)
        at_once -= 1

    @app.bulk(size=5, wait=0)
    async def many(numbers: list[int]) -> list[int]:
        await busy(f"{len(numbers)} at once")
        if "one" not in ran:
            await many.submit(0)
        return numbers

    @app.task
    async def single(n: int) -> int:
        await busy("one")
        if set(ran) == {"one"}:
            await single.submit(n)
        return n

    async with app:
        jobs = [*await single.map([(n,) for n in range(60)]), *await many.map([(n,) for n in range(60)])]
        async with app.worker(concurrency=1):
            # Neither waits until the other kind is done: of the first there is always one more until the other comes.
            assert sum([await job.result(timeout=30) for job in jobs]) == 2 * sum(range(60))
    assert most == 1


async def test_jobs_that_find_no_slot_are_handed_back(shop: Shop) -> None:
    async def work(numbers: list[int]) -> list[int]:
        return numbers

    handler = shop.handlers["work"] = make_handler(work, (10, 0.01), name="work")
    id, now = await shop.submit("work", payload={"numbers": 1}), shop.host.clock.now()
    me = shop.host.dice.new_id(now)
    await shop.engine.workers.register(WorkerInfo(id=me, host="here", pid=1, started_at=now, concurrency=1), now)
    profiles = frozenset(one.id for one in (await shop.engine.documents.profiles()).profiles)
    claimed = await shop.engine.jobs.claim(me, ClaimRequest(n=1, free=0, profiles=profiles), 1, now)
    assert isinstance(claimed, Claimed)
    options: dict[str, Any] = {"may_start": lambda: True, "hungry": lambda: None}
    slots = Slots(shop.handlers, shop.writer, shop.host, concurrency=1, **options)
    (collector,) = slots.collectors
    assert collector.names == {handler.name}
    slots.calls = 1  # the only slot is taken
    try:
        collector.take([replace(job, assigned_at=now - timedelta(seconds=5)) for job in claimed.jobs], {})
        assert (slots.waiting, collector.room()) == (1, (0, 0))
        slots.tick()
        await until(lambda: slots.empty)
    finally:
        slots.close()
    job = await shop.get(id)
    assert (job.status, job.charged, job.worker) == (Status.QUEUED, 0, None)


async def test_a_stop_hands_back_what_does_not_end_in_time(app: App) -> None:
    running = asyncio.Event()

    @app.bulk(size=2, wait=5)
    async def work(numbers: list[int]) -> list[int]:
        running.set()
        await asyncio.sleep(60)
        return numbers

    async with app:
        async with app.worker(grace=0.1):
            jobs = await work.map([(1,), (2,), (3,)])
            await asyncio.wait_for(running.wait(), 45)
        for job in jobs:
            left = await job.refresh()
            assert (left.status, left.charged, left.worker) == (Status.QUEUED, 0, None)
        released = [(await app.jobs.history(job.id)).attempts for job in jobs]
        assert sorted(len(one) for one in released) == [0, 1, 1]


async def test_the_start_is_stored_first_where_a_job_may_not_be_repeated(app: App) -> None:
    seen: list[Status] = []

    @app.bulk(wait=0.05, retry=Retry(0))
    async def work(ctx: Context, numbers: list[int]) -> list[int]:
        seen.extend([job.status for job in (await app.jobs.list(task="work")).items])
        return numbers

    async with app:
        jobs = await work.map([(1,), (2,), (3,)])
        async with app.worker():
            await ends(*jobs)
    assert seen == [Status.RUNNING] * 3


async def test_what_is_around_a_run_is_around_each_job(app: App) -> None:
    told: list[Any] = []

    @app.resource
    def table() -> Iterator[dict[int, str]]:
        yield {1: "one", 2: "two", 3: "three"}

    @app.middleware
    async def skip(ctx: Context, call_next: CallNext) -> Any:
        return "skipped" if ctx.job.payload["numbers"] == 2 else await call_next()

    @app.bulk(wait=0.05, on_success=lambda job: told.append(job.result), on_failed=lambda job: told.append(job.reason))
    async def names(ctx: Context, numbers: list[int]) -> list[str | Exception]:
        assert Context.current() is ctx
        ctx.progress(40, "looking")
        await ctx.flush()
        told.append([(await app.jobs.get(job.id)).progress for job in jobs if job is not jobs[1]])
        with pytest.raises(NotSupported):
            ctx.transaction()
        found = ctx.resource(table)
        return [found[n] if n in found else GiveUp("unknown") for n in numbers]

    async with app:
        jobs = await names.map([(1,), (2,), (3,), (4,)])
        async with app.worker():
            results = [job.result for job in await ends(*jobs)]
            await until(lambda: len(told) == 5)
    assert results == ["one", "skipped", "three", None]
    progress = next(one for one in told if isinstance(one, list))
    assert [(one.percent, one.message) for one in progress] == [(40.0, "looking")] * 3
    told.remove(progress)
    assert sorted(map(str, told)) == ["non_retryable", "one", "skipped", "three"]


async def test_a_burst_ends_when_both_kinds_are_done(app: App) -> None:
    ran: list[int] = []

    @app.task
    async def single(n: int) -> None:
        ran.append(n)

    @app.bulk(size=4, wait=0.01)
    async def many(numbers: list[int]) -> list[None]:
        for n in numbers:
            await single.submit(n)
        return [None] * len(numbers)

    async with app:
        await many.map([(n,) for n in range(10)])
        await asyncio.wait_for(app.worker(burst=True).run(), 30)
        assert (await app.stats.counts()).ledger.live == 0
    assert sorted(ran) == list(range(10))


async def test_a_harness_runs_them_one_by_one_and_a_direct_call_takes_the_list() -> None:
    app = App("memory://")

    @app.bulk(size=10)
    async def double(ctx: Context, numbers: list[int]) -> list[int | Exception]:
        return [2 * n if n else ValueError("zero") for n in numbers]

    values = await double([1, 2, 0])
    assert values[:2] == [2, 4]
    assert isinstance(values[2], ValueError)
    assert double.fn.__name__ == double.__name__ == "double"
    async with harness(app) as h:
        good, bad = await double.submit(4), await double.options(retry=Retry(0)).submit(0)
        h.assert_submitted(double, 4)
        assert await h.drain() == 2
        assert (await h.job(good)).result == 8
        error = (await h.job(bad)).error
    assert error is not None
    assert error.message == "zero"


def test_what_cannot_be_used_is_refused_with_its_reason() -> None:
    app = App("memory://")

    def plain(docs: list[int]) -> list[int]:
        return docs

    async def two(docs: list[int], more: int) -> list[int]:
        return docs

    async def nothing(docs: list[int]) -> None: ...

    async def single(doc: int) -> list[int]:
        return [doc]

    async def fine(docs: list[int]) -> list[int]:
        return docs

    cases: list[tuple[Any, str]] = [
        (plain, "must be a coroutine function"),
        (two, "takes one list.*docs: .*more"),
        (nothing, "must return a list"),
        (single, "must be a list, as in"),
    ]
    for fn, words in cases:
        with pytest.raises(ConfigError, match=words):
            app.bulk()(fn)
    options: list[tuple[dict[str, Any], str]] = [
        ({"size": 0}, "size must be"),
        ({"size": 1001}, "size must be"),
        ({"size": True}, "size must be"),
        ({"wait": -1}, "wait"),
        ({"wait": 11}, "wait must be at most 10 s"),
        ({"run_in": "process"}, "process runs plain functions"),
        ({"colour": "red"}, "colour"),
    ]
    for given, words in options:
        with pytest.raises(ConfigError, match=words):
            app.bulk(**given)(fine)
    assert app._handlers == {}
    task = app.bulk(size=3, wait=0.5, name="index", aliases=["old"], queue="q")(fine)
    assert task.handler.bulk is not None
    assert (task.handler.bulk.size, task.handler.bulk.wait, task.handler.policy.queue) == (3, 0.5, "q")
    assert "test_bulk.py:" in task.handler.place
    assert task.handler.schema()["properties"] == {"docs": {"type": "integer"}}


async def test_replies_that_get_lost_neither_double_nor_lose_nor_charge(shop: Shop) -> None:
    ran: list[int] = []

    async def note(numbers: list[int]) -> list[int]:
        ran.extend(numbers)
        return numbers

    lossy = LosesReplies(shop.engine, {"claim": 5, "apply": 5})
    store = Shop(cast(Engine, lossy), shop.host)
    store.handlers["note"] = make_handler(note, (7, 0.005), name="note")
    async with store.worker(concurrency=3):
        ids = await asyncio.gather(*(store.submit("note", payload={"numbers": n}) for n in range(200)))
        jobs = await shop.all_ended(ids)
    await store.writer.close()
    assert all(lossy.dropped[verb] for verb in ("claim", "apply"))
    assert sorted(ran) == list(range(200))
    assert {(job.status, job.charged, job.attempt) for job in jobs} == {(Status.COMPLETED, 1, 1)}


async def test_a_buried_worker_stops_its_calls_and_says_no_more_of_their_jobs(shop: Shop) -> None:
    running, why, calls = asyncio.Event(), list[Any](), 0

    async def endless(ctx: Context, numbers: list[int]) -> list[int]:
        nonlocal calls
        calls += 1
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            why.append((ctx.stopping, len(numbers)))
        return numbers

    shop.handlers["endless"] = make_handler(endless, (10, 0.01), name="endless")
    ids = [await shop.submit("endless", payload={"numbers": n}) for n in range(3)]
    async with shop.worker(grace=0.1) as worker:
        await asyncio.wait_for(running.wait(), 45)
        before = worker.id
        await shop.bury(before)
        await until(lambda: worker.id != before and why)
        await until(lambda: worker.stats.busy == 0 or calls > 1)  # taken from the dead one, they may be here again
        assert [(await shop.get(id)).ended for id in ids] == [False] * 3
    assert why[0] == ("lost", 3)


class _Counts:
    """Passes every verb on, and counts the claims by how many tasks they were for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.claims: Counter[int] = Counter()
        self.jobs = Instead(engine.jobs, claim=self._claim)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def _claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        """Count and pass on."""
        self.claims[len(ask.profiles)] += 1
        return await self._engine.jobs.claim(worker, ask, request, now)


async def test_other_jobs_do_not_have_bulk_jobs_claimed(shop: Shop) -> None:
    async def many(numbers: list[int]) -> list[int]:
        return numbers

    async def one() -> None: ...

    async def two() -> None:
        await asyncio.sleep(0.001)

    counts = _Counts(shop.engine)
    store = Shop(cast(Engine, counts), shop.host)
    store.handlers["many"] = make_handler(many, (10, 0.01), name="many")
    store.task(one)
    store.task(two)
    await store.submit("many", payload={"numbers": 1})
    ids = [*await store.submit_many("one", 300), *await store.submit_many("two", 300)]
    async with store.worker(concurrency=2):
        await shop.all_ended(ids)
        by_bulk, by_others = counts.claims[1], counts.claims[2]
    await store.writer.close()
    assert by_bulk < by_others
    assert by_bulk <= 10
