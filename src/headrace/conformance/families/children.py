"""Children: jobs that a job submitted, and what affects them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from headrace.conformance.lab import OOPS, Lab, Part, opened
from headrace.core.attempt import Completed, Ending, Failed
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.query import Filter
from headrace.core.status import ENDED, Reason, Status
from headrace.engine import Inserted, Refused
from headrace.errors import TransitionRefused

__all__ = ["Children"]

GIVES_UP = Failed(error=OOPS, reason=Reason.NON_RETRYABLE)


class Children(Part):
    """What a parent and its children promise each other."""

    async def child(self, lab: Lab, parent: Job, task: str = "child", **spec: Any) -> Job:
        """Store a child of this job."""
        return await lab.put(task, parent=parent.id, root=parent.root or parent.id, **spec)

    async def test_families_are_found(self, lab: Lab) -> None:
        root = await lab.running(await lab.worker(), "root")
        child, other = await self.child(lab, root), await self.child(lab, root, tags=("x",))
        grandchild = await self.child(lab, child)

        async def found(**wanted: Any) -> list[UUID]:
            return [job.id for job in (await lab.engine.records.find(Filter(**wanted), lab.now)).items]

        assert await found(parent=root.id) == [other.id, child.id]
        assert await found(parent=child.id) == [grandchild.id]
        assert await found(root=root.id) == [grandchild.id, other.id, child.id]
        assert await found(root=root.id, tag="x") == [other.id]
        assert await found(parent=grandchild.id) == []
        assert await found(parent=root.id, status=frozenset({Status.FAILED})) == []

    async def test_a_cancel_reaches_the_whole_subtree(self, lab: Lab, worker: UUID) -> None:
        root = await lab.running(worker, "root")
        child = await lab.running(worker, "child", parent=root.id, root=root.id)
        sibling = await self.child(lab, root, "sibling")
        grandchild = await lab.held(worker, "grandchild", parent=child.id, root=root.id)
        leaf = await self.child(lab, grandchild, "leaf", delay=60)
        done = await lab.finish(await lab.running(worker, "done", parent=child.id, root=root.id))
        stranger = await lab.put("stranger")
        await lab.cancel(root)
        await lab.process_notes()
        for held in (child, grandchild):
            asked = await lab.get(held)
            assert (asked.status, asked.cancel_requested_at) == (held.status, lab.now)
        for idle in (sibling, leaf):
            ended = await lab.get(idle)
            assert (ended.status, ended.reason) == (Status.CANCELLED, Reason.PARENT)
        for untouched in (done, stranger):
            assert await lab.get(untouched) == untouched
        events = (await lab.engine.records.history(leaf.id)).events
        assert [event.verb for event in events] == ["cancel"]

    async def test_a_cancel_reaches_the_descendants_of_children_that_have_ended(self, lab: Lab, worker: UUID) -> None:
        root = await lab.running(worker, "root")
        branch = await lab.running(worker, "branch", parent=root.id, root=root.id)
        twig = await lab.running(worker, "twig", parent=branch.id, root=root.id)
        leaf = await self.child(lab, twig, "leaf")
        held = await lab.running(worker, "held", parent=twig.id, root=root.id)
        done, failed = await lab.finish(branch), await lab.finish(twig, GIVES_UP)
        await lab.cancel(root)
        await lab.process_notes()
        assert (await lab.get(leaf)).reason is Reason.PARENT
        assert (await lab.get(held)).cancel_requested_at == lab.now
        assert [await lab.get(job) for job in (done, failed)] == [done, failed]
        assert await lab.process_notes() == []

    async def test_a_cancel_reaches_no_ancestor(self, lab: Lab, worker: UUID) -> None:
        root = await lab.running(worker, "root")
        child = await lab.running(worker, "child", parent=root.id, root=root.id)
        leaf = await self.child(lab, child, "leaf")
        await lab.cancel(child)
        await lab.process_notes()
        assert await lab.get(root) == root
        assert (await lab.get(leaf)).status is Status.CANCELLED

    async def test_a_cancel_that_was_taken_back_before_it_was_told_reaches_nobody(self, lab: Lab, worker: UUID) -> None:
        asked = await lab.running(worker, "root")
        before = await self.child(lab, asked, "before")
        ended = await lab.finish(await lab.cancel(asked), Failed(error=OOPS))
        assert ended.status is Status.CANCELLED
        retried = await lab.do(actions.retry(ended, lab.now))
        after = await self.child(lab, retried, "after")
        assert await lab.process_notes() == []
        assert [await lab.get(child) for child in (before, after)] == [before, after]

    async def test_a_cancel_reaches_a_thousand_descendants(self, lab: Lab, worker: UUID) -> None:
        root = await lab.running(worker, "root")
        middle = [await lab.running(worker, f"m{n}", parent=root.id, root=root.id) for n in range(10)]
        leaves = [lab.job("leaf", parent=middle[n % 10].id, root=root.id) for n in range(990)]
        await lab.put_all(*leaves)
        await lab.cancel(root)
        rounds, more = 0, True
        while more:
            more, rounds = (await lab.engine.families.process_notes(lab.now)).more, rounds + 1
        # Two levels below the root: each costs one round at most, beside the one that finds no more.
        assert rounds <= 3
        assert all(one.cancel_requested_at is not None for one in [await lab.get(job) for job in middle])
        statuses = [job.status for job in await lab.engine.jobs.get([leaf.id for leaf in leaves]) if job is not None]
        assert statuses == [Status.CANCELLED] * 990

    async def test_only_a_cancel_reaches_the_children(self, lab: Lab, worker: UUID) -> None:
        endings: list[Ending] = [Completed("1"), GIVES_UP, Failed(error=OOPS)]
        for n, ending in enumerate(endings):
            parent = await lab.running(worker, f"p{n}")
            child = await self.child(lab, parent, f"c{n}")
            await lab.finish(parent, ending)
            assert await lab.process_notes() == []
            assert await lab.get(child) == child
            # Also after its end a job may get children.
            assert (await self.child(lab, parent, f"c{n}")).status is Status.QUEUED

    @pytest.mark.parametrize("asked", [True, False])
    async def test_a_cancelled_job_gets_no_more_children(self, lab: Lab, asked: bool) -> None:
        parent = await lab.cancel(await lab.running(await lab.worker(), "p") if asked else await lab.put("p"))
        child = lab.job("child", parent=parent.id, root=parent.id)
        other = lab.job("other")
        refused, fine = await lab.insert(child, other)
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, TransitionRefused)
        assert str(parent.id) in str(refused.error)
        assert isinstance(fine, Inserted)
        assert await lab.gone(child)
        assert (await lab.engine.records.ledger()).accepted == 2

    async def test_no_child_comes_between_a_cancel_and_its_children(self, lab: Lab) -> None:
        worker = await lab.worker()
        async with opened(lab.make() if self.durable else lab.engine.another_session()) as [other]:
            for n in range(10):
                parent = await lab.running(worker, f"p{n}")
                children = [lab.job("child", parent=parent.id, root=parent.id) for _ in range(5)]
                cancel = actions.cancel(parent, lab.now, lab.rules)
                assert cancel is not None
                answers, _ = await asyncio.gather(
                    other.jobs.insert(children, lab.now), lab.engine.jobs.apply([lab.stamp(cancel)], lab.now)
                )
                await lab.process_notes()
                for child, answer in zip(children, answers, strict=True):
                    if isinstance(answer, Inserted):
                        assert (await lab.get(child)).status is Status.CANCELLED
                    else:
                        assert isinstance(answer, Refused)

    @pytest.mark.parametrize("end", [Completed("1"), GIVES_UP, None])
    async def test_a_child_is_kept_while_its_parent_may_look_for_it(self, lab: Lab, end: Ending | None) -> None:
        worker = await lab.worker()
        parent = await lab.running(worker, "parent")
        tagged = {"tags": ("x", "p-no-id"), "batch": None}
        child = await lab.finish(await lab.running(worker, "child", parent=parent.id, root=parent.id, **tagged))
        alone = await lab.finish(await lab.running(worker, "alone", **tagged))
        if end is not None:
            lab.later(1)
            parent = await lab.finish(parent, end)
        # Completed jobs are kept for less long than failed ones.
        week = {Status.COMPLETED: lab.at(-1 if end else 0), Status.FAILED: lab.at(-9), Status.CANCELLED: lab.at(-9)}
        completed = isinstance(end, Completed)
        assert await lab.engine.jobs.delete(week) == (2 if completed else 1)
        assert await lab.gone(alone)
        assert await lab.gone(child) == completed
        # But no longer than that.
        month = dict.fromkeys((Status.COMPLETED, Status.FAILED, Status.CANCELLED), lab.at(-1 if end else 0))
        assert await lab.engine.jobs.delete(month) == (0 if completed else 1)
        assert await lab.gone(child)
        assert not await lab.gone(parent)

    async def test_a_parent_that_is_gone_was_not_cancelled(self, lab: Lab) -> None:
        gone = lab.job("gone")
        assert isinstance((await lab.insert(lab.job("child", parent=gone.id, root=gone.id)))[0], Inserted)

    async def test_a_cancel_reaches_the_children_of_one_that_was_pruned_meanwhile(self, lab: Lab, worker: UUID) -> None:
        root, grown = await lab.running(worker, "root"), await lab.running(worker, "grown")
        child, other = await self.child(lab, root), await self.child(lab, grown)
        below = await self.child(lab, child)
        asked = await lab.cancel(root)
        await lab.finish(asked)
        lab.later(1)
        assert await lab.engine.jobs.delete(dict.fromkeys(ENDED, lab.now)) == 1
        assert [change.job.id for change in await lab.process_notes()] == [child.id]
        assert [(await lab.get(one)).status for one in (child, other)] == [Status.CANCELLED, Status.QUEUED]
        assert (await lab.get(below)).status is Status.QUEUED, "no worker ever had the child: it has none of its own"

    async def test_children_outlive_their_parent_and_its_next_child(self, lab: Lab) -> None:
        parent = await lab.finish(await lab.running(await lab.worker(), "parent"))
        elder = await self.child(lab, parent, "elder")
        assert await lab.engine.jobs.delete({Status.COMPLETED: lab.now}) == 1
        younger = await self.child(lab, parent, "younger")
        for child in (elder, younger):
            await lab.cancel(child)
            assert await lab.engine.jobs.delete({Status.CANCELLED: lab.now}) == 1
            assert await lab.gone(child)
