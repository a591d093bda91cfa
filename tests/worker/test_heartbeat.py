"""The sign of life: it goes on when the loop is blocked, and does then what cannot wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Self, cast
from uuid import UUID

import pytest

from headrace.core.attempt import TimedOut
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Status, Verb
from headrace.engine import Attended, Engine
from headrace.errors import Unavailable
from headrace.runtime.clock import Clock
from headrace.runtime.host import Host
from headrace.runtime.store_clock import StoreClock
from headrace.runtime.writes.writer import Writer
from headrace.worker.execution.context import Context
from headrace.worker.execution.signs import SignThrottle
from headrace.worker.heartbeat import Heartbeat
from headrace.worker.worker import Worker
from tests.core.stand import running as running_job
from tests.support.faults import Instead
from tests.support.shop import Shop
from tests.support.until import until
from tests.support.wrong_clock import PlainClock, WrongClock


class Elsewhere:
    """A worker on a loop of its own, on a thread of its own, so that a test can look on while that loop is blocked."""

    def __init__(self, shop: Shop, **options: Any) -> None:
        self._shop, self._options = shop, options
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._stop: Callable[[], object] = lambda: None
        self.worker: Worker | None = None

    async def _main(self) -> None:
        engine = self._shop.engine.another_session()
        await engine.open()
        writer = Writer(engine, self._shop.host)
        self.worker = Worker(
            engine, self._shop.handlers, host=self._shop.host, writer=writer, grace=0.1, **self._options
        )
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(self.worker.request_stop)  # type: ignore[union-attr]
        await self.worker.run()
        await writer.close()
        await engine.close()

    async def __aenter__(self) -> Self:
        self._thread.start()
        await until(lambda: self.worker is not None and self.worker.stats.state == "running")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop()
        await asyncio.to_thread(self._thread.join, 30)


async def test_a_worker_whose_loop_is_blocked_beats_on_and_says_so(shop: Shop) -> None:
    gate = threading.Event()

    async def blocks() -> str:
        gate.wait(45)  # on the loop, as a handler should not
        return "done"

    shop.task(blocks)
    async with Elsewhere(shop) as elsewhere:
        id = await shop.submit("blocks")

        async def state(name: str) -> bool:
            return [row.beat.state for row in await shop.engine.workers.list() if row.alive] == [name]

        await shop.reaches(id, Status.RUNNING)  # the start was written by the heartbeat
        await until(lambda: state("blocked"))
        worker = elsewhere.worker
        assert worker is not None
        await until(lambda: not worker.healthy)
        gate.set()
        assert (await shop.ended(id)).result == "done"
        await until(lambda: state("running"))
    assert await shop.outcomes(id) == ["completed"]


async def test_a_blocked_worker_gives_its_buffer_back(shop: Shop) -> None:
    gate = threading.Event()

    async def blocks(really: bool) -> None:
        if really:
            gate.wait(45)

    shop.task(blocks)
    warm = await shop.submit_many("blocks", 50, payload={"really": False})
    async with Elsewhere(shop, concurrency=1):
        await shop.all_ended(warm)  # the worker has learned that these are quick, and claims ahead
        first = shop.job("blocks", payload={"really": True}, priority=90)
        rest = [shop.job("blocks", payload={"really": False}) for _ in range(20)]
        await shop.writer.inserts.insert_many([first, *rest])

        async def given_back() -> bool:
            jobs = await shop.engine.jobs.get([job.id for job in rest])
            return all(job is not None and job.status is Status.QUEUED for job in jobs)

        await shop.reaches(first.id, Status.RUNNING)
        await until(given_back)
        gate.set()
        jobs = await shop.all_ended([first.id, *(job.id for job in rest)])
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert {job.charged for job in jobs} == {1}


async def test_the_attempt_of_a_blocked_worker_ends_when_its_time_is_up(shop: Shop) -> None:
    gate = threading.Event()

    async def blocks() -> None:
        gate.wait(45)

    shop.task(blocks)
    async with Elsewhere(shop) as elsewhere:
        id = await shop.submit("blocks", timeout=0.3, retry=Retry(0))
        job = await shop.ended(id)
        assert not gate.is_set()
        assert (job.status, await shop.outcomes(id)) == (Status.FAILED, ["timed_out"])
        gate.set()
        worker = elsewhere.worker
        assert worker is not None
        await until(lambda: worker.stats.stale == 1)  # what the handler came to in the end has no say any more
    assert (await shop.get(id)).status is Status.FAILED


async def test_a_blocked_loop_ends_what_gives_no_sign_and_writes_the_signs_of_threads(shop: Shop) -> None:
    gate, running = threading.Event(), threading.Event()

    async def blocks() -> None:
        gate.wait(45)

    def lives(ctx: Context) -> None:
        running.set()
        while not gate.wait(0.02):
            ctx.heartbeat()

    shop.task(blocks)
    shop.task(lives)
    async with Elsewhere(shop):
        live = await shop.submit("lives", heartbeat=1.5, retry=Retry(0))
        await until(running.is_set)
        dead = await shop.submit("blocks", heartbeat=0.6, retry=Retry(0))
        job = await shop.ended(dead)
        assert job.error is not None
        assert (job.status, job.error.message) == (Status.FAILED, "the attempt reported nothing for 0.6 s")
        before = (await shop.get(live)).act_by
        await until(lambda: shop._has(live, lambda job: job.act_by != before), what="a sign on record")
        assert not gate.is_set()
        gate.set()
        assert (await shop.ended(live)).status is Status.COMPLETED


class RefusesSigns:
    """An engine whose sessions, but the first, refuse so many signs and count them."""

    def __init__(self, real: Engine, refusals: float) -> None:
        self.real, self.refusals, self.refused = real, refusals, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def another_session(self) -> Any:
        return Instead(self.real.another_session(), another_session=self._beating)

    def _beating(self) -> Any:
        session = self.real.another_session()

        async def apply(changes: Sequence[Change], now: datetime) -> Any:
            if self.refused < self.refusals and any(change.verb is Verb.PROGRESS for change in changes):
                self.refused += 1
                raise Unavailable("the store refuses it")
            return await session.jobs.apply(changes, now)

        return Instead(session, jobs=Instead(session.jobs, apply=apply))


@pytest.mark.parametrize("refusals", [2, float("inf")], ids=["twice", "always"])
async def test_a_sign_that_a_blocked_loop_keeps_back_counts_once_it_is_stored(shop: Shop, refusals: float) -> None:
    store = RefusesSigns(shop.engine, refusals)
    gate, running, speak, heartbeat = threading.Event(), threading.Event(), threading.Event(), 4.5

    async def blocks() -> None:
        gate.wait(45)

    def speaks_once(ctx: Context) -> None:
        running.set()
        speak.wait(45)
        ctx.heartbeat()
        gate.wait(45)

    shop.task(blocks)
    shop.task(speaks_once)
    other = Shop(cast(Engine, store), shop.host)
    other.handlers = shop.handlers
    async with Elsewhere(other) as elsewhere:
        id = await shop.submit("speaks_once", heartbeat=heartbeat, retry=Retry(0))
        await until(running.is_set)
        before = (await shop.reaches(id, Status.RUNNING)).act_by
        await shop.submit("blocks")
        worker = elsewhere.worker
        assert worker is not None
        await until(lambda: not worker.healthy, what="a blocked loop")
        speak.set()
        await until(lambda: store.refused >= 2, what="it is tried again")
        if refusals == 2:
            await until(lambda: shop._has(id, lambda job: job.act_by != before), what="the sign on record")
        else:
            job = await shop.ended(id)
            assert job.error is not None
            assert job.error.message == f"the attempt reported nothing for {heartbeat:g} s"
        assert not gate.is_set()
        gate.set()


@pytest.mark.parametrize(("silent", "ends"), [(60.0, False), (1000.0, True)])
def test_signs_that_a_blocked_loop_keeps_back_are_not_missed_at_once(silent: float, ends: bool) -> None:
    host = SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: 5.0 + silent), uptime=lambda: 0.0)
    engine = SimpleNamespace(rules=Rules(timeout_slack=900.0), another_session=lambda: None)
    heartbeat = Heartbeat(cast(Any, None), cast(Any, engine), cast(Any, host), cast(Any, None))
    run = SimpleNamespace(late=None, signs=SignThrottle(5.0, 0.0), timed_out=TimedOut)
    job = running_job()
    assert job.started_at is not None
    change = heartbeat._overdue(cast(Any, run), job, job.started_at, 1.0, job.started_at, 0.5)
    assert (change is not None) == ends
    assert run.late is None, "the loop decides for itself"


@pytest.mark.parametrize("by", [3600.0, -3600.0])
@pytest.mark.every_engine
async def test_a_clock_that_is_set_while_the_loop_is_blocked_ends_no_attempt(shop: Shop, by: float) -> None:
    gate, clock = threading.Event(), WrongClock()
    shop.host.clock = StoreClock(clock)

    async def blocks() -> None:
        gate.wait(45)

    shop.task(blocks)
    async with Elsewhere(shop) as elsewhere:
        id = await shop.submit("blocks", timeout=60.0, retry=Retry(0))
        await shop.reaches(id, Status.RUNNING)  # this the heartbeat has written, for a loop that cannot
        clock.set(by)
        worker = elsewhere.worker
        assert worker is not None
        (before,) = await shop.engine.workers.list()

        async def beaten() -> bool:
            (row,) = await shop.engine.workers.list()
            return row.beats >= before.beats + 3  # and each comes with several looks at what runs

        await until(beaten)
        gate.set()
        assert (await shop.ended(id)).status is Status.COMPLETED
    assert await shop.outcomes(id) == ["completed"]


async def test_the_time_of_a_blocked_worker_runs_out_also_when_its_start_was_left_out(shop: Shop) -> None:
    gate = threading.Event()

    async def blocks() -> None:
        gate.wait(45)

    shop.task(blocks)
    async with Elsewhere(shop):
        id = await shop.submit("blocks", timeout=1.0, retry=Retry(3, backoff="fixed", initial=100))
        # First the start is written for the loop, which does not learn of it; the end is decided from what is stored.
        await shop.reaches(id, Status.RETRYING)
        assert not gate.is_set()
        gate.set()
    assert await shop.outcomes(id) == ["timed_out"]


class Deaf:
    """A store that hears no beats until it is healed; everything else works."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self.healed, self.kept = engine, False, False
        self.owner = self
        self.workers = Instead(engine.workers, beat=self._beat)

    def another_session(self) -> Any:
        """The heartbeat's own session."""
        twin = Deaf(self._engine.another_session())
        twin.__dict__["owner"] = self
        return twin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def _beat(self, *args: Any) -> Any:
        """Nothing is heard."""
        if not self.owner.healed:
            raise Unavailable("hears nothing")
        return await self._engine.workers.beat(*args)


