"""Workers: registering, beating, dying and being forgotten."""

from __future__ import annotations

import asyncio

from headrace.conformance.jobs.contents import STRANGE
from headrace.conformance.lab import Lab, Part
from headrace.core import lifecycle
from headrace.core.status import Cause
from headrace.engine import Alive, Beat, Dead, WorkerInfo, WorkerRow

__all__ = ["Workers"]


async def beat(lab: Lab, worker: object, **fields: object) -> Alive:
    """A beat that is answered alive."""
    answer = await lab.engine.workers.beat(worker, Beat(**fields), lab.now)  # type: ignore[arg-type]
    assert isinstance(answer, Alive)
    return answer


class Workers(Part):
    """What the verbs of workers promise."""

    async def test_a_registered_worker_is_known_whole(self, lab: Lab) -> None:
        info = WorkerInfo(
            id=lab.new_id(),
            host=STRANGE,
            pid=2**31,
            started_at=lab.at(-1),
            concurrency=7,
            tasks=("a", STRANGE),
            queues=("q", STRANGE),
            offers={"gpu": True, "memory": 4.5, "regions": ["eu", STRANGE]},
            version="1.2",
        )
        await lab.engine.workers.register(info, lab.now)
        assert await lab.engine.workers.list() == [WorkerRow(info, Beat(), 0, lab.now, True, 0)]

    async def test_all_queues_and_no_queues_are_told_apart(self, lab: Lab) -> None:
        await lab.worker(queues=None)
        await lab.worker(queues=(), started_at=lab.at(1))
        assert [row.info.queues for row in await lab.engine.workers.list()] == [None, ()]

    async def test_registering_again_changes_nothing(self, lab: Lab) -> None:
        worker = await lab.worker()
        [row] = await lab.engine.workers.list()
        await beat(lab, worker)
        lab.later(5)
        await lab.engine.workers.register(row.info, lab.now)
        [again] = await lab.engine.workers.list()
        assert (again.beats, again.beat_at, again.alive) == (1, lab.at(-5), True)

    async def test_registering_does_not_raise_the_dead(self, lab: Lab) -> None:
        worker = await lab.worker()
        [row] = await lab.engine.workers.list()
        await lab.running(worker)
        await lab.engine.workers.bury(worker, 0)
        await lab.engine.workers.register(row.info, lab.now)
        assert await lab.ask(worker) == Dead()

    async def test_the_oldest_comes_first(self, lab: Lab) -> None:
        workers = []
        for _ in range(4):
            workers.append(await lab.worker())
            lab.later(1)
        await beat(lab, workers[2])
        await beat(lab, workers[0])
        assert [row.info.id for row in await lab.engine.workers.list()] == workers

    # -- beat

    async def test_a_beat_raises_the_number_and_is_kept(self, lab: Lab) -> None:
        worker = await lab.worker()
        for number in (1, 2, 3):
            lab.later(1)
            assert (await beat(lab, worker)).beats == number
        told = Beat(held=(lab.new_id(),), state="draining", busy=3, buffered=2, stuck_threads=1, done=99)
        await lab.engine.workers.beat(worker, told, lab.later(1))
        [row] = await lab.engine.workers.list()
        assert (row.beats, row.beat_at) == (4, lab.now)
        # Which jobs it named last need not be kept.
        assert (row.beat.state, row.beat.busy, row.beat.buffered) == ("draining", 3, 2)
        assert (row.beat.stuck_threads, row.beat.done) == (1, 99)

    async def test_a_beat_tells_revs(self, lab: Lab) -> None:
        worker = await lab.worker()
        before = await beat(lab, worker)
        await lab.put("some task")
        await lab.engine.documents.put_setting("queue:a", "{}", 0)
        after = await beat(lab, worker)
        assert after.profiles_rev > before.profiles_rev
        assert after.settings_rev > before.settings_rev
        again = await beat(lab, worker)
        assert (again.profiles_rev, again.settings_rev) == (after.profiles_rev, after.settings_rev)

    async def test_a_beat_tells_the_stores_time(self, lab: Lab) -> None:
        worker = await lab.worker()
        before = await lab.engine.time()
        answer = await lab.engine.workers.beat(worker, Beat(), lab.now)
        after = await lab.engine.time()
        assert isinstance(answer, Alive)
        if before is None or after is None:
            assert answer.now is None, "it has none but this machine's, as Engine.time says"
        else:
            assert answer.now is not None
            assert before <= answer.now <= after

    async def test_an_unknown_worker_is_dead(self, lab: Lab) -> None:
        assert await lab.engine.workers.beat(lab.new_id(), Beat(), lab.now) == Dead()
        assert await lab.engine.workers.list() == []

    async def test_requested_cancels_are_told_until_the_job_is_over(self, lab: Lab) -> None:
        worker, other = await lab.worker(), await lab.worker()
        one, two = await lab.running(worker, "one"), await lab.held(worker, "two")
        await lab.cancel(await lab.running(other, "three"))
        assert (await beat(lab, worker)).cancels == ()
        asked = await lab.cancel(one)
        await lab.cancel(two)
        for _ in range(2):
            assert set((await beat(lab, worker, held=(one.id,))).cancels) == {one.id, two.id}
        await lab.finish(asked)
        assert (await beat(lab, worker)).cancels == (two.id,)

    async def test_young_jobs_need_not_be_named(self, lab: Lab) -> None:
        worker = await lab.worker()
        job = await lab.held(worker)
        lab.later(2 * lab.rules.beat - 0.000001)
        for _ in range(3):
            assert (await beat(lab, worker)).unknown == ()
        lab.later(0.000001)
        assert (await beat(lab, worker)).unknown == (job,)

    async def test_a_job_named_again_loses_its_count(self, lab: Lab) -> None:
        worker = await lab.worker()
        job = await lab.running(worker, timeout=None)
        lab.later(2 * lab.rules.beat)
        for _ in range(3):
            assert (await beat(lab, worker)).unknown == (job,)
            assert (await beat(lab, worker, held=(job.id,))).unknown == ()
        assert await lab.overdue() == []
        await beat(lab, worker)
        assert await lab.overdue() == []
        await beat(lab, worker)
        assert await lab.overdue() == [job]
        await beat(lab, worker, held=(job.id,))
        assert await lab.overdue() == []

    async def test_a_change_of_the_job_keeps_the_count(self, lab: Lab) -> None:
        worker = await lab.worker()
        job = await lab.running(worker, timeout=None)
        lab.later(2 * lab.rules.beat)
        await beat(lab, worker)
        asked = await lab.cancel(job)
        await beat(lab, worker)
        assert await lab.overdue() == [asked]

    async def test_naming_what_one_does_not_hold_does_nothing(self, lab: Lab) -> None:
        worker, other = await lab.worker(), await lab.worker()
        foreign = await lab.running(other)
        answer = await beat(lab, worker, held=(foreign.id, lab.new_id()))
        assert (answer.unknown, answer.cancels) == ((), ())
        assert await lab.get(foreign) == foreign

    # -- the end

    async def test_burying_is_conditional_on_the_number_seen(self, lab: Lab) -> None:
        worker = await lab.worker()
        assert not await lab.engine.workers.bury(worker, 1)
        await beat(lab, worker)
        assert not await lab.engine.workers.bury(worker, 0)
        await beat(lab, worker)
        assert await lab.engine.workers.bury(worker, 2)
        assert await lab.engine.workers.beat(worker, Beat(), lab.now) == Dead()

    async def test_nobody_buries_the_unknown(self, lab: Lab) -> None:
        assert not await lab.engine.workers.bury(lab.new_id(), 0)
        await lab.engine.workers.retire(lab.new_id())
        assert await lab.engine.workers.list() == []

    async def test_a_beat_and_a_burial_at_once(self, lab: Lab) -> None:
        for _ in range(5):
            worker = await lab.worker()
            buried, answer = await asyncio.gather(
                lab.engine.workers.bury(worker, 0), lab.engine.workers.beat(worker, Beat(), lab.now)
            )
            assert buried is isinstance(answer, Dead)

    async def test_the_dead_are_known_as_long_as_a_job_names_them(self, lab: Lab) -> None:
        worker, retired, idle = await lab.worker(), await lab.worker(), await lab.worker()
        job, other = await lab.running(worker, "one"), await lab.running(retired, "two")
        assert await lab.engine.workers.bury(worker, 0)
        assert await lab.engine.workers.bury(idle, 0)
        await lab.engine.workers.retire(retired)
        for _ in range(2):
            known = {row.info.id: (row.alive, row.holds) for row in await lab.engine.workers.list()}
            assert known == {worker: (False, 1), retired: (False, 1)}
        await lab.do(lifecycle.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules))
        await lab.finish(other)
        assert await lab.engine.workers.list() == []

    async def test_a_worker_that_left_owns_nothing_and_is_forgotten(self, lab: Lab) -> None:
        worker = await lab.worker()
        await lab.engine.workers.retire(worker)
        assert await lab.engine.workers.beat(worker, Beat(), lab.now) == Dead()
        assert await lab.engine.workers.list() == []
        await lab.engine.workers.retire(worker)

    async def test_what_is_held_is_counted(self, lab: Lab) -> None:
        worker = await lab.worker()
        held = [await lab.held(worker, f"t{n}") for n in range(3)]
        assert [row.holds for row in await lab.engine.workers.list()] == [3]
        await lab.finish(await lab.start(held[0]))
        await lab.do(lifecycle.release(held[1], lab.now))
        assert [row.holds for row in await lab.engine.workers.list()] == [1]
