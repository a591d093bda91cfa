"""Rates by start: the lead that a worker asks for, and what becomes of a job that did not begin within it."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.client.bulk_task import make_handler
from headrace.core.defaults import Rules
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.retry import Retry
from headrace.core.limits.rate import MAX_LEAD_SECONDS, Rate
from headrace.engine import Claimed
from headrace.errors import Unavailable
from headrace.runtime.clock import SystemClock
from headrace.testing import FakeClock
from headrace.worker.claim.permits import (
    FIRST_LEAD_SECONDS,
    MAX_SAMPLES,
    MIN_LEAD_SECONDS,
    MIN_SAMPLES,
    WINDOW_SECONDS,
    Lead,
    Permits,
)
from headrace.worker.execution.hooks import CallNext
from headrace.worker.worker import Worker
from tests.support.faults import Instead
from tests.support.programs.process_tasks import square
from tests.support.shop import ENGINES, Shop, open_shop
from tests.support.starts import most_in_windows, most_over_bucket

ONCE = Retry(0)
LATE = 8.0
"""Seconds that are more than any lead here."""


class Moved(SystemClock):
    """The machine's clock, with more time passed when a test says so."""

    ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
def clock() -> Moved:
    return Moved()


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path, clock: Moved) -> AsyncIterator[Shop]:
    """A shop on each engine, whose workers have this clock, and with beats so long that no loop is taken for blocked
    when time passes."""
    async with open_shop(request.param, tmp_path, Rules(beat=20 * LATE, lease=60 * LATE)) as shop:
        shop.host.clock = clock
        yield shop


async def pace(shop: Shop, key: str, name: str = "api", rate: Rate | None = None) -> None:
    """Have a rate count the jobs of a queue or a task."""
    rate = rate or Rate(1000, per=86400, kind="sliding")
    await shop.engine.documents.put_setting(f"rate:{name}", msgspec.json.encode(rate).decode(), 0)
    await shop.engine.documents.put_setting(key, f'{{"rates":["{name}"]}}', 0)


def patient(worker: Worker, clock: Moved) -> Worker:
    """Let its leads be six seconds and more, so that nobody is late who is not made late."""
    for lead in (worker._slots.lead, *(collector.lead for collector in worker._slots.collectors)):
        lead.learn(3.0 + lead.wait, clock.monotonic())
    return worker


async def spent(shop: Shop) -> int:
    """How many permits were spent."""
    usage = await shop.engine.records.usage([("rate", "api")])
    return sum(count for _, count in usage.spent.get(("rate", "api"), ()))


class Claims:
    """An engine whose claims are seen, and after (or instead of) the first that gives jobs something else happens."""

    def __init__(self, shop: Shop, after: Callable[[], None]) -> None:
        self._real, self._after = shop.engine.jobs, after
        self.asks: list[ClaimRequest] = []
        """Those that were given jobs."""
        self.requests: list[int] = []
        self.engine: Any = Instead(shop.engine, jobs=Instead(shop.engine.jobs, claim=self._claim))

    async def _claim(self, worker: Any, ask: ClaimRequest, request: int, now: datetime) -> Any:
        answer = await self._real.claim(worker, ask, request, now)
        if isinstance(answer, Claimed) and answer.jobs:
            self.asks.append(ask)
            self.requests.append(request)
            if len(self.asks) == 1:
                self._after()
        return answer


# -- how long it is


def test_it_is_twice_what_99_of_100_take_and_at_least_50_ms() -> None:
    clock = FakeClock()
    lead = Lead(clock)
    assert lead.seconds == FIRST_LEAD_SECONDS == 0.5
    for _ in range(10):
        lead.learn(0.001, clock.monotonic())
    assert lead.seconds == MIN_LEAD_SECONDS == 0.05
    for number in range(1, MAX_SAMPLES + 1):
        lead.learn(number / 1000, clock.monotonic())
    assert lead.seconds == pytest.approx(2 * 0.254)  # 254 of 256
    lead.learn(1000.0, clock.monotonic())
    for _ in range(3):
        lead.learn(500.0, clock.monotonic())
    assert lead.seconds == MAX_LEAD_SECONDS


def test_what_was_long_ago_is_forgotten_if_enough_is_known_since() -> None:
    clock = FakeClock()
    lead = Lead(clock)
    lead.learn(1.0, clock.monotonic())
    clock.advance(WINDOW_SECONDS + 1)
    for _ in range(MIN_SAMPLES - 1):
        lead.learn(0.1, clock.monotonic())
    assert lead.seconds == 2.0, "a rate of a job in two minutes has to know how long that takes"
    lead.learn(0.1, clock.monotonic())
    assert lead.seconds == pytest.approx(0.2)


