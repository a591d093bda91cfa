from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.client.api import positions as module
from headrace.client.api.positions import places
from headrace.core.explain.position import Position
from headrace.core.job import Job
from headrace.core.updates import Place
from tests.support.apps import ENGINES, Sums, busy_worker, url_of


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


class Asked:
    """Counts the questions about single jobs."""

    def __init__(self, sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        ask = sums.app.session.engine.records.position

        async def counted(job: Job, *more: object, **options: object) -> Position:
            self.times += 1
            return await ask(job, *more, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(sums.app.session.engine.records, "position", counted)


async def submitted(sums: Sums, count: int) -> list[Job]:
    return [handle.last for handle in await sums.add.map([(n,) for n in range(count)]) if handle.last]


async def test_a_line_that_is_followed_whole_is_told_exactly_by_two_questions(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, asked = await submitted(sums, 100), Asked(sums, monkeypatch)
    found = await places(sums.app.session, list(reversed(jobs)))
    assert [one and one.position for one in reversed(found)] == list(range(1, 101))
    assert asked.times == 2


async def test_gaps_are_asked_about(sums: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = await submitted(sums, 30)
    followed, asked = jobs[:5] + jobs[9:14] + jobs[20:], Asked(sums, monkeypatch)
    found = await places(sums.app.session, followed)
    exact = [jobs.index(one) + 1 for one in followed]
    assert [one and one.position for one in found] == exact
    assert asked.times < len(followed)


async def test_where_none_may_be_left_out_the_rest_is_estimated_in_between(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUE_READS", 4)
    jobs, asked = await submitted(sums, 60), Asked(sums, monkeypatch)
    some = [job for number, job in enumerate(jobs) if number % 3]
    found = await places(sums.app.session, some, all_of_them=True)
    assert asked.times == 4
    exact = [jobs.index(one) + 1 for one in some]
    known = [one.position for one in found if one is not None and one.position is not None]
    assert (known[0], known[-1]) == (exact[0], exact[-1])
    assert len(known) == len(set(known)) == len(some)
    assert all(abs(one - right) <= 1 for one, right in zip(known, exact, strict=True))
    assert [one is not None and one.approximate for one in found].count(False) == 4, "what was not read is marked"


async def test_of_many_with_gaps_those_in_front_are_told_and_the_rest_by_and_by() -> None:
    line, turns, told, asked = list(range(0, 400, 2)), cycle(n / 97 for n in range(97)), set[int](), list[int]()

    async def ask(index: int) -> Place:
        asked.append(index)
        return Place(index + 1)

    for _ in range(40):
        asked.clear()
        found = await module._between(line, ask, lambda: next(turns))  # type: ignore[arg-type]
        known = {index: one.position for index, one in enumerate(found) if one is not None}
        assert all(position == line[index] + 1 for index, position in known.items())
        assert {0, 1, 2, len(line) - 1} <= set(known)
        assert len(asked) <= module.MAX_QUEUE_READS
        told |= set(known)
    assert len(told) > len(line) / 2


async def test_who_is_too_far_behind_has_no_number(sums: Sums) -> None:
    jobs = await submitted(sums, 20)
    found = await places(sums.app.session, jobs, 5)
    assert [one and one.position for one in found] == [*range(1, 7), *[None] * 14]


async def test_a_start_is_estimated_only_if_something_tells(sums: Sums) -> None:
    jobs = await submitted(sums, 3)
    assert [one and one.estimated_start for one in await places(sums.app.session, jobs)] == [None] * 3
    await busy_worker(sums.app.session.engine, "add")
    assert [one and one.estimated_start for one in await places(sums.app.session, jobs)] == [None] * 3
    async with sums.app.worker():
        await jobs_done(sums, jobs)
    more = await submitted(sums, 3)
    found = await places(sums.app.session, more)
    starts = [one.estimated_start for one in found if one is not None and one.estimated_start is not None]
    assert starts == sorted(starts)


async def jobs_done(sums: Sums, jobs: list[Job]) -> None:
    for job in jobs:
        await sums.app.jobs.handle(job.id).result(timeout=30)


async def test_an_expired_job_stands_nowhere(sums: Sums) -> None:
    (job,) = await submitted(sums, 1)
    now = sums.app.host.clock.now()
    (place,) = await places(sums.app.session, [replace(job, not_after=now)])
    assert place is not None
    assert place.position is None
