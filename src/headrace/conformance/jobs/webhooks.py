"""Webhooks: deliveries are stored with their event, and wait for the previous one to the same target."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from headrace.conformance.lab import OOPS, Lab, Part
from headrace.core.attempt import Completed, Failed, Progress
from headrace.core.change import Applied, Conflict
from headrace.core.job import Job
from headrace.core.lifecycle import actions, execution
from headrace.core.query import Filter
from headrace.core.status import Status
from headrace.core.webhooks.delivery import QUEUE, TASK, claim_told, first_told
from headrace.core.webhooks.target import GROUPS, Target
from headrace.engine import Inserted

__all__ = ["Telling"]

TARGETS = (
    Target("wh_all", (*GROUPS["status_change"], "progress")),
    Target("wh_ends", ("completed", "failed", "cancelled"), "acme"),
)


class Telling(Part):
    """What follows from a job with targets."""

    async def notified(self, lab: Lab, task: str = "work", **options: object) -> Job:
        """Store a new job with these targets and its first delivery."""
        job, others = first_told(lab.job(task, webhook=TARGETS, **options))  # type: ignore[arg-type]
        [answer] = await lab.engine.jobs.insert([job], lab.now, companions={job.id: others})
        assert isinstance(answer, Inserted)
        return answer.job

    async def deliveries(self, lab: Lab) -> list[tuple[str, str, Status]]:
        """Return the deliveries in order: target, event, and status."""
        found = [one for one in await self.all(lab) if one.queue == QUEUE]
        return [(one.payload["webhook"], one.payload["message"]["type"], one.status) for one in found]

    async def all(self, lab: Lab) -> list[Job]:
        """Return every job, in order."""
        page = await lab.engine.records.find(Filter(), lab.now, 1000)
        return sorted(page.items, key=lambda one: one.seq)

    async def test_the_record_keeps_what_was_told(self, lab: Lab) -> None:
        job = await self.notified(lab)
        assert await lab.get(job) == job
        assert job.told is not None
        assert [(one.target, one.count) for one in job.told] == [("wh_all", 1)]
        [given] = await lab.claim(await lab.worker(), tasks=("work",))
        assert given.told == job.told
        assert given.webhook == TARGETS
        assert await self.deliveries(lab) == [("wh_all", "job.submitted", Status.QUEUED)]

    async def test_start_and_end_in_one_change_are_told_in_order(self, lab: Lab) -> None:
        await self.notified(lab)
        [held] = await lab.claim(await lab.worker(), tasks=("work",))
        began = lab.now
        lab.later(1)
        await lab.do(lab.end(held, Completed("1"), started_at=began))
        assert await self.deliveries(lab) == [
            ("wh_all", "job.submitted", Status.QUEUED),
            ("wh_all", "job.started", Status.WAITING),
            ("wh_all", "job.completed", Status.WAITING),
            ("wh_ends", "job.completed", Status.QUEUED),
        ]
        ledger = await lab.engine.records.ledger()
        assert (ledger.accepted, ledger.unaccounted) == (5, 0)

    async def test_each_waits_for_the_one_before_it(self, lab: Lab, worker: UUID) -> None:
        await self.notified(lab)
        [held] = await lab.claim(worker, tasks=("work",))
        await lab.do(lab.end(held, Failed(error=OOPS), started_at=lab.now))
        await lab.process_notes()
        heard = []
        for _ in range(3):
            [delivery] = await lab.claim(worker, tasks=("headrace.deliver",))
            heard.append(delivery.payload["message"]["type"])
            # In whatever way it ends, the next one is sent.
            gone = Completed("1") if heard[1:] else Failed(error=OOPS, reason=None)
            ended = lab.end(replace(delivery, charged=7), gone, started_at=lab.now)
            await lab.apply(ended)
            await lab.process_notes()
        assert heard == ["job.submitted", "job.started", "job.retrying"]
        assert await lab.claim(worker, tasks=("headrace.deliver",)) == []

    async def test_progress_that_is_told_raises_the_rev(self, lab: Lab) -> None:
        await self.notified(lab)
        [held] = await lab.claim(await lab.worker(), tasks=("work",))
        job = await lab.start(held)
        reported = execution.progress(job, lab.now, Progress(10.0, "soon"), lab.rules)
        assert reported.job.rev == job.rev + 1
        assert len(reported.inserts) == 1
        stamped = lab.stamp(reported)
        for _ in range(2):  # a repeat changes nothing more
            assert await lab.engine.jobs.apply([stamped], lab.now) == [Applied(reported.job)]
        job = await lab.get(reported.job)
        assert (job, job.progress) == (reported.job, Progress(10.0, "soon"))
        # A change decided from an earlier state must be decided again.
        late = actions.cancel(held, lab.now, lab.rules)
        assert late is not None
        [verdict] = await lab.apply(late)
        assert isinstance(verdict, Conflict)
        lab.later(4.9)
        job = await lab.do(execution.progress(job, lab.now, Progress(20.0), lab.rules))
        assert (job.rev, job.told) == (reported.job.rev, reported.job.told)
        lab.later(0.1)
        job = await lab.do(execution.progress(job, lab.now, Progress(30.0), lab.rules))
        assert job.rev == reported.job.rev + 1
        await lab.finish(job, Completed("1"))
        types = [type for target, type, _ in await self.deliveries(lab) if target == "wh_all"]
        assert types == ["job.submitted", "job.started", "job.progress", "job.progress", "job.completed"]

    async def test_what_notes_make_of_a_job_is_told(self, lab: Lab) -> None:
        parent = await lab.running(await lab.worker(), "parent")
        child = await self.notified(lab, parent=parent.id, root=parent.id)
        await lab.cancel(parent)
        await lab.process_notes()
        assert (await lab.get(child)).status is Status.CANCELLED
        types = [(target, type) for target, type, _ in await self.deliveries(lab)]
        assert types == [("wh_all", "job.submitted"), ("wh_all", "job.cancelled"), ("wh_ends", "job.cancelled")]

    async def test_of_however_many_that_end_at_once_is_told(self, lab: Lab, worker: UUID) -> None:
        parents = [await lab.running(worker, "parent") for _ in range(2)]
        targets = tuple(Target(f"wh_{n}", ("cancelled",)) for n in range(4))
        for parent in parents:
            children = [lab.job("work", parent=parent.id, root=parent.id, webhook=targets) for _ in range(300)]
            assert all(isinstance(one, Inserted) for one in await lab.engine.jobs.insert(children, lab.now))
        for parent in parents:  # a delivery for one has no effect on those of others
            await lab.cancel(parent)
            await lab.process_notes()
        assert await lab.engine.records.count_matching(Filter(task=frozenset({TASK})), lab.now) == 2400

    async def test_ends_by_hand_are_told(self, lab: Lab) -> None:
        job = await self.notified(lab)
        await lab.do(actions.resolve(job, lab.now, result_text="1"))
        job = await lab.do(actions.discard(await lab.get(job), lab.now))
        types = [type for target, type, _ in await self.deliveries(lab) if target == "wh_ends"]
        assert types == ["job.completed", "job.cancelled"]
        assert job.told is not None
        assert {one.target: one.count for one in job.told} == {"wh_all": 3, "wh_ends": 2}

    async def test_a_change_that_is_not_applied_tells_nothing(self, lab: Lab) -> None:
        job = await self.notified(lab)
        first, second = (actions.cancel(job, lab.now, lab.rules) for _ in range(2))
        assert first is not None
        assert second is not None
        assert isinstance((await lab.apply(first))[0], Applied)
        assert isinstance((await lab.apply(second))[0], Conflict)
        assert [type for _, type, _ in await self.deliveries(lab)].count("job.cancelled") == 2

    async def test_a_delivery_belongs_to_whom_it_goes_to(self, lab: Lab) -> None:
        job = await self.notified(lab, customer="acme")
        await lab.do(actions.cancel(job, lab.now, lab.rules))
        found = [one for one in await self.all(lab) if one.queue == QUEUE]
        assert {(one.tags[0], one.customer) for one in found} == {("wh_all", None), ("wh_ends", "acme")}
        assert all(one.webhook is None for one in found)

    async def test_a_claim_is_told_once_to_whom_it_matters(self, lab: Lab) -> None:
        targets = (Target("wh_claims", ("assigned", "accepted", "started")), TARGETS[0])
        [answer] = await lab.engine.jobs.insert([lab.job("work", webhook=targets)], lab.now)
        assert isinstance(answer, Inserted)
        worker = await lab.worker()
        [held] = await lab.claim(worker, tasks=("work",), accept=False)
        change = claim_told(held)
        assert change is not None
        stamped = lab.stamp(change)
        for _ in range(2):  # a repeat changes nothing more
            assert await lab.engine.jobs.apply([stamped], lab.now) == [Applied(change.job)]
        held = await lab.get(held)
        assert (held, held.status, claim_told(held)) == (change.job, Status.ASSIGNED, None)
        held = await lab.do(execution.accept(held, lab.now, lab.rules))
        await lab.start(held)
        told = [type for target, type, _ in await self.deliveries(lab) if target == "wh_claims"]
        assert told == ["job.assigned", "job.accepted", "job.started"]
        assert ("wh_all", "job.assigned") not in {(one, type) for one, type, _ in await self.deliveries(lab)}
        late = await lab.engine.jobs.apply([lab.stamp(change)], lab.now)
        assert isinstance(late[0], Conflict), "fenced like any other change of a worker"
