"""The sweeper: who is dead, whose job is taken, and who is left in peace."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.actions import cancel
from headrace.core.lifecycle.execution import release
from headrace.core.status import Outcome, Reason, Status
from headrace.engine import Alive, Dead, OverdueJobs
from headrace.engine.bus import Hint, Topic
from headrace.errors import Unavailable
from headrace.maintenance import Sweeper
from headrace.runtime.totals import FinishTotals
from tests.support.world import Player, World, world


def sweeper(w: World, limit: int = 1000) -> Sweeper:
    return Sweeper(w.engine, w.writer, w.host, w.holder(), limit=limit)


async def watch(w: World, s: Sweeper, seconds: float, *beating: Player, step: float = 2.5) -> int:
    """Tick for so long; these workers beat meanwhile."""
    done, end = 0, w.clock.monotonic() + seconds
    while w.clock.monotonic() < end:
        w.clock.advance(min(step, end - w.clock.monotonic()))
        for player in beating:
            await player.beat()
        done += await s.tick()
    return done


# Death


async def test_a_silent_worker_is_buried_and_its_jobs_are_taken_back() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit()
        job = await player.run()
        await watch(w, s, 30)
        assert await w.alive() == {player.id}
        await watch(w, s, 2.5)
        assert await w.alive() == set()
        lost = await w.job(job)
        assert (lost.status, lost.charged, lost.worker) == (Status.RETRYING, 1, None)
        (attempt,) = (await w.engine.records.history(job.id)).attempts
        assert (attempt.outcome, attempt.worker, attempt.cause) == (Outcome.LOST, player.id, "lease")
        assert isinstance(await player.beat(), Dead)


async def test_what_the_dead_held_of_limits_is_told_to_be_free() -> None:
    async with world() as w:
        s, player, heard = sweeper(w), await w.worker(), list[Hint]()
        await w.submit()
        job = await player.run()
        await watch(w, s, 30)
        w.engine.bus.listen(frozenset({Topic.READY}), heard.append)
        await watch(w, s, 2.5)
        assert (await w.job(job)).status is Status.RETRYING  # so it is not itself what is ready
        await asyncio.sleep(0)
        assert heard == [Hint(Topic.READY)]


async def test_a_slot_of_the_dead_is_free_after_a_lease_and_one_sweep() -> None:
    async with world() as w:
        s, dead, other = sweeper(w), await w.worker(), await w.worker()
        assert await w.engine.documents.put_setting("limit:work", '{"max_concurrency": 1}', 0) is not None
        held = await w.submit()
        await dead.run()
        waits = await w.submit()
        assert held.task == waits.task == "work"
        await watch(w, s, 30, other)
        assert await other.claim() == []
        await watch(w, s, 2.5, other)
        assert [job.id for job in await other.claim()] == [waits.id]


async def test_a_beating_worker_keeps_its_jobs() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit()
        job = await player.run()
        for _ in range(12):
            await watch(w, s, 10)
            await player.beat()
        assert await w.job(job) == job
        assert await w.alive() == {player.id}


async def test_an_unstarted_job_of_a_dead_worker_keeps_its_place_uncharged() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        first = await w.submit()
        await player.claim()
        await w.submit()
        await watch(w, s, 35)
        back = await w.job(first)
        assert (back.status, back.charged, back.unstarted_losses) == (Status.QUEUED, 0, 1)
        assert back.arrived_at == first.arrived_at


class Wide(Rules, frozen=True):
    """Rules under which looks may be so far apart that two of them span a lease."""

    @property
    def look_gap(self) -> float:
        return 1000.0


async def test_two_looks_are_not_enough_however_long() -> None:
    async with world(Wide()) as w:
        s, player = sweeper(w), await w.worker()
        await s.tick()
        await watch(w, s, 500, step=500)
        assert await w.alive() == {player.id}
        await watch(w, s, 1)
        assert await w.alive() == set()


async def test_a_frozen_store_buries_nobody_and_charges_nobody() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit(timeout=20.0)
        await w.submit()
        running = await player.run()
        (accepted,) = await player.claim()
        await player.beat()
        await watch(w, s, 10)
        w.engine.hang = 40.0  # nobody reads or writes meanwhile: no beat arrives, deadlines pass
        assert await s.tick() == 0
        await watch(w, s, 2.5)
        assert await w.alive() == {player.id}
        assert (await w.job(running)).status is Status.RUNNING
        # Thawed, the worker says what it had to say.
        await player.beat()
        await player.start(accepted)
        await player.complete(running)
        await watch(w, s, 30, player)
        assert await w.alive() == {player.id}
        done = await w.job(running)
        assert (done.status, done.charged) == (Status.COMPLETED, 1)
        assert (await w.job(accepted)).status is Status.RUNNING


async def test_a_store_that_is_away_buries_nobody() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await watch(w, s, 25)
        w.engine.away = True
        for _ in range(16):
            w.clock.advance(2.5)
            with pytest.raises(Unavailable):
                await s.tick()
        w.engine.away = False
        await watch(w, s, 5)
        assert await w.alive() == {player.id}
        await player.beat()  # as all do that waited for the store
        await watch(w, s, 30)
        assert await w.alive() == {player.id}


async def test_a_stepped_wall_clock_buries_nobody() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        for step in (3600.0, -7200.0, 86400.0):
            await watch(w, s, 7.5)
            w.clock.step(step)
            await s.tick()
            await player.beat()
        assert await w.alive() == {player.id}


async def test_a_sweeper_that_slept_does_not_count_its_sleep() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await watch(w, s, 20)
        w.clock.advance(60)
        await watch(w, s, 12.5)
        assert await w.alive() == {player.id}
        await watch(w, s, 2.5)  # 17.5 s before its sleep, and 12.5 s after it
        assert await w.alive() == set()


async def test_what_earlier_watchers_saw_counts() -> None:
    async with world() as w:
        player = await w.worker()
        await watch(w, sweeper(w), 27.5)
        for _ in range(3):  # whoever is new gives the worker half a beat to be heard
            await watch(w, sweeper(w), 5)
            assert await w.alive() == {player.id}
        await watch(w, sweeper(w), 7.5)
        assert await w.alive() == set()


async def test_what_was_seen_of_an_earlier_beat_does_not_count() -> None:
    async with world() as w:
        player = await w.worker()
        await watch(w, sweeper(w), 27.5)
        await player.beat()
        await watch(w, sweeper(w), 30)
        assert await w.alive() == {player.id}


async def test_a_burial_loses_against_a_beat() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await watch(w, s, 30)
        beaten = []

        async def look_then_beat() -> None:
            rows = await w.engine.workers.list()
            beaten.append(await player.beat())
            assert not await w.engine.workers.bury(player.id, rows[0].beats)

        await look_then_beat()
        assert isinstance(beaten[0], Alive)
        # The same inside a look: the beat arrives after the rows were read and before the burial.
        await watch(w, s, 30)
        bury = w.engine.workers.bury

        async def late(worker: object, beats: int, **how: Any) -> bool:
            await player.beat()
            return await bury(player.id, beats, **how)

        w.engine.workers.bury = late  # type: ignore[method-assign]
        w.clock.advance(2.5)
        assert await s.look() == 0
        assert await w.alive() == {player.id}


async def test_two_sweepers_at_once_are_harmless() -> None:
    async with world() as w:
        one, other = sweeper(w), sweeper(w)
        player = await w.worker()
        jobs = [await w.submit() for _ in range(20)]
        for job in await player.claim(20):
            await player.start(job)
        for _ in range(14):
            w.clock.advance(2.5)
            await asyncio.gather(one.tick(), other.tick())
        for job in jobs:
            lost = await w.job(job)
            assert (lost.status, lost.charged) in {(Status.RETRYING, 1), (Status.QUEUED, 1)}
            assert len((await w.engine.records.history(job.id)).attempts) == 1
        assert (await w.engine.records.ledger()).unaccounted == 0


async def test_a_leader_that_dies_with_its_worker_is_replaced_and_buried() -> None:
    async with world() as w:
        player = await w.worker()
        dead = Sweeper(w.engine, w.writer, w.host, player.id)
        await dead.round()
        next_one, began = sweeper(w), w.clock.monotonic()
        while player.id in await w.alive():
            w.clock.advance(await next_one.round())
        # The duty's lease, the next asking, a lease of watching, one more look.
        assert w.clock.monotonic() - began <= 22.5 + 13.5 + 30 + 8.5


# Losses


async def test_a_late_lose_never_overwrites_a_completed_job() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit()
        job = await player.run()
        await watch(w, s, 30)
        await w.engine.workers.bury(player.id, 0)
        rows = (await w.engine.jobs.overdue(w.now)).jobs
        assert [row.job for row in rows] == [job]
        await player.complete(job)  # a buried worker's finish is judged by rev and epoch alone
        assert await s._settle_all(rows, w.now, ()) == 0
        assert (await w.job(job)).status is Status.COMPLETED


async def test_a_conflict_is_decided_again() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit()
        job = await player.run()
        await w.engine.workers.bury(player.id, 0)
        rows = (await w.engine.jobs.overdue(w.now)).jobs
        await w.writer.decide(job.id, lambda job, now: cancel(job, now, w.engine.rules))
        assert await s._settle_all(rows, w.now, ()) == 1
        ended = await w.job(job)
        assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.USER)


async def test_a_job_that_changed_hands_is_left_to_its_new_owner() -> None:
    async with world() as w:
        s, dead, player = sweeper(w), await w.worker(), await w.worker()
        await w.submit()
        (job,) = await dead.claim()
        await w.engine.workers.bury(dead.id, 0)
        rows = (await w.engine.jobs.overdue(w.now)).jobs
        await w.writer.apply(release(job, w.now))
        taken = await player.run()
        assert await s._settle_all(rows, w.now, ()) == 0
        assert await w.job(job) == taken


async def test_a_passed_deadline_must_be_seen_twice_half_a_beat_apart() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit(timeout=60.0)
        job = await player.run()
        await watch(w, s, 67.5, player)  # its time, and the slack without that of the sweeper
        assert (await w.job(job)).status is Status.RUNNING
        await watch(w, s, 2.5, player)
        assert (await w.job(job)).status is Status.RUNNING
        await watch(w, s, 2.5, player)
        lost = await w.job(job)
        assert lost.error is not None
        assert (lost.status, lost.charged, lost.error.type) == (Status.RETRYING, 1, "Timeout")


async def test_a_cancel_that_is_not_obeyed_is_ended_by_the_sweeper() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit()
        job = await player.run()
        await w.writer.decide(job.id, lambda job, now: cancel(job, now, w.engine.rules))
        await watch(w, s, 27.5, player)
        assert (await w.job(job)).status is Status.RUNNING
        await watch(w, s, 10, player)
        assert (await w.job(job)).status is Status.CANCELLED


async def test_a_job_that_two_beats_do_not_name_is_taken_at_once() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit()
        (job,) = await player.claim()
        await player.start(job)
        player.held.clear()
        for _ in range(3):
            w.clock.advance(10)
            await player.beat()
        await s.tick()
        assert (await w.job(job)).status is Status.RETRYING


async def test_a_job_past_its_last_moment_expires_at_once() -> None:
    async with world() as w:
        s = sweeper(w)
        job = await w.submit(not_after=w.now + timedelta(seconds=5))
        later = await w.submit(available_at=w.now + timedelta(hours=1), not_after=w.now + timedelta(seconds=5))
        w.clock.advance(6)
        assert await s.tick() == 2
        for one in (job, later):
            ended = await w.job(one)
            assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.EXPIRED)


async def test_what_is_due_is_promoted() -> None:
    async with world() as w:
        s = sweeper(w, limit=2)
        jobs = [await w.submit(available_at=w.now + timedelta(seconds=5)) for _ in range(5)]
        assert await s.tick() == 0
        w.clock.advance(5)
        assert await s.tick() == 0  # whoever claims promotes; this is for stores where nobody does, and not urgent
        w.clock.advance(25)
        assert await s.tick() == 5
        assert {(await w.job(job)).status for job in jobs} == {Status.QUEUED}


async def test_many_are_swept_in_one_tick() -> None:
    async with world() as w:
        s, player = sweeper(w, limit=7), await w.worker()
        jobs: list[Job] = [await w.submit() for _ in range(50)]
        await player.claim(50)
        await watch(w, s, 30)
        w.clock.advance(2.5)
        assert await s.tick() == 51
        assert {(await w.job(job)).status for job in jobs} == {Status.QUEUED}


async def test_many_late_ones_do_not_loop_for_ever() -> None:
    async with world() as w:
        s, player = sweeper(w, limit=5), await w.worker()
        for _ in range(20):
            await w.submit(timeout=10.0)
        for job in await player.claim(20):
            await player.start(job)
        w.clock.advance(21)
        await player.beat()
        assert await s.tick() == 0
        w.clock.advance(5)
        assert await s.tick() == 5  # the others are seen now, and ripen in their turn
        await watch(w, s, 60, player)
        assert not ((await w.engine.jobs.overdue(w.now)).jobs)


# Deadlines on time


def counting(w: World) -> list[float]:
    """The moments at which the store is asked for what is overdue, from now on."""
    overdue, asked = w.engine.jobs.overdue, list[float]()

    async def counted(now: datetime, limit: int = 1000) -> OverdueJobs:
        asked.append(w.clock.monotonic())
        return await overdue(now, limit)

    w.engine.jobs.overdue = counted  # type: ignore[method-assign]
    return asked


async def rounds(w: World, s: Sweeper, seconds: float, *beating: Player) -> None:
    """The sweeper's own loop for so long, waiting as long as it says; these workers beat meanwhile."""
    end, beat_at = w.clock.monotonic() + seconds, w.clock.monotonic()
    while (now := w.clock.monotonic()) < end:
        if now >= beat_at:
            for player in beating:
                await player.beat()
            beat_at = now + w.engine.rules.beat
        pause = await s.round()
        w.clock.advance(max(0.001, min(pause, beat_at - now, end - now)))


