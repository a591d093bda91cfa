"""Who is dead by proof: found gone twice, with the same beat, by a session that was not broken in between."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from uuid import UUID

import pytest

from headrace.core.lifecycle.departure import Departure, How
from headrace.core.lifecycle.execution import start_may_wait
from headrace.core.lifecycle.liveness import time_to_return
from headrace.core.status import Status
from headrace.engine import Beat, Gone, OverdueJobs, Watched, WorkerInfo, WorkerRow
from headrace.engine.bus import PARTED, Hint, Topic
from headrace.engines.memory.workers import Workers
from headrace.errors import Unavailable
from headrace.maintenance import Planner, Pruner, Sweeper, services
from headrace.maintenance.duty import Duty
from tests.support.world import Player, World, world


class Provable(Workers):
    """Workers of a memory store whose deaths can be proved: the test says who is gone."""

    gone_after = 3.0
    free: set[UUID]
    by = 0
    probed: list[set[UUID]]
    failing = False
    """Whether the next burial fails."""
    spared = 0
    """How many burials go well before that."""

    async def bury(
        self, worker: UUID, beats: int, *, mass_death: bool = False, departure: Departure | None = None
    ) -> bool:
        """Bury, unless the store is to be away just now."""
        self.spared -= self.failing
        if self.failing and self.spared < 0:
            self.failing, self.spared = False, 0
            raise Unavailable("the store is away for a moment")
        return await super().bury(worker, beats, mass_death=mass_death, departure=departure)

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        """Those that the test let go, of the ones that have a proof."""
        asked = {row.info.id for row in rows if row.proof}
        self.probed.append(asked)
        return Gone(frozenset(asked & self.free), self.by)


class Scene:
    """A world whose workers can be proved dead."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.workers = Provable(w.engine._session)
        self.workers.free, self.workers.probed = set(), []
        self.pids = 100
        w.engine.workers = self.workers

    async def worker(self, *, proof: str | None = "held", pid: int | None = None) -> Player:
        """A worker for which something is held, or nothing; in a process of its own if it is not said in which."""
        w = self.w
        id, self.pids = w.host.dice.new_id(w.now), self.pids + 1
        info = WorkerInfo(
            id=id, host="here", pid=pid or self.pids, started_at=w.now, concurrency=10, tasks=("work",), proof=proof
        )
        await self.workers.register(info, w.now)
        return Player(w, id)

    def duties(self, player: Player, ended: UUID | None = None) -> tuple[Sweeper, list[Duty]]:
        """The sweeper of a worker, and all its duties."""
        w = self.w
        made = services(w.engine, w.writer, w.host, player.id, follow=False, ended=ended)
        sweeper = made[0]
        assert isinstance(sweeper, Sweeper)
        return sweeper, [one for one in made if isinstance(one, Duty)]

    async def run(self, seconds: float, *duties: Duty) -> None:
        """Let each duty make its rounds for so long, each when its time has come."""
        clock = self.w.clock
        end = clock.monotonic() + seconds
        due = dict.fromkeys(duties, clock.monotonic())
        while (at := min(due.values())) < end:
            duty = min(due, key=lambda duty: due[duty])
            clock.advance(max(0.0, at - clock.monotonic()))
            duty.wake.clear()
            pause = await duty.round()
            due[duty] = clock.monotonic() + max(pause, 0.001)
            for one in duties:
                if one.wake.is_set():
                    due[one] = clock.monotonic()
        clock.advance(max(0.0, end - clock.monotonic()))


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with world() as w:
        yield Scene(w)


async def test_who_is_found_gone_twice_is_buried_and_its_jobs_are_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker()
        sweeper, _ = s.duties(keeper)
        await s.w.submit()
        job = await victim.run()
        await s.run(3, sweeper)
        s.workers.free.add(victim.id)
        await s.run(2.9, sweeper)
        assert await s.w.alive() == {keeper.id, victim.id}
        await s.run(1.2, sweeper)
        assert await s.w.alive() == {keeper.id}
        assert (await s.w.job(job)).status is Status.RETRYING
        assert "its process has ended, holding 1 job" in caplog.text
        assert not re.search(r"worker [0-9a-f]{8}-", caplog.text), "ids are cut, as in all lines"


async def test_who_is_held_for_in_between_is_not_gone() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker()
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        for _ in range(5):
            s.workers.free.add(victim.id)
            await s.run(2, sweeper)
            s.workers.free.clear()
            await s.run(2, sweeper)
        assert await s.w.alive() == {keeper.id, victim.id}


async def test_who_beats_in_between_is_not_gone() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        s.workers.free.add(victim.id)
        for _ in range(10):
            await s.run(2, sweeper)
            await s.workers.beat(victim.id, Beat(proof="held"), s.w.now)
        assert await s.w.alive() == {keeper.id, victim.id}