def test_the_wait_of_a_bulk_handler_comes_on_top() -> None:
    lead = Lead(FakeClock(), wait=2.0)
    assert lead.seconds == 2.5
    lead.learn(0.5, 0.0)  # the call was full before the wait was over
    assert lead.seconds == 2.05
    lead.learn(2.1, 0.0)
    assert lead.seconds == pytest.approx(2.2)


def test_what_is_left_is_counted_by_both_clocks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.worker")
    clock = FakeClock()
    lead = Lead(clock)
    permits = Permits(frozenset(), lead, 1.0, clock.now(), clock.monotonic())
    clock.advance(0.5)
    assert permits.left() == pytest.approx(0.5)
    clock.step(0.75)  # as after the machine was suspended
    assert permits.left() == pytest.approx(-0.25)
    clock.step(-3600)  # a clock that was set back does not make it longer
    assert permits.left() == pytest.approx(0.5)
    clock.advance(0.6)
    assert permits.left() == pytest.approx(-0.1)
    assert len(caplog.messages) == 1, "now and then, not once for each"
    clock.advance(61)
    permits.left()
    assert caplog.messages[0].startswith("1 job given back, not begun within 1.000 s of the claim")
    assert caplog.messages[1].startswith("2 jobs given back, not begun within 1.000 s of the claim")


# -- too late


async def test_a_job_that_did_not_begin_in_time_is_given_back_and_its_permit_is_lost(shop: Shop, clock: Moved) -> None:
    began: list[int] = []

    async def paced(n: int) -> None:
        began.append(n)

    def late() -> None:
        clock.ahead += LATE

    shop.task(paced)
    await pace(shop, "limit:paced")
    ids = [await shop.submit("paced", payload={"n": n}) for n in range(3)]
    before = [(await shop.get(id)).arrived_at for id in ids]
    claims = Claims(shop, late)
    async with patient(shop.worker(engine=claims.engine, concurrency=1), clock):
        jobs = await shop.all_ended(ids)
    assert sorted(began) == [0, 1, 2], "each once"
    assert [job.arrived_at for job in jobs] == before, "the one that was given back has kept its place"
    assert [(job.attempt, job.charged) for job in jobs] == [(1, 1)] * 3
    assert [await shop.outcomes(id) for id in ids] == [["completed"]] * 3
    assert await spent(shop) == 4
    assert (claims.asks[0].lead, claims.asks[1].lead >= 2 * LATE) == (6.0, True), "the next has time enough"


@pytest.mark.every_engine
async def test_what_is_given_again_counts_from_the_first_request(shop: Shop, clock: Moved) -> None:
    """The reply of a claim is lost; that of its repeat comes later than the lead of the first."""
    began: list[int] = []

    async def paced() -> None:
        began.append(1)

    def lost() -> None:
        clock.ahead += LATE
        raise Unavailable("the reply was lost", outcome="unknown")

    shop.task(paced)
    await pace(shop, "limit:paced")
    id = await shop.submit("paced")
    claims = Claims(shop, lost)
    async with patient(shop.worker(engine=claims.engine), clock):  # from the repeat on it would be in time
        await shop.ended(id)
    assert claims.requests[0] == claims.requests[1] != claims.requests[2]
    assert (began, await spent(shop)) == ([1], 2)


@pytest.mark.every_engine
async def test_what_was_certainly_not_given_before_counts_from_the_request_that_gave_it(
    shop: Shop, clock: Moved
) -> None:
    tries = 0
    real = shop.engine.jobs

    async def claim(worker: Any, ask: ClaimRequest, request: int, now: datetime) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            clock.ahead += LATE
            raise Unavailable("not reached")
        return await real.claim(worker, ask, request, now)

    async def paced() -> None: ...

    shop.task(paced)
    await pace(shop, "limit:paced")
    id = await shop.submit("paced")
    engine: Any = Instead(shop.engine, jobs=Instead(real, claim=claim))
    async with patient(shop.worker(engine=engine), clock):
        await shop.ended(id)
    assert await spent(shop) == 1


async def test_a_start_that_has_to_be_stored_first_counts_too(shop: Shop, clock: Moved) -> None:
    began: list[int] = []
    applied = 0
    real = shop.engine.jobs

    async def paced() -> None:
        began.append(1)

    async def apply(*args: Any) -> Any:
        nonlocal applied
        applied += 1
        answer = await real.apply(*args)
        if applied == 1:
            clock.ahead += LATE
        return answer

    shop.task(paced)
    await pace(shop, "limit:paced")
    id = await shop.submit("paced", retry=ONCE)
    engine: Any = Instead(shop.engine, jobs=Instead(real, apply=apply))
    async with patient(shop.worker(engine=engine), clock):
        job = await shop.ended(id)
    # A claim that was under way when the time passed may have been given the job again, and come too late as well.
    assert (began, job.charged, await spent(shop) >= 2) == ([1], 1, True)
    assert await shop.outcomes(id) == ["released", "completed"]