async def test_a_worker_that_is_not_heard_starts_nothing_new(shop: Shop) -> None:
    async def noop() -> str:
        return "done"

    shop.task(noop)
    deaf = Deaf(shop.engine)
    worker = shop.worker(engine=cast(Engine, deaf))
    async with worker:
        await until(lambda: worker.stats.silence > shop.engine.rules.silence)
        await until(lambda: worker._slots.room() == (0, 0))
        assert not worker._may_start()
        id = await shop.submit("noop")
        assert not (await shop.get(id)).held
        deaf.healed = True
        assert (await shop.ended(id)).result == "done"
    await worker.writer.close()


def silent_then(shop: Shop, clock: Clock, jump: Callable[[], None]) -> list[bool]:
    """Whether a worker may start nothing: before the jump, after it, and after its next beat."""
    heart = Heartbeat(cast(Any, None), shop.engine, Host(clock), asyncio.get_running_loop())
    heart.acknowledged()
    silent = [heart.silent]
    heart._look_from = 0.0
    jump()
    silent.append(heart.silent)
    heart.acknowledged()
    return [*silent, heart.silent]


async def test_a_machine_that_slept_makes_a_worker_wait_for_its_next_beat(shop: Shop) -> None:
    for made in (lambda one: one, PlainClock, StoreClock):
        clock = WrongClock()
        assert silent_then(shop, made(clock), partial(clock.sleep, 60.0)) == [False, True, False]


