"""Search: jobs by filters of all kinds, counted and grouped by their errors, as the core computes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.conformance.lab import Choices, Lab, Part
from headrace.core.attempt import Completed, ErrorInfo, Failed
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.retry import Retry
from headrace.core.query import Filter, as_seen, matches
from headrace.core.stats.failures import fingerprint, grouped
from headrace.core.status import Cause, Reason, Status

__all__ = ["Finding", "agrees", "populate", "wish"]

TASKS, QUEUES, CUSTOMERS = ("a", "b", "c"), ("q", "r"), ("ann", "bob")
ERRORS = tuple(
    ErrorInfo(type, f"{type} {n}", f'Traceback (most recent call last):\n  File "/srv/app/{file}", line {n}, in work\n')
    for n, (type, file) in enumerate((("ValueError", "mail.py"), ("ValueError", "post.py"), ("KeyError", "mail.py")))
)


async def populate(lab: Lab, choose: Choices, size: int = 60) -> list[Job]:
    """Store jobs of all kinds; return them in order."""
    worker, jobs = await lab.worker(), list[UUID]()
    for n in range(size):
        lab.later(choose(0, 1, 60, 3600))
        spec: dict[str, Any] = {
            "queue": choose(*QUEUES),
            "customer": choose(None, *CUSTOMERS),
            "tags": choose((), ("x",), ("x", "y")),
            "rerun_of": choose(None, None, jobs[0] if jobs else None),
            "retry": Retry(1, backoff="fixed", initial=choose(1.0, 1e6), cap=1e6),
        }
        job = lab.job(
            choose(*TASKS), delay=choose(0, 0, 0, 50, 1e7), payload=choose('{"k":"Red"}', '{"k":"blue"}'), **spec
        )
        if n % 9 == 0:  # from a clock that is behind
            job = replace(job, spec=replace(job.spec, created_at=lab.now - timedelta(seconds=7200)))
        [job] = await lab.put_all(replace(job, suspect=choose(0, 0, 0, 1)))
        jobs.append(job.id)
        if n % 3:
            [*held] = await lab.claim(worker, 1)
            for one in held:
                await _go_on(lab, one, choose)
    for id in jobs[::8]:
        job = await lab.get(id)
        if job.status in (Status.FAILED, Status.COMPLETED):
            await lab.do(actions.discard(job, lab.now))
        elif not job.ended:
            await lab.cancel(job)
    return [await lab.get(id) for id in jobs]


async def _go_on(lab: Lab, job: Job, choose: Choices) -> None:
    """Let a held job go on, to a random status."""
    how = choose("held", "fail", "fail", "fail", "give up", "complete", "complete")
    if how == "held":
        return
    job = await lab.start(job)
    lab.later(choose(0, 5, 1000))
    if how == "complete":
        await lab.finish(job, Completed("1"))
    else:
        reason = choose(Reason.NON_RETRYABLE, Reason.INVALID_RESULT) if how == "give up" else None
        await lab.finish(job, Failed(error=choose(*ERRORS), reason=reason))


def wish(lab: Lab, choose: Choices, jobs: list[Job]) -> Filter:
    """Return a filter of a few fields."""
    some = choose(*jobs)
    moments = [choose(*jobs).created_at for _ in range(3)]
    ends = [one.finished_at for one in jobs if one.finished_at is not None] or [lab.now]
    fields: dict[str, Any] = {
        "status": choose(
            frozenset({some.status}), frozenset({Status.QUEUED, Status.FAILED}), frozenset({Status.COMPLETED})
        ),
        "reason": choose(frozenset({Reason.NON_RETRYABLE}), frozenset({Reason.USER, Reason.RETRIES_EXHAUSTED})),
        "task": choose(frozenset({"a"}), frozenset({"a", "c"}), frozenset({"none"})),
        "queue": choose(frozenset({"q"}), frozenset({"q", "r"})),
        "customer": choose(frozenset({"ann"}), frozenset({"bob", "ann"}), frozenset({"none"})),
        "worker": frozenset({choose(*jobs).worker or lab.new_id()}),
        "fingerprint": frozenset({choose(*jobs).fingerprint or "none", choose(*jobs).fingerprint or "none"}),
        "rerun_of": choose(jobs[0].id, jobs[1].id),
        "tag": choose("x", "y"),
        "text": choose("RED", "mail", "lu"),
        "suspect": True,
        "created_after": min(moments[:2]),
        "created_before": moments[2],
        "finished_after": choose(*ends),
        "finished_before": choose(*ends),
    }
    names = {choose(*fields) for _ in range(choose(1, 1, 2, 2, 3))}
    return Filter(**{name: value for name, value in fields.items() if name in names})


async def agrees(lab: Lab, filter: Filter, jobs: list[Job], limit: int = 7) -> None:
    """Assert that an engine's results are what the core computes for these jobs, which are in order."""
    here = [job for job in reversed(jobs) if matches(job, filter, lab.now)]
    found, cursor = list[Job](), None
    while True:
        page = await lab.engine.records.find(filter, lab.now, limit, cursor)
        assert len(page.items) <= limit
        found += page.items
        if (cursor := page.cursor) is None:
            break
    assert found == [as_seen(job, lab.now) for job in here], filter
    assert await lab.engine.records.count_matching(filter, lab.now) == len(here), filter
    for most in (1, 3, len(jobs) + 1):
        assert await lab.engine.records.count_matching(filter, lab.now, most) == min(most, len(here)), (filter, most)
    for among in (None, 0, 3, len(jobs)):
        found_alike = await lab.engine.records.failures(filter, lab.now, 5, among)
        assert found_alike == grouped(here, 5, among), (filter, among)