async def over_after(w: World, s: Sweeper, job: Job, status: Status, *beating: Player) -> float:
    """How many seconds pass until the job has this status."""
    began = w.clock.monotonic()
    while (await w.job(job)).status is not status:
        await rounds(w, s, 0.25, *beating)
        assert w.clock.monotonic() - began < 100
    return w.clock.monotonic() - began


async def test_a_store_without_open_questions_is_asked_every_other_time() -> None:
    async with world() as w:
        s, asked = sweeper(w), counting(w)
        for _ in range(10):
            await s.tick()
        assert len(asked) == 5


async def test_an_idle_store_is_not_asked_more_often_and_one_at_work_with_every_check() -> None:
    async with world() as w:
        s, player, asked = sweeper(w), await w.worker(), counting(w)
        await w.submit(available_at=w.now + timedelta(hours=9), not_after=w.now + timedelta(hours=9, seconds=1))
        await rounds(w, s, 600, player)
        assert len(asked) <= 600 / (2 * 8.5 * 0.75) + 1, "every other check"
        asked.clear()
        await w.submit(timeout=3600.0)
        await player.run()
        await rounds(w, s, 600, player)
        assert 600 / 8.5 - 1 <= len(asked) <= 600 / (8.5 * 0.75) + 2, "every check"


