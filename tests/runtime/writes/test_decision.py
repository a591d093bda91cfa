"""Decisions that are taken again until the store has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import cast

import pytest
from msgspec.structs import replace

from headrace.core.change import Applied, Change, Conflict, Verdict, WasStale
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.status import Status
from headrace.engine import Engine
from headrace.errors import Duplicate, JobNotFound, Stale, TooManyProfiles, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.writes.decision import write_decision
from headrace.runtime.writes.writer import Writer
from tests.support.faults import Instead
from tests.support.world import World, world

Answer = Callable[[Change], Verdict]


class Impatient(Host):
    """Its clock goes on while it sleeps."""

    def __init__(self, made: World) -> None:
        super().__init__(made.clock, made.host.dice)
        self._made, self.slept = made, list[float]()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._made.clock.advance(seconds)


class Desk:
    """A writer on a store that gives some verdicts first, and its own ones after them."""

    def __init__(self, made: World, *answers: Answer, timeout: float = 30.0) -> None:
        self.made, self.answers, self.written = made, list(answers), list[Change]()
        engine = Instead(made.engine, jobs=Instead(made.engine.jobs, apply=self._apply))
        self.host = Impatient(made)
        self.writer = Writer(cast("Engine", engine), self.host, timeout=timeout)

    async def _apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        self.written += changes
        if self.answers:
            (change,) = changes
            return [self.answers.pop(0)(change)]
        return await self.made.engine.jobs.apply(changes, now)

    def cancel(self, job: Job, now: datetime) -> Change | None:
        return actions.cancel(job, now, self.made.engine.rules)


def stays(job: Job) -> Answer:
    return lambda change: Conflict(job)


def moved(job: Job) -> Answer:
    return lambda change: Conflict(replace(job, rev=change.rev + 1))


async def test_what_is_decided_is_written_once() -> None:
    async with world() as made:
        job, desk = await made.submit(), Desk(made)
        change, verdict = await write_decision(desk.writer, job, desk.cancel)
        assert isinstance(verdict, Applied)
        assert (verdict.job.status, desk.host.slept) == (Status.CANCELLED, [])
        assert [one.job for one in desk.written] == [verdict.job]
        assert change is not None
        assert change.job == verdict.job


async def test_a_job_that_stays_as_it_is_is_waited_for_longer_and_longer() -> None:
    async with world() as made:
        job = await made.submit()
        desk = Desk(made, *[stays(job)] * 8)
        _, verdict = await write_decision(desk.writer, job, desk.cancel)
        assert isinstance(verdict, Applied)
        assert desk.host.slept == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
        assert len({one.job.updated_at for one in desk.written}) == 9, "each is decided after the pause"


async def test_a_job_that_stays_as_it_is_for_too_long_is_given_up() -> None:
    async with world() as made:
        job = await made.submit()
        desk = Desk(made, *[stays(job)] * 100, timeout=5.0)
        with pytest.raises(Unavailable, match=f"job {job.id} is in a transaction that is still open") as caught:
            await write_decision(desk.writer, job, desk.cancel)
        assert (caught.value.ids, caught.value.outcome) == ((job.id,), "refused")
        assert 5.0 < sum(desk.host.slept) < 6.1


async def test_a_job_that_moved_is_decided_about_at_once() -> None:
    async with world() as made:
        job = await made.submit()
        desk = Desk(made, moved(job), moved(job))
        seen = list[int]()

        def decide(job: Job, now: datetime) -> Change | None:
            seen.append(job.rev)
            return None if len(seen) == 3 else desk.cancel(job, now)

        change, verdict = await write_decision(desk.writer, job, decide)
        assert change is None
        assert verdict == Applied(replace(job, rev=job.rev + 2))
        assert (seen, desk.host.slept) == ([job.rev, job.rev + 1, job.rev + 2], [])


async def test_a_key_that_another_job_holds_and_one_profile_too_many_are_raised() -> None:
    async with world() as made:
        job, other = await made.submit(), await made.submit()
        desk = Desk(made, lambda change: Conflict(job, holder=other))
        with pytest.raises(Duplicate) as caught:
            await write_decision(desk.writer, job, desk.cancel)
        assert caught.value.job == other
        desk = Desk(made, lambda change: Conflict(job, too_many="too many pairs"))
        with pytest.raises(TooManyProfiles, match="too many pairs"):
            await write_decision(desk.writer, job, desk.cancel)


async def test_a_change_that_is_stale_is_lost() -> None:
    async with world() as made:
        job = await made.submit()
        for verdict, error in ((WasStale(None), JobNotFound), (WasStale(job), Stale)):
            desk = Desk(made, lambda change, verdict=verdict: verdict)  # type: ignore[misc]
            assert (await write_decision(desk.writer, job, desk.cancel))[1] == verdict
            desk = Desk(made, lambda change, verdict=verdict: verdict)  # type: ignore[misc]
            with pytest.raises(error):
                await desk.writer.decide(job.id, desk.cancel)