class Finding(Part):
    """What searches promise: they agree with ``core.query.matches``, page by page."""

    @pytest.mark.parametrize("seed", range(3))
    async def test_every_search_agrees_with_the_core(self, lab: Lab, seed: int) -> None:
        choose = Choices(seed)
        jobs = await populate(lab, choose)
        await agrees(lab, Filter(), jobs)
        for _ in range(40):
            await agrees(lab, wish(lab, choose, jobs), jobs)

    async def test_a_range_has_its_beginning_in_it_and_not_its_end(self, lab: Lab) -> None:
        first = await lab.put("other")
        moment = lab.later(1)
        second = await lab.stand(Status.COMPLETED, "work")
        records = lab.engine.records
        later = moment + timedelta(microseconds=1)
        for filter, found in (
            (Filter(created_after=moment), (second,)),
            (Filter(created_before=moment), (first,)),
            (Filter(created_after=moment, created_before=later), (second,)),
            (Filter(created_after=later), ()),
            (Filter(finished_after=moment), (second,)),
            (Filter(finished_before=moment), ()),
            (Filter(finished_after=moment, finished_before=later), (second,)),
            (Filter(finished_after=later), ()),
        ):
            assert (await records.find(filter, moment)).items == found

    async def test_a_worker_is_asked_for_what_it_has_now(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker)
        mine = Filter(worker=frozenset({worker, lab.new_id()}))
        assert (await lab.engine.records.find(mine, lab.now)).items == (job,)
        await lab.finish(job, Completed("1"))
        assert (await lab.engine.records.find(mine, lab.now)).items == ()

    async def test_an_error_has_a_fingerprint_until_the_job_completes(self, lab: Lab) -> None:
        worker, error = await lab.worker(), ERRORS[0]
        job = await lab.running(worker, retry=Retry(initial=10, jitter=False))
        job = await lab.finish(job, Failed(error=error))
        print_ = fingerprint("work", error)
        same = Filter(fingerprint=frozenset({str(print_)}))
        assert (job.status, job.fingerprint) == (Status.RETRYING, print_)
        lab.later(20)
        [job] = await lab.claim(worker)
        for started in (False, True):
            job = await lab.start(job) if started else job
            assert job.fingerprint == print_
            assert (await lab.engine.records.find(same, lab.now)).items == (job,)
        [group] = await lab.engine.records.failures(Filter(), lab.now)
        assert (group.fingerprint, group.jobs, group.failed, group.example) == (print_, 1, 0, job.id)
        assert (group.task, group.type, group.place) == ("work", "ValueError", "mail.py:work")
        job = await lab.finish(job, Completed("1"))
        assert job.fingerprint is (await lab.get(job)).fingerprint is None
        assert (await lab.engine.records.find(same, lab.now)).items == ()
        assert await lab.engine.records.failures(Filter(), lab.now) == []

    async def test_an_act_does_not_change_when_a_failure_was_seen(self, lab: Lab, worker: UUID) -> None:
        job = await lab.running(worker, retry=Retry(initial=1000, jitter=False))
        job = await lab.finish(job, Failed(error=ERRORS[0]))
        seen = lab.now
        lab.later(30)
        deeds: tuple[Callable[[Job], Change | None], ...] = (
            lambda job: actions.reprioritise(job, 99, lab.now),
            lambda job: actions.cancel(job, lab.now, lab.rules),
            lambda job: actions.retry(job, lab.now),
        )
        for act in deeds:
            job = await lab.do(act(job))
            lab.later(1000)
            assert (await lab.get(job)).failed_at == job.failed_at == seen
            [group] = await lab.engine.records.failures(Filter(), lab.now)
            assert (group.first_seen, group.last_seen) == (seen, seen)
        [job] = await lab.claim(worker)
        job = await lab.finish(await lab.start(job), Failed(error=ERRORS[0]))
        [group] = await lab.engine.records.failures(Filter(), lab.now)
        assert group.first_seen == group.last_seen == lab.now > seen, "it failed once more"

    async def test_a_job_is_found_in_the_line_it_was_moved_to(self, lab: Lab, worker: UUID) -> None:
        jobs = await lab.put_all(*(lab.job("abc"[n % 3]) for n in range(9)))
        [held] = await lab.claim(worker, 1)
        moved = await lab.do(lose(await lab.start(held), Cause.LEASE, lab.now, 0.5, lab.rules))
        assert moved.suspect
        here = [moved if job.id == moved.id else job for job in jobs]
        await agrees(lab, Filter(task=frozenset({moved.task})), here)
        await agrees(lab, Filter(queue=frozenset({"default"}), suspect=True), here)
