"""What an App finds: jobs by filters, counted, and failures in groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace import Retry
from headrace.client.api.filters import filter_of
from headrace.core.query import Filter
from headrace.core.status import Reason, Status
from headrace.engines.sql.search import finder
from headrace.errors import ConfigError
from tests.support.apps import ENGINES, Sums, url_of

pytestmark = pytest.mark.every_engine

NOW = datetime(2030, 1, 1, tzinfo=UTC)
ID = UUID(int=7)


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_filters_find_and_count_the_same(sums: Sums) -> None:
    app, begin = sums.app, datetime.now(UTC) - timedelta(minutes=1)
    first = await sums.add.options(customer="ann").submit(1)
    second = await sums.multiply.options(customer="bob").submit(2, 3)
    lost = await sums.fail.options(retry=Retry(0)).submit("ann")
    await app.worker(burst=True).run()
    again = await app.jobs.handle(first.id).rerun()
    [failed] = (await app.jobs.list(status="failed")).items
    cases: list[tuple[dict[str, Any], list[UUID]]] = [
        ({}, [again.id, lost.id, second.id, first.id]),
        ({"task": ["add", "multiply"]}, [again.id, second.id, first.id]),
        ({"queue": "slow"}, [second.id]),
        ({"customer": ("ann", "bob")}, [again.id, second.id, first.id]),
        ({"customer": "bob"}, [second.id]),
        ({"reason": "retries_exhausted"}, [lost.id]),
        ({"reason": [Reason.TIMEOUT, Reason.USER]}, []),
        ({"rerun_of": str(first.id)}, [again.id]),
        ({"fingerprint": failed.fingerprint}, [lost.id]),
        ({"worker": ID}, []),
        ({"created_after": begin, "task": "add"}, [again.id, first.id]),
        ({"created_before": begin}, []),
        ({"finished_after": begin, "status": "completed"}, [second.id, first.id]),
        ({"finished_before": begin}, []),
        ({"task": None, "status": []}, [again.id, lost.id, second.id, first.id]),
    ]
    for filters, ids in cases:
        assert [job.id for job in (await app.jobs.list(**filters)).items] == ids, filters
        assert await app.jobs.count(**filters) == len(ids), filters


async def test_failures_are_grouped_by_task_type_and_place(sums: Sums) -> None:
    app = sums.app
    for n in range(3):
        await sums.fail.options(retry=Retry(0)).submit(f"number {n}")
    waits = await sums.fail.options(retry=Retry(1, initial=3600)).submit("later")
    await app.worker(burst=True).run()
    [group] = await app.jobs.failures()
    assert (group.task, group.type, group.jobs, group.failed) == ("fail", "ValueError", 4, 3)
    assert (group.place, group.message, group.example) == ("apps.py:fail", "later", waits.id)
    assert group.first_seen <= group.last_seen <= datetime.now(UTC)
    assert await app.jobs.count(fingerprint=str(group.fingerprint)) == 4
    for job in (await app.jobs.list(fingerprint=str(group.fingerprint), status="failed")).items:
        await app.jobs.handle(job.id).discard()
    [left] = await app.jobs.failures()
    assert (left.fingerprint, left.jobs, left.failed) == (group.fingerprint, 1, 0)
    [put_away] = await app.jobs.failures(status="cancelled")
    assert put_away.jobs == 3
    assert await app.jobs.failures(task="add") == []
    [last] = await app.jobs.failures(status="cancelled", among=2)
    assert last.jobs == 2
    with pytest.raises(ConfigError, match="among must be a whole number from 1 to"):
        await app.jobs.failures(among=0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"status": "done"}, "'done' is no status: statuses are pending"),
        ({"reason": ["timeout", "late"]}, "'late' is no reason: reasons are"),
        ({"task": []}, "task: name 1 to 100 values, or leave it out; there are 0"),
        ({"task": 5}, "task must be text, not 5"),
        ({"customer": ["a", 1]}, "customer must be text, not 1"),
        ({"tag": ["a", "b"]}, "tag must be text"),
        ({"parent": 3}, "parent must be an id"),
        ({"created_after": "2h"}, "created_after must be a datetime, not '2h'"),
        ({"created_after": NOW.replace(tzinfo=None)}, "must say its offset"),
        ({"finished_after": NOW, "finished_before": NOW}, "finished_before must be later than finished_after"),
        ({"queue": [str(n) for n in range(101)]}, "there are 101"),
    ],
)
def test_what_no_job_could_have_is_refused_kindly(given: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        filter_of(given)
    assert told in str(refused.value)


def test_an_unknown_filter_is_named() -> None:
    with pytest.raises(TypeError, match=r"there is no filter 'colour': they are status, reason"):
        filter_of({"colour": "red"})  # type: ignore[typeddict-unknown-key]


def test_one_value_is_as_good_as_several() -> None:
    assert filter_of({"status": "failed", "worker": str(ID), "suspect": True}) == Filter(
        status=frozenset({Status.FAILED}), worker=frozenset({ID}), suspect=True
    )


async def test_a_page_by_text_may_be_short_and_says_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finder, "MAX_TEXT_CANDIDATES", 3)
    made = Sums(url_of("sqlite", tmp_path))
    async with made.app as app:
        needle = await made.fail.submit("needle")
        for n in range(7):
            await made.add.submit(n)
        pages, cursor = [], None
        while True:
            page = await app.jobs.list(text="needle", cursor=cursor)
            pages.append([job.id for job in page.items])
            if (cursor := page.cursor) is None:
                break
        assert pages == [[], [], [needle.id]]
        assert await app.jobs.count(text="needle") == 1
