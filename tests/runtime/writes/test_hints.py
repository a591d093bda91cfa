"""Hints of changes: of every transition, while somebody listens, and never too many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import App, Context, RetryLater, Snooze
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.engine import Engine
from headrace.engine.bus import Hint, LocalBus, Topic
from headrace.engines.postgres.bus.role import NotifyBus
from headrace.runtime.clock import SystemClock
from headrace.runtime.writes.hints import GAP_SECONDS, MAX_HINT_JOBS, ChangeHints, hint_of
from tests.support.apps import ENGINES, url_of
from tests.support.until import until

pytestmark = pytest.mark.every_engine

CHANGED = frozenset({Topic.CHANGED})


class Recorder:
    """A bus that records what is sent."""

    def __init__(self) -> None:
        self.sent: list[Hint] = []
        self.local = LocalBus()
        self.listen = self.local.listen

    def send(self, hint: Hint) -> None:
        self.sent.append(hint)

    def wanted(self, topic: Topic) -> bool:
        return topic in self.local.topics


def jobs(count: int) -> list[Job]:
    now = SystemClock().now()
    return [submit(UUID(int=n), Spec(task="work", created_at=now), "{}", now) for n in range(count)]


@pytest.fixture
def bus() -> Recorder:
    made = Recorder()
    made.listen(CHANGED, lambda hint: None)
    return made


async def test_without_a_listener_nothing_is_told_and_no_job_is_even_looked_at() -> None:
    bus = Recorder()

    def refuse() -> AsyncIterator[Job]:
        raise AssertionError

    ChangeHints(bus).tell(refuse() for _ in range(1))  # type: ignore[misc]
    assert bus.sent == []


async def test_the_first_is_told_at_once_and_the_others_together(bus: Recorder) -> None:
    changes, made = ChangeHints(bus), jobs(5)
    changes.tell(made[:1])
    assert bus.sent == [Hint(Topic.CHANGED, (str(made[0].id),))]
    for job in (*made[1:], *made[1:]):
        changes.tell([job])
    assert len(bus.sent) == 1
    await until(lambda: len(bus.sent) == 2)
    assert sorted(bus.sent[1].names) == [str(job.id) for job in made[1:]]
    assert bus.sent[1].dropped == 0
    changes.tell([])
    await asyncio.sleep(0)
    assert len(bus.sent) == 2


async def test_a_hint_names_so_many_and_counts_the_rest(bus: Recorder) -> None:
    changes = ChangeHints(bus)
    changes.tell(jobs(500))
    changes.tell(jobs(MAX_HINT_JOBS + 1))
    await until(lambda: len(bus.sent) == 2)
    assert [(len(hint.names), hint.dropped) for hint in bus.sent] == [(MAX_HINT_JOBS, 300), (MAX_HINT_JOBS, 1)]


async def test_a_flood_is_told_in_samples_and_what_follows_it_in_full(bus: Recorder) -> None:
    changes, told = ChangeHints(bus), 0
    loop = asyncio.get_running_loop()
    began = loop.time()
    while len(bus.sent) < 40:
        changes.tell(jobs(1000))
        told += 1000
        await asyncio.sleep(0.001)
    assert told == sum(len(hint.names) + hint.dropped for hint in bus.sent) + len(changes._ids) + changes._dropped
    assert sum(len(hint.names) for hint in bus.sent) <= 2000 + 1000 * (loop.time() - began) + MAX_HINT_JOBS
    assert all(len(hint.names) <= MAX_HINT_JOBS for hint in bus.sent)
    changes.close()
    bus.sent.clear()
    await until(lambda: changes._allowance.left(loop.time()) >= MAX_HINT_JOBS)
    changes.tell(jobs(3))
    assert [(len(hint.names), hint.dropped) for hint in bus.sent] == [(3, 0)]


async def test_closing_tells_what_waits(bus: Recorder) -> None:
    changes = ChangeHints(bus)
    changes.tell(jobs(1))
    changes.tell(jobs(3))
    changes.close()
    changes.close()
    assert [len(hint.names) for hint in bus.sent] == [1, 3]
    assert GAP_SECONDS > 0


def test_one_hint_about_many_is_bounded_as_well() -> None:
    assert hint_of([job.id for job in jobs(2)]) == Hint(Topic.CHANGED, (str(UUID(int=0)), str(UUID(int=1))))
    assert hint_of([UUID(int=n) for n in range(250)]).dropped == 50


# Every transition


class Transitions:
    """An App whose jobs go through everything, and another session of its store that hears of it."""

    def __init__(self, app: App, other: Engine) -> None:
        self.app, self.heard, self.told = app, list[str](), set[tuple[UUID, str]]()
        self.hold = asyncio.Event()
        self.leave = other.bus.listen(CHANGED, lambda hint: self.heard.extend(hint.names))
        changes = app.session.writer.changes
        tell = changes.tell

        def telling(jobs: Iterable[Job]) -> None:
            made = list(jobs)
            self.told.update((job.id, job.status.value) for job in made)
            tell(made)

        changes.tell = telling  # type: ignore[method-assign]

        @app.task
        async def work(ctx: Context, how: str = "") -> None:
            if how == "fail":
                raise RetryLater(3600)
            if how == "snooze":
                raise Snooze(3600)
            if how == "hold":
                await self.hold.wait()

        self.work = work

    async def hear(self, id: UUID, status: str) -> None:
        """Wait until this was told of the job, and heard in the other session."""
        await until(lambda: (id, status) in self.told)
        await until(lambda: str(id) in self.heard)
        self.heard.clear()


@pytest.fixture(params=ENGINES)
async def seen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Transitions]:
    app = App(url_of(request.param, tmp_path))
    async with app:
        other = app.session.engine.another_session()
        await other.open()
        made = Transitions(app, other)

        def reaches() -> bool:
            # That somebody may be listening is believed before it is known, and what is sent too early is lost.
            app.session.engine.bus.send(Hint(Topic.CHANGED, (str(UUID(int=0)),)))
            return bool(made.heard)

        await until(reaches)
        await until(lambda: app.session.engine.bus.wanted(Topic.CHANGED))
        made.heard.clear()
        yield made
        made.hold.set()
        await other.close()


async def test_every_transition_is_told_to_other_sessions(seen: Transitions) -> None:
    app, work = seen.app, seen.work
    async with app.worker(concurrency=3, grace=0):
        fails = await work.submit("fail")
        await seen.hear(fails.id, "retrying")
        snoozes = await work.submit("snooze")
        await seen.hear(snoozes.id, "scheduled")
        assert {(fails.id, "accepted"), (snoozes.id, "accepted")} <= seen.told  # claimed
        holds = await work.submit("hold")
        await seen.hear(holds.id, "running")
        await holds.cancel()
        await seen.hear(holds.id, "cancelled")
        lasts = await work.submit("hold")
        await seen.hear(lasts.id, "running")
    await seen.hear(lasts.id, "queued")  # released, because the worker stopped
    await holds.retry()
    await seen.hear(holds.id, "queued")
    await app.jobs.handle(holds.id).resolve(error="by hand")
    await seen.hear(holds.id, "failed")
    seen.told.clear()
    await holds.discard()
    await seen.hear(holds.id, "cancelled")


async def test_what_follows_for_other_jobs_is_told(seen: Transitions) -> None:
    async with seen.app.batch() as batch:
        batch.add(seen.work.draft())
    member = (await seen.app.jobs.list(batch=batch.id)).items[0]
    await batch.cancel()
    await seen.hear(member.id, "cancelled")  # by the note that the cancel of the batch left


async def test_when_the_last_listener_leaves_nothing_is_sent_any_more(seen: Transitions) -> None:
    job = await seen.work.options(delay=3600).submit()
    await job.cancel()
    await seen.hear(job.id, "cancelled")
    seen.leave()
    bus = seen.app.session.engine.bus
    calls_last = isinstance(bus, NotifyBus)  # for a beat and a half: tests/engines/postgres/bus/test_role.py
    assert bus.wanted(Topic.CHANGED) is calls_last


async def test_whoever_stores_a_job_that_expires_soon_hints_at_it(tmp_path: Path) -> None:
    app = App(url_of("sqlite", tmp_path))

    @app.task
    async def work() -> None: ...

    def soon(seconds: float) -> Any:
        return work.options(not_after=app.host.clock.now() + timedelta(seconds=seconds))

    async with app:
        heard = list[Hint]()
        app.session.engine.bus.listen(frozenset({Topic.DEADLINE}), heard.append)

        async def hints(*, expected: bool) -> bool:
            await asyncio.sleep(0)
            found = [*heard]
            heard.clear()
            return bool(found) is expected

        await work.submit()
        await soon(60).submit()
        await asyncio.to_thread(soon(60).submit_sync)
        assert await hints(expected=False), "the sweeper's next poll finds it in time"
        await soon(19).submit()
        await until(lambda: hints(expected=True))
        await soon(19).map([(), ()])
        await until(lambda: hints(expected=True))
        handle = await asyncio.to_thread(soon(19).submit_sync)
        await until(lambda: hints(expected=True))
        await handle.postpone(5)
        await until(lambda: hints(expected=True))
