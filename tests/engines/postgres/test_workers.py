"""Beats of many workers in one statement, and what becomes of their jobs before the second one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest

from headrace.conformance.lab import Lab
from headrace.core.job import Job
from headrace.core.lifecycle.execution import release
from headrace.engine import Alive, Beat
from headrace.engines.postgres.workers import Workers


async def test_a_job_that_went_from_one_to_the_other_between_the_statements_is_unknown_to_neither(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await lab.worker(), await lab.worker()
    await lab.put()
    [job] = await lab.claim(one)
    kept = await lab.running(two, "kept", timeout=None)
    lab.later(2 * lab.rules.beat)
    workers, given = lab.engine.workers, list[Job]()
    assert isinstance(workers, Workers)
    unknown = workers._unknown

    async def between(forgotten: Mapping[UUID, Sequence[UUID]]) -> dict[UUID, list[Job]]:
        await lab.do(release(job, lab.now))
        given.extend(await lab.claim(two))
        return await unknown(forgotten)

    monkeypatch.setattr(workers, "_unknown", between)
    answers = await workers.beat_many({one: Beat(), two: Beat()}, lab.now)
    assert [one.id for one in given] == [job.id]
    told = {worker: answer.unknown for worker, answer in answers.items() if isinstance(answer, Alive)}
    assert told == {one: (), two: (kept,)}