class SlowThreads(Moved):
    """The way to the first thread of a handler takes long."""

    def monotonic(self) -> float:
        if self.ahead == 0.0 and threading.current_thread().name.startswith("headrace-handler"):
            self.ahead = LATE
        return super().monotonic()


@pytest.mark.parametrize("clock", [SlowThreads()], ids=["slow"])
@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_plain_function_begins_on_its_thread(shop: Shop, clock: Moved, wrapped: bool) -> None:
    clock.ahead = 0.0
    began: list[int] = []

    def paced() -> None:
        began.append(1)

    async def around(ctx: object, call_next: CallNext) -> Any:
        return await call_next()

    shop.task(paced)
    if wrapped:
        shop.handlers["paced"].surround((around,))
    await pace(shop, "limit:paced")
    id = await shop.submit("paced")
    async with patient(shop.worker(), clock):
        job = await shop.ended(id)
    assert (began, job.charged, await spent(shop) >= 2) == ([1], 1, True)


async def test_middleware_that_takes_its_time_makes_its_handler_late(shop: Shop, clock: Moved) -> None:
    began, entered = list[int](), 0

    async def paced() -> None:
        began.append(1)

    async def around(ctx: object, call_next: CallNext) -> Any:
        nonlocal entered
        entered += 1
        if entered == 1:
            clock.ahead += LATE
        return await call_next()

    shop.task(paced)
    shop.handlers["paced"].surround((around,))
    await pace(shop, "limit:paced")
    id = await shop.submit("paced")
    async with patient(shop.worker(), clock):
        job = await shop.ended(id)
    assert (began, job.charged, await spent(shop) >= 2) == ([1], 1, True)


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_one_permit_is_enough_for_middleware_that_calls_again(shop: Shop, clock: Moved, mode: str) -> None:
    began: list[int] = []

    def plain() -> None:
        began.append(1)
        if len(began) == 1:
            raise ValueError("once more")

    async def paced() -> None:
        plain()

    async def around(ctx: object, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except ValueError:
            clock.ahead += LATE
            return await call_next()

    shop.task(paced if mode == "async" else plain, name="paced")
    shop.handlers["paced"].surround((around,))
    await pace(shop, "limit:paced")
    id = await shop.submit("paced")
    async with patient(shop.worker(), clock):
        await shop.ended(id)
    assert (began, await shop.outcomes(id), await spent(shop)) == ([1, 1], ["completed"], 1)


async def test_a_process_handler_begins_in_its_child(shop: Shop, clock: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its deadline goes with it: one that is over when the child has it, is not begun."""
    from headrace.worker.execution import run

    given: list[float | None] = []
    real = run.Run.begins_within

    def begins_within(self: run.Run) -> float | None:
        left = real(self)
        on_thread = threading.current_thread().name.startswith("headrace-handler")
        if on_thread:
            given.append(left)
        return -1.0 if on_thread and len(given) == 1 else left

    monkeypatch.setattr(run.Run, "begins_within", begins_within)
    shop.handlers[square.name] = square.handler
    await pace(shop, "limit:square")
    worker = shop.worker()
    worker._slots.lead.learn(10.0, clock.monotonic())  # time enough for a child to be made
    id = await shop.submit("square", payload={"n": 7})
    async with worker:
        job = await shop.ended(id)
    assert (job.result["square"], job.charged, await spent(shop)) == (49, 1, 2)
    assert await shop.outcomes(id) == ["released", "completed"]
    assert len(given) == 3, "learned when the child had it too late; then once more, in time"


# -- bulk handlers


async def test_the_lead_of_a_bulk_handler_has_room_for_its_wait(shop: Shop, clock: Moved) -> None:
    async def index(items: list[int]) -> list[int]:
        return items

    shop.handlers["index"] = make_handler(index, name="index", bulk=(10, 0.3))
    await pace(shop, "limit:index")
    ids = [await shop.submit("index", payload={"items": n}) for n in range(3)]
    claims = Claims(shop, lambda: None)
    async with shop.worker(engine=claims.engine):
        await shop.all_ended(ids)
    assert claims.asks[0].lead == pytest.approx(0.3 + FIRST_LEAD_SECONDS)


async def test_who_is_late_for_a_bulk_call_is_left_out_of_it(shop: Shop, clock: Moved) -> None:
    """Two jobs for one call: the start of one, which no rate counts, has to be stored first and takes too long."""
    calls: list[list[int]] = []
    applied = 0
    real = shop.engine.jobs

    async def index(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    async def apply(*args: Any) -> Any:
        nonlocal applied
        applied += 1
        answer = await real.apply(*args)
        if applied == 1:
            clock.ahead += LATE
        return answer

    shop.handlers["index"] = make_handler(index, name="index", bulk=(2, 0.5))
    await pace(shop, "queue:slow")
    paced = await shop.submit("index", queue="slow", payload={"items": 1})
    other = await shop.submit("index", payload={"items": 2}, retry=ONCE)
    engine: Any = Instead(shop.engine, jobs=Instead(real, apply=apply))
    async with patient(shop.worker(engine=engine), clock):
        await shop.all_ended([paced, other])
    assert calls == [[2], [1]]
    assert ((await shop.get(paced)).charged, await spent(shop) >= 2) == (1, True)
    assert await shop.outcomes(other) == ["completed"]


async def test_what_waits_too_long_to_be_called_is_given_back(shop: Shop, clock: Moved) -> None:
    """The only slot is busy when a call is full: whoever a rate counts does not wait for it."""
    busy, go_on = asyncio.Event(), asyncio.Event()

    async def holds() -> None:
        busy.set()
        await go_on.wait()

    async def index(items: list[int]) -> list[int]:
        return items

    shop.task(holds)
    shop.handlers["index"] = make_handler(index, name="index", bulk=(1, 0.0))
    await pace(shop, "limit:index")
    worker = patient(shop.worker(concurrency=1), clock)
    async with worker:
        first = await shop.submit("holds")
        await asyncio.wait_for(busy.wait(), 45)
        id = await shop.submit("index", payload={"items": 1})
        now, monotonic = clock.now(), clock.monotonic()
        known = (await shop.engine.documents.profiles()).profiles
        profiles = frozenset(one.id for one in known if one.task == "index")
        claimed = await shop.engine.jobs.claim(worker.id, ClaimRequest(n=1, free=1, profiles=profiles), 1, now)
        assert isinstance(claimed, Claimed)
        (collector,) = worker._slots.collectors
        collector.take(claimed.jobs, {}, Permits(claimed.paced, collector.lead, 0.5, now, monotonic))
        assert worker._slots.waiting == 1
        clock.ahead += 0.6
        worker._slots.tick()
        assert worker._slots.waiting == 0
        go_on.set()
        await shop.all_ended([first, id])
    assert ((await shop.get(id)).charged, await spent(shop)) == (1, 2)


# -- what it costs, and what it brings


async def test_where_no_rate_counts_nothing_is_learned(shop: Shop) -> None:
    async def free() -> None: ...

    shop.task(free)
    ids = await shop.submit_many("free", 50)
    claims = Claims(shop, lambda: None)
    worker = shop.worker(engine=claims.engine)
    async with worker:
        await shop.all_ended(ids)
    assert (worker._slots.lead.seconds, len(worker._slots.lead._took)) == (FIRST_LEAD_SECONDS, 0)


@pytest.mark.timeout(120)
@pytest.mark.every_engine
async def test_in_no_window_do_more_begin_than_allowed_however_long_claims_take(shop: Shop) -> None:
    """Two workers with sessions of their own; the replies to their claims take now less, now more time."""
    limit, per, count = 10, 0.8, 45
    dice, began = random.Random(4), dict[str, list[float]]()
    rates = {kind: Rate(limit, per=per, kind=kind) for kind in ("fixed", "sliding", "bucket")}

    def task(name: str) -> Callable[[], Any]:
        async def call() -> None:
            began.setdefault(name, []).append(shop.host.clock.now().timestamp())

        return call

    async def slow(claim: Any, *args: Any) -> Any:
        answer = await claim(*args)
        await asyncio.sleep(dice.choice((0.0, 0.0, 0.02, 0.1, 0.25)))
        return answer

    ids = []
    for name, rate in rates.items():
        shop.task(task(name), name=name)
        await pace(shop, f"limit:{name}", name, rate)
        ids += await shop.submit_many(name, count)
    other = shop.engine.another_session()
    await other.open()
    since = shop.host.clock.now().timestamp()
    try:
        sessions: list[Any] = []
        for engine in (shop.engine, other):
            claim = engine.jobs.claim
            jobs = Instead(engine.jobs, claim=lambda *args, claim=claim: slow(claim, *args))
            sessions.append(Instead(engine, jobs=jobs))
        async with (
            shop.worker(engine=sessions[0], concurrency=30),
            shop.worker(engine=sessions[1], concurrency=30),
        ):
            await shop.all_ended(ids, within=100)
    finally:
        await other.close()
    assert {name: len(starts) for name, starts in began.items()} == dict.fromkeys(rates, count), "each job once"
    assert most_in_windows("fixed", began["fixed"], per, since=since) <= limit
    assert most_in_windows("sliding", began["sliding"], per) <= limit
    assert most_over_bucket(began["bucket"], limit, per) <= limit