async def test_who_has_beaten_since_the_last_look_is_buried_as_soon_as_others() -> None:
    """Its beat must stand still from the moment at which it is found gone, whatever it was before."""
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker()
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        for _ in range(3):
            await s.workers.beat(victim.id, Beat(proof="held"), s.w.now)
        s.workers.free.add(victim.id)
        await s.run(4.2, sweeper)
        assert await s.w.alive() == {keeper.id}


async def test_what_a_broken_session_found_does_not_count() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker()
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        s.workers.free.add(victim.id)
        for _ in range(5):
            await s.run(2, sweeper)
            s.workers.by += 1
        assert await s.w.alive() == {keeper.id, victim.id}
        await s.run(4.2, sweeper)
        assert await s.w.alive() == {keeper.id}


async def test_nobody_buries_itself_by_proof() -> None:
    async with scene() as s:
        keeper, other = await s.worker(), await s.worker()
        sweeper, _ = s.duties(keeper)
        s.workers.free.add(keeper.id)
        await s.run(15, sweeper)
        assert await s.w.alive() == {keeper.id, other.id}
        assert all(keeper.id not in probed for probed in s.workers.probed)


async def test_a_lone_worker_probes_nobody_and_others_cost_one_probe_a_second() -> None:
    async with scene() as s:
        keeper = await s.worker()
        sweeper, _ = s.duties(keeper)
        await s.run(20, sweeper)
        assert s.workers.probed == []
        await s.worker()
        await s.run(10, sweeper)  # by then the next look has found the new one
        s.workers.probed.clear()
        await s.run(10, sweeper)
        assert len(s.workers.probed) in (10, 11)


async def test_who_stands_by_probes_the_holder_alone_and_takes_all_duties_when_it_dies() -> None:
    async with scene() as s:
        first, second, third = await s.worker(), await s.worker(), await s.worker()
        _, firsts = s.duties(first)
        sweeper, seconds = s.duties(second)
        for duty in firsts:
            assert await duty.elector.leads()
        await s.run(5, *seconds)
        assert s.workers.probed
        assert all(probed == {first.id} for probed in s.workers.probed)
        s.workers.free.add(first.id)
        await s.run(4.2, *seconds)
        assert await s.w.alive() == {second.id, third.id}
        assert sweeper.elector.token is not None
        names = [f"duty:{kind.name}" for kind in (Sweeper, Pruner, Planner)]
        assert {await s.w.engine.documents.holder(name, s.w.now) for name in names} == {second.id}


async def test_what_the_sweepers_holder_had_beside_the_sweeper_is_taken_too_when_another_dies() -> None:
    async with scene() as s:
        keeper, planning = await s.worker(), await s.worker()
        _, keepers = s.duties(keeper)
        _, others = s.duties(planning)
        assert await keepers[0].elector.leads()
        for duty in others[1:]:
            assert await duty.elector.leads()
        await s.run(5, *keepers)
        s.workers.free.add(planning.id)
        await s.run(4.2, *keepers)
        assert [duty.elector.token is not None for duty in keepers] == [True] * len(keepers)


async def test_whose_process_has_ended_is_buried_at_once() -> None:
    async with scene() as s:
        leader, dead, heir = await s.worker(), await s.worker(), await s.worker()
        leading, _ = s.duties(leader)
        assert await leading.elector.leads()
        await s.w.submit()
        job = await dead.run()
        sweeper, _ = s.duties(heir, ended=dead.id)
        await s.run(2, sweeper)
        assert dead.id in await s.w.alive()  # a child of its still has what was held for it
        s.workers.free.add(dead.id)
        await s.run(1, sweeper)
        assert await s.w.alive() == {leader.id, heir.id}
        assert (await s.w.job(job)).status is Status.RETRYING  # though another leads


async def test_a_burial_that_fails_is_made_up_for_at_once_by_who_stands_by() -> None:
    async with scene() as s:
        first, second = await s.worker(), await s.worker()
        leading, _ = s.duties(first)
        sweeper, _ = s.duties(second)
        assert await leading.elector.leads()
        await s.run(1, sweeper)
        s.workers.free.add(first.id)
        s.workers.failing = True
        await s.run(5.5, sweeper)
        assert not s.workers.failing
        assert await s.w.alive() == {second.id}


async def test_a_burial_that_fails_is_made_up_for_at_once_where_the_process_has_ended() -> None:
    async with scene() as s:
        leader, dead, heir = await s.worker(), await s.worker(proof=None), await s.worker()
        leading, _ = s.duties(leader)
        assert await leading.elector.leads()
        sweeper, _ = s.duties(heir, ended=dead.id)
        s.workers.failing = True
        await s.run(1.5, sweeper)
        assert not s.workers.failing
        assert await s.w.alive() == {leader.id, heir.id}


