"""Workers: registration, heartbeats, death and removal."""

from __future__ import annotations

import asyncio
from uuid import UUID

from msgspec.structs import replace

from headrace.conformance.jobs.contents import STRANGE
from headrace.conformance.lab import Lab, Part
from headrace.core.lifecycle import execution, loss
from headrace.core.matching.customers import Customers
from headrace.core.stats.utilisation import Utilisation
from headrace.core.status import Cause
from headrace.engine import Alive, Beat, Dead, Gone, Renewed, Watched, WorkerInfo, WorkerRow

__all__ = ["Workers"]


async def beat(lab: Lab, worker: object, **fields: object) -> Alive:
    """Send a heartbeat that must get the reply alive."""
    answer = await lab.engine.workers.beat(worker, Beat(**fields), lab.now)  # type: ignore[arg-type]
    assert isinstance(answer, Alive)
    return answer


async def _comes_to(lab: Lab, row: WorkerRow, expected: frozenset[UUID]) -> None:
    """Wait until so many are gone: a server may take a moment to notice that a session has ended."""
    for _ in range(200):
        if (await lab.engine.workers.gone([row])).workers == expected:
            return
        await asyncio.sleep(0.05)
    raise AssertionError((await lab.engine.workers.gone([row])).workers)


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
            name=STRANGE,
            customers=Customers(allow=frozenset({"a", STRANGE}), deny=frozenset({"b"}), strict=True),
        )
        await lab.engine.workers.register(info, lab.now)
        assert await lab.engine.workers.list() == [WorkerRow(info, Beat(), 0, lab.now, True, 0)]

    async def test_how_much_of_it_is_used_comes_back_as_it_was_told(self, lab: Lab, worker: UUID) -> None:
        use = Utilisation(
            busy_share=0.25, busy_share_ever=1.0, failed=2, claimed_at=lab.at(-5), polled_at=lab.at(-1), memory=2**40
        )
        for utilisation in (use, Utilisation()):
            await lab.engine.workers.beat(worker, Beat(utilisation=utilisation), lab.now)
            assert [row.beat.utilisation for row in await lab.engine.workers.list()] == [utilisation]
            await lab.engine.workers.beat_many({worker: Beat(utilisation=utilisation)}, lab.now)
            assert [row.beat.utilisation for row in await lab.engine.workers.list()] == [utilisation]

    async def test_what_it_says_of_itself_by_now_comes_back(self, lab: Lab) -> None:
        worker = await lab.worker(offers={"memory": 8}, tasks=("a",))
        renewed = Renewed(concurrency=3, tasks=("b",), offers={"memory": 24}, customers=Customers(strict=True))
        for renewal in (renewed, None):
            await lab.engine.workers.beat(worker, Beat(renewed=renewal), lab.now)
            [row] = await lab.engine.workers.list()
            assert row.beat.renewed == renewal
            shown = row.as_heard(lab.now, lab.rules).info
            expected = (3, ("b",), {"memory": 24}, True) if renewal else (8, ("a",), {"memory": 8}, False)
            assert (shown.concurrency, shown.tasks, shown.offers, shown.customers is not None) == expected

    async def test_all_queues_and_no_queues_are_told_apart(self, lab: Lab) -> None:
        await lab.worker(queues=None)
        await lab.worker(queues=(), started_at=lab.at(1))
        assert [row.info.queues for row in await lab.engine.workers.list()] == [None, ()]

    async def test_registering_again_changes_nothing(self, lab: Lab, worker: UUID) -> None:
        [row] = await lab.engine.workers.list()
        await beat(lab, worker)
        lab.later(5)
        await lab.engine.workers.register(row.info, lab.now)
        [again] = await lab.engine.workers.list()
        assert (again.beats, again.beat_at, again.alive) == (1, lab.at(-5), True)

    async def test_registering_does_not_raise_the_dead(self, lab: Lab, worker: UUID) -> None:
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

    async def test_a_beat_raises_the_number_and_is_kept(self, lab: Lab, worker: UUID) -> None:
        for number in (1, 2, 3):
            lab.later(1)
            assert (await beat(lab, worker)).beats == number
        sent = Beat(held=(lab.new_id(),), state="draining", busy=3, buffered=2, stuck_threads=1, done=99)
        await lab.engine.workers.beat(worker, sent, lab.later(1))
        [row] = await lab.engine.workers.list()
        assert (row.beats, row.beat_at) == (4, lab.now)
        # The engine need not keep which jobs it named last.
        assert (row.beat.state, row.beat.busy, row.beat.buffered) == ("draining", 3, 2)
        assert (row.beat.stuck_threads, row.beat.done) == (1, 99)

    async def test_a_beat_tells_revs(self, lab: Lab, worker: UUID) -> None:
        before = await beat(lab, worker)
        await lab.put("some task")
        await lab.engine.documents.put_setting("queue:a", "{}", 0)
        after = await beat(lab, worker)
        assert after.profiles_rev > before.profiles_rev
        assert after.settings_rev > before.settings_rev
        again = await beat(lab, worker)
        assert (again.profiles_rev, again.settings_rev) == (after.profiles_rev, after.settings_rev)

    async def test_a_beat_tells_the_stores_time(self, lab: Lab, worker: UUID) -> None:
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

    async def test_requested_cancels_are_told_until_the_job_is_over(self, lab: Lab, worker: UUID, other: UUID) -> None:
        one, two = await lab.running(worker, "one"), await lab.held(worker, "two")
        await lab.cancel(await lab.running(other, "three"))
        assert (await beat(lab, worker)).cancels == ()
        asked = await lab.cancel(one)
        await lab.cancel(two)
        for _ in range(2):
            assert set((await beat(lab, worker, held=(one.id,))).cancels) == {one.id, two.id}
        await lab.finish(asked)
        assert (await beat(lab, worker)).cancels == (two.id,)

    async def test_young_jobs_need_not_be_named(self, lab: Lab, worker: UUID) -> None:
        job = await lab.held(worker)
        lab.later(2 * lab.rules.beat - 0.000001)
        for _ in range(3):
            assert (await beat(lab, worker)).unknown == ()
        lab.later(0.000001)
        assert (await beat(lab, worker)).unknown == (job,)

    async def test_a_job_named_again_loses_its_count(self, lab: Lab, worker: UUID) -> None:
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

    async def test_a_change_of_the_job_keeps_the_count(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, timeout=None)
        lab.later(2 * lab.rules.beat)
        await beat(lab, worker)
        asked = await lab.cancel(job)
        await beat(lab, worker)
        assert await lab.overdue() == [asked]

    async def test_naming_what_one_does_not_hold_does_nothing(self, lab: Lab, worker: UUID, other: UUID) -> None:
        foreign = await lab.running(other)
        answer = await beat(lab, worker, held=(foreign.id, lab.new_id()))
        assert (answer.unknown, answer.cancels) == ((), ())
        assert await lab.get(foreign) == foreign

    async def test_many_beat_at_once(self, lab: Lab) -> None:
        one, two, dead, unknown = await lab.worker(), await lab.worker(), await lab.worker(), lab.new_id()
        await lab.engine.workers.bury(dead, 0)
        mine, theirs = await lab.running(one, "one", timeout=None), await lab.running(two, "two", timeout=None)
        asked = await lab.cancel(await lab.running(two, "three", timeout=None))
        lab.later(2 * lab.rules.beat)
        # The jobs of one are not those of the other.
        beats = {
            one: Beat(held=(theirs.id,), busy=1),
            two: Beat(held=(theirs.id,), busy=2),
            dead: Beat(),
            unknown: Beat(),
        }
        answers = await lab.engine.workers.beat_many(beats, lab.now)
        assert (answers.pop(dead), answers.pop(unknown)) == (Dead(), Dead())
        assert list(answers) == [one, two]
        alive = {worker: answer for worker, answer in answers.items() if isinstance(answer, Alive)}
        assert (alive[one].beats, alive[one].cancels, alive[one].unknown) == (1, (), (mine,))
        assert (alive[two].beats, alive[two].cancels, alive[two].unknown) == (1, (asked.id,), (asked,))
        assert {row.info.id: (row.beat.busy, row.beat_at) for row in await lab.engine.workers.list()} == {
            one: (1, lab.now),
            two: (2, lab.now),
        }
        await lab.engine.workers.beat_many(beats, lab.now)
        assert {job.id for job in await lab.overdue()} == {mine.id, asked.id}

    async def test_beats_of_many_are_answered_like_beats_of_each(self, lab: Lab) -> None:
        workers = [await lab.worker() for _ in range(30)]
        held = {worker: await lab.running(worker, f"task {n}") for n, worker in enumerate(workers)}
        beats = {worker: Beat(held=(job.id,)) for worker, job in held.items()}
        assert await lab.engine.workers.beat_many({}, lab.now) == {}
        each = {worker: await lab.engine.workers.beat(worker, beat, lab.now) for worker, beat in beats.items()}
        many = await lab.engine.workers.beat_many(beats, lab.now)
        for worker in workers:
            one, other = each[worker], many[worker]
            assert isinstance(one, Alive)
            assert isinstance(other, Alive)
            assert replace(one, beats=2, now=None) == replace(other, now=None)

    # -- the end

    async def test_burying_is_conditional_on_the_number_seen(self, lab: Lab, worker: UUID) -> None:
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

    async def test_the_dead_are_buried_once(self, lab: Lab, worker: UUID, retired: UUID) -> None:
        await lab.running(worker, "one")
        await lab.running(retired, "two")
        answers = await asyncio.gather(*(lab.engine.workers.bury(worker, 0) for _ in range(3)))
        assert sorted(answers) == [False, False, True]
        await lab.engine.workers.retire(retired)
        assert not await lab.engine.workers.bury(retired, 0)

    async def test_the_duties_of_the_dead_are_free(self, lab: Lab, dead: UUID, retired: UUID, other: UUID) -> None:
        documents = lab.engine.documents
        for holder, name in ((dead, "a"), (dead, "b"), (retired, "c"), (other, "d")):
            assert await documents.lease(name, holder, 100, lab.now) is not None
        assert not await lab.engine.workers.bury(dead, 1)
        assert [await documents.holder(name, lab.now) for name in "abcd"] == [dead, dead, retired, other]
        await lab.engine.workers.bury(dead, 0)
        await lab.engine.workers.retire(retired)
        assert [await documents.holder(name, lab.now) for name in "abcd"] == [None, None, None, other]
        token = await documents.lease("a", other, 100, lab.now)
        assert token is not None
        assert token > 1  # a fence against late writes of the dead worker

    async def test_the_duties_of_one_that_is_no_worker_are_free_when_it_is_retired(self, lab: Lab) -> None:
        program, other, documents = lab.new_id(), lab.new_id(), lab.engine.documents
        for holder, name in ((program, "a"), (program, "b"), (other, "c")):
            assert await documents.lease(name, holder, 100, lab.now) is not None
        await lab.engine.workers.retire(program)
        assert [await documents.holder(name, lab.now) for name in "abc"] == [None, None, other]
        assert await lab.engine.workers.list() == []

    # -- jobs held for a worker

    async def test_what_is_held_for_a_worker_is_let_go_of_with_its_session(self, lab: Lab) -> None:
        workers, worker = lab.engine.workers, lab.new_id()
        async with lab.sessions() as [session]:
            attended = await session.workers.attend(worker)
            assert await session.workers.attend(worker) == attended
            proof = None if attended is None else attended.proof
            await lab.worker(id=worker, proof=proof)
            [row] = await workers.list()
            assert row.proof == proof
            assert (await workers.gone([row])).workers == frozenset()
        expected = frozenset() if attended is None or not attended.judged else frozenset({worker})
        for _ in range(2):
            await _comes_to(lab, row, expected)

    async def test_a_session_holds_for_one_worker(self, lab: Lab) -> None:
        one, two = lab.new_id(), lab.new_id()
        async with lab.sessions() as [session]:
            attended = [await session.workers.attend(worker) for worker in (one, two)]
            for worker, held in zip((one, two), attended, strict=True):
                await lab.worker(id=worker, proof=None if held is None else held.proof)
            rows = {row.info.id: row for row in await lab.engine.workers.list()}
            assert (await lab.engine.workers.gone([rows[two]])).workers == frozenset()

    async def test_nobody_is_gone_without_a_proof_that_can_be_judged_here(self, lab: Lab) -> None:
        await lab.worker()
        await lab.worker(proof="of another engine")
        await lab.worker(proof="")
        found = await lab.engine.workers.gone(await lab.engine.workers.list())
        assert found.workers == Gone().workers

    async def test_the_newest_proof_counts(self, lab: Lab) -> None:
        worker = await lab.worker(proof="first")
        assert [row.proof for row in await lab.engine.workers.list()] == ["first"]
        for proof in ("second", None):
            await beat(lab, worker, proof=proof)
            assert [row.proof for row in await lab.engine.workers.list()] == [proof]

    async def test_what_watchers_saw_is_on_record(self, lab: Lab, worker: UUID) -> None:
        await beat(lab, worker)
        for seen in (Watched(1, 2, 8.5), Watched(1, 7, 20.25)):
            await lab.engine.workers.watched(worker, seen)
            assert [row.watched for row in await lab.engine.workers.list()] == [seen]

    async def test_a_grace_is_on_record_until_the_next_beat(self, lab: Lab, worker: UUID) -> None:
        await beat(lab, worker)
        await lab.engine.workers.watched(worker, Watched(0, 0, 0.0, grace=5.0))
        assert [row.grace for row in await lab.engine.workers.list()] == [None], "it was heard of since"
        await lab.engine.workers.watched(worker, Watched(1, 0, 0.0, grace=10.0))
        assert [row.grace for row in await lab.engine.workers.list()] == [10.0]
        await beat(lab, worker)
        assert [row.grace for row in await lab.engine.workers.list()] == [None]
        assert not await lab.engine.workers.bury(worker, 1)

    async def test_what_was_seen_of_another_beat_is_not_put_on_record(self, lab: Lab, worker: UUID) -> None:
        await beat(lab, worker)
        await lab.engine.workers.watched(worker, Watched(0, 2, 8.5))
        await lab.engine.workers.watched(lab.new_id(), Watched(1, 2, 8.5))
        assert [row.watched for row in await lab.engine.workers.list()] == [None]

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
        await lab.do(loss.lose(job, Cause.LEASE, lab.now, 0.5, lab.rules))
        await lab.finish(other)
        assert await lab.engine.workers.list() == []

    async def test_a_worker_that_left_owns_nothing_and_is_forgotten(self, lab: Lab, worker: UUID) -> None:
        await lab.engine.workers.retire(worker)
        assert await lab.engine.workers.beat(worker, Beat(), lab.now) == Dead()
        assert await lab.engine.workers.list() == []
        await lab.engine.workers.retire(worker)

    async def test_what_is_held_is_counted(self, lab: Lab, worker: UUID) -> None:
        held = [await lab.held(worker, f"t{n}") for n in range(3)]
        assert [row.holds for row in await lab.engine.workers.list()] == [3]
        await lab.finish(await lab.start(held[0]))
        await lab.do(execution.release(held[1], lab.now))
        assert [row.holds for row in await lab.engine.workers.list()] == [1]