@pytest.mark.parametrize("after", [0.0, 3.0, 7.0, 12.0])
async def test_an_offer_that_is_not_accepted_is_queued_again_within_two_seconds(after: float) -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await rounds(w, s, 40 + after, player)
        job = await w.submit()
        await player.claim(accept=False)
        assert (await w.job(job)).status is Status.ASSIGNED
        assert 30 < await over_after(w, s, job, Status.QUEUED, player) <= 32


@pytest.mark.parametrize("timeout", [0.1, 3.0, 60.0])
@pytest.mark.parametrize("after", [0.0, 5.0, 8.0])
async def test_an_attempt_is_over_ten_seconds_after_its_time_at_the_latest(timeout: float, after: float) -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await rounds(w, s, 40 + after, player)
        await w.submit(timeout=timeout)
        job = await player.run()
        assert timeout + 7 < await over_after(w, s, job, Status.RETRYING, player) <= timeout + 10


@pytest.mark.parametrize("after", [0.0, 5.0, 12.0])
@pytest.mark.parametrize("span", [0.5, 3.0, 19.0, 21.0, 300.0])
async def test_a_job_expires_two_seconds_late_at_most(span: float, after: float) -> None:
    async with world() as w:
        s = sweeper(w)
        unlisten = w.engine.bus.listen(s.topics, s.heard)
        await rounds(w, s, 40 + after)
        job = await w.submit(not_after=w.now + timedelta(seconds=span))
        await asyncio.sleep(0)  # the hint is delivered
        while (await w.job(job)).status is not Status.CANCELLED:
            await rounds(w, s, 0.25)
            assert job.not_after is not None
            assert w.now <= job.not_after + timedelta(seconds=2)
        unlisten()