async def test_jobs_of_the_buried_are_swept_at_once_though_the_first_sweep_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker()
        sweeper, _ = s.duties(keeper)
        await s.w.submit()
        job = await victim.run()
        await s.run(3, sweeper)
        assert sweeper._quiet
        s.workers.free.add(victim.id)
        overdue, failed = s.w.engine.jobs.overdue, list[object]()

        async def fails_once(now: datetime, limit: int) -> OverdueJobs:
            if victim.id in await s.w.alive() or failed:
                return await overdue(now, limit)
            failed.append(now)
            raise Unavailable("the store is away for a moment")

        monkeypatch.setattr(s.w.engine.jobs, "overdue", fails_once)
        await s.run(5, sweeper)
        assert failed
        assert (await s.w.job(job)).status is Status.RETRYING


@pytest.mark.parametrize("registered", [True, False])
async def test_whose_process_has_ended_is_buried_without_a_proof(registered: bool) -> None:
    async with scene() as s:
        dead = (await s.worker(proof=None)).id if registered else s.w.holder()
        heir = await s.worker()
        sweeper, _ = s.duties(heir, ended=dead)
        await s.run(0.5, sweeper)
        assert await s.w.alive() == {heir.id}


async def test_a_duty_goes_on_under_the_new_id_of_its_worker() -> None:
    async with scene() as s:
        player = await s.worker()
        sweeper, duties = s.duties(player)
        await s.run(1, *duties)
        await s.workers.bury(player.id, 0)
        again = await s.worker()
        for duty in duties:
            duty.renamed(again.id)
        await s.run(1, *duties)
        assert await s.w.engine.documents.holder("duty:sweeper", s.w.now) == again.id
        assert sweeper.elector.token is not None


@pytest.mark.parametrize(("deaths", "processes"), [(1, 1), (2, 2), (2, 1)])
async def test_it_is_put_on_record_whether_workers_died_at_the_same_time(deaths: int, processes: int) -> None:
    """The standby of a dead leader finds who died with it. One job may have killed all workers of a process."""
    async with scene() as s:
        first, third = await s.worker(pid=7), await s.worker()
        second = await s.worker(pid=7 if processes < deaths else None)
        leader, _ = s.duties(first)
        await leader.round()
        jobs = [await s.w.submit() for _ in range(2)]
        for player in (first, second):
            assert len(await player.claim(1)) == 1
        died = [first, second][:deaths]
        s.workers.free = {player.id for player in died}
        standby, _ = s.duties(third)
        await s.run(12.0, standby)
        found = [await s.w.job(job) for job in jobs]
        lost = [job for job in found if job.unstarted_losses]
        assert len(lost) == deaths
        assert [job.blameless_losses for job in lost] == [processes - 1] * deaths
        assert [start_may_wait(job) for job in lost] == [processes > 1] * deaths


@pytest.mark.parametrize("proof", ["held", None])
@pytest.mark.parametrize("buried", [0, 1, 2])
async def test_who_is_left_when_a_burial_failed_has_still_died_with_the_others(proof: str | None, buried: int) -> None:
    async with scene() as s:
        w, rules = s.w, s.w.engine.rules
        dead = [await s.worker(proof=proof) for _ in range(3)]
        keeper = await s.worker()
        sweeper, _ = s.duties(keeper)
        jobs = [await w.submit() for _ in dead]
        for player in dead:
            assert len(await player.claim(1)) == 1
        await s.run(1, sweeper)
        s.workers.failing, s.workers.spared = True, buried
        s.workers.free = {player.id for player in dead}
        while len(await w.alive()) > 1:
            with suppress(Unavailable):
                await s.run(rules.beat / 5, sweeper)
            await s.workers.beat(keeper.id, Beat(), w.now)
        await s.run(rules.beat, sweeper)
        assert not s.workers.failing
        assert await w.alive() == {keeper.id}
        assert [(await w.job(job)).blameless_losses for job in jobs] == [1, 1, 1]


@pytest.mark.parametrize(("deaths", "fails"), [(1, False), (2, False), (2, True)])
async def test_so_it_is_where_nothing_proves_their_deaths(deaths: int, fails: bool) -> None:
    """After a power cut locks are of another boot, and servers of another run: then all are dead by the same look."""
    async with scene() as s:
        w, rules = s.w, s.w.engine.rules
        dead = [await s.worker(proof=None) for _ in range(deaths)]
        keeper = await s.worker()
        sweeper, _ = s.duties(keeper)
        jobs = [await w.submit() for _ in range(deaths)]
        for player in dead:
            assert len(await player.claim(1)) == 1
        for _ in range(round(rules.lease / rules.beat) + 1):
            s.workers.failing = s.workers.failing or fails
            with suppress(Unavailable):
                await s.run(rules.beat, sweeper)
            await s.workers.beat(keeper.id, Beat(), w.now)
        s.workers.failing = False
        await s.run(rules.beat, sweeper)
        assert await w.alive() == {keeper.id}
        assert [(await w.job(job)).blameless_losses for job in jobs] == [deaths - 1] * deaths