async def test_a_clock_that_was_set_keeps_no_worker_waiting(shop: Shop) -> None:
    for seconds in (3600.0, -3600.0):
        clock = WrongClock()
        assert silent_then(shop, StoreClock(clock), partial(clock.set, seconds)) == [False, False, False]


class Provable:
    """A store that holds something for workers; what it holds is lost, or cannot be held, as the test says."""

    def __init__(self, engine: Engine, owner: Provable | None = None) -> None:
        self._engine, self._owner = engine, owner or self
        self.proof: str | None = "first"
        self.attended: list[UUID] = []
        self.workers = Instead(engine.workers, attend=self._attend)

    def another_session(self) -> Any:
        """The heartbeat's own session."""
        return Provable(self._engine.another_session(), self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def _attend(self, worker: UUID) -> Attended | None:
        known = [row.info.id for row in await self._engine.workers.list()]
        if worker not in self._owner.attended:
            assert worker not in known  # before it registers
            self._owner.attended.append(worker)
        return None if self._owner.proof is None else Attended(self._owner.proof)


async def test_what_is_held_for_a_worker_is_told_at_once_and_so_is_its_loss(shop: Shop) -> None:
    shop.task(idle)
    store = Provable(shop.engine)
    rules = Rules(beat=400.0, lease=1200.0)  # no beat is due by itself; there is a look every second

    store.__dict__["rules"] = rules
    worker = shop.worker(engine=cast(Engine, store))

    async def told() -> tuple[str | None, int]:
        (row,) = await shop.engine.workers.list()
        return row.proof, row.beats

    async with worker:
        await until(lambda: worker.stats.state == "running")
        assert await told() == ("first", 0)
        for number, proof in enumerate(("second", None, "third"), start=1):
            store.proof = proof
            await until(lambda proof=proof, number=number: _comes_to(told, (proof, number)), within=30)  # type: ignore[misc]
    assert store.attended == [worker.id]
    await worker.writer.close()


async def test_a_worker_that_goes_on_under_a_new_id_holds_for_that_one_before_it_registers(shop: Shop) -> None:
    shop.task(idle)
    store = Provable(shop.engine)
    worker = shop.worker(engine=cast(Engine, store))
    async with worker:
        await until(lambda: worker.stats.state == "running")
        first = worker.id
        (row,) = [row for row in await shop.engine.workers.list() if row.alive]
        await until(lambda: _buried(shop, first))
        await until(lambda: worker.id != first)
        second = worker.id
        await until(lambda: store.attended == [first, second])
        (row,) = [row for row in await shop.engine.workers.list() if row.alive]
        assert (row.info.id, row.proof) == (second, "first")
    await worker.writer.close()


async def _buried(shop: Shop, worker: UUID) -> bool:
    rows = [row for row in await shop.engine.workers.list() if row.info.id == worker and row.alive]
    return not rows or await shop.engine.workers.bury(worker, rows[0].beats)


async def _comes_to(ask: Callable[[], Awaitable[object]], expected: object) -> bool:
    return await ask() == expected


async def idle() -> None: ...


async def test_no_job_is_claimed_by_a_clock_that_is_unsure(shop: Shop) -> None:
    async def noop() -> str:
        return "done"

    async def time() -> datetime | None:
        return datetime.now(UTC)

    def watched(engine: Engine) -> Any:
        claim = engine.jobs.claim

        async def claiming(*args: Any) -> Any:
            unsure.append(clock.is_unsure)
            return await claim(*args)

        another = lambda: watched(engine.another_session())  # noqa: E731
        return Instead(engine, time=time, jobs=Instead(engine.jobs, claim=claiming), another_session=another)

    shop.task(noop)
    wrong, unsure = WrongClock(), list[bool]()
    shop.host.clock = clock = StoreClock(wrong)
    engine = watched(shop.engine)
    await shop.host.measure(engine)
    worker = shop.worker(engine=engine)
    async with worker:
        for by in (3600.0, -7200.0, 90.0):
            assert (await shop.ended(await shop.submit("noop"))).result == "done"
            wrong.set(by)
        assert (await shop.ended(await shop.submit("noop"))).result == "done"
    await worker.writer.close()
    assert set(unsure) == {False}
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 1


class LosesBeats(Deaf):
    """A store that keeps each beat, and whose first replies are lost."""

    async def _beat(self, *args: Any) -> Any:
        answer = await self._engine.workers.beat(*args)
        if not self.owner.healed:
            self.owner.healed = bool(args[1].finished)
            raise Unavailable("the reply was lost", outcome="unknown")
        return answer

    def another_session(self) -> Any:
        """The heartbeat's own session."""
        twin = LosesBeats(self._engine.another_session())
        twin.__dict__["owner"] = self
        return twin


@pytest.mark.every_engine
async def test_what_was_handed_in_with_a_beat_whose_reply_was_lost_counts_once(shop: Shop) -> None:
    async def noop() -> None:
        """Done at once."""

    shop.task(noop)
    lossy = LosesBeats(shop.engine)
    worker = shop.worker(engine=cast(Engine, lossy))
    async with worker:
        await shop.all_ended([await shop.submit("noop") for _ in range(7)])
        await until(lambda: lossy.healed and not worker.sums.report(worker.id)[1])
    await worker.writer.close()
    now = shop.host.clock.now()
    rows = await shop.engine.rollups.read(now - timedelta(hours=1), now + timedelta(hours=1))
    assert sum(row.totals.completed for row in rows) == 7


class LosesOne(LosesBeats):
    """One that keeps the first that is handed in, loses the reply, and then hears nothing until it is healed."""

    async def _beat(self, *args: Any) -> Any:
        if self.owner.kept and not self.owner.healed:
            raise Unavailable("hears nothing")
        answer = await self._engine.workers.beat(*args)
        if args[1].finished and not self.owner.kept:
            self.owner.kept = True
            raise Unavailable("the reply was lost", outcome="unknown")
        return answer

    def another_session(self) -> Any:
        """The heartbeat's own session."""
        twin = LosesOne(self._engine.another_session())
        twin.__dict__["owner"] = self
        return twin


async def test_what_was_handed_in_counts_once_also_if_a_claim_tells_the_worker_that_it_is_dead(shop: Shop) -> None:
    async def noop() -> None:
        """Done at once."""

    shop.task(noop)
    lossy = LosesOne(shop.engine)
    worker = shop.worker(engine=cast(Engine, lossy))
    async with worker:
        first = worker.id
        await shop.all_ended([await shop.submit("noop") for _ in range(7)])
        await until(lambda: lossy.kept)
        await until(lambda: _buried(shop, first))
        await worker.died(first)  # as a fetcher calls it
        lossy.healed = True
        await shop.all_ended([await shop.submit("noop") for _ in range(2)])
        assert worker.id != first
    await worker.writer.close()
    now = shop.host.clock.now()
    rows = await shop.engine.rollups.read(now - timedelta(hours=1), now + timedelta(hours=1))
    assert sum(row.totals.completed for row in rows) == 9