async def test_many_deadlines_one_after_another_are_asked_for_twice_a_second_at_most() -> None:
    async with world() as w:
        s, asked = sweeper(w), counting(w)
        for n in range(200):
            await w.submit(not_after=w.now + timedelta(seconds=20 + n / 20))
        await rounds(w, s, 40)
        assert len(asked) <= 2 * 10 + 10
        assert (await w.engine.jobs.overdue(w.now)).jobs == ()


async def test_a_store_that_was_away_around_a_deadline_leaves_workers_half_a_beat() -> None:
    async with world() as w:
        s, player = sweeper(w), await w.worker()
        await w.submit(timeout=22.0)
        job = await player.run()
        await rounds(w, s, 27, player)
        w.engine.away = True
        for _ in range(10):
            w.clock.advance(max(0.001, min(await s.round(), 1.0)))
        w.engine.away = False
        back = w.clock.monotonic()
        await over_after(w, s, job, Status.RETRYING, player)
        assert 5 <= w.clock.monotonic() - back <= 16  # the pause after failures, and half a beat


def test_looks_come_often_enough_and_not_in_step() -> None:
    async def pauses(rules: Rules) -> list[float]:
        async with world(rules) as w:
            s = sweeper(w)
            return [s.pause() for _ in range(50)]

    for rules, longest in ((Rules(), 8.5), (Rules(beat=60, lease=180), 51.0), (Rules(beat=1, lease=3), 0.85)):
        found = asyncio.run(pauses(rules))
        assert longest * 0.7 < min(found) < max(found) <= longest
        assert len(set(found)) > 1