async def test_a_worker_with_a_lease_of_its_own_is_buried_by_that() -> None:
    async with scene() as s:
        w, rules = s.w, s.w.engine.rules
        keeper, usual, remote = await s.worker(), await s.worker(proof=None), w.host.dice.new_id(w.now)
        info = WorkerInfo(id=remote, host="far", pid=1, started_at=w.now, concurrency=1, lease=2 * rules.lease)
        await s.workers.register(info, w.now)
        sweeper, _ = s.duties(keeper)

        async def alive(seconds: float) -> set[UUID]:
            """Who lives, after so many seconds in which only the keeper has beaten."""
            for _ in range(round(seconds / rules.beat)):
                await s.run(rules.beat, sweeper)
                await s.workers.beat(keeper.id, Beat(), w.now)
            return await w.alive()

        assert await alive(rules.lease - rules.beat) == {keeper.id, usual.id, remote}
        assert await alive(2 * rules.beat) == {keeper.id, remote}
        assert all(row.as_heard(w.now, rules).alive for row in await s.workers.list())
        assert await alive(rules.lease) == {keeper.id}


# -- those that were cut off from their hub


async def cut_off(s: Scene, player: Player, grace: float = 10.0) -> None:
    [row] = [row for row in await s.workers.list() if row.info.id == player.id]
    await s.workers.watched(player.id, Watched(row.beats, 0, 0.0, grace=grace))


async def test_who_is_cut_off_is_dead_when_its_grace_is_over_and_not_before(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        await s.w.submit()
        job = await victim.run()
        await s.run(8, sweeper)  # silence before the cut is no part of the grace
        await cut_off(s, victim)
        sweeper.heard(Hint(Topic.SETTINGS, (f"{PARTED}{victim.id}",)))
        await s.run(9.9, sweeper)
        assert await s.w.alive() == {keeper.id, victim.id}
        await s.run(1.3, sweeper)
        assert await s.w.alive() == {keeper.id}
        assert (await s.w.job(job)).status is Status.RETRYING
        assert "is dead: cut off from its hub, silent for 1" in caplog.text
        gone = await s.workers.get_gone(victim.id)
        assert gone is not None
        assert (gone.departure.how, gone.departure.by, gone.lost) == (How.CUT_OFF, keeper.id, (job.id,))


async def test_who_is_heard_again_has_its_whole_lease() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        await cut_off(s, victim)
        await s.run(9.5, sweeper)
        await s.workers.beat(victim.id, Beat(), s.w.now)
        await s.run(15, sweeper)
        assert await s.w.alive() == {keeper.id, victim.id}


async def test_who_does_not_notice_the_cut_and_beats_when_it_is_time_lives() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        for _ in range(3):
            for one in (keeper, victim):
                await s.workers.beat(one.id, Beat(), s.w.now)
            await cut_off(s, victim, time_to_return(10.0, s.w.engine.rules.beat))
            sweeper.heard(Hint(Topic.SETTINGS, (f"{PARTED}{victim.id}",)))
            await s.run(s.w.engine.rules.beat + 1, sweeper)
            assert await s.w.alive() == {keeper.id, victim.id}
        await s.run(2.8, sweeper)
        assert await s.w.alive() == {keeper.id}, "13.8 s after its last beat"


async def test_a_grace_that_nobody_watched_does_not_count() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        await cut_off(s, victim)
        await s.run(9, sweeper)
        s.w.clock.advance(11)  # the sweeper, or the store, stood still: who wanted to come back could not
        await s.run(9, sweeper)
        assert await s.w.alive() == {keeper.id, victim.id}
        await s.run(2.5, sweeper)
        assert await s.w.alive() == {keeper.id}


async def test_without_a_hint_it_is_found_by_the_next_look() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        await cut_off(s, victim)
        await s.run(21, sweeper)
        assert await s.w.alive() == {keeper.id}


async def test_it_is_looked_at_every_second_while_its_grace_lasts() -> None:
    async with scene() as s:
        keeper, victim = await s.worker(), await s.worker(proof=None)
        sweeper, _ = s.duties(keeper)
        await s.run(1, sweeper)
        await s.workers.beat(victim.id, Beat(), s.w.now)
        await cut_off(s, victim)
        sweeper.heard(Hint(Topic.SETTINGS, (f"{PARTED}{victim.id}",)))
        await s.run(11.3, sweeper)
        assert await s.w.alive() == {keeper.id}
