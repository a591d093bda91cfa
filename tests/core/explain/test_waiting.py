"""Whom a job waits for, and whose end became its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.explain.waiting import relatives
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.actions import cancel
from headrace.core.lifecycle.family import cancel_child, release
from headrace.core.lifecycle.submission import submit
from headrace.core.status import Reason, Status
from tests.core.explain.test_job import NOW, RULES, told

A, B, C = (UUID(int=number) for number in (0xA, 0xB, 0xC))


def parent(id: UUID, status: Status, **fields: Any) -> Job:
    spec = Spec(task="resize", created_at=NOW)
    return replace(submit(id, spec, "{}", NOW), status=status, **fields)


def montage(*after: UUID, **options: Any) -> Job:
    spec = Spec(task="montage", created_at=NOW, after=after, **options)
    return submit(UUID(int=1), spec, "{}", NOW, waits=len(after))


def test_a_waiting_job_names_those_that_have_not_ended() -> None:
    parents = [parent(A, Status.COMPLETED), parent(B, Status.RUNNING), parent(C, Status.SCHEDULED)]
    found = told(montage(A, B, C), parents=parents)
    assert str(found) == (
        f"It waits for 2 of 3 jobs: resize {B} (running), resize {C} (queued);"
        " it goes on when all have succeeded, and is cancelled if one does not."
    ), "who is due is seen as queued"
    assert found.facts[0].data == {
        "jobs": 2,
        "of": 3,
        "waits_for": [
            {"id": B, "task": "resize", "status": "running"},
            {"id": C, "task": "resize", "status": "queued"},
        ],
    }


def test_a_customer_is_told_of_its_own_alone() -> None:
    jobs = {A: "ann", B: "bob", C: None}
    parents = [
        replace(job, spec=replace(job.spec, customer=jobs[job.id]))
        for job in (parent(A, Status.RUNNING), parent(B, Status.RUNNING), parent(C, Status.FAILED))
    ]
    found = told(montage(A, B, after_when="ended"), parents=parents, to="ann")
    assert f"It waits for 2 of 2 jobs: resize {A} (running), a job of somebody else; it goes on" in found
    assert found.facts[0].data["waits_for"] == [
        {"id": A, "task": "resize", "status": "running"},
        {"id": B, "task": None, "status": None},
    ]
    failed = told(montage(A, C), parents=parents, to="ann")
    assert str(failed) == "It is about to be cancelled: a job of somebody else did not succeed."


def test_what_it_asks_of_them() -> None:
    running = [parent(A, Status.RUNNING)]
    any_end = told(montage(A, after_when="ended"), parents=running)
    assert str(any_end) == f"It waits for 1 job: resize {A} (running); it goes on when that has ended, however."
    fails = told(montage(A, on_parent_failure="fail"), parents=running)
    assert "it goes on when that has succeeded, and fails if it does not." in fails


def test_many_are_not_all_named_but_all_told() -> None:
    ids = [UUID(int=100 + number) for number in range(8)]
    found = told(montage(*ids), parents=[parent(id, Status.QUEUED) for id in ids])
    assert found.startswith("It waits for 8 of 8 jobs: ")
    assert f"resize {ids[4]} (queued) and 3 more; it goes on" in found
    assert len(found.facts[0].data["waits_for"]) == 8


def test_before_what_follows_was_done() -> None:
    done, failed = parent(A, Status.COMPLETED), parent(B, Status.FAILED)
    assert str(told(montage(A), parents=[done])) == "The job it waited for ended as asked: it is about to go on."
    both = told(montage(A, B, after_when="ended"), parents=[done, failed])
    assert str(both) == "All 2 jobs it waited for ended as asked: it is about to go on."
    bad = told(montage(A, B), parents=[done, failed])
    assert str(bad) == f"It is about to be cancelled: resize {B} (failed) did not succeed."
    gone = told(montage(A, on_parent_failure="fail"))
    assert str(gone) == f"It is about to fail: {A} (gone) did not succeed."


def test_it_expires_while_it_waits() -> None:
    job = replace(montage(A), not_after=NOW + timedelta(minutes=1))
    assert told(job, parents=[parent(A, Status.RUNNING)]).codes == ("waiting", "expires")


def test_a_job_that_ended_with_another_names_it() -> None:
    parents = [parent(A, Status.COMPLETED), parent(B, Status.FAILED)]
    for options, codes in (
        ({}, ("cancelled", "parent")),
        ({"on_parent_failure": "fail"}, ("failed", "error", "parent", "remedy")),
    ):
        change = release(montage(A, B, **options), [one.status for one in parents], NOW)
        assert change is not None
        found = told(change.job, parents=parents)
        assert found.codes == codes
        assert told(change.job, parents=parents[1:]) == found, "who is gone may have succeeded"
        assert f"It waited for {A} (gone), {B} (gone), which" in told(change.job)
        assert f"It waited for resize {B} (failed), which did not succeed." in found
        [fact] = [one for one in found.facts if one.code == "parent"]
        assert fact.data == {"parents": [{"id": B, "task": "resize", "status": "failed"}]}


def test_a_child_of_a_cancelled_job_names_its_parent() -> None:
    child = submit(UUID(int=2), Spec(task="part", created_at=NOW, parent=A), "{}", NOW)
    change = cancel_child(child, NOW, RULES)
    assert change is not None
    assert relatives(change.job) == (A,)
    for submitter in (parent(A, Status.CANCELLED), parent(A, Status.RUNNING, cancel_requested_at=NOW)):
        found = told(change.job, parents=[submitter])
        assert found.codes == ("cancelled", "parent")
        assert f"The job that submitted it, resize {A} ({submitter.status}), was cancelled" in found
    sibling = replace(change.job, spec=replace(child.spec, after=(B,)))
    both = told(sibling, parents=[parent(A, Status.CANCELLED), parent(B, Status.CANCELLED)])
    assert f"The job that submitted it, resize {A} (cancelled), was cancelled" in both
    assert told(change.job).codes == ("cancelled",), "nobody is blamed who is not known"


def test_parents_are_looked_up_only_where_they_matter() -> None:
    job = montage(A, B, parent=C)
    assert relatives(job) == (A, B, C)
    assert relatives(replace(job, status=Status.QUEUED)) == ()
    ended = cancel(job, NOW, RULES)
    assert ended is not None
    assert relatives(ended.job) == ()
    assert relatives(replace(ended.job, reason=Reason.PARENT)) == (A, B, C)