async def test_a_suspended_machine_buries_nobody() -> None:
    """Both clocks jump, for those who watch and those who are watched, and whoever wakes first."""
    async with world() as w:
        s, players = sweeper(w), [await w.worker() for _ in range(3)]
        dice = random.Random(12)
        await watch(w, s, 20, *players)
        for _ in range(50):
            w.clock.advance(dice.choice([5, 29, 31, 60, 3600, 86400]))
            awake = dice.uniform(0.0, 4.0)  # until the workers have beaten again
            await watch(w, s, awake, step=0.5)
            for player in players:
                assert isinstance(await player.beat(), Alive)
            await watch(w, s, dice.uniform(0.0, 20.0), *players, step=1.0)
        assert await w.alive() == {player.id for player in players}


async def test_attempts_that_were_lost_are_added_up() -> None:
    async with world() as w:
        sums = FinishTotals()
        s, player = Sweeper(w.engine, w.writer, w.host, w.holder(), sums=sums), await w.worker()
        for _ in range(3):
            await w.submit()
            await player.run()
        await watch(w, s, 35)
        number, rows = sums.report(player.id)
        assert number == 1
        assert sum(row.totals.lost for row in rows) == sum(row.totals.retried for row in rows) == 3
        assert {(row.task, row.queue) for row in rows} == {("work", "default")}
