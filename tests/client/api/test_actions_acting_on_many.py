"""What is done to many jobs through an App."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Retry, Status
from headrace.client import job_set
from headrace.client.api import actions
from headrace.client.api.actions import ActionResult
from headrace.client.api.filters import Filters
from headrace.core.lifecycle.actions import ACTIONS
from headrace.errors import ConfigError, JobNotFound
from tests.support.apps import ENGINES, Sums, url_of


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def each(answers: AsyncGenerator[ActionResult, None]) -> list[ActionResult]:
    return [one async for one in answers]


async def test_a_dry_run_counts_and_each_job_has_its_own_answer(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_set, "ID_PAGE_JOBS", 2)
    app = sums.app
    jobs = [await sums.add.options(delay=3600).submit(n) for n in range(5)]
    other = await sums.multiply.submit(2, 3)
    mine: Filters = {"task": "add"}
    assert await app.jobs.where(**mine).preview("run_now") == await app.jobs.where(**mine).preview("cancel") == 5
    assert await app.jobs.where(**mine).preview("retry") == 0, "without a status, those that the act can begin from"
    assert [one.status for one in (await app.jobs.list(**mine)).items] == [Status.SCHEDULED] * 5, "it only counts"
    answers = await each(app.jobs.where(**mine).postpone(7200, by="ann"))
    assert [one.id for one in answers] == [job.id for job in jobs], "the oldest first"
    assert {one.answer for one in answers} == {"done"}
    assert {one.answer for one in await each(app.jobs.where(**mine).move("late"))} == {"done"}
    assert [one.job.priority for one in await each(app.jobs.where(**mine).reprioritise(9)) if one.job] == [9] * 5
    assert [one.job.status for one in await each(app.jobs.where(queue="late").run_now()) if one.job] == [
        Status.QUEUED
    ] * 5
    ended = await each(app.jobs.where(**mine).resolve(result=7, by="ann"))
    assert [one.job.result for one in ended if one.job] == [7] * 5
    assert len(await each(app.jobs.where(**mine).discard(by="ann"))) == 5
    refused = await each(app.jobs.where(task="add", status="cancelled").retry())
    assert {(one.answer, one.error) for one in refused} == {("refused", "TransitionRefused")}
    assert all(one.job and str(one.id) in str(one.message) for one in refused)
    again = await each(app.jobs.where(**mine).rerun(priority=3, by="ann"))
    assert [one.job.rerun_of for one in again if one.job] == [job.id for job in jobs]
    assert {one.answer for one in await each(app.jobs.where(queue="late").cancel())} == {"done"}
    assert (await other.refresh()).status is Status.QUEUED
    events = (await app.jobs.history(jobs[0].id)).events
    assert [(event.verb, event.by) for event in events if event.by] == [
        ("postpone", "ann"),
        ("resolve", "ann"),
        ("discard", "ann"),
        ("rerun", "ann"),
    ]


async def test_a_job_that_moved_on_is_left_alone(sums: Sums) -> None:
    first, second = await sums.add.submit(1), await sums.add.submit(2)
    filter: Filters = {"task": "add", "queue": "default"}
    answers = sums.app.jobs.where(**filter).cancel()
    assert (await anext(answers)).id == first.id
    await second.move("slow")
    assert (left := await anext(answers)).answer == "refused"
    assert "no longer among those that were chosen" in str(left.message)
    assert (await second.refresh()).status is Status.QUEUED
    await each(answers)


async def test_what_need_not_be_done_is_done(sums: Sums) -> None:
    """A cancel of a job reaches those that wait for it before its own turn comes."""
    first = await sums.add.options(delay=3600).submit(1)
    await sums.add.options(after=[first]).submit(2)
    assert [one.answer for one in await each(sums.app.jobs.where(task="add").cancel())] == ["done", "done"]


async def test_what_is_gone_and_what_does_not_fit_are_answers_too(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    await sums.add.submit(1)
    good = await sums.multiply.submit(1, 2)
    answers = await each(sums.app.jobs.where(status="queued").resolve(result="no number"))
    assert {one.error for one in answers} == {"InvalidResult"}
    filter: Filters = {"task": "multiply"}

    async def gone(app: Any, id: Any, *rest: Any) -> Any:
        raise JobNotFound(id)

    monkeypatch.setattr(actions, "act", gone)
    [lost] = await each(sums.app.jobs.where(**filter).cancel())
    assert (lost.id, lost.answer, lost.job) == (good.id, "not_found", None)


async def test_a_key_that_another_holds_is_a_refusal_of_that_job(sums: Sums) -> None:
    job = await sums.fail.options(retry=Retry(0), dedup="k").submit("ann")
    await sums.app.worker(burst=True).run()
    await sums.fail.options(dedup="k", delay=3600).submit("bob")
    [one] = await each(sums.app.jobs.where(status="failed").retry())
    assert (one.id, one.answer, one.error) == (job.id, "refused", "Duplicate")
    assert one.job is not None
    assert one.job.id == job.id


async def test_without_a_filter_nothing_is_done(sums: Sums) -> None:
    job = await sums.add.submit(1)
    with pytest.raises(ConfigError, match="needs a filter"):
        await each(sums.app.jobs.where().cancel())
    with pytest.raises(ConfigError, match="nothing that can be done to jobs: cancel, retry"):
        await sums.app.jobs.where(task="add").preview("claim")
    assert (await job.refresh()).status is Status.QUEUED


def test_every_act_is_there_for_many_jobs() -> None:
    for verb in ACTIONS:
        assert callable(getattr(job_set.JobSet, verb.value))
